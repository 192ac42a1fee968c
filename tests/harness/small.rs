//! A file system that is soon full.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Four megabytes, mounted until it is dropped.
pub(crate) struct Small {
    pub(crate) path: PathBuf,
}

impl Small {
    #[track_caller]
    pub(crate) fn mount(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        let small = Self { path };
        small.mounted(&["-t", "tmpfs", "-o", "size=4m,mode=711", "tmpfs"]);
        small
    }

    /// Makes room.
    #[track_caller]
    pub(crate) fn grow(&self) {
        self.mounted(&["-o", "remount,size=200m"]);
    }

    #[track_caller]
    fn mounted(&self, arguments: &[&str]) {
        let done = Command::new("mount").args(arguments).arg(&self.path).status().unwrap();
        assert!(done.success(), "mount {arguments:?} failed; this test needs root");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
