//! The changes of machines by actions. Pure.

use serde_json::{Value, json};

const RUN_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
pub(super) const CLAIM_TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
/// The annotations that a copy keeps.
const KEPT: [&str; 2] =
    ["harvesterhci.io/reservedMemory", "harvesterhci.io/enableCPUAndMemoryHotplug"];

/// Why a machine cannot be changed so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChangeError {
    #[error("disk `{disk}` not found in virtual machine {machine}")]
    NoDisk { disk: String, machine: String },
    #[error("disk `{disk}` exists already in virtual machine {machine}")]
    DiskExists { disk: String, machine: String },
    #[error("can not find the SATA CD-ROM device {device} from the VM {machine}")]
    NoCdRom { device: String, machine: String },
    #[error(
        "invalid volume {0}, only support PersistentVolumeClaim, CloudInitNoCloud, Secret, and \
         ContainerDisk"
    )]
    Volume(String),
}

/// The patch that starts a machine which was stopped, as it ran before; nothing if starting it
/// is not a matter of its strategy.
pub(super) fn start(vm: &Value) -> Option<Value> {
    if vm["spec"]["runStrategy"] != "Halted" {
        return None;
    }
    let before = vm["metadata"]["annotations"][RUN_STRATEGY].as_str();
    let before = before.filter(|strategy| !matches!(*strategy, "" | "Halted"));
    Some(json!({"spec": {"runStrategy": before.unwrap_or("RerunOnFailure")}}))
}

/// The patch that stops a machine and notes how it ran; nothing for machines without a strategy.
pub(super) fn stop(vm: &Value) -> Option<Value> {
    let strategy = vm["spec"]["runStrategy"].as_str()?;
    let mut patch = json!({"spec": {"runStrategy": "Halted"}});
    if strategy != "Halted" {
        patch["metadata"] = json!({"annotations": {RUN_STRATEGY: strategy}});
    }
    Some(patch)
}

pub(super) fn list<'a>(spec: &'a mut Value, path: &[&str]) -> &'a mut Vec<Value> {
    let mut at = spec;
    for key in path {
        if !at[*key].is_object() && !at[*key].is_array() {
            let is_last = path.last() == Some(key);
            at[*key] = if is_last { json!([]) } else { json!({}) };
        }
        at = &mut at[*key];
    }
    if !at.is_array() {
        *at = json!([]);
    }
    at.as_array_mut().expect("it was made one")
}

pub(super) const DISKS: [&str; 5] = ["template", "spec", "domain", "devices", "disks"];
pub(super) const VOLUMES: [&str; 3] = ["template", "spec", "volumes"];

/// Adds a claim as a hot-plugged disk.
pub(super) fn add_volume(vm: &mut Value, disk: &str, claim: &Value) -> Result<(), ChangeError> {
    let machine = name(vm);
    let taken = |all: &[Value]| all.iter().any(|one| one["name"] == disk);
    if taken(list(&mut vm["spec"], &DISKS)) || taken(list(&mut vm["spec"], &VOLUMES)) {
        return Err(ChangeError::DiskExists { disk: disk.to_owned(), machine });
    }
    list(&mut vm["spec"], &DISKS).push(json!({"name": disk, "disk": {"bus": "scsi"}}));
    list(&mut vm["spec"], &VOLUMES).push(json!({
        "name": disk,
        "persistentVolumeClaim": {"claimName": claim["metadata"]["name"], "hotpluggable": true},
    }));
    let mut templates = templates(vm);
    templates.push(template(claim, claim["metadata"]["name"].as_str().unwrap_or_default()));
    write_templates(vm, &templates);
    Ok(())
}

/// Removes a disk, its volume and its claim template.
pub(super) fn remove_volume(vm: &mut Value, disk: &str) -> Result<(), ChangeError> {
    let machine = name(vm);
    let volumes = list(&mut vm["spec"], &VOLUMES);
    let Some(at) = volumes.iter().position(|volume| volume["name"] == disk) else {
        return Err(ChangeError::NoDisk { disk: disk.to_owned(), machine });
    };
    let volume = volumes.remove(at);
    list(&mut vm["spec"], &DISKS).retain(|one| one["name"] != disk);
    let claim = &volume["persistentVolumeClaim"]["claimName"];
    let mut templates = templates(vm);
    templates.retain(|template| template["metadata"]["name"] != *claim);
    write_templates(vm, &templates);
    Ok(())
}

/// Puts the template of another claim in the place of one, if there is one.
pub(super) fn replace_template(vm: &mut Value, before: &str, claim: &Value) {
    let mut templates = templates(vm);
    let Some(own) = templates.iter_mut().find(|own| own["metadata"]["name"] == before) else {
        return;
    };
    *own = template(claim, claim["metadata"]["name"].as_str().unwrap_or_default());
    write_templates(vm, &templates);
}

