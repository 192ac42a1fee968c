//! The machine that a restore makes, or makes anew, of the captured one: pure.
//!
//! The captured spec is copied with fields that this version does not know; only what refers to
//! disks, and for a new machine what identifies one, is changed.

use hci::together::{RESUME, SnapshotGroup, TOGETHER};
use serde_json::{Value, json};

use super::{RESTORED_BY, Restored};
use crate::copied_spec::{remove_identity, volumes_mut};
use crate::json_patch::{self, PatchError};
use crate::object::{self, annotation, copied_map, is_true, name, namespace, strings, text, uid};

/// Harvester's claims that a machine brings along.
pub(super) const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
/// kubectl's record of another machine.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The spec that was captured, with the new claims in place of the former.
fn spec(content: &Value, disks: &[Restored]) -> Value {
    let mut spec = content["spec"]["source"]["virtualMachine"]["spec"].clone();
    let new = |volume: &str| disks.iter().find(|disk| disk.volume == volume);
    for volume in volumes_mut(&mut spec).into_iter().flatten() {
        let Some(disk) = new(text(volume, "/name")) else { continue };
        let hot = ["/dataVolume/hotpluggable", "/persistentVolumeClaim/hotpluggable"]
            .iter()
            .any(|pointer| is_true(volume, pointer));
        let mut source = json!({"claimName": disk.claim});
        if hot {
            source["hotpluggable"] = json!(true);
        }
        *volume = json!({"name": disk.volume, "persistentVolumeClaim": source});
    }
    // A disk that was created from a template is a claim now, and must not be created again.
    let gone: Vec<&str> = disks.iter().map(|disk| disk.former.as_str()).collect();
    if let Some(templates) = spec.get_mut("dataVolumeTemplates").and_then(Value::as_array_mut) {
        templates.retain(|own| !gone.contains(&name(own)));
    }
    spec
}

/// Harvester's annotation with the new claims' names.
fn templates(content: &Value, disks: &[Restored]) -> Option<String> {
    let machine = &content["spec"]["source"]["virtualMachine"];
    let mut templates: Value = serde_json::from_str(annotation(machine, TEMPLATES)?).ok()?;
    for own in templates.as_array_mut()? {
        let disk = disks.iter().find(|disk| disk.former == text(own, "/metadata/name"));
        if let Some(disk) = disk {
            own["metadata"]["name"] = json!(disk.claim);
        }
    }
    Some(templates.to_string())
}

/// The target becomes what was captured. Whether it runs stays its own matter.
pub(in super::super) fn machine_patch(
    restore: &Value,
    content: &Value,
    vm: &Value,
    disks: &[Restored],
) -> Value {
    let mut wanted = spec(content, disks);
    for field in ["running", "runStrategy"] {
        wanted[field] = vm["spec"].get(field).cloned().unwrap_or(Value::Null);
    }
    // A merge keeps what it does not name.
    for (field, _) in vm["spec"].as_object().into_iter().flatten() {
        if wanted.get(field).is_none() {
            wanted[field.as_str()] = Value::Null;
        }
    }
    let template = replacing(&vm["spec"]["template"], &wanted["template"]);
    wanted["template"] = template;
    let mut annotations = json!({RESTORED_BY: uid(restore), RESUME: memory(content)});
    if let Some(templates) = templates(content, disks) {
        annotations[TEMPLATES] = json!(templates);
    }
    json!({"metadata": {"uid": uid(vm), "annotations": annotations}, "spec": wanted})
}

/// The instant whose memory was captured with the disks. Only the machine itself goes on with it:
/// another one would be in the network under the same addresses.
fn memory(content: &Value) -> Option<String> {
    let together = SnapshotGroup::parse(annotation(content, TOGETHER)?)?;
    together.memory.then_some(together.instant)
}

/// The merge patch from one object to another.
fn replacing(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let mut patch = new.clone();
    for (key, value) in &mut patch {
        if let Some(before) = old.get(key) {
            *value = replacing(before, value);
        }
    }
    for key in old.keys() {
        patch.entry(key.clone()).or_insert(Value::Null);
    }
    Value::Object(patch)
}

/// A new machine like the one that was captured, which is stopped at first. Two of one address
/// cannot be in one network.
pub(in super::super) fn machine(
    restore: &Value,
    content: &Value,
    disks: &[Restored],
) -> Result<Value, PatchError> {
    let mut spec = spec(content, disks);
    if spec.get("running").is_some_and(Value::is_boolean) {
        spec["running"] = json!(false);
    } else {
        spec["runStrategy"] = json!("Halted");
    }
    remove_identity(&mut spec);
    let source = &content["spec"]["source"]["virtualMachine"];
    let mut annotations = copied_map(object::annotations(source));
    annotations.remove(LAST_APPLIED);
    annotations.remove(RESUME);
    annotations.insert(RESTORED_BY.to_owned(), json!(uid(restore)));
    if let Some(templates) = templates(content, disks) {
        annotations.insert(TEMPLATES.to_owned(), json!(templates));
    }
    let mut metadata = json!({
        "name": text(restore, "/spec/target/name"), "namespace": namespace(restore),
        "annotations": annotations,
    });
    if let Some(labels) = source["metadata"].get("labels").filter(|own| own.is_object()) {
        metadata["labels"] = labels.clone();
    }
    let mut machine = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": metadata, "spec": spec});
    let patches: Vec<&str> = strings(restore, "/spec/patches").collect();
    json_patch::apply(&mut machine, &patches)?;
    Ok(machine)
}
