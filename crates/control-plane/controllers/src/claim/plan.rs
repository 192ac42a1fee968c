//! Which volume a claim gets, and what both then say: pure.

use hci::cluster::is_witness;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use types::Quantity;

use crate::object::{self, annotation, is_true, list, name, namespace, quantity, text, uid};
use crate::populate::waits_for_populator;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// CDI's: the claim is filled before anybody consumes it.
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
    /// A volume that somebody else creates.
    Nobody,
    /// Something that its user has to do.
    Told(Notice),
    /// The provisioner of volumes that are on no node in particular has to be told.
    Announcement { provisioner: String },
    /// A node has to be chosen.
    Node { provisioner: String },
    /// The agent of the node is at work, or somebody else's provisioner is.
    Provisioner,
}

/// The class that a claim names; empty for none.
pub(super) fn class_name(claim: &Value) -> &str {
    text(claim, "/spec/storageClassName")
}

pub(super) fn wait(claim: &Value, class: Option<&Value>) -> Wait {
    if !text(claim, "/spec/volumeName").is_empty() || waits_for_populator(claim) {
        return Wait::Nobody;
    }
    let Some(class) = class else {
        return Wait::Told(match class_name(claim) {
            "" => Notice::NoClass,
            class => Notice::UnknownClass { class: class.to_owned() },
        });
    };
    let provisioner = text(class, "/provisioner");
    if provisioner.is_empty() || provisioner == "kubernetes.io/no-provisioner" {
        return Wait::Nobody;
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
    let later = text(class, "/volumeBindingMode") == "WaitForFirstConsumer";
    if !chosen && later && annotation(claim, IMMEDIATE).is_none() {
        return Wait::Told(Notice::Consumer);
    }
    let provisioner = provisioner.to_owned();
    if anywhere { Wait::Announcement { provisioner } } else { Wait::Node { provisioner } }
}

/// Tells the provisioner, and on which node. A node that is chosen already stays.
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
    let usable = |node: &&Value| {
        let ready = list(node, "/status/conditions")
            .iter()
            .any(|own| text(own, "/type") == "Ready" && text(own, "/status") == "True");
        ready && !is_witness(node) && !is_true(node, "/spec/unschedulable")
    };
    let room = |node: &&Value| quantity(node, "/status/allocatable/ephemeral-storage");
    let best = nodes
        .iter()
        .filter(usable)
        .max_by(|a, b| room(a).cmp(&room(b)).then_with(|| name(b).cmp(name(a))));
    best.map(name)
}

/// Whether a volume is promised to the claim.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let same = text(volume, "/spec/claimRef/name") == name(claim)
        && text(volume, "/spec/claimRef/namespace") == namespace(claim);
    let owner = text(volume, "/spec/claimRef/uid");
    same && (owner.is_empty() || owner == uid(claim))
}

/// The volume for a claim: the one that is promised to it, or the smallest that fits.
pub(super) fn choose<'a>(claim: &Value, volumes: &'a [Value]) -> Option<&'a Value> {
    let wanted = text(claim, "/spec/volumeName");
    if !wanted.is_empty() {
        let named = volumes.iter().find(|volume| name(volume) == wanted)?;
        let free = text(named, "/spec/claimRef/name").is_empty();
        return (free || is_for(named, claim)).then_some(named);
    }
    if let Some(promised) = volumes.iter().find(|volume| is_for(volume, claim)) {
        return Some(promised);
    }
    let size = |volume: &Value| quantity(volume, "/spec/capacity/storage");
    let selector: LabelSelector = object::read(&claim["spec"]["selector"]);
    let fitting = volumes.iter().filter(|volume| fits(claim, &selector, volume));
    fitting.min_by(|a, b| size(a).cmp(&size(b)).then_with(|| name(a).cmp(name(b))))
}

