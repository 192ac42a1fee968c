//! Longhorn's objects as far as this node acts on them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use block::ids::{Generation, ReplicaId, VolumeId};
use block::repl::control::Versioned;
use hci::longhorn::snapshot::SnapshotSpec;
use hci::longhorn::volume::{EngineSpec, ReplicaSpec, VolumeSpec};
use hci::longhorn::{FINALIZER, RECORD, block_id};
use hci::together::{SnapshotGroup, TOGETHER};
use kube::api::DynamicObject;
use serde_json::Value;

/// A volume, whoever serves it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LonghornVolume {
    pub(super) name: String,
    pub(super) id: VolumeId,
    pub(super) is_encrypted: bool,
    pub(super) source: Option<DataSource>,
    /// The backing image that it begins as, unless it has a source.
    pub(super) image: Option<String>,
    /// The PersistentVolume that represents it.
    pub(super) persistent: String,
    /// The node that a running machine moves to with it.
    pub(super) migration_node: Option<String>,
}

/// The initial content of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DataSource {
    pub(super) volume: String,
    /// Nothing before it was taken.
    pub(super) snapshot: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) id: ReplicaId,
    pub(super) volume: String,
    pub(super) node: String,
    pub(super) disk: String,
    pub(super) dir: PathBuf,
    pub(super) size: u64,
    pub(super) is_wanted: bool,
    /// It held data once, so that an empty one is no replacement for it.
    pub(super) was_made: bool,
    /// It was written to once.
    pub(super) was_healthy: bool,
    /// The replica that it is to lie on, of the volume that its own is a clone of.
    pub(super) base: String,
    pub(super) is_deleting: bool,
    pub(super) holds_finalizer: bool,
    pub(super) image: String,
    pub(super) status: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Engine {
    pub(super) name: String,
    pub(super) volume: String,
    pub(super) node: String,
    pub(super) size: u64,
    pub(super) is_wanted: bool,
    /// Where each replica is, by name.
    pub(super) replicas: BTreeMap<String, String>,
    pub(super) is_deleting: bool,
    pub(super) holds_finalizer: bool,
    pub(super) image: String,
    /// The node that the volume's record is attached to.
    pub(super) attached: Option<String>,
    /// The node that may claim the volume, by its record.
    pub(super) claimant: Option<String>,
    /// The last generation that was served, by the record: older engines were superseded.
    pub(super) confirmed: Generation,
    pub(super) status: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    pub(super) name: String,
    pub(super) volume: String,
    pub(super) is_to_be_taken: bool,
    pub(super) labels: BTreeMap<String, String>,
    /// The group that it is to be taken together with.
    pub(super) together: Option<SnapshotGroup>,
    pub(super) is_deleting: bool,
    pub(super) holds_finalizer: bool,
    pub(super) status: Value,
}

impl Snapshot {
    /// Whether it was taken at some time.
    pub(super) fn was_taken(&self) -> bool {
        self.status["creationTime"].as_str().is_some_and(|time| !time.is_empty())
    }
}

pub(super) fn volume(object: &DynamicObject) -> Option<LonghornVolume> {
    let spec: VolumeSpec = part(object, "spec")?;
    let name = object.metadata.name.clone()?;
    let claimed = object.data["status"]["kubernetesStatus"]["pvName"].as_str();
    let persistent = claimed.filter(|name| !name.is_empty()).unwrap_or(&name).to_owned();
    Some(LonghornVolume {
        id: VolumeId::from_u128(block_id(object.metadata.uid.as_deref()?)?),
        is_encrypted: spec.encrypted == Some(true),
        source: spec.data_source.as_deref().and_then(data_source).map(|mut source| {
            // Of a whole volume a snapshot is taken first, which is named here.
            let taken = object.data["status"]["cloneStatus"]["snapshot"].as_str();
            let taken = taken.filter(|name| !name.is_empty()).map(str::to_owned);
            source.snapshot = source.snapshot.or(taken);
            source
        }),
        image: spec.backing_image.filter(|image| !image.is_empty()),
        migration_node: spec.migration_node_id.filter(|node| !node.is_empty()),
        persistent,
        name,
    })
}

/// `snap://VOLUME/SNAPSHOT` or `vol://VOLUME`.
fn data_source(text: &str) -> Option<DataSource> {
    if let Some(rest) = text.strip_prefix("snap://") {
        let (volume, snapshot) = rest.split_once('/')?;
        return Some(DataSource { volume: volume.into(), snapshot: Some(snapshot.into()) });
    }
    let volume = text.strip_prefix("vol://").filter(|volume| !volume.is_empty())?;
    Some(DataSource { volume: volume.into(), snapshot: None })
}

