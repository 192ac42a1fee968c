//! Annotations that bind controllers and nodes, wherever an object of a tenant can carry them, and
//! objects that only controllers create. Stored values may stay or be removed.

use serde_json::Value;

use super::{AdmissionResult, Refusal, Write};
use crate::local_volume::COPIED_VOLUMES;
use crate::together::{RESUME, TOGETHER};

/// Annotations that only controllers write.
const KEYS: [&str; 3] = [TOGETHER, RESUME, COPIED_VOLUMES];

/// Where objects of a kind have annotations that are copied to others, or read.
fn places(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("kubevirt.io", "virtualmachines") => {
            &["metadata.annotations", "spec.template.metadata.annotations"]
        }
        ("kubevirt.io", "virtualmachineinstances")
        | ("snapshot.kubevirt.io", "virtualmachinesnapshots")
        | ("snapshot.storage.k8s.io", "volumesnapshots" | "volumesnapshotcontents")
        | ("longhorn.io", "snapshots") => &["metadata.annotations"],
        ("kubevirt.io", "virtualmachineinstancereplicasets") => {
            &["spec.template.metadata.annotations"]
        }
        ("pool.kubevirt.io", "virtualmachinepools") => &[
            "spec.virtualMachineTemplate.metadata.annotations",
            "spec.virtualMachineTemplate.spec.template.metadata.annotations",
        ],
        ("snapshot.kubevirt.io", "virtualmachinesnapshotcontents") => &[
            "metadata.annotations",
            "spec.source.virtualMachine.metadata.annotations",
            "spec.source.virtualMachine.spec.template.metadata.annotations",
        ],
        (
            "instancetype.kubevirt.io",
            "virtualmachineinstancetypes"
            | "virtualmachineclusterinstancetypes"
            | "virtualmachinepreferences"
            | "virtualmachineclusterpreferences",
        ) => &["spec.annotations"],
        _ => &[],
    }
}

/// Whether objects of a kind can carry such annotations.
pub(super) fn concerns(group: &str, resource: &str) -> bool {
    !places(group, resource).is_empty()
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object.filter(|_| !write.trusted) else { return Ok(()) };
    for place in places(write.group, write.resource) {
        let new = at(object, place);
        let old = write.old.map_or(&Value::Null, |old| at(old, place));
        for key in KEYS {
            if !new[key].is_null() && new[key] != old[key] {
                let message =
                    format!("{place}[{key}] may only be set by the controllers of the cluster");
                return Err(Refusal::new(403, place, message));
            }
        }
    }
    match write.resource {
        "virtualmachinesnapshotcontents" if write.old.is_none() => check_content(write),
        _ => Ok(()),
    }
}

fn at<'a>(object: &'a Value, place: &str) -> &'a Value {
    place.split('.').fold(object, |own, field| &own[field])
}

/// The controller takes the content of a snapshot by its name.
fn check_content(write: &Write<'_>) -> AdmissionResult {
    let Some(uid) = write.name.strip_prefix("vmsnapshot-content-") else { return Ok(()) };
    let all =
        write.objects.list("snapshot.kubevirt.io", "virtualmachinesnapshots", write.namespace);
    match all.iter().find(|own| own["metadata"]["uid"] == uid) {
        None => Ok(()),
        Some(own) => {
            let message = format!(
                "the content of VirtualMachineSnapshot {} may only be created by the controllers \
                 of the cluster",
                super::text(own, "/metadata/name")
            );
            Err(Refusal::new(403, "metadata.name", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;

    fn judged(kind: (&str, &str), object: &Value, old: Option<&Value>, trusted: bool) -> String {
        let snapshot = json!({"metadata": {"namespace": "team", "name": "s", "uid": "u"}});
        let cluster = Cluster(vec![("snapshot.kubevirt.io", "virtualmachinesnapshots", snapshot)]);
        let write = Write {
            group: kind.0,
            resource: kind.1,
            namespace: "team",
            name: object["metadata"]["name"].as_str().unwrap_or("x"),
            object: Some(object),
            old,
            trusted,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        validate(&write).map_or_else(|refusal| refusal.message, |()| "admitted".into())
    }

    /// An object with an annotation at a place.
    fn annotated(place: &str, key: &str, value: &str) -> Value {
        place.split('.').rev().fold(json!({key: value}), |below, field| json!({field: below}))
    }

    #[test]
    fn tenants_do_not_write_annotations_of_controllers() {
        for kind in [
            ("kubevirt.io", "virtualmachines"),
            ("kubevirt.io", "virtualmachineinstances"),
            ("kubevirt.io", "virtualmachineinstancereplicasets"),
            ("pool.kubevirt.io", "virtualmachinepools"),
            ("snapshot.kubevirt.io", "virtualmachinesnapshots"),
            ("snapshot.kubevirt.io", "virtualmachinesnapshotcontents"),
            ("snapshot.storage.k8s.io", "volumesnapshots"),
            ("snapshot.storage.k8s.io", "volumesnapshotcontents"),
            ("instancetype.kubevirt.io", "virtualmachineclusterinstancetypes"),
            ("instancetype.kubevirt.io", "virtualmachinepreferences"),
            ("longhorn.io", "snapshots"),
        ] {
            assert!(super::super::concerns(kind.0, kind.1), "{kind:?}");
            for place in places(kind.0, kind.1) {
                for key in KEYS {
                    let (forged, own) =
                        (annotated(place, key, "forged"), annotated(place, key, "own"));
                    let expected = format!("{place}[{key}] may only be set by the controllers");
                    for old in [None, Some(&json!({})), Some(&own)] {
                        let message = judged(kind, &forged, old, false);
                        assert!(message.contains(&expected), "{kind:?}: {message}");
                    }
                    // A client that puts back what it read, or takes it off.
                    assert_eq!(judged(kind, &own, Some(&own), false), "admitted", "{kind:?}");
                    assert_eq!(judged(kind, &json!({}), Some(&own), false), "admitted");
                    assert_eq!(judged(kind, &forged, None, true), "admitted", "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn the_content_of_a_snapshot_is_its_controllers() {
        let kind = ("snapshot.kubevirt.io", "virtualmachinesnapshotcontents");
        let named = |name: &str| json!({"metadata": {"namespace": "team", "name": name}});
        let own = named("vmsnapshot-content-u");
        let message = judged(kind, &own, None, false);
        assert!(message.contains("the content of VirtualMachineSnapshot s may only be"));
        assert_eq!(judged(kind, &own, None, true), "admitted");
        assert_eq!(judged(kind, &own, Some(&own), false), "admitted");
        assert_eq!(judged(kind, &named("vmsnapshot-content-v"), None, false), "admitted");
    }
}
