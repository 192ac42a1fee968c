//! Backups of replicated volumes: this node's part in them.
//!
//! Longhorn's objects say what is to be done. The node that `status.ownerID` of a Backup names
//! reads the copy of its snapshot and sends it to the target (`upload`); a Volume with
//! `spec.fromBackup` is filled where its first replica is (`restore`); and the node that
//! `status.ownerID` of the BackupTarget names manages the target: whether it can be reached,
//! which backups are on it, and which of them go (`sync`), and which machines they are of (`description`). `plan` decides, `controller` follows
//! the objects. The format of backups is the crate `backup`.
//!
//! Nothing is kept on this node: interrupted work begins again, and does not send blocks twice.

mod controller;
mod description;
mod mount;
mod object;
mod plan;
mod restore;
mod sync;
mod target;
mod upload;
mod volume_io;

use std::path::PathBuf;

use base::Tasks;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use self::controller::BackupController;
use crate::api::{MANAGER, present};
use crate::config::Config;
use crate::egress::Egress;
use crate::storage::{StorageHandle, longhorn};

/// Shared state of all backup jobs.
#[derive(Clone)]
struct BackupContext {
    client: Client,
    /// The proxy and the certificates of the cluster.
    egress: Egress,
    node: String,
    storage: StorageHandle,
    /// Where shares are mounted.
    mounts: PathBuf,
}

/// Begins to work on backups; ends with `tasks`.
pub(crate) fn start(
    client: Client,
    config: &Config,
    storage: StorageHandle,
    egress: Egress,
    tasks: &Tasks,
) {
    let context = BackupContext {
        client,
        egress,
        node: config.node_name.clone(),
        storage,
        mounts: config.agent_dir().join("backup-targets"),
    };
    let controller = BackupController::new(context);
    tasks.spawn("backups", controller.run(tasks.stop_signal()));
}

impl BackupContext {
    /// Writes a part of the status of one of Longhorn's objects, if it is still there.
    async fn report(
        &self,
        (kind, plural): (&str, &str),
        name: &str,
        status: Value,
    ) -> kube::Result<Option<DynamicObject>> {
        let api = longhorn(&self.client, kind, plural);
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": status}));
        present(api.patch_status(name, &params, &patch).await)
    }
}

const BACKUPS: (&str, &str) = ("Backup", "backups");
const BACKUP_VOLUMES: (&str, &str) = ("BackupVolume", "backupvolumes");
const BACKUP_TARGETS: (&str, &str) = ("BackupTarget", "backuptargets");
const ENGINES: (&str, &str) = ("Engine", "engines");
