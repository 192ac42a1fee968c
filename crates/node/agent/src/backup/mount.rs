//! Shares of NFS servers, mounted below the agent's directory.
//!
//! A mount stays while the agent runs, and is found again by the next. It is soft: a server that
//! does not answer makes requests fail, and does not stop this process for good.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use crate::volume::hex;

/// Longhorn's options, with what a place for data needs none of taken away.
const OPTIONS: &str = "actimeo=1,soft,timeo=300,retry=2";
const RESTRICTIONS: &str = "nosuid,nodev,noexec";
/// Versions of the protocol, best first.
const VERSIONS: [&str; 3] = ["4.2", "4.1", "4.0"];

/// Why a share is not mounted.
#[derive(Debug, thiserror::Error)]
pub(super) enum MountError {
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot run mount, which the package nfs-common completes")]
    Run(#[source] io::Error),
    #[error("the kernel of this node has no NFS client: load the module nfsv4 or use S3")]
    NoKernel,
    #[error("cannot mount {share}: {message}")]
    Refused { share: String, message: String },
}

/// The arguments of `mount` for one version of the protocol.
fn arguments(share: &str, at: &Path, version: &str, options: Option<&str>) -> Vec<String> {
    let options = options.unwrap_or(OPTIONS);
    vec![
        "-t".into(),
        "nfs4".into(),
        "-o".into(),
        format!("{options},vers={version},{RESTRICTIONS}"),
        "--".into(),
        share.into(),
        at.display().to_string(),
    ]
}

/// Whether the kernel's table of mounts has a directory.
fn is_mounted(table: &str, at: &Path) -> bool {
    let at = at.display().to_string();
    table.lines().any(|line| line.split(' ').nth(4) == Some(at.as_str()))
}

/// The directory of a share, which is mounted if it is not yet.
pub(super) async fn share(
    mounts: &Path,
    host: &str,
    share: &str,
    options: Option<&str>,
) -> Result<PathBuf, MountError> {
    let share = format!("{host}:{share}");
    let key = format!("{share} {}", options.unwrap_or_default());
    let at = mounts.join(&hex(&Sha256::digest(key.as_bytes()))[..16]);
    let made = tokio::fs::create_dir_all(&at).await;
    made.map_err(|source| MountError::Directory { path: at.clone(), source })?;
    let table = tokio::fs::read_to_string("/proc/self/mountinfo").await.unwrap_or_default();
    if is_mounted(&table, &at) {
        return Ok(at);
    }
    let mut message = String::new();
    for version in VERSIONS {
        let command = Command::new("mount").args(arguments(&share, &at, version, options)).output();
        let done = command.await.map_err(MountError::Run)?;
        if done.status.success() {
            return Ok(at);
        }
        message = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        if message.contains("unknown filesystem type") || message.contains("No such device") {
            return Err(MountError::NoKernel);
        }
    }
    Err(MountError::Refused { share, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_mounted_softly_and_without_devices_and_programs() {
        let all = arguments("h:/x", Path::new("/m"), "4.1", None).join(" ");
        assert_eq!(
            all,
            "-t nfs4 -o actimeo=1,soft,timeo=300,retry=2,vers=4.1,nosuid,nodev,noexec -- h:/x /m"
        );
    }

    #[test]
    fn a_mount_is_found_in_the_table() {
        let table = "36 35 0:40 / /m/ab rw - nfs4 h:/x rw\n37 35 0:41 / /other rw - tmpfs t rw\n";
        assert!(is_mounted(table, Path::new("/m/ab")));
        assert!(!is_mounted(table, Path::new("/m/a")));
    }
}