pub(super) fn replica(object: &DynamicObject) -> Option<Replica> {
    let spec: ReplicaSpec = part(object, "spec")?;
    let status = object.data.get("status").cloned().unwrap_or_default();
    let name = object.metadata.name.clone()?;
    let folder = spec.data_directory_name.filter(|it| !it.is_empty()).unwrap_or(name.clone());
    let disk_path = spec.disk_path.unwrap_or_default();
    let set = |time: &Option<String>| time.as_ref().is_some_and(|time| !time.is_empty());
    let known = status["uuid"].as_str().is_some_and(|uuid| !uuid.is_empty());
    Some(Replica {
        id: ReplicaId::from_u128(block_id(object.metadata.uid.as_deref()?)?),
        dir: Path::new(&disk_path).join(REPLICAS).join(folder),
        volume: spec.volume_name.unwrap_or_default(),
        node: spec.node_id.unwrap_or_default(),
        disk: spec.disk_id.unwrap_or_default(),
        size: bytes(spec.volume_size.as_deref()),
        is_wanted: spec.desire_state.as_deref() == Some("running"),
        was_made: known || set(&spec.healthy_at),
        was_healthy: set(&spec.healthy_at),
        base: spec.linked_clone_src_replica_name.unwrap_or_default(),
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        holds_finalizer: holds_finalizer(object),
        image: spec.image.unwrap_or_default(),
        status,
        name,
    })
}

/// The folder of replicas on a disk.
pub(super) const REPLICAS: &str = "replicas";

pub(super) fn engine(object: &DynamicObject) -> Option<Engine> {
    let spec: EngineSpec = part(object, "spec")?;
    let record = annotation(object, RECORD).and_then(|text| serde_json::from_str(text).ok());
    let record = record.map(|known: Versioned| known.record);
    Some(Engine {
        attached: record.as_ref().and_then(|record| record.attached.clone()),
        confirmed: record.as_ref().map_or(Generation(0), |record| record.confirmed),
        claimant: record.and_then(|record| record.migration_target),
        name: object.metadata.name.clone()?,
        volume: spec.volume_name.unwrap_or_default(),
        node: spec.node_id.unwrap_or_default(),
        size: bytes(spec.volume_size.as_deref()),
        is_wanted: spec.desire_state.as_deref() == Some("running"),
        replicas: spec.replica_address_map,
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        holds_finalizer: holds_finalizer(object),
        image: spec.image.unwrap_or_default(),
        status: object.data.get("status").cloned().unwrap_or_default(),
    })
}

pub(super) fn snapshot(object: &DynamicObject) -> Option<Snapshot> {
    let spec: SnapshotSpec = part(object, "spec")?;
    Some(Snapshot {
        name: object.metadata.name.clone()?,
        volume: spec.volume,
        is_to_be_taken: spec.create_snapshot == Some(true),
        labels: spec.labels,
        together: annotation(object, TOGETHER).and_then(SnapshotGroup::parse),
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        holds_finalizer: holds_finalizer(object),
        status: object.data.get("status").cloned().unwrap_or_default(),
    })
}

/// The tickets of an attachment for which the volume is where they want it.
pub(super) fn satisfied(object: &DynamicObject) -> BTreeSet<String> {
    let wanted = |id: &str| object.data["spec"]["attachmentTickets"].get(id).is_some();
    let reported = object.data["status"]["attachmentTicketStatuses"].as_object();
    let yes = reported.into_iter().flatten().filter(|(_, ticket)| ticket["satisfied"] == true);
    yes.map(|(id, _)| id.clone()).filter(|id| wanted(id)).collect()
}

fn part<T: serde::de::DeserializeOwned>(object: &DynamicObject, name: &str) -> Option<T> {
    serde_json::from_value(object.data.get(name)?.clone()).ok()
}

fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn holds_finalizer(object: &DynamicObject) -> bool {
    object.metadata.finalizers.iter().flatten().any(|each| each == FINALIZER)
}

fn bytes(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sources_are_read_as_longhorn_writes_them() {
        let of = |text| data_source(text).map(|it| (it.volume, it.snapshot));
        assert_eq!(of("snap://v/s"), Some(("v".into(), Some("s".into()))));
        assert_eq!(of("vol://v"), Some(("v".into(), None)));
        assert_eq!(of("snap://v"), None);
        assert_eq!(of("vol://"), None);
        assert_eq!(of("backup://v"), None);
    }

    #[test]
    fn a_replica_lies_on_its_disk_and_is_known_to_have_data() {
        let object = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
            "metadata": {"name": "v-r-1", "uid": "00112233-4455-6677-8899-aabbccddeeff",
                         "finalizers": ["longhorn.io"]},
            "spec": {"volumeName": "v", "volumeSize": "4096", "nodeID": "one",
                     "diskPath": "/srv/disk", "dataDirectoryName": "v-1",
                     "desireState": "running", "healthyAt": ""},
        });
        let replica = replica(&serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(replica.dir, Path::new("/srv/disk/replicas/v-1"));
        assert_eq!((replica.size, replica.is_wanted, replica.was_made), (4096, true, false));
        assert!(replica.holds_finalizer && !replica.is_deleting);
    }
}
