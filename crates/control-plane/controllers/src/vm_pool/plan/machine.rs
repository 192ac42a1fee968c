//! One machine of a pool: the template with numbered names.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use virt::api::pool::VirtualMachinePoolNameGeneration;

use super::revision::{REVISION, owned_by, revision_name};
use super::rules::PoolRules;
use crate::copied_spec::{items_mut, text_mut, volumes_mut};
use crate::object::{self, copied_map, is_controlled_by, list, name, namespace, text, uid};
use crate::vm::RELEASED_BY;

/// The number at the end of a name.
pub(crate) fn index_of(name: &str) -> Option<usize> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// The machine with this number.
pub(crate) fn machine(pool: &Value, index: usize) -> Value {
    let template = &pool["spec"]["virtualMachineTemplate"];
    let revision = revision_name(pool);
    let mut labels = copied_map(object::labels(template));
    labels.insert(REVISION.into(), json!(revision));
    let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    number(&mut spec, &PoolRules::of(pool).name_generation, index);
    spec["template"]["metadata"]["labels"][REVISION] = json!(revision);
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": format!("{}-{index}", name(pool)), "namespace": namespace(pool),
            "labels": labels, "annotations": copied_map(object::annotations(template)),
            "ownerReferences": [owned_by(pool)]},
        "spec": spec})
}

/// Gives the machine disks, and if wanted config maps and secrets, of its own.
fn number(spec: &mut Value, names: &VirtualMachinePoolNameGeneration, index: usize) {
    let mut own = Vec::new();
    for template in items_mut(spec, "/dataVolumeTemplates") {
        let old = name(template).to_owned();
        template["metadata"]["name"] = json!(format!("{old}-{index}"));
        own.push(old);
    }
    let mut references = Vec::new();
    if names.append_index_to_config_map_refs == Some(true) {
        references.push("/configMap/name");
    }
    if names.append_index_to_secret_refs == Some(true) {
        references.extend([
            "/secret/secretName",
            "/cloudInitNoCloud/secretRef/name",
            "/cloudInitNoCloud/networkDataSecretRef/name",
            "/cloudInitConfigDrive/secretRef/name",
            "/cloudInitConfigDrive/networkDataSecretRef/name",
        ]);
    }
    for volume in volumes_mut(spec).into_iter().flatten() {
        for pointer in ["/persistentVolumeClaim/claimName", "/dataVolume/name"] {
            if own.iter().any(|own| own == text(volume, pointer)) {
                append(volume, pointer, index);
            }
        }
        for pointer in &references {
            append(volume, pointer, index);
        }
    }
}

fn append(volume: &mut Value, pointer: &str, index: usize) {
    if let Some(name) = text_mut(volume, pointer) {
        name.push_str(&format!("-{index}"));
    }
}

/// The patch that gives a machine the pool's present template. Its identity stays.
pub(crate) fn update(pool: &Value, vm: &Value) -> Option<Value> {
    let mut wanted = machine(pool, index_of(name(vm))?);
    for field in ["uuid", "serial"] {
        let pointer = format!("/spec/template/spec/domain/firmware/{field}");
        let kept = text(vm, &pointer);
        if !kept.is_empty() && text(&wanted, &pointer).is_empty() {
            wanted["spec"]["template"]["spec"]["domain"]["firmware"][field] = json!(kept);
        }
    }
    let spec = replacement(&vm["spec"], &wanted["spec"]);
    Some(json!({"metadata": {"uid": vm["metadata"]["uid"],
            "resourceVersion": vm["metadata"]["resourceVersion"],
            "labels": wanted["metadata"]["labels"]},
        "spec": spec}))
}

/// The patch that names its machine's template on an instance that it changes nothing of.
pub(crate) fn relabelled(vmi: &Value, revision: &str) -> Value {
    json!({"metadata": {"uid": vmi["metadata"]["uid"], "labels": {REVISION: revision}}})
}

