//! Which volume a claim gets, and what both then say: pure.

use hci::cluster::is_witness;
use serde_json::{Value, json};

use crate::object::{self, annotation, is_deleting, name, namespace, read, uid};
use crate::populate::waits_for_populator;
use crate::record::claim::{
    ClaimFields, ClaimReference, ClaimSpec, PersistentVolumeFields, PersistentVolumeSpec,
    StorageClassFields, volume_mode_or_default,
};
use crate::record::condition::of_type;
use crate::record::metadata::metadata;
use crate::record::node::NodeFields;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// CDI's: the claim is filled before a pod or machine consumes it.
const IMMEDIATE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";

/// Provisioners whose volumes the agents make.
const OURS: [&str; 1] = ["sheaf.io/local"];

/// Events for the user of a claim, with the texts of the controller manager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Notice {
    #[error("storageclass.storage.k8s.io \"{class}\" not found")]
    UnknownClass { class: String },
    #[error("no persistent volumes available for this claim and no storage class is set")]
    NoClass,
    #[error("waiting for first consumer to be created before binding")]
    Consumer,
    #[error(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or \
         manually by the system administrator. If volume creation is delayed, please verify that \
         the provisioner is running and correctly registered."
    )]
    ExternalProvisioning { provisioner: String },
}

impl Notice {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::UnknownClass { .. } => "ProvisioningFailed",
            Self::NoClass => "FailedBinding",
            Self::Consumer => "WaitForFirstConsumer",
            Self::ExternalProvisioning { .. } => "ExternalProvisioning",
        }
    }

    pub(super) fn is_warning(&self) -> bool {
        matches!(self, Self::UnknownClass { .. })
    }
}

/// The step that a claim without a volume waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing to do here: another party creates the volume.
    Nothing,
    /// An action of the user, who is notified.
    User(Notice),
    /// The provisioner of volumes that are on no node in particular has to be notified.
    Announcement { provisioner: String },
    /// A node has to be chosen.
    Node { provisioner: String },
    /// The agent of the node is at work, or a provisioner of another driver is.
    Provisioner,
}

/// The class that a claim names; empty for none.
pub(super) fn class_name(claim: &Value) -> &str {
    spec_of(claim).storage_class_name
}

fn spec_of(claim: &Value) -> ClaimSpec<'_> {
    read::<ClaimFields<'_>>(claim).spec
}

/// The claim that a volume is promised to.
pub(super) fn promised_to(volume: &Value) -> ClaimReference<'_> {
    read::<PersistentVolumeFields<'_>>(volume).spec.claim_ref
}

/// Whether a claim has its volume.
pub(super) fn is_bound(claim: &Value) -> bool {
    read::<ClaimFields<'_>>(claim).status.phase == "Bound"
}

pub(super) fn wait(claim: &Value, class: Option<&Value>) -> Wait {
    let spec = spec_of(claim);
    if !spec.volume_name.is_empty() || waits_for_populator(claim) {
        return Wait::Nothing;
    }
    let Some(class) = class else {
        return Wait::User(match spec.storage_class_name {
            "" => Notice::NoClass,
            class => Notice::UnknownClass { class: class.to_owned() },
        });
    };
    let class: StorageClassFields<'_> = read(class);
    let provisioner = class.provisioner;
    if provisioner.is_empty() || provisioner == "kubernetes.io/no-provisioner" {
        return Wait::Nothing;
    }
    let anywhere = provisioner == hci::DRIVER;
    if !anywhere && !OURS.contains(&provisioner) {
        return Wait::Provisioner;
    }
    let chosen = annotation(claim, SELECTED_NODE).is_some_and(|node| !node.is_empty());
    let announced = annotation(claim, PROVISIONER).is_some();
    if (chosen || anywhere) && announced {
        return Wait::Provisioner;
    }
    if !chosen && class.waits_for_consumer() && annotation(claim, IMMEDIATE).is_none() {
        return Wait::User(Notice::Consumer);
    }
    let provisioner = provisioner.to_owned();
    if anywhere { Wait::Announcement { provisioner } } else { Wait::Node { provisioner } }
}

/// Notifies the provisioner, and of the node. A node that is chosen already stays.
pub(super) fn announcement(claim: &Value, node: &str, provisioner: &str) -> Value {
    let node = annotation(claim, SELECTED_NODE).filter(|own| !own.is_empty()).unwrap_or(node);
    json!({"metadata": {"annotations": {
        SELECTED_NODE: node, PROVISIONER: provisioner, PROVISIONER_BETA: provisioner,
    }}})
}

/// The same without a node.
pub(super) fn plain_announcement(provisioner: &str) -> Value {
    json!({"metadata": {"annotations": {
        PROVISIONER: provisioner, PROVISIONER_BETA: provisioner,
    }}})
}

