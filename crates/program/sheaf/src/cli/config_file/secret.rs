//! Files with secrets are not for other users of the host. A file is made by an administrator, with
//! whatever mode their editor gave it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Flags whose values are secrets.
const SECRETS: [&str; 2] = ["--token=", "--admin-password="];
/// The rights of those who are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

/// A file that other users could read, and whether that was corrected.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadableByOthers {
    #[error(
        "other users could read it (mode {mode:04o}), and it has a token or a password: they cannot any more"
    )]
    Corrected { mode: u32 },
    #[error(
        "other users can read it (mode {mode:04o}), and it has a token or a password: chmod o= ({source})"
    )]
    Open { mode: u32, source: io::Error },
}

/// Takes a file with one of these flags away from other users. Nothing if they have no rights to it.
pub(super) fn protect(path: &Path, flags: &[String]) -> Option<ReadableByOthers> {
    let is_secret = |flag: &String| SECRETS.iter().any(|secret| flag.starts_with(secret));
    if !flags.iter().any(is_secret) {
        return None;
    }
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return None;
    }
    Some(match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        Ok(()) => ReadableByOthers::Corrected { mode },
        Err(source) => ReadableByOthers::Open { mode, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_do_not_read_a_file_with_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        for (mode, flag, expected) in [
            (0o644, "--token=SHEAF1x", 0o640),
            (0o604, "--admin-password=x", 0o600),
            (0o640, "--token=SHEAF1x", 0o640),
            (0o644, "--token-auth-file=/x", 0o644),
            (0o644, "--listen=0.0.0.0:6443", 0o644),
        ] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let notice = protect(&path, &[flag.to_owned()]);
            let now = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!((now, notice.is_some()), (expected, mode != expected), "{flag}");
        }
    }
}