/// Takes the volume out of a CD-ROM, and names the claim that was in it.
pub(super) fn eject(vm: &mut Value, device: &str) -> Result<String, ChangeError> {
    let machine = name(vm);
    let missing = || ChangeError::NoCdRom { device: device.to_owned(), machine: machine.clone() };
    let disks = list(&mut vm["spec"], &DISKS);
    let is_cdrom = disks.iter().any(|disk| {
        disk["name"] == device
            && disk["cdrom"]["bus"].as_str().is_some_and(|bus| bus.eq_ignore_ascii_case("sata"))
    });
    if !is_cdrom {
        return Err(missing());
    }
    let volumes = list(&mut vm["spec"], &VOLUMES);
    let at = volumes.iter().position(|volume| volume["name"] == device).ok_or_else(missing)?;
    let volume = volumes.remove(at);
    let claim = volume["persistentVolumeClaim"]["claimName"].as_str().ok_or_else(missing)?;
    let mut templates = templates(vm);
    templates.retain(|template| template["metadata"]["name"] != claim);
    write_templates(vm, &templates);
    Ok(claim.to_owned())
}

/// The claims that the volumes of a machine name.
pub(super) fn claims(vm: &Value) -> Vec<String> {
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array();
    let volumes = volumes.into_iter().flatten();
    let names = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    names.map(str::to_owned).collect()
}

/// A copy of a machine under a new name. `claims` are the claims of its volumes, each with the
/// name of its copy; the copies are made from claim templates, with the data of their sources.
pub(super) fn clone(
    vm: &Value,
    target: &str,
    strategy: &str,
    claims: &[(Value, String)],
) -> Result<Value, ChangeError> {
    let mut spec = vm["spec"].clone();
    let template_spec = &mut spec["template"]["spec"];
    for volume in template_spec["volumes"].as_array_mut().into_iter().flatten() {
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            let copy = claims.iter().find(|(source, _)| source["metadata"]["name"] == claim);
            let Some((_, copy)) = copy else { return Err(unsupported(volume)) };
            volume["persistentVolumeClaim"]["claimName"] = copy.clone().into();
        } else if ["cloudInitNoCloud", "secret", "containerDisk"]
            .iter()
            .all(|kind| volume.get(kind).is_none())
        {
            return Err(unsupported(volume));
        }
    }
    let interfaces = template_spec["domain"]["devices"]["interfaces"].as_array_mut();
    for interface in interfaces.into_iter().flatten() {
        if let Some(interface) = interface.as_object_mut() {
            interface.remove("macAddress");
        }
    }
    template_spec["hostname"] = target.into();
    spec["template"]["metadata"]["labels"]["harvesterhci.io/vmName"] = target.into();
    if !strategy.is_empty() {
        spec["runStrategy"] = strategy.into();
    }
    let mut annotations = json!({});
    for key in KEPT {
        if let Some(value) = vm["metadata"]["annotations"].get(key) {
            annotations[key] = value.clone();
        }
    }
    let templates: Vec<Value> = claims
        .iter()
        .map(|(source, copy)| {
            let mut made = template(source, copy);
            let source = &source["metadata"]["name"];
            made["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": source});
            made
        })
        .collect();
    annotations[CLAIM_TEMPLATES] = Value::Array(templates).to_string().into();
    let mut labels = vm["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    Ok(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": target, "namespace": vm["metadata"]["namespace"], "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }))
}

fn unsupported(volume: &Value) -> ChangeError {
    ChangeError::Volume(volume["name"].as_str().unwrap_or_default().to_owned())
}

/// The machine in a version of a template.
pub(super) fn template_source(vm: &Value) -> Value {
    let mut spec = vm["spec"].clone();
    let interfaces = spec["template"]["spec"]["domain"]["devices"]["interfaces"].as_array_mut();
    for interface in interfaces.into_iter().flatten() {
        if let Some(interface) = interface.as_object_mut() {
            interface.remove("macAddress");
        }
    }
    let mut annotations = json!({});
    for key in KEPT.into_iter().chain([CLAIM_TEMPLATES]) {
        if let Some(value) = vm["metadata"]["annotations"].get(key) {
            annotations[key] = value.clone();
        }
    }
    json!({"metadata": {"labels": vm["metadata"]["labels"], "annotations": annotations}, "spec": spec})
}

pub(super) fn name(vm: &Value) -> String {
    let part = |field: &str| vm["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}

pub(super) fn templates(vm: &Value) -> Vec<Value> {
    let text = vm["metadata"]["annotations"][CLAIM_TEMPLATES].as_str().unwrap_or("[]");
    serde_json::from_str(text).unwrap_or_default()
}

pub(super) fn write_templates(vm: &mut Value, templates: &[Value]) {
    if !vm["metadata"]["annotations"].is_object() {
        vm["metadata"]["annotations"] = json!({});
    }
    let text = Value::Array(templates.to_vec()).to_string();
    vm["metadata"]["annotations"][CLAIM_TEMPLATES] = text.into();
}

/// The template of a claim like `claim`, with a name.
fn template(claim: &Value, name: &str) -> Value {
    let spec = &claim["spec"];
    let mut metadata = json!({"name": name});
    let image = &claim["metadata"]["annotations"]["harvesterhci.io/imageId"];
    if image.is_string() {
        metadata["annotations"] = json!({"harvesterhci.io/imageId": image});
    }
    json!({
        "metadata": metadata,
        "spec": {
            "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
            "storageClassName": spec["storageClassName"],
            "resources": {"requests": {"storage": spec["resources"]["requests"]["storage"]}},
        },
    })
}

#[cfg(test)]
mod tests;
