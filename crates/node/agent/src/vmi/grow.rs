//! Disks that have grown under a running guest.
//!
//! Expanding a volume only makes its file or its replicas larger. The new size is noticed here, at
//! the next check, and reported to the guest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Chain;
use futures_util::FutureExt as _;
use qemu::machine::{Disk, DiskSource};
use qemu::qmp::{Qmp, QmpError};
use serde_json::{Value, json};
use tracing::{debug, info};

use super::actor::VmiActor;
use super::resolve::Resolver;
use crate::context::Context;
use crate::machine::{LiveMachine, Vmi};
use crate::storage::LinkError;

/// A disk, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Size {
    name: String,
    node: String,
    bytes: u64,
    /// Of a replicated volume.
    socket: Option<PathBuf>,
}

/// Why a guest was not notified.
#[derive(Debug, thiserror::Error)]
enum GrowError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl VmiActor {
    /// Notifies QEMU, and reads again what the claims of the disks say.
    pub(super) async fn grow_disks(&mut self, vmi: &Arc<Vmi>, live: &LiveMachine) {
        let mut sizes = sizes(&self.context, live);
        // A volume that is not served for a moment has not changed.
        let missing =
            |it: &&Size| it.socket.is_some() && sizes.iter().all(|own| own.name != it.name);
        let kept: Vec<Size> = self.process.sizes.iter().filter(missing).cloned().collect();
        sizes.extend(kept);
        if sizes == self.process.sizes {
            return;
        }
        let grown = match self.notify_guest(live, &sizes).await {
            Ok(grown) => grown,
            Err(failure) => {
                debug!(error = %Chain(&failure), "cannot grow a disk");
                return;
            }
        };
        self.process.sizes = sizes;
        self.process.was_found = false;
        let context = Arc::clone(&self.context);
        let identity = live.running.spec().confinement.identity;
        for name in grown {
            let Some(volume) = vmi.spec.volumes.iter().find(|volume| volume.name == name) else {
                continue;
            };
            let (dir, identity) = (live.running.dir(), identity.as_ref());
            let resolver = Resolver { context: &context, vmi, dir, identity, migration: None };
            if let Ok(Some(found)) = resolver.volume(volume).boxed().await {
                self.disks.found.insert(name, found);
            }
        }
    }

    /// The names of those that the guest knew to be smaller.
    async fn notify_guest(
        &self,
        live: &LiveMachine,
        sizes: &[Size],
    ) -> Result<Vec<String>, GrowError> {
        let qmp = live.running.qmp().await?;
        let nodes: Vec<Value> =
            qmp.execute("query-named-block-nodes", json!({"flat": true})).await?;
        let mut grown = Vec::new();
        for size in sizes {
            let known = nodes.iter().find(|each| each["node-name"] == size.node.as_str());
            let seen = known.and_then(|known| known["image"]["virtual-size"].as_u64());
            let is_short = seen.is_some_and(|seen| seen < size.bytes);
            // QEMU learns of a size whenever it connects again, and reports it to no client.
            let before = self.process.sizes.iter().find(|it| it.name == size.name);
            let is_unreported = size.socket.is_some()
                && before.map_or(self.process.was_found, |before| before.bytes < size.bytes);
            if !is_short && !is_unreported {
                continue;
            }
            if is_short && let Some(socket) = &size.socket {
                self.connect_again(&qmp, size, socket).await?;
            }
            info!(volume = size.name, bytes = size.bytes, "disk expanded");
            qmp.resize_block(&size.node, size.bytes).await?;
            grown.push(size.name.clone());
        }
        Ok(grown)
    }

    /// NBD has no word for a new size: it is learnt with a new connection, and that is made for
    /// the next request.
    async fn connect_again(&self, qmp: &Qmp, size: &Size, socket: &Path) -> Result<(), GrowError> {
        if let Some(served) = self.context.storage.served_on(socket) {
            self.context.storage.close_connections(&served).await?;
        }
        let line = format!("qemu-io {} \"read 0 512\"", size.node);
        let _: Value = qmp.execute("human-monitor-command", json!({"command-line": line})).await?;
        Ok(())
    }
}

fn sizes(context: &Context, live: &LiveMachine) -> Vec<Size> {
    let machine = live.running.spec().machine;
    let size = |disk: &Disk| {
        let (bytes, socket) = match &disk.source {
            DiskSource::File(image) if image.backing.is_none() && !disk.read_only => {
                (std::fs::metadata(&image.path).ok()?.len(), None)
            }
            DiskSource::Nbd { socket, .. } => {
                (context.storage.served_on(socket)?.size, Some(socket.clone()))
            }
            _ => return None,
        };
        Some(Size { name: disk.name.clone(), node: disk.node(), bytes, socket })
    };
    machine.disks.iter().filter_map(size).collect()
}