/// The node with the most room of those that can make volumes now.
pub(super) fn node(nodes: &[Value]) -> Option<&str> {
    let room = |node| {
        let NodeFields { spec, status } = read(node);
        let ready = of_type(&status.conditions, "Ready").is_some_and(|own| own.status == "True");
        let is_usable = ready && !is_witness(node) && !spec.unschedulable;
        is_usable.then(|| (name(node), status.allocatable.ephemeral_storage.amount()))
    };
    let usable = nodes.iter().filter_map(room);
    let best = usable.max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(a.0)));
    best.map(|(name, _)| name)
}

/// Whether a volume is promised to the claim.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let to = promised_to(volume);
    let same = to.name == name(claim) && to.namespace == namespace(claim);
    same && (to.uid.is_empty() || to.uid == uid(claim))
}

/// The volume for a claim: the one that is promised to it, or the smallest that fits.
pub(super) fn choose<'a>(claim: &Value, volumes: &'a [Value]) -> Option<&'a Value> {
    let spec = spec_of(claim);
    if !spec.volume_name.is_empty() {
        let named = volumes.iter().find(|volume| name(volume) == spec.volume_name)?;
        let free = promised_to(named).name.is_empty();
        return (free || is_for(named, claim)).then_some(named);
    }
    if let Some(promised) = volumes.iter().find(|volume| is_for(volume, claim)) {
        return Some(promised);
    }
    let fitting = volumes.iter().filter_map(|volume| {
        let own = read::<PersistentVolumeFields<'_>>(volume).spec;
        fits(&spec, volume, &own).then(|| (own.capacity.storage.amount(), volume))
    });
    let least = fitting.min_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
    least.map(|(_, volume)| volume)
}

fn fits(claim: &ClaimSpec<'_>, volume: &Value, own: &PersistentVolumeSpec<'_>) -> bool {
    let selector = claim.selector.as_ref();
    let mut wanted_labels =
        selector.and_then(|own| own.match_labels.as_ref()).into_iter().flatten();
    own.claim_ref.name.is_empty()
        && !is_deleting(volume)
        && own.storage_class_name == claim.storage_class_name
        && volume_mode_or_default(own.volume_mode) == volume_mode_or_default(claim.volume_mode)
        && claim.access_modes.iter().all(|wanted| own.access_modes.contains(wanted))
        && own.capacity.storage.amount() >= claim.storage().amount()
        && wanted_labels.all(|(key, value)| object::label(volume, key) == Some(value))
        // Expressions are not evaluated: a claim that needs them names its volume.
        && selector.is_none_or(|own| own.match_expressions.is_none())
}

/// The claim's side of a binding; nothing if it is there already.
pub(super) fn bind_claim(claim: &Value, volume: &Value) -> Option<Value> {
    let by_us = spec_of(claim).volume_name.is_empty();
    let done = annotation(claim, BIND_COMPLETED).is_some();
    if done && !by_us {
        return None;
    }
    let mut annotations = json!({BIND_COMPLETED: "yes"});
    if by_us {
        annotations[BOUND_BY_CONTROLLER] = "yes".into();
    }
    Some(json!({
        "metadata": {"annotations": annotations, "uid": uid(claim)},
        "spec": {"volumeName": name(volume)},
    }))
}

/// The volume's side of a binding; nothing if it is there already.
pub(super) fn bind_volume(claim: &Value, volume: &Value) -> Option<Value> {
    if promised_to(volume).uid == uid(claim) {
        return None;
    }
    Some(json!({"spec": {"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid(claim),
        "namespace": namespace(claim), "name": name(claim),
        "resourceVersion": metadata(claim).resource_version,
    }}}))
}

/// The status of a bound claim. Its capacity follows the volume only at first: from then on the
/// expansion of the volume updates it when it is done.
pub(super) fn bound_status(claim: &Value, volume: &Value) -> Option<Value> {
    if is_bound(claim) {
        return None;
    }
    let spec = read::<PersistentVolumeFields<'_>>(volume).spec;
    Some(json!({"status": {
        "phase": "Bound",
        "accessModes": spec.access_modes,
        "capacity": {"storage": spec.capacity.storage.written()},
    }}))
}

