//! Showing QEMU the files of a disk before it opens them, and hiding them after it has closed them:
//! in a mount namespace of its own it sees only what it was given.

use crate::isolation::{GuestRoot, disk_paths};
use crate::machine::{Disk, DiskSource};

use super::{Qmp, QmpError};

impl Qmp {
    /// The same connection, of a QEMU with this root.
    #[must_use]
    pub(crate) fn with_root(self, root: GuestRoot) -> Self {
        Self { root: Some(root), ..self }
    }

    /// Shows everything that a disk is made of.
    pub(super) async fn show(&self, disk: &Disk) -> Result<(), QmpError> {
        let (Some(root), paths) = (self.root.clone(), disk_paths(disk)) else { return Ok(()) };
        let shown = tokio::task::spawn_blocking(move || root.show(&paths)).await;
        Ok(shown.unwrap_or_else(|failure| std::panic::resume_unwind(failure.into_panic()))?)
    }

    /// Hides the image that only this disk has. Images that other disks may use stay.
    pub(super) async fn hide(&self, disk: &Disk) {
        let path = match &disk.source {
            DiskSource::File(image) => image.path.clone(),
            DiskSource::BlockDevice { path } | DiskSource::Overlay { path, .. } => path.clone(),
            DiskSource::Nbd { .. } | DiskSource::VhostUser { .. } | DiskSource::Empty => return,
        };
        if let Some(root) = self.root.clone() {
            // Whether it worked is in the log.
            let _ = tokio::task::spawn_blocking(move || root.hide(&path)).await;
        }
    }
}
