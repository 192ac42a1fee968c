//! Claims and volumes as far as this node's volumes depend on them. Pure.

use hci::local_volume::{LocalVolumeMove, PREVIOUS_NODES, VOLUME_MOVE, previous_nodes};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::source::{self, FillSource};

pub(super) use hci::local_volume::{HOSTNAME, PROVISIONED_BY, PROVISIONER};

/// Kept on a volume until its files are gone.
pub(super) const FINALIZER: &str = "sheaf.io/local-volume";

const ANNOUNCED: &str = "volume.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";

/// Disks are whole pages, so that any guest and any cache mode can use them.
const GRAIN: u64 = 4096;

/// How far the filling of a claim has come, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillProgress {
    /// Nothing was begun, or it has to begin again.
    Open,
    /// An upload may come.
    Ready,
    /// Filled, or given up: nothing is done any more.
    Over,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) class: String,
    pub(super) access_modes: Vec<String>,
    pub(super) volume_mode: String,
    /// The requested size, as written in the claim and in bytes.
    pub(super) request: String,
    pub(super) size: u64,
    /// The capacity in the claim's status; nothing before it is bound.
    pub(super) capacity: Option<u64>,
    /// Set when our provisioner is to make its volume, and on which node.
    pub(super) wanted_on: Option<String>,
    pub(super) volume: Option<String>,
    pub(super) is_bound: bool,
    pub(super) is_deleting: bool,
    /// The data to write onto the disk once there is one.
    pub(super) source: Option<FillSource>,
    /// The content of the disk before it may be used.
    pub(super) origin: Option<source::VolumeOrigin>,
    pub(super) progress: FillProgress,
}

/// A claim that cannot be worked with has no uid or asks for nothing.
pub(super) fn claim(object: &PersistentVolumeClaim) -> Option<Claim> {
    let meta = &object.metadata;
    let spec = object.spec.as_ref()?;
    let status = object.status.clone().unwrap_or_default();
    let note = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
    let requests = spec.resources.as_ref()?.requests.as_ref()?;
    let request = requests.get("storage")?.clone();
    let ours = note(ANNOUNCED) == Some(PROVISIONER);
    let node = note(SELECTED_NODE).filter(|node| ours && !node.is_empty());
    let progress = match note(POD_PHASE) {
        Some("Succeeded" | "Failed") => FillProgress::Over,
        Some(_) if note(POD_READY) == Some("true") => FillProgress::Ready,
        _ => FillProgress::Open,
    };
    let notes = meta.annotations.clone().unwrap_or_default();
    Some(Claim {
        namespace: meta.namespace.clone()?,
        name: meta.name.clone()?,
        uid: meta.uid.clone()?,
        class: spec.storage_class_name.clone().unwrap_or_default(),
        access_modes: spec.access_modes.clone().unwrap_or_default(),
        volume_mode: spec.volume_mode.clone().unwrap_or_else(|| "Filesystem".into()),
        size: disk_size(&request)?,
        request: request.0,
        capacity: status.capacity.as_ref().and_then(|all| bytes(all.get("storage")?)),
        wanted_on: node.map(str::to_owned),
        volume: spec.volume_name.clone().filter(|name| !name.is_empty()),
        is_bound: status.phase.as_deref() == Some("Bound"),
        is_deleting: meta.deletion_timestamp.is_some(),
        source: source::read(&notes),
        origin: source::origin(spec),
        progress,
    })
}

impl Claim {
    /// The volume that is made for a claim.
    pub(super) fn volume_name(&self) -> String {
        format!("pvc-{}", self.uid)
    }

    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

/// The relation of this node to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumePlace {
    /// The file of this node is the volume.
    Here,
    /// It may move here: this node makes a copy.
    Arriving,
    /// It has moved to another node. The file of this node is old.
    Left,
}

/// A volume of this node, or one that comes or has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalVolume {
    pub(super) name: String,
    pub(super) phase: String,
    /// Whether its files are removed when no claim is bound to them.
    pub(super) is_dropped: bool,
    pub(super) capacity: u64,
    /// Uid of the claim that it is promised to.
    pub(super) owner: String,
    pub(super) is_deleting: bool,
    pub(super) holds_finalizer: bool,
    /// The name of a replicated volume, which others make and remove. We only fill it.
    pub(super) replicated: Option<String>,
    pub(super) place: VolumePlace,
}

