//! Exporting the disks of a machine that waits for its guest, so that the QEMU of the source can
//! mirror to them: an NBD server on a socket that the caller listens on.
//!
//! The exports must be removed before the guest runs: afterwards it is the only writer.

use std::os::fd::OwnedFd;

use serde_json::json;

use super::{Qmp, QmpError};
use crate::machine::Disk;

/// The name under which QEMU knows the listening socket.
const LISTENER: &str = "disk-exports";

impl Qmp {
    /// Exports disks by their names to all clients of a listening socket.
    pub async fn export_disks(&self, listener: OwnedFd, disks: &[Disk]) -> Result<(), QmpError> {
        self.run_with_fds("getfd", json!({ "fdname": LISTENER }), vec![listener]).await?;
        let address = json!({ "type": "fd", "data": { "str": LISTENER } });
        self.run("nbd-server-start", json!({ "addr": address })).await?;
        for disk in disks {
            let export = json!({
                "type": "nbd",
                "id": format!("export-{}", disk.node()),
                "node-name": disk.node(),
                "name": disk.name,
                "writable": true,
            });
            self.run("block-export-add", export).await?;
        }
        Ok(())
    }

    /// Removes all exports and closes their connections.
    pub async fn stop_disk_exports(&self) -> Result<(), QmpError> {
        match self.run("nbd-server-stop", json!({})).await {
            // The server was stopped by an earlier attempt.
            Err(QmpError::Refused { description, .. }) if description.contains("not running") => {
                Ok(())
            }
            stopped => stopped,
        }
    }
}
