//! Disks whose files have grown under a running guest.
//!
//! Whoever makes a volume larger only makes its file larger. Here it is seen, at the next look,
//! and the guest is told.

use std::sync::Arc;

use base::Chain;
use futures_util::FutureExt as _;
use qemu::machine::Source;
use qemu::qmp::QmpError;
use serde_json::{Value, json};
use tracing::{debug, info};

use super::actor::Actor;
use super::live::Live;
use super::object::Vmi;
use super::resolve::Resolver;

/// A disk in a file, and how large the file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Size {
    name: String,
    node: String,
    bytes: u64,
}

impl Actor {
    /// Tells QEMU, and reads again what the claims of the disks say.
    pub(super) async fn grow_disks(&mut self, vmi: &Arc<Vmi>, live: &Live) {
        let sizes = sizes(live);
        if sizes == self.sizes {
            return;
        }
        let grown = match tell(live, &sizes).await {
            Ok(grown) => grown,
            Err(failure) => {
                debug!(error = %Chain(&failure), "cannot grow a disk");
                return;
            }
        };
        self.sizes = sizes;
        let context = Arc::clone(&self.context);
        let identity = live.running.spec().confinement.identity;
        for name in grown {
            let Some(volume) = vmi.spec.volumes.iter().find(|volume| volume.name == name) else {
                continue;
            };
            let (dir, identity) = (live.running.dir(), identity.as_ref());
            let resolver = Resolver { context: &context, vmi, dir, identity };
            if let Ok(Some(found)) = resolver.volume(volume).boxed().await {
                self.volumes.insert(name, found);
            }
        }
    }
}

fn sizes(live: &Live) -> Vec<Size> {
    let machine = live.running.spec().machine;
    let files = machine.disks.iter().filter_map(|disk| match &disk.source {
        Source::File(image) if image.backing.is_none() && !disk.read_only => {
            let bytes = std::fs::metadata(&image.path).ok()?.len();
            Some(Size { name: disk.name.clone(), node: disk.node(), bytes })
        }
        _ => None,
    });
    files.collect()
}

/// The names of those that QEMU knew to be smaller.
async fn tell(live: &Live, sizes: &[Size]) -> Result<Vec<String>, QmpError> {
    let qmp = live.running.qmp().await?;
    let nodes: Vec<Value> = qmp.execute("query-named-block-nodes", json!({"flat": true})).await?;
    let mut grown = Vec::new();
    for size in sizes {
        let known = nodes.iter().find(|each| each["node-name"] == size.node.as_str());
        let seen = known.and_then(|known| known["image"]["virtual-size"].as_u64());
        if seen.is_some_and(|seen| seen < size.bytes) {
            info!(volume = size.name, bytes = size.bytes, "a disk has grown");
            qmp.resize_block(&size.node, size.bytes).await?;
            grown.push(size.name.clone());
        }
    }
    Ok(grown)
}