/// Nothing for volumes that this node neither made nor could fill.
pub(super) fn volume(object: &PersistentVolume, node: &str) -> Option<LocalVolume> {
    let csi = object.spec.as_ref()?.csi.as_ref();
    if let Some(csi) = csi.filter(|csi| csi.driver == crate::storage::DRIVER) {
        let claim = object.spec.as_ref()?.claim_ref.as_ref();
        return Some(LocalVolume {
            name: object.metadata.name.clone()?,
            phase: String::new(),
            is_dropped: false,
            capacity: 0,
            owner: claim.and_then(|claim| claim.uid.clone()).unwrap_or_default(),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            holds_finalizer: false,
            replicated: Some(csi.volume_handle.clone()),
            place: VolumePlace::Here,
        });
    }
    let meta = &object.metadata;
    let spec = object.spec.as_ref()?;
    let place = place(object, node)?;
    let status = object.status.as_ref();
    let reclaim = spec.persistent_volume_reclaim_policy.as_deref();
    let owner = spec.claim_ref.as_ref().and_then(|claim| claim.uid.clone());
    Some(LocalVolume {
        name: meta.name.clone()?,
        phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
        is_dropped: reclaim == Some("Delete"),
        capacity: bytes(spec.capacity.as_ref()?.get("storage")?)?,
        owner: owner.unwrap_or_default(),
        is_deleting: meta.deletion_timestamp.is_some(),
        holds_finalizer: meta.finalizers.iter().flatten().any(|each| each == FINALIZER),
        replicated: None,
        place,
    })
}

fn note<'a>(object: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a volume is a file that a node has made.
pub(super) fn is_ours(object: &PersistentVolume) -> bool {
    let is_file = object.spec.as_ref().is_some_and(|spec| spec.local.is_some());
    is_file && note(object, PROVISIONED_BY) == Some(PROVISIONER)
}

/// The move of a volume to another node, if it moves.
pub(super) fn moves(object: &PersistentVolume) -> Option<LocalVolumeMove> {
    note(object, VOLUME_MOVE).map(LocalVolumeMove::parse)
}

/// Nothing for volumes that are none of this node's business.
pub(super) fn place(object: &PersistentVolume, node: &str) -> Option<VolumePlace> {
    if !is_ours(object) {
        return None;
    }
    if is_on(object, node) {
        return Some(VolumePlace::Here);
    }
    if moves(object).is_some_and(|own| own.target == node) {
        return Some(VolumePlace::Arriving);
    }
    has_left(object, node).then_some(VolumePlace::Left)
}

/// Whether a node had a volume before, and has it no more.
pub(super) fn has_left(object: &PersistentVolume, node: &str) -> bool {
    let mut left = previous_nodes(note(object, PREVIOUS_NODES).unwrap_or_default());
    !is_on(object, node) && left.any(|own| own == node)
}

/// Why an instance cannot use a volume on this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnusableVolume {
    #[error("volume {volume} is not on this node")]
    Elsewhere { volume: String },
    #[error("volume {volume} may be moving to node {target}")]
    Moving { volume: String, target: String },
}

/// Fails if the instance with this uid cannot use a volume on a node.
pub(super) fn check_usable(
    object: &PersistentVolume,
    node: &str,
    uid: &str,
) -> Result<(), UnusableVolume> {
    let volume = object.metadata.name.clone().unwrap_or_default();
    if !is_on(object, node) {
        return Err(UnusableVolume::Elsewhere { volume });
    }
    match moves(object).filter(|own| own.uid != uid) {
        Some(others) => Err(UnusableVolume::Moving { volume, target: others.target }),
        None => Ok(()),
    }
}

/// Whether a volume is bound to this node by its affinity.
pub(super) fn is_on(object: &PersistentVolume, node: &str) -> bool {
    let affinity = object.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.required.as_ref());
    let expressions = terms
        .into_iter()
        .flat_map(|required| &required.node_selector_terms)
        .flat_map(|term| term.match_expressions.iter().flatten());
    expressions
        .into_iter()
        .any(|own| own.key == HOSTNAME && own.values.iter().flatten().any(|value| value == node))
}

