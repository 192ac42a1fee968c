//! Live migration: a running guest moves to another node without a reboot.
//!
//! ```text
//!  source (outgoing)                        target (incoming)
//!   object names a target ── PUT offer ──►  volumes in standby, QEMU waits for the stream
//!   QEMU mirrors local disks ═ disks ════►  QEMU writes them to files of the target
//!   QEMU sends memory ═══════ stream ════►  QEMU takes it in; the guest does not run
//!   guest stopped, mirrors ended
//!                  ───────── PUT switch ─►  volumes claimed
//!   QEMU completed, claims granted:
//!   object is given to the target ────────► object names this node, and the controller has changed
//!                                           the node of local volumes: the guest goes on
//!   QEMU is killed
//! ```
//!
//! All bytes between the nodes go over TLS with the certificates of both nodes. `status.nodeName`
//! of the object alone decides which node may run the guest: the source gives it away in one
//! write, and after a failure it resumes the guest only once another write has made sure that the
//! first cannot arrive any more. The record of a volume decides which node may write it.

mod allowance;
mod arrival;
mod describe;
mod disk_copy;
mod disk_transfer;
mod failure;
mod incoming;
mod leftover;
mod local_volume;
mod offer;
mod outgoing;
mod peer;
mod post_copy;
mod prepare;
mod progress;
mod recovery;
mod rollback;
mod session;
mod unwanted;

use serde::{Deserialize, Serialize};

use self::local_volume::MovedVolume;
use crate::machine::Vmi;

pub(crate) use arrival::is_arriving;
pub(super) use arrival::{Arrival, arrive};
pub(crate) use incoming::{IncomingError, IncomingMigrations};
pub(crate) use offer::MigrationOffer;

/// Says that a guest is, or was, on its way to this node: in the folder of the machine.
pub(super) const INCOMING: &str = "incoming.json";
/// Says that this node has begun to send the guest elsewhere.
pub(super) const OUTGOING: &str = "outgoing.json";

/// The protocol that a connection to the endpoint of a node becomes by `Upgrade`.
pub(crate) const STREAM_PROTOCOL: &str = "sheaf-stream";

/// The note about a migration in a machine's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MigrationNote {
    /// The uid of the migration's object.
    pub(super) migration: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) name: String,
    /// Replicated volumes that come along.
    #[serde(default)]
    pub(super) volumes: Vec<String>,
    /// Local volumes whose data is copied.
    #[serde(default)]
    pub(super) moved: Vec<MovedVolume>,
    /// The node that the guest comes from, on its target.
    #[serde(default)]
    pub(super) source: String,
    /// The node that it goes to, on its source.
    #[serde(default)]
    pub(super) target: String,
    /// At the source: the guest was switched to post-copy and never goes on here again. At the
    /// target: it runs here and some of its memory is still at the source.
    #[serde(default)]
    pub(super) post_copy: bool,
}

impl MigrationNote {
    fn new(migration: &str, vmi: &Vmi) -> Self {
        Self {
            migration: migration.to_owned(),
            namespace: vmi.namespace.clone(),
            name: vmi.name.clone(),
            volumes: Vec::new(),
            moved: Vec::new(),
            source: String::new(),
            target: String::new(),
            post_copy: false,
        }
    }
}

/// Where the endpoint of another node takes a step of a migration.
fn path(migration: &str, what: &str) -> String {
    format!("/v1/migrations/{migration}/{what}")
}

/// The ticket for which a volume is on the target.
pub(super) fn ticket(uid: &str, migration: &str) -> String {
    format!("vmi-{uid}-{migration}")
}
