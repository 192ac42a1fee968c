//! Files that other users of the node's operating system can read.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::harness::Sheaf;

/// Entries below a directory that other users may read or write, with their modes.
fn open_entries(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_symlink() {
            continue;
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o006 != 0 {
            found.push(format!("{mode:o} {}", path.display()));
        }
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn other_users_read_nothing_of_the_state() {
    let mut sheaf = Sheaf::start();
    sheaf.http().get("/api/v1/namespaces").ok();
    let data = sheaf.data();
    assert_eq!(open_entries(&data), Vec::<String>::new());
    assert_eq!(mode(&data), 0o700);
    assert_eq!(mode(&data.join("state.db")), 0o600);
    let backup = sheaf.scratch("backup.db");
    sheaf.run(&format!("store backup --to {}", backup.display()));
    assert_eq!(mode(&backup), 0o600);

    // Permissions that an earlier version left open are restricted at the next start.
    sheaf.end();
    for (path, mode) in [(data.clone(), 0o755), (data.join("state.db"), 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    sheaf.begin();
    assert_eq!(open_entries(&data), Vec::<String>::new());
}
