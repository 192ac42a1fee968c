//! The TPM of a machine: a swtpm process beside QEMU.
//!
//! The two are joined by a pair of sockets that no other process holds. When QEMU ends, however it
//! ends, swtpm loses its connection and ends as well; when we die between the two starts,
//! likewise. So there is nothing to find again and nothing to clean up.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{ProcessUser, confine_with};

pub(crate) const PROGRAM: &str = "swtpm";

/// A swtpm process, and the end of its channel that QEMU is to inherit.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) channel: OwnedFd,
    pub(crate) pid: i32,
}

/// Starts swtpm with its state in `state`, which is made if it is not there.
pub(crate) fn start(
    state: &Path,
    identity: Option<&ProcessUser>,
    log: fs::File,
) -> io::Result<Started> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    if let Some(identity) = identity {
        own(state, identity)?;
    }
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(PROGRAM);
    command
        .args(["socket", "--tpm2", "--terminate", "--tpmstate"])
        .arg(format!("dir={},mode=0600", state.display()))
        .arg("--ctrl")
        .arg(format!("type=unixio,clientfd={}", theirs.as_raw_fd()))
        .args(["--flags", "not-need-init,startup-none"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    confine_with(&mut command, identity.cloned(), vec![theirs]);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(Started { channel: ours.into(), pid })
}

/// Gives the state to the user who will write it; it may have been another's before.
fn own(state: &Path, identity: &ProcessUser) -> io::Result<()> {
    let give =
        |path: &Path| std::os::unix::fs::lchown(path, Some(identity.uid), Some(identity.gid));
    give(state)?;
    for entry in fs::read_dir(state)? {
        give(&entry?.path())?;
    }
    Ok(())
}