/// The phase of a volume, given the claim that it is reserved for.
pub(super) fn volume_phase(volume: &Value, claim: Option<&Value>) -> &'static str {
    let to = promised_to(volume);
    if to.name.is_empty() {
        return "Available";
    }
    let owner = to.uid;
    match claim {
        Some(claim) if owner.is_empty() || owner == uid(claim) => {
            if spec_of(claim).volume_name == name(volume) { "Bound" } else { "Available" }
        }
        // Promised to a claim that has never been.
        None if owner.is_empty() => "Available",
        _ => "Released",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(extra: Value) -> Value {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "annotations": {}},
            "spec": {
                "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "2Gi"}},
            },
        });
        merge(&mut claim, &extra);
        claim
    }

    fn volume(name: &str, size: &str, extra: Value) -> Value {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "local", "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "capacity": {"storage": size},
            },
        });
        merge(&mut volume, &extra);
        volume
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    #[test]
    fn the_smallest_volume_that_fits_is_taken() {
        let volumes = [
            volume("small", "1Gi", json!({})),
            volume("large", "8Gi", json!({})),
            volume("right", "3Gi", json!({})),
            volume("taken", "2Gi", json!({"spec": {"claimRef": {"name": "x", "namespace": "n"}}})),
            volume("block", "2Gi", json!({"spec": {"volumeMode": "Block"}})),
            volume("other", "2Gi", json!({"spec": {"storageClassName": "fast"}})),
        ];
        assert_eq!(choose(&claim(json!({})), &volumes).map(name), Some("right"));
        let many = claim(json!({"spec": {"accessModes": ["ReadOnlyMany"]}}));
        assert_eq!(choose(&many, &volumes), None);
        let named = claim(json!({"spec": {"volumeName": "large"}}));
        assert_eq!(choose(&named, &volumes).map(name), Some("large"));
        let stolen = claim(json!({"spec": {"volumeName": "taken"}}));
        assert_eq!(choose(&stolen, &volumes), None);
    }

    #[test]
    fn a_promise_is_kept_to_the_claim_it_was_made_to() {
        let reference =
            |uid: &str| json!({"spec": {"claimRef": {"name": "c", "namespace": "n", "uid": uid}}});
        let promised = [volume("pvc-u", "2Gi", reference("u"))];
        assert_eq!(choose(&claim(json!({})), &promised).map(name), Some("pvc-u"));
        let former = [volume("pvc-old", "2Gi", reference("old"))];
        assert_eq!(choose(&claim(json!({})), &former), None);
    }

    #[test]
    fn a_claim_waits_for_a_consumer_unless_it_is_to_be_filled_first() {
        let class =
            json!({"provisioner": "sheaf.io/local", "volumeBindingMode": "WaitForFirstConsumer"});
        let chosen = json!({"metadata": {"annotations": {SELECTED_NODE: "n1"}}});
        let announced =
            json!({"metadata": {"annotations": {SELECTED_NODE: "n1", PROVISIONER: "p"}}});
        let node = Wait::Node { provisioner: "sheaf.io/local".into() };
        for (extra, expected) in [
            (json!({}), Wait::User(Notice::Consumer)),
            (chosen, node.clone()),
            (announced, Wait::Provisioner),
            (json!({"metadata": {"annotations": {IMMEDIATE: ""}}}), node),
        ] {
            assert_eq!(wait(&claim(extra.clone()), Some(&class)), expected, "{extra}");
        }
        let unknown = Wait::User(Notice::UnknownClass { class: "local".into() });
        assert_eq!(wait(&claim(json!({})), None), unknown);
        let classless = claim(json!({"spec": {"storageClassName": ""}}));
        assert_eq!(wait(&classless, None), Wait::User(Notice::NoClass));
        let named = claim(json!({"spec": {"volumeName": "v"}}));
        assert_eq!(wait(&named, Some(&class)), Wait::Nothing);
        let reference =
            json!({"apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "s"});
        let unread = claim(json!({"spec": {"dataSourceRef": reference}}));
        assert_eq!(wait(&unread, Some(&class)), Wait::Nothing, "its content is not known yet");
        let foreign = json!({"provisioner": "driver.example.org"});
        let anywhere = json!({"provisioner": hci::DRIVER});
        let announcement = Wait::Announcement { provisioner: hci::DRIVER.into() };
        assert_eq!(wait(&claim(json!({})), Some(&anywhere)), announcement);
        let annotated = json!({"metadata": {"annotations": {PROVISIONER: "p"}}});
        assert_eq!(wait(&claim(annotated), Some(&anywhere)), Wait::Provisioner);
        assert_eq!(wait(&claim(json!({})), Some(&foreign)), Wait::Provisioner);
    }

    #[test]
    fn a_volume_is_released_when_its_claim_is_gone_or_another() {
        let reference = json!({"spec": {"claimRef": {"name": "c", "namespace": "n", "uid": "u"}}});
        let own = volume("v", "2Gi", reference);
        let bound = claim(json!({"spec": {"volumeName": "v"}}));
        let again = claim(json!({"metadata": {"uid": "u2"}}));
        assert_eq!(volume_phase(&own, Some(&bound)), "Bound");
        assert_eq!(volume_phase(&own, Some(&claim(json!({})))), "Available");
        assert_eq!(volume_phase(&own, Some(&again)), "Released");
        assert_eq!(volume_phase(&own, None), "Released");
        assert_eq!(volume_phase(&volume("v", "2Gi", json!({})), None), "Available");
    }

    #[test]
    fn the_node_with_the_most_room_is_chosen() {
        let node_of = |name: &str, ready: &str, room: &str| {
            json!({
                "metadata": {"name": name},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "allocatable": {"ephemeral-storage": room},
                },
            })
        };
        let nodes = [
            node_of("a", "True", "1Gi"),
            node_of("b", "True", "9Gi"),
            node_of("c", "False", "20Gi"),
        ];
        assert_eq!(node(&nodes), Some("b"));
        assert_eq!(node(&nodes[2..]), None);
        let mut witness = node_of("d", "True", "99Gi");
        witness["metadata"]["labels"] = json!({hci::cluster::WITNESS_ROLE: "true"});
        assert_eq!(node(&[witness]), None, "a witness stores no data");
    }
}