fn bytes(quantity: &Quantity) -> Option<u64> {
    let units = virt::api::atom::Quantity::from(quantity.0.as_str()).units()?;
    u64::try_from(units).ok()
}

/// The length of the disk for a request.
fn disk_size(request: &Quantity) -> Option<u64> {
    bytes(request).filter(|size| *size > 0)?.checked_next_multiple_of(GRAIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(annotations: serde_json::Value) -> Claim {
        let object = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "annotations": annotations},
            "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "1M"}}},
        });
        claim(&serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_claim_is_for_the_node_that_its_annotations_name() {
        let both = json!({ANNOUNCED: PROVISIONER, SELECTED_NODE: "one"});
        assert_eq!(read(both).wanted_on.as_deref(), Some("one"));
        let foreign = json!({ANNOUNCED: "driver.example.org", SELECTED_NODE: "one"});
        assert_eq!(read(foreign).wanted_on, None);
        assert_eq!(read(json!({SELECTED_NODE: "one"})).wanted_on, None);
    }

    #[test]
    fn disks_are_whole_pages() {
        assert_eq!(read(json!({})).size, 1_003_520);
    }

    #[test]
    fn progress_is_what_the_annotations_say() {
        for (notes, expected) in [
            (json!({}), FillProgress::Open),
            (json!({POD_PHASE: "Running"}), FillProgress::Open),
            (json!({POD_PHASE: "Running", POD_READY: "true"}), FillProgress::Ready),
            (json!({POD_PHASE: "Succeeded", POD_READY: "true"}), FillProgress::Over),
            (json!({POD_PHASE: "Failed"}), FillProgress::Over),
        ] {
            assert_eq!(read(notes.clone()).progress, expected, "{notes}");
        }
    }

    fn local(by: &str, node: &str, notes: &serde_json::Value) -> PersistentVolume {
        let expression = json!({"key": HOSTNAME, "operator": "In", "values": [node]});
        let mut object = json!({
            "metadata": {"name": "v", "annotations": {PROVISIONED_BY: by}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "local": {"path": "/x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [expression]},
                ]}},
            },
        });
        for (key, value) in notes.as_object().into_iter().flatten() {
            object["metadata"]["annotations"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_volumes_that_this_node_made_are_its_own() {
        let read = |by: &str, node: &str| volume(&local(by, node, &json!({})), "one");
        assert!(read(PROVISIONER, "one").is_some());
        assert!(read(PROVISIONER, "two").is_none());
        assert!(read("driver.example.org", "one").is_none());
    }

    #[test]
    fn a_volume_that_moves_is_used_where_it_is_and_by_its_machine() {
        let own = LocalVolumeMove {
            uid: "u".into(),
            source: "one".into(),
            target: "two".into(),
            ..LocalVolumeMove::default()
        };
        let moving = json!({VOLUME_MOVE: own.encode()});
        let left = json!({PREVIOUS_NODES: "two,three"});
        for (notes, node, at, usable) in [
            (json!({}), "one", Some(VolumePlace::Here), true),
            (json!({}), "two", None, false),
            (moving.clone(), "one", Some(VolumePlace::Here), true),
            (moving.clone(), "two", Some(VolumePlace::Arriving), false),
            (moving.clone(), "three", None, false),
            (left.clone(), "three", Some(VolumePlace::Left), false),
            (left, "one", Some(VolumePlace::Here), true),
        ] {
            let object = local(PROVISIONER, "one", &notes);
            assert_eq!(place(&object, node), at, "{notes} {node}");
            assert_eq!(check_usable(&object, node, "u").is_ok(), usable, "{notes} {node}");
        }
        let object = local(PROVISIONER, "one", &moving);
        let why = check_usable(&object, "one", "another").unwrap_err().to_string();
        assert_eq!(why, "volume v may be moving to node two");
        assert_eq!(place(&local("driver.example.org", "one", &moving), "two"), None);
    }
}
