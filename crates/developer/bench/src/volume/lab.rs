//! The subjects of measurements: processes, the load on them, and the resources they used.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::SPAN;
use crate::process;

const SIZE: &str = "1GiB";
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of a volume, with all its processes.
#[derive(Debug)]
pub(crate) struct VolumeServer {
    child: Child,
    /// The program and the directory of a volume; none for qemu-nbd.
    volume: Option<(PathBuf, PathBuf)>,
    socket: PathBuf,
    /// Where guests connect.
    pub(super) vhost: PathBuf,
}

/// A load of fio.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) rw: &'static str,
    pub(crate) block: &'static str,
    pub(crate) depth: u32,
    /// Once over everything, if nothing is said.
    pub(crate) seconds: Option<u32>,
}

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    pub(crate) max_micros: f64,
    /// Of all processes of the server, for each request.
    pub(crate) cpu_micros: f64,
}

impl VolumeServer {
    /// qemu-nbd on a raw file, as it comes.
    pub(crate) fn qemu(dir: &Path) -> Result<Self> {
        let (image, socket) = (dir.join("raw"), dir.join("qemu.sock"));
        let file = std::fs::File::create(&image)?;
        file.set_len(1 << 30)?;
        let child = Command::new("qemu-nbd")
            .args(["-f", "raw", "-t", "-e", "8", "-k"])
            .arg(&socket)
            .arg(&image)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start qemu-nbd; is qemu-utils installed?")?;
        Self { child, volume: None, socket, vhost: PathBuf::new() }.up()
    }

    /// A volume of ours. One replica is in the process of the engine, as on a node of a cluster.
    pub(super) fn volume(sheaf: &Path, dir: &Path, replicas: usize) -> Result<Self> {
        let volume = dir.join(format!("volume-{replicas}"));
        let socket = dir.join(format!("volume-{replicas}.sock"));
        let mut command = Command::new(sheaf);
        command.args(["dev", "volume", "--size", SIZE, "--dir"]).arg(&volume);
        let vhost = dir.join(format!("guest-{replicas}.sock"));
        command.arg("--nbd").arg(&socket).args(["--replicas", &replicas.to_string()]);
        command.arg("--vhost").arg(&vhost);
        if replicas == 1 {
            command.arg("--in-process");
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot start {}", sheaf.display()))?;
        Self { child, volume: Some((sheaf.to_owned(), volume)), socket, vhost }.up()
    }

    fn up(mut self) -> Result<Self> {
        let start = Instant::now();
        let uri = self.uri();
        loop {
            let there = Command::new("nbdinfo").arg("--size").arg(&uri).output();
            if there.context("cannot run nbdinfo; is libnbd-bin installed?")?.status.success() {
                return Ok(self);
            }
            ensure!(self.child.try_wait()?.is_none(), "a server ended at once");
            ensure!(start.elapsed() < START_TIMEOUT, "a server did not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    pub(crate) fn fio(&self, load: &Load) -> Result<Sample> {
        fio(&self.uri(), load, || self.cpu())
    }

    /// `sheaf dev volume …` on this volume.
    pub(super) fn ask(&self, args: &[&str]) -> Result<String> {
        let Some((sheaf, dir)) = &self.volume else { bail!("qemu-nbd cannot be asked") };
        let mut command = Command::new(sheaf);
        command.args(["dev", "volume"]).args(args).arg("--dir").arg(dir);
        let output = command.output()?;
        ensure!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Builds a replica up from nothing, and says how long that took.
    pub(super) fn rebuild(&self) -> Result<Duration> {
        let start = Instant::now();
        self.ask(&["rebuild", "2"])?;
        loop {
            let status: Value = serde_json::from_str(&self.ask(&["status", "-o", "json"])?)?;
            let replicas = status["status"]["volume"]["replicas"].as_array();
            let in_sync = |it: &Value| it["state"] == "in-sync";
            if replicas.is_some_and(|all| all.len() == 3 && all.iter().all(in_sync)) {
                return Ok(start.elapsed());
            }
            ensure!(start.elapsed() < START_TIMEOUT * 5, "the rebuild does not end: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.child.id()];
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        pids
    }

    /// CPU time that all its processes have used, user and system.
    pub(super) fn cpu(&self) -> Duration {
        self.pids().into_iter().map(process::cpu).sum()
    }

    /// Resident memory of all its processes in MB, without what they share.
    pub(super) fn memory(&self) -> f64 {
        self.pids().into_iter().map(process::memory).sum()
    }
}

impl Drop for VolumeServer {
    fn drop(&mut self) {
        // Ours ends its replicas when it is asked to end.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Loads what is served at `uri`; `cpu` is the CPU time so far of all processes that serve it.
pub(crate) fn fio(uri: &str, load: &Load, cpu: impl Fn() -> Duration) -> Result<Sample> {
    let before = cpu();
    let mut fio = Command::new("fio");
    fio.args(["--name=bench", "--ioengine=nbd", "--randrepeat=0", "--norandommap"]);
    fio.arg(format!("--uri={uri}")).arg(format!("--size={SPAN}"));
    fio.arg(format!("--rw={}", load.rw)).arg(format!("--bs={}", load.block));
    fio.arg(format!("--iodepth={}", load.depth)).arg("--output-format=json");
    if let Some(seconds) = load.seconds {
        fio.arg("--time_based").arg(format!("--runtime={seconds}"));
    }
    let output = fio.output().context("cannot run fio; is it installed?")?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
    let used = cpu().saturating_sub(before);
    let text = String::from_utf8(output.stdout)?;
    let start = text.find('{').context("fio said nothing")?;
    let said: Value = serde_json::from_str(&text[start..])?;
    let way = if load.rw.contains("read") { "read" } else { "write" };
    let job = &said["jobs"][0][way];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let percentile = |name: &str| number(&job["clat_ns"]["percentile"][name]) / 1e3;
    let count = number(&job["total_ios"]).max(1.0);
    Ok(Sample {
        iops: number(&job["iops"]),
        p50_micros: percentile("50.000000"),
        p99_micros: percentile("99.000000"),
        max_micros: number(&job["clat_ns"]["max"]) / 1e3,
        cpu_micros: used.as_secs_f64() * 1e6 / count,
    })
}
