//! Whether a claim, volume or class of attributes carries its finalizer: pure.
//!
//! Each has it from the beginning and loses it when it is being deleted and not in use.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::object::read;
use crate::record::fields;
use crate::record::instance::InstanceFields;
use crate::record::vm_volume::has_claim;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const ATTRIBUTES: &str = "kubernetes.io/vac-protection";

fields! {
    /// An instance that holds volumes.
    struct HeldVolumes<'a> {
        status: HeldVolumesStatus<'a>,
    }

    struct HeldVolumesStatus<'a> {
        volume_status: Vec<HeldVolume<'a>>,
    }

    struct HeldVolume<'a> {
        persistent_volume_claim_info: HeldClaim<'a>,
    }

    struct HeldClaim<'a> {
        claim_name: &'a str,
    }

    /// A claim or volume that may have a class of attributes.
    struct AttributesClassUser<'a> {
        spec: AttributesSpec<'a>,
        status: AttributesStatus<'a>,
    }

    struct AttributesSpec<'a> {
        volume_attributes_class_name: &'a str,
    }

    struct AttributesStatus<'a> {
        current_volume_attributes_class_name: &'a str,
        modify_volume_status: AttributesChange<'a>,
    }

    struct AttributesChange<'a> {
        target_volume_attributes_class_name: &'a str,
    }
}

/// Whether the pods of its namespace matter for what becomes of the claim.
pub(crate) fn asks_for_pods(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() && has(&claim.metadata, CLAIM)
}

/// The patch that puts the finalizer of a claim right, if that is needed.
pub(crate) fn claim(
    claim: &PersistentVolumeClaim,
    pods: &[Pod],
    machines: &[Value],
) -> Option<Value> {
    let used = pods.iter().any(|pod| uses(pod, claim))
        || machines.iter().any(|machine| is_plugged_into(machine, claim));
    finalizer(&claim.metadata, CLAIM, used)
}

/// Whether a scheduled machine uses the claim. Its pod does not name volumes that were plugged in
/// later, and volumes that are being unplugged are in its status only.
fn is_plugged_into(machine: &Value, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let status = read::<InstanceFields<'_>>(machine).status;
    let volumes = read::<HeldVolumes<'_>>(machine).status.volume_status;
    let is_held = || volumes.iter().any(|own| own.persistent_volume_claim_info.claim_name == name);
    !status.node_name.is_empty() && !status.is_over() && (has_claim(machine, name) || is_held())
}

/// The same for a volume, which is in use while it is bound.
pub(crate) fn volume(volume: &PersistentVolume) -> Option<Value> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    finalizer(&volume.metadata, VOLUME, phase == Some("Bound"))
}

/// The same for a class of attributes, which claims and volumes use: they have it, want it, or
/// are being changed to it.
pub(crate) fn attributes(class: &VolumeAttributesClass, users: &[Value]) -> Option<Value> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let used = users.iter().any(|user| {
        let AttributesClassUser { spec, status } = read(user);
        let wanted = status.modify_volume_status.target_volume_attributes_class_name;
        let current = status.current_volume_attributes_class_name;
        [spec.volume_attributes_class_name, current, wanted].contains(&name)
    });
    finalizer(&class.metadata, ATTRIBUTES, used)
}

fn finalizer(meta: &ObjectMeta, finalizer: &str, used: bool) -> Option<Value> {
    let mut finalizers = meta.finalizers.clone().unwrap_or_default();
    match (meta.deletion_timestamp.is_some(), has(meta, finalizer)) {
        (false, false) => finalizers.push(finalizer.to_owned()),
        (true, true) if !used => finalizers.retain(|own| own != finalizer),
        _ => return None,
    }
    // The version makes sure that no concurrent change of the list is lost.
    Some(json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version,
        "finalizers": finalizers}}))
}

/// A pod that is on no node yet will not start with a claim that is being deleted.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let placed = spec.node_name.as_ref().is_some_and(|node| !node.is_empty());
    placed && spec.volumes.iter().flatten().any(|volume| names(volume, pod, claim))
}

fn names(volume: &Volume, pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if let Some(source) = &volume.persistent_volume_claim {
        return source.claim_name == name;
    }
    // The claim of an ephemeral volume is named after the pod and belongs to it; it ends with
    // the pod's work.
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let owners = claim.metadata.owner_references.iter().flatten();
    volume.ephemeral.is_some()
        && !ended
        && name == format!("{pod_name}-{}", volume.name)
        && owners.into_iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}

fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|own| own == finalizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(deleting: bool, finalizers: &[&str]) -> Value {
        let time = deleting.then_some("2026-01-01T00:00:00Z");
        json!({"name": "c", "uid": "u", "deletionTimestamp": time, "finalizers": finalizers,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pu"}]})
    }

    fn pod(node: &str, volume: Value, phase: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "pu"},
            "spec": {"nodeName": node, "containers": [], "volumes": [volume]},
            "status": {"phase": phase}}))
        .unwrap()
    }

    /// The finalizers after the plan; none if nothing changes.
    fn after(deleting: bool, finalizers: &[&str], pods: &[Pod]) -> Option<Value> {
        let object = json!({"metadata": meta(deleting, finalizers)});
        let patch = claim(&serde_json::from_value(object).unwrap(), pods, &[])?;
        Some(patch["metadata"]["finalizers"].clone())
    }

    #[test]
    fn a_claim_is_protected_from_the_start_until_it_is_unused() {
        let used =
            pod("node", json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}), "");
        assert_eq!(after(false, &["x"], &[]), Some(json!(["x", CLAIM])));
        assert_eq!(after(false, &[CLAIM], &[]), None);
        assert_eq!(after(true, &["x", CLAIM], &[]), Some(json!(["x"])));
        assert_eq!(after(true, &[CLAIM], &[used]), None);
        assert_eq!(after(true, &[], &[]), None, "a deleted object takes no finalizers");
    }

    #[test]
    fn only_pods_on_a_node_with_this_claim_use_it() {
        let claim = |name: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
        let gone = Some(json!([]));
        assert_eq!(after(true, &[CLAIM], &[pod("", claim("c"), "")]), gone);
        assert_eq!(after(true, &[CLAIM], &[pod("node", claim("d"), "")]), gone);
    }

    #[test]
    fn an_ephemeral_volume_uses_its_claim_until_the_pod_has_ended() {
        // The claim would be called "p-v": rename the pod's parts to match "c".
        let mut user = pod("node", json!({"name": "v", "ephemeral": {}}), "Running");
        let object = json!({"metadata": meta(true, &[CLAIM])});
        let mut own: PersistentVolumeClaim = serde_json::from_value(object).unwrap();
        own.metadata.name = Some("p-v".into());
        assert_eq!(claim(&own, std::slice::from_ref(&user), &[]), None);
        user.status.as_mut().unwrap().phase = Some("Succeeded".into());
        assert!(claim(&own, &[user], &[]).is_some());
    }

    #[test]
    fn a_claim_is_in_use_while_it_is_plugged_into_a_machine() {
        let object = json!({"metadata": meta(true, &[CLAIM])});
        let own: PersistentVolumeClaim = serde_json::from_value(object).unwrap();
        let volumes = json!([{"name": "v",
            "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}]);
        let held = json!([{"name": "v", "persistentVolumeClaimInfo": {"claimName": "c"}}]);
        let used = |volumes: &Value, status: Value| {
            let machine = json!({"spec": {"volumes": volumes}, "status": status});
            claim(&own, &[], &[machine]).is_none()
        };
        let none = json!([]);
        assert!(used(&volumes, json!({"nodeName": "n", "phase": "Running"})));
        assert!(used(&none, json!({"nodeName": "n", "phase": "Running", "volumeStatus": held})));
        assert!(!used(&volumes, json!({"phase": "Pending"})), "it has no place yet");
        assert!(!used(&volumes, json!({"nodeName": "n", "phase": "Succeeded"})));
        assert!(!used(&none, json!({"nodeName": "n", "phase": "Running"})));
    }

    #[test]
    fn a_volume_is_in_use_while_it_is_bound() {
        let find = |deleting: bool, phase: &str| {
            let object = json!({"metadata": meta(deleting, &[VOLUME]), "status": {"phase": phase}});
            volume(&serde_json::from_value(object).unwrap()).is_some()
        };
        assert!(!find(false, "Bound") && !find(true, "Bound") && find(true, "Released"));
    }

    #[test]
    fn attributes_are_in_use_while_a_claim_or_volume_names_them() {
        let find = |users: &[Value]| {
            let object = json!({"metadata": meta(true, &[ATTRIBUTES]), "driverName": "d"});
            attributes(&serde_json::from_value(object).unwrap(), users).is_some()
        };
        let cases = [
            (json!({"spec": {"volumeAttributesClassName": "c"}}), false),
            (json!({"status": {"currentVolumeAttributesClassName": "c"}}), false),
            (
                json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "c"}}}),
                false,
            ),
            (json!({"spec": {"volumeAttributesClassName": "other"}}), true),
        ];
        for (user, free) in cases {
            assert_eq!(find(std::slice::from_ref(&user)), free, "{user}");
        }
    }
}