fn fits(claim: &Value, selector: &LabelSelector, volume: &Value) -> bool {
    let mode = |object: &Value| match text(object, "/spec/volumeMode") {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    let modes = list(volume, "/spec/accessModes");
    let mut wanted_labels = selector.match_labels.iter().flatten();
    text(volume, "/spec/claimRef/name").is_empty()
        && crate::object::text(volume, "/metadata/deletionTimestamp").is_empty()
        && text(volume, "/spec/storageClassName") == class_name(claim)
        && mode(volume) == mode(claim)
        && list(claim, "/spec/accessModes").iter().all(|wanted| modes.contains(wanted))
        && enough(claim, volume)
        && wanted_labels.all(|(key, value)| object::label(volume, key) == Some(value))
        // Expressions are not evaluated: a claim that needs them names its volume.
        && selector.match_expressions.is_none()
}

fn enough(claim: &Value, volume: &Value) -> bool {
    let wanted: Option<Quantity> = quantity(claim, "/spec/resources/requests/storage");
    quantity(volume, "/spec/capacity/storage") >= wanted
}

/// The claim's side of a binding; nothing if it is there already.
pub(super) fn bind_claim(claim: &Value, volume: &Value) -> Option<Value> {
    let by_us = text(claim, "/spec/volumeName").is_empty();
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
    if text(volume, "/spec/claimRef/uid") == uid(claim) {
        return None;
    }
    Some(json!({"spec": {"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid(claim),
        "namespace": namespace(claim), "name": name(claim),
        "resourceVersion": text(claim, "/metadata/resourceVersion"),
    }}}))
}

/// The status of a bound claim. Its capacity follows the volume only at first: from then on the
/// expansion of the volume updates it when it is done.
pub(super) fn bound_status(claim: &Value, volume: &Value) -> Option<Value> {
    if text(claim, "/status/phase") == "Bound" {
        return None;
    }
    Some(json!({"status": {
        "phase": "Bound",
        "accessModes": volume["spec"]["accessModes"],
        "capacity": {"storage": volume["spec"]["capacity"]["storage"]},
    }}))
}

/// The phase of a volume, given the claim that it is reserved for.
pub(super) fn volume_phase(volume: &Value, claim: Option<&Value>) -> &'static str {
    if text(volume, "/spec/claimRef/name").is_empty() {
        return "Available";
    }
    let owner = text(volume, "/spec/claimRef/uid");
    match claim {
        Some(claim) if owner.is_empty() || owner == uid(claim) => {
            if text(claim, "/spec/volumeName") == name(volume) { "Bound" } else { "Available" }
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
            (json!({}), Wait::Told(Notice::Consumer)),
            (chosen, node.clone()),
            (announced, Wait::Provisioner),
            (json!({"metadata": {"annotations": {IMMEDIATE: ""}}}), node),
        ] {
            assert_eq!(wait(&claim(extra.clone()), Some(&class)), expected, "{extra}");
        }
        let unknown = Wait::Told(Notice::UnknownClass { class: "local".into() });
        assert_eq!(wait(&claim(json!({})), None), unknown);
        let classless = claim(json!({"spec": {"storageClassName": ""}}));
        assert_eq!(wait(&classless, None), Wait::Told(Notice::NoClass));
        let named = claim(json!({"spec": {"volumeName": "v"}}));
        assert_eq!(wait(&named, Some(&class)), Wait::Nobody);
        let reference =
            json!({"apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "s"});
        let unread = claim(json!({"spec": {"dataSourceRef": reference}}));
        assert_eq!(wait(&unread, Some(&class)), Wait::Nobody, "what it holds is not known yet");
        let foreign = json!({"provisioner": "driver.example.org"});
        let anywhere = json!({"provisioner": hci::DRIVER});
        let announcement = Wait::Announcement { provisioner: hci::DRIVER.into() };
        assert_eq!(wait(&claim(json!({})), Some(&anywhere)), announcement);
        let told = json!({"metadata": {"annotations": {PROVISIONER: "p"}}});
        assert_eq!(wait(&claim(told), Some(&anywhere)), Wait::Provisioner);
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
