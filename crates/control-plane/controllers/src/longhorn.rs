//! Longhorn's volumes from the control side: the provisioning of claims, the engine and replicas
//! of a volume and their nodes, and snapshots. Data is moved by the nodes only.

pub(crate) mod backup;
pub(crate) mod backup_target;
pub(crate) mod eviction;
pub(crate) mod node_condition;
mod object;
pub(crate) mod provision;
pub(crate) mod record;
pub(crate) mod recurring_job;
pub(crate) mod snapshot;
pub(crate) mod volume;
pub(crate) mod volume_snapshot;

pub(crate) use self::object::{engine_name, handle};
use crate::resource::Resource;

pub(crate) const LONGHORN_VOLUMES: Resource = Resource::new("longhorn.io", "v1beta2", "volumes");
pub(crate) const ENGINES: Resource = Resource::new("longhorn.io", "v1beta2", "engines");
pub(crate) const REPLICAS: Resource = Resource::new("longhorn.io", "v1beta2", "replicas");
pub(crate) const SNAPSHOTS: Resource = Resource::new("longhorn.io", "v1beta2", "snapshots");
pub(crate) const ATTACHMENTS: Resource =
    Resource::new("longhorn.io", "v1beta2", "volumeattachments");
pub(crate) const STORAGE_NODES: Resource = Resource::new("longhorn.io", "v1beta2", "nodes");
pub(crate) const BACKING_IMAGES: Resource =
    Resource::new("longhorn.io", "v1beta2", "backingimages");
pub(crate) const BACKUPS: Resource = Resource::new("longhorn.io", "v1beta2", "backups");
pub(crate) const BACKUP_TARGETS: Resource =
    Resource::new("longhorn.io", "v1beta2", "backuptargets");
pub(crate) const SETTINGS: Resource = Resource::new("longhorn.io", "v1beta2", "settings");

pub(crate) const API: &str = "longhorn.io/v1beta2";
