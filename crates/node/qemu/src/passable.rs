//! Directories that other users can pass through and cannot list.
//!
//! The process runs with the umask 077, so a directory that leads to something of a guest's has
//! to be opened for the guest's user on purpose.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

const PASSABLE: u32 = 0o711;

/// Creates a directory, and those above it that are missing, through which other users can pass.
pub fn create_passable(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.into_iter().rev() {
        match DirBuilder::new().mode(PASSABLE).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created?,
        }
        // The umask has taken away what others need.
        fs::set_permissions(path, Permissions::from_mode(PASSABLE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_users_pass_through_what_is_created() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("a/b");
        create_passable(&dir).unwrap();
        for path in [&dir, &home.path().join("a")] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, PASSABLE);
        }
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        create_passable(&dir).unwrap();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700, "it was there");
    }
}
