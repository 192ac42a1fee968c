//! The cost of an idle storage process, and how soon it serves again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::figures::{Figures, Limit};

const VOLUMES: usize = 20;

pub(super) fn measure(sheaf: &Path, figures: &mut Figures) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("d");
    let mut storage = IdleStorage::start(sheaf, &data)?;
    for index in 0..VOLUMES {
        let volume = storage.ask(&["create", "100GiB"])?;
        let socket = dir.path().join(format!("{index}.sock"));
        storage.ask(&["attach", volume.trim(), "--nbd", &socket.to_string_lossy()])?;
    }
    storage.wait_active()?;
    figures.held(
        format!("storage process with {VOLUMES} idle volumes, memory"),
        storage.memory(),
        "MB",
        Limit::Most(30.0),
    );
    let before = storage.cpu();
    std::thread::sleep(Duration::from_secs(5));
    let share = (storage.cpu() - before).as_secs_f64() / 5.0 * 100.0;
    figures.add(format!("storage process with {VOLUMES} idle volumes, CPU"), share, "%");
    storage.child.kill()?;
    storage.child.wait()?;
    let start = Instant::now();
    storage = IdleStorage::start(sheaf, &data)?;
    storage.wait_active()?;
    let took = start.elapsed().as_secs_f64();
    figures.held(
        format!("{VOLUMES} volumes served again after a kill"),
        took,
        "s",
        Limit::Most(1.0),
    );
    drop(storage);
    Ok(())
}

struct IdleStorage<'a> {
    sheaf: &'a Path,
    dir: &'a Path,
    child: Child,
}

impl<'a> IdleStorage<'a> {
    fn start(sheaf: &'a Path, dir: &'a Path) -> Result<Self> {
        let mut command = Command::new(sheaf);
        command.arg("storage").arg("--dir").arg(dir);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut storage = Self { sheaf, dir, child };
        let start = Instant::now();
        while storage.ask(&["status"]).is_err() {
            ensure!(storage.child.try_wait()?.is_none(), "the storage process ended");
            ensure!(start.elapsed() < Duration::from_secs(60), "it takes no requests");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(storage)
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.sheaf);
        command.arg("storage").args(args).arg("--dir").arg(self.dir);
        let output = command.output().context("cannot run sheaf")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{args:?}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn wait_active(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let status: serde_json::Value =
                serde_json::from_str(&self.ask(&["status", "-o", "json"])?)?;
            let volumes = status["volumes"].as_array().context("volumes are listed")?;
            if volumes.iter().all(|it| it["status"]["phase"] == "active") {
                return Ok(());
            }
            ensure!(start.elapsed() < Duration::from_secs(60), "not all are served: {status}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Resident memory in MB.
    fn memory(&self) -> f64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        kilobytes.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
    }

    fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let after = stat.rsplit(") ").next().unwrap_or("");
        let ticks: u64 =
            after.split(' ').skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for IdleStorage<'_> {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}
