//! The same guest migrated between two QEMUs that were started by hand, over loopback.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::process::{Child, Command};

use super::Migration;
use super::pause::{self, PauseMeter};
use crate::process::free_port;
use crate::qmp::Qmp;

/// As Sheaf has it: no limit of the bandwidth, and KubeVirt's longest pause.
const BANDWIDTH: u64 = 1 << 40;
const DOWNTIME_MILLIS: u64 = 300;
const POLL: Duration = Duration::from_millis(3);

struct Machine {
    qmp: Qmp,
    _child: Child,
}

impl Machine {
    async fn start(dir: &Path, name: &str, memory: u64, incoming: Option<&str>) -> Result<Self> {
        let socket = dir.join(format!("{name}.qmp"));
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-machine", "q35,accel=kvm:tcg", "-nodefaults", "-display", "none"])
            .args(["-m", &memory.to_string()])
            .arg("-drive")
            .arg(format!("file={},format=raw,if=virtio,file.locking=off", disk(dir)))
            .arg("-serial")
            .arg(format!("file:{}", log(dir, name).display()))
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", socket.display()));
        if let Some(address) = incoming {
            command.args(["-incoming", address]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start QEMU")?;
        Ok(Self { qmp: Qmp::open(&socket, &mut child).await?, _child: child })
    }
}

fn disk(dir: &Path) -> String {
    dir.join("disk.img").display().to_string()
}

fn log(dir: &Path, name: &str) -> std::path::PathBuf {
    dir.join(format!("{name}.log"))
}

pub(super) async fn migrate(guest: &[u8], memory: u64) -> Result<Migration> {
    let dir = tempfile::tempdir()?;
    std::fs::write(disk(dir.path()), guest)?;
    let address = format!("tcp:127.0.0.1:{}", free_port()?);
    let mut source = Machine::start(dir.path(), "source", memory, None).await?;
    let _target = Machine::start(dir.path(), "target", memory, Some(&address)).await?;
    pause::until_alive(&log(dir.path(), "source")).await?;
    let limits = json!({"max-bandwidth": BANDWIDTH, "downtime-limit": DOWNTIME_MILLIS});
    source.qmp.execute_with("migrate-set-parameters", limits).await?;
    let meter = PauseMeter::start(log(dir.path(), "source"), log(dir.path(), "target"))?;
    let begun = Instant::now();
    source.qmp.execute_with("migrate", json!({"uri": address})).await?;
    loop {
        let progress = source.qmp.execute("query-migrate").await?;
        match progress["status"].as_str() {
            Some("completed") => break,
            Some("failed" | "cancelled") => anyhow::bail!("the migration failed: {progress}"),
            _ => tokio::time::sleep(POLL).await,
        }
    }
    let took = begun.elapsed();
    let pause = meter.stop().await?;
    ensure!(pause < took, "a pause of {pause:?} is longer than the migration, {took:?}");
    Ok(Migration { took, pause })
}
