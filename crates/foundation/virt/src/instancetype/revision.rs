//! Keeping what a machine was started with: a revision per machine and object, and the
//! reference in the machine's status.

use serde_json::{Value, json};

use super::plural;
use crate::default::object;
use crate::state::text;

/// The ControllerRevision that keeps an object for a machine. Its name says all that it
/// depends on, so making it twice makes the same.
pub fn revision(vm: &Value, kept: &Value) -> Value {
    let (vm_name, name) = (text(vm, "/metadata/name"), text(kept, "/metadata/name"));
    let uid = text(kept, "/metadata/uid");
    let generation = kept["metadata"]["generation"].as_i64().unwrap_or_default();
    let api_version = text(kept, "/apiVersion");
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let mut data = kept.clone();
    if let Some(metadata) = data.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
            metadata.remove(field);
        }
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{vm_name}-{name}-{version}-{uid}-{generation}"),
            "namespace": text(vm, "/metadata/namespace"),
            "labels": {
                "instancetype.kubevirt.io/object-generation": generation.to_string(),
                "instancetype.kubevirt.io/object-kind": text(kept, "/kind"),
                "instancetype.kubevirt.io/object-name": name,
                "instancetype.kubevirt.io/object-uid": uid,
                "instancetype.kubevirt.io/object-version": version,
            },
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "name": vm_name,
                "uid": text(vm, "/metadata/uid"),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "data": data,
        "revision": 0,
    })
}

/// The version that objects are kept in.
const LATEST: &str = "v1beta1";
const VERSION_LABEL: &str = "instancetype.kubevirt.io/object-version";

/// The revision that replaces one which is not marked as holding the latest version of its object;
/// `None` if it is, or if its content cannot be read.
pub fn upgraded(vm: &Value, old: &Value) -> Option<Value> {
    if old["metadata"]["labels"][VERSION_LABEL] == LATEST {
        return None;
    }
    let mut kept = old["data"].clone();
    if !kept["spec"].is_object() || text(&kept, "/metadata/name").is_empty() {
        return None;
    }
    let (group, _) = text(&kept, "/apiVersion").split_once('/')?;
    kept["apiVersion"] = format!("{group}/{LATEST}").into();
    Some(revision(vm, &kept))
}

/// The new `status.instancetypeRef` or `preferenceRef` (`field` is `instancetype` or
/// `preference`). `keep` makes the revision and returns its name; it is called when the
/// machine refers to something that is not kept yet.
pub fn status_reference<E>(
    field: &str,
    vm: &Value,
    keep: impl FnOnce() -> Result<String, E>,
) -> Result<Value, E> {
    let matcher = &vm["spec"][field];
    if !matcher.is_object() {
        return Ok(Value::Null);
    }
    let mut reference = match &vm["status"][format!("{field}Ref")] {
        Value::Object(known) => Value::Object(known.clone()),
        _ => json!({}),
    };
    let mut changed = false;
    for part in ["name", "kind", "inferFromVolume"] {
        let wanted = text(matcher, &format!("/{part}"));
        if !wanted.is_empty() && reference[part] != wanted {
            reference[part] = wanted.into();
            changed = true;
        }
    }
    let policy = text(matcher, "/inferFromVolumeFailurePolicy");
    if !policy.is_empty() {
        reference["inferFromVolumeFailurePolicy"] = policy.into();
    }
    let pinned = text(matcher, "/revisionName");
    if !pinned.is_empty() {
        reference["controllerRevisionRef"] = json!({"name": pinned});
    } else if changed || !reference["controllerRevisionRef"].is_object() {
        reference["controllerRevisionRef"] = json!({"name": keep()?});
    }
    Ok(reference)
}

/// Annotates an instance with the size and preference of its machine.
pub fn annotate(vm: &Value, vmi: &mut Value) {
    for field in ["instancetype", "preference"] {
        let matcher = &vm["spec"][field];
        let (Some((_, namespaced)), name) = (plural(field, matcher), text(matcher, "/name")) else {
            continue;
        };
        if name.is_empty() {
            continue;
        }
        let scope = if namespaced { "" } else { "cluster-" };
        let key = format!("kubevirt.io/{scope}{field}-name");
        object(object(vmi, "metadata"), "annotations")[key] = name.into();
    }
}
