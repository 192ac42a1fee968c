//! Live migration: a running guest moves to another node without a reboot.
//!
//! ```text
//!  source (outgoing)                        target (incoming)
//!   object names a target ── PUT offer ──►  volumes in standby, QEMU waits for the stream
//!   QEMU sends memory ═══════ stream ════►  QEMU takes it in; the guest does not run
//!   guest stopped  ───────── PUT switch ─►  volumes claimed
//!   QEMU completed, claims granted:
//!   object is given to the target ────────► object names this node: the guest goes on
//!   QEMU is killed
//! ```
//!
//! All bytes between the nodes go over TLS with the certificates of both nodes. Who may let the
//! guest run is said by `status.nodeName` of the object alone: the source gives it away in one
//! write, and after a failure it lets the guest go on only once another write has made sure that
//! the first cannot come any more. Who may write a volume is said by its record.

mod incoming;
mod leftover;
mod offer;
mod outgoing;
mod peer;
mod prepare;
mod progress;
mod recovery;
mod rollback;
mod session;

use serde::{Deserialize, Serialize};

use super::object::Vmi;

pub(super) use incoming::arrive;
pub(crate) use incoming::{IncomingError, IncomingMigrations};
pub(crate) use offer::MigrationOffer;

/// Says that a guest is, or was, on its way to this node: in the folder of the machine.
pub(super) const INCOMING: &str = "incoming.json";
/// Says that this node has begun to send the guest elsewhere.
pub(super) const OUTGOING: &str = "outgoing.json";

/// What the folder of a machine says of a migration.
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
}

impl MigrationNote {
    fn new(migration: &str, vmi: &Vmi) -> Self {
        Self {
            migration: migration.to_owned(),
            namespace: vmi.namespace.clone(),
            name: vmi.name.clone(),
            volumes: Vec::new(),
        }
    }
}

/// The ticket for which a volume is on the target.
pub(super) fn ticket(uid: &str, migration: &str) -> String {
    format!("vmi-{uid}-{migration}")
}
