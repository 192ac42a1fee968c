//! QEMU started by hand: the command line that Sheaf uses, without Sheaf.
//!
//! Descriptors that Sheaf hands down become sockets and taps that QEMU opens itself. Everything
//! else stays as it is, so that the difference in time is Sheaf's.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::qmp::{Qmp, connect};

/// The command line of one of Sheaf's machines, to be used again.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    arguments: Vec<String>,
    /// The machine's folder and its disk, which get replaced.
    folder: String,
    disk: String,
}

impl Recipe {
    /// The arguments of the only QEMU whose folder lies below `machines`.
    pub(super) fn of_running(machines: &Path, disk: &Path) -> Result<Self> {
        let machines = format!("{}/", machines.display());
        for (_, arguments) in crate::process::processes()? {
            let folder = arguments.iter().find_map(|argument| {
                let uid = argument.strip_prefix(&machines)?.split('/').next()?;
                Some(format!("{machines}{uid}"))
            });
            if let Some(folder) = folder {
                let disk = disk.display().to_string();
                return Ok(Self { arguments, folder, disk });
            }
        }
        bail!("no QEMU of Sheaf's was found")
    }

    /// The same, with files of its own.
    fn adapt(&self, folder: &Path, disk: &Path, tap: &str) -> Vec<String> {
        let adapt = |argument: &String| {
            let argument = argument
                .replace(&self.folder, &folder.display().to_string())
                .replace(&self.disk, &disk.display().to_string());
            let parts = argument.split(',').map(|part| match part.split_once('=') {
                Some(("fd", _)) if argument.starts_with("socket,") => {
                    let id = argument.split(',').find_map(|part| part.strip_prefix("id="));
                    format!("path={}/{}", folder.display(), id.unwrap_or("socket"))
                }
                Some(("fds", _)) if argument.starts_with("tap,") => {
                    format!("ifname={tap},script=no,downscript=no")
                }
                _ => part.to_owned(),
            });
            let parts: Vec<String> = parts.filter(|part| !part.starts_with("vhostfds=")).collect();
            parts.join(",")
        };
        self.arguments.iter().map(adapt).collect()
    }
}

/// The requirements of one start, which are not measured: a folder, a disk, a tap.
#[derive(Debug)]
pub(super) struct BareSetup {
    folder: PathBuf,
    disk: PathBuf,
    tap: String,
}

impl BareSetup {
    pub(super) async fn prepare(
        under: &Path,
        number: usize,
        guest: &[u8],
        tap_prefix: &str,
    ) -> Result<Self> {
        let folder = under.join(format!("bare-{number}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("vm"))?;
        let disk = folder.join("disk.img");
        std::fs::write(&disk, guest)?;
        let tap = format!("{tap_prefix}{number}");
        super::tool("ip", &["tuntap", "add", "dev", &tap, "mode", "tap"]).await?;
        super::tool("ip", &["link", "set", &tap, "up"]).await?;
        Ok(Self { folder, disk, tap })
    }
}

impl Drop for BareSetup {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["link", "del", &self.tap]).status();
    }
}

/// A QEMU that runs.
#[derive(Debug)]
pub(super) struct Bare {
    child: Child,
    qmp: Qmp,
}

impl Bare {
    /// Starts a guest and returns when QEMU says that it runs.
    pub(super) async fn start(recipe: &Recipe, place: &BareSetup) -> Result<Self> {
        let arguments = recipe.adapt(&place.folder, &place.disk, &place.tap);
        let (program, arguments) = arguments.split_first().context("an empty command line")?;
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(place.folder.join("vm"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start QEMU")?;
        let mut qmp = Qmp::open(&place.folder.join("qmp"), &mut child).await?;
        qmp.execute("cont").await?;
        let state = qmp.execute("query-status").await?;
        ensure!(state["status"] == "running", "the guest does not run: {state}");
        Ok(Self { child, qmp })
    }

    /// Waits until the guest has said something on its serial port.
    pub(super) async fn wait_for_output(&mut self, place: &BareSetup) -> Result<()> {
        let mut serial = connect(&place.folder.join("serial0"), &mut self.child).await?;
        let mut byte = [0];
        serial.read_exact(&mut byte).await?;
        Ok(())
    }

    /// Presses the power button and returns when the process is gone.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.qmp.send("system_powerdown", json!({})).await?;
        self.qmp.event("SHUTDOWN").await?;
        self.qmp.send("quit", json!({})).await?;
        self.child.wait().await?;
        Ok(())
    }
}