/// The names of the machine's disks: claims and data volumes are searched under each.
pub(crate) fn disks(vm: &Value) -> BTreeSet<String> {
    let templates = list(vm, "/spec/dataVolumeTemplates").iter().map(name);
    let volumes = list(vm, "/spec/template/spec/volumes").iter();
    let volumes = volumes.flat_map(|volume| {
        ["/persistentVolumeClaim/claimName", "/dataVolume/name"].map(|at| text(volume, at))
    });
    templates.chain(volumes).filter(|own| !own.is_empty()).map(str::to_owned).collect()
}

/// The patch that lets a disk outlive its machine; none if it does not go with it.
pub(crate) fn released(disk: &Value, vm: &Value) -> Option<Value> {
    if !is_controlled_by(disk, vm) {
        return None;
    }
    let owners = list(disk, "/metadata/ownerReferences").iter();
    let others: Vec<&Value> = owners.filter(|own| text(own, "/uid") != uid(vm)).collect();
    Some(json!({"metadata": {"uid": disk["metadata"]["uid"],
        "resourceVersion": disk["metadata"]["resourceVersion"], "annotations": {RELEASED_BY: uid(vm)}, "ownerReferences": others}}))
}

/// A merge patch that leaves nothing of `old` that is not in `new`.
fn replacement(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for (key, value) in new {
        patch.insert(key.clone(), replacement(old.get(key).unwrap_or(&Value::Null), value));
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(generation: Value) -> Value {
        let volumes = json!([{"name": "root", "dataVolume": {"name": "disk"}},
            {"name": "shared", "persistentVolumeClaim": {"claimName": "other"}},
            {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}}]);
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 4}, "spec": {
            "nameGeneration": generation,
            "virtualMachineTemplate": {"spec": {
                "dataVolumeTemplates": [{"metadata": {"name": "disk"}}],
                "template": {"spec": {"volumes": volumes}}}}}})
    }

    #[test]
    fn every_machine_has_disks_of_its_own() {
        let vm = machine(&pool(Value::Null), 3);
        assert_eq!(name(&vm), "p-3");
        assert_eq!(list(&vm, "/spec/dataVolumeTemplates")[0]["metadata"]["name"], "disk-3");
        let volumes = list(&vm, "/spec/template/spec/volumes");
        assert_eq!(volumes[0]["dataVolume"]["name"], "disk-3");
        assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "other");
        assert_eq!(volumes[2]["cloudInitNoCloud"]["secretRef"]["name"], "seed");
        let numbered = machine(&pool(json!({"appendIndexToSecretRefs": true})), 3);
        let volumes = list(&numbered, "/spec/template/spec/volumes");
        assert_eq!(volumes[2]["cloudInitNoCloud"]["secretRef"]["name"], "seed-3");
    }

    #[test]
    fn a_machine_and_its_instance_name_their_template() {
        let vm = machine(&pool(Value::Null), 0);
        let revision = json!("p-4");
        assert_eq!(vm["metadata"]["labels"][REVISION], revision);
        assert_eq!(vm["spec"]["template"]["metadata"]["labels"][REVISION], revision);
    }

    #[test]
    fn a_disk_that_is_kept_loses_only_its_machine() {
        let mut vm = machine(&pool(Value::Null), 0);
        vm["metadata"]["uid"] = json!("vm");
        assert_eq!(disks(&vm), ["disk-0", "other"].map(str::to_owned).into());
        let owner = |uid: &str, controller: bool| json!({"uid": uid, "controller": controller});
        let disk = |owners: Value| json!({"metadata": {"uid": "d", "ownerReferences": owners}});
        let patch = released(&disk(json!([owner("vm", true), owner("x", false)])), &vm).unwrap();
        assert_eq!(patch["metadata"]["ownerReferences"], json!([owner("x", false)]));
        assert_eq!(released(&disk(json!([owner("x", true)])), &vm), None);
    }

    #[test]
    fn a_new_template_keeps_the_identity_of_a_machine() {
        let mut vm = machine(&pool(Value::Null), 0);
        vm["spec"]["template"]["spec"]["domain"] = json!({"firmware": {"uuid": "id"}, "old": 1});
        let patch = update(&pool(Value::Null), &vm).unwrap();
        let domain = &patch["spec"]["template"]["spec"]["domain"];
        assert_eq!(*domain, json!({"firmware": {"uuid": "id"}, "old": null}));
    }
}
