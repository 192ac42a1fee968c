//! Disks, interfaces and memory of Harvester's machines.

use serde_json::Value;
use types::Quantity;

use super::claim::validate_class;
use super::machine::{RESERVED_MEMORY, claims};
use super::{AdmissionResult, DRIVER, HARVESTER, Refusal, STORAGE, Write, text};
use crate::claim_template::ClaimTemplate;

const DISKS: &str = "spec.template.spec.domain.devices.disks";
const VOLUMES: &str = "spec.template.spec.volumes";
const ANNOTATIONS: &str = "metadata.annotations";
const GOLDEN: &str = "/metadata/annotations/harvesterhci.io~1goldenImage";

pub(super) fn validate(write: &Write<'_>, machine: &Value) -> AdmissionResult {
    validate_golden_images(write, machine)?;
    for disk in disks(machine) {
        validate_cdrom(machine, disk)?;
    }
    let unchanged = |part: &str| {
        let pointer = format!("/spec/template/spec/{part}");
        write.old.is_some_and(|old| old.pointer(&pointer) == machine.pointer(&pointer))
    };
    if !unchanged("domain/devices/disks") {
        validate_shareable_disks(write, machine)?;
    }
    validate_memory(machine)?;
    if unchanged("domain/devices/interfaces") {
        return Ok(());
    }
    validate_addresses(write, machine)
}

fn disks(machine: &Value) -> impl Iterator<Item = &Value> {
    let disks = machine.pointer("/spec/template/spec/domain/devices/disks");
    disks.and_then(Value::as_array).into_iter().flatten()
}

fn validate_golden_images(write: &Write<'_>, machine: &Value) -> AdmissionResult {
    for name in claims(machine) {
        let claim = write.objects.get("", "persistentvolumeclaims", write.namespace, name);
        if claim.is_some_and(|claim| text(&claim, GOLDEN) == "true") {
            let message = format!(
                "PVC {}/{name} is a golden image, it can't be used as a volume in VM",
                write.namespace
            );
            return Err(Refusal::invalid(VOLUMES, message));
        }
    }
    Ok(())
}

/// A disc drive can be filled and emptied only on a bus that has drives, and while the guest runs
/// only on a SATA bus.
fn validate_cdrom(machine: &Value, disk: &Value) -> AdmissionResult {
    if !disk["cdrom"].is_object() {
        return Ok(());
    }
    let bus = text(disk, "/cdrom/bus").to_lowercase();
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let volume = volumes.into_iter().flatten().find(|own| own["name"] == disk["name"]);
    let refuse = |message: String| Err(Refusal::invalid(DISKS, message));
    match volume {
        None if bus != "sata" => {
            refuse("empty cd-rom device should connect via SATA bus".to_owned())
        }
        Some(own) if own["persistentVolumeClaim"]["hotpluggable"] == true && bus != "sata" => {
            refuse("hotpluggable cd-rom volume should connect via SATA bus".to_owned())
        }
        _ if matches!(&*bus, "" | "sata" | "scsi" | "usb") => Ok(()),
        _ => refuse(format!("cdrom disk {} has unsupported bus {bus}", text(disk, "/name"))),
    }
}

fn validate_shareable_disks(write: &Write<'_>, machine: &Value) -> AdmissionResult {
    let any_order = disks(machine).any(|disk| disk["bootOrder"].is_u64());
    for (at, disk) in disks(machine).enumerate() {
        if disk["shareable"] != true {
            continue;
        }
        let name = text(disk, "/name");
        let refuse = |field: &'static str, why: &str| {
            Err(Refusal::invalid(field, format!("disk {name} cannot be shareable: {why}")))
        };
        if disk["bootOrder"] == 1 || (!any_order && at == 0) {
            return refuse(DISKS, "a shareable disk cannot be used as the boot disk");
        }
        let cache = text(disk, "/cache");
        if !matches!(cache, "" | "none") {
            let why = format!("a shareable disk requires cache mode none, got {cache}");
            return refuse(DISKS, &why);
        }
        let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        let mut volumes = volumes.into_iter().flatten();
        let volume = volumes.find(|volume| text(volume, "/name") == name);
        let claim = volume.map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
        let Some(claim) = claim.filter(|claim| !claim.is_empty()) else {
            return refuse(VOLUMES, "a shareable disk must be backed by a persistent volume claim");
        };
        validate_shareable_claim(write, claim)?;
    }
    Ok(())
}

fn validate_shareable_claim(write: &Write<'_>, name: &str) -> AdmissionResult {
    let id = format!("{}/{name}", write.namespace);
    let refuse = |message: String| Err(Refusal::invalid(VOLUMES, message));
    let Some(claim) = write.objects.get("", "persistentvolumeclaims", write.namespace, name) else {
        return refuse(format!(
            "PVC {id} does not exist: a shareable disk requires an existing volume"
        ));
    };
    if !can_be_shared(write, &claim) {
        return refuse(format!(
            "PVC {id} cannot back a shareable disk: a ReadWriteMany volume from a provisioner other than Longhorn is required"
        ));
    }
    if text(&claim, "/spec/volumeMode") != "Block" {
        return refuse(format!("PVC {id} cannot back a shareable disk: volumeMode must be Block"));
    }
    Ok(())
}

/// Whether machines on different nodes can write to a volume at once.
pub(super) fn can_be_shared(write: &Write<'_>, claim: &Value) -> bool {
    let class = text(claim, "/spec/storageClassName");
    let class = write.objects.get(STORAGE, "storageclasses", "", class);
    let of_longhorn = class.is_some_and(|class| text(&class, "/provisioner") == DRIVER);
    let modes = claim["spec"]["accessModes"].as_array();
    let mut modes = modes.into_iter().flatten();
    !of_longhorn && modes.any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

fn validate_memory(machine: &Value) -> AdmissionResult {
    let spec = &machine["spec"]["template"]["spec"];
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        return Err(Refusal::invalid(
            "spec.template.spec.terminationGracePeriodSeconds",
            "Termination grace period can't be negative",
        ));
    }
    let amount = |value: &Value| Quantity::from_json(value).unwrap_or(Quantity::ZERO);
    let limit = amount(&spec["domain"]["resources"]["limits"]["memory"]);
    let guest = amount(&spec["domain"]["memory"]["guest"]);
    let has_type = machine["spec"]["instancetype"].is_object();
    if limit.is_zero() && guest.is_zero() && !has_type {
        return Err(Refusal::invalid(
            "spec.template.spec.domain",
            "either memory.guest or resources.limits.memory must be set",
        ));
    }
    if limit.is_zero() {
        return Ok(());
    }
    let Some(reserved) = reserved_memory(machine, &limit)? else { return Ok(()) };
    if !guest.is_zero() && guest.units().saturating_add(reserved) > limit.units() {
        let message = format!(
            "guest memory {} plus reservedMemory {reserved} cannot be greater than limits.memory {}",
            guest.units(),
            limit.units()
        );
        return Err(Refusal::invalid(ANNOTATIONS, message));
    }
    Ok(())
}

/// The bytes that the guest does not get; nothing if the machine does not say.
pub(super) fn reserved_memory(machine: &Value, limit: &Quantity) -> Result<Option<i64>, Refusal> {
    let reserved = match text(machine, RESERVED_MEMORY) {
        "" => return Ok(None),
        reserved => reserved,
    };
    let reserved: Quantity = reserved.parse().map_err(|error| {
        Refusal::invalid(ANNOTATIONS, format!("reservedMemory {reserved:?} is invalid: {error}"))
    })?;
    if reserved >= *limit {
        let message = "reservedMemory cannot be equal or greater than limits.memory";
        return Err(Refusal::invalid(ANNOTATIONS, message));
    }
    if reserved.signum() < 0 {
        return Err(Refusal::invalid(ANNOTATIONS, "reservedMemory cannot be less than 0"));
    }
    Ok(Some(reserved.units()))
}

/// The cluster network and address of each interface that has one.
fn addresses(write: &Write<'_>, machine: &Value) -> Vec<(String, String)> {
    let spec = &machine["spec"]["template"]["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let networks = list(&spec["networks"]);
    let mut found = Vec::new();
    for interface in list(&spec["domain"]["devices"]["interfaces"]) {
        let address = text(&interface, "/macAddress").to_lowercase().replace('-', ":");
        let network = networks.iter().find(|network| network["name"] == interface["name"]);
        let name = network.map(|network| text(network, "/multus/networkName")).unwrap_or_default();
        if address.is_empty() || name.is_empty() {
            continue;
        }
        let (namespace, name) = name.split_once('/').unwrap_or((write.namespace, name));
        let plural = "network-attachment-definitions";
        let definition = write.objects.get("k8s.cni.cncf.io", plural, namespace, name);
        let label = "/metadata/labels/network.harvesterhci.io~1clusternetwork";
        let cluster = definition.map(|own| text(&own, label).to_owned()).unwrap_or_default();
        // Without a cluster network the definition itself is the segment.
        let segment = if cluster.is_empty() { format!("{namespace}/{name}") } else { cluster };
        found.push((segment, address));
    }
    found
}

fn validate_addresses(write: &Write<'_>, machine: &Value) -> AdmissionResult {
    let own = addresses(write, machine);
    if own.is_empty() {
        return Ok(());
    }
    for other in write.objects.list("kubevirt.io", "virtualmachines", "") {
        let is_self = text(&other, "/metadata/name") == write.name
            && text(&other, "/metadata/namespace") == write.namespace;
        if is_self {
            continue;
        }
        let taken = addresses(write, &other);
        if let Some((network, _)) = own.iter().find(|pair| taken.contains(pair)) {
            let message = format!(
                "duplicate mac address present for vm {} for cluster network {network}",
                write.name
            );
            return Err(Refusal::invalid("spec.template.spec.domain.devices.interfaces", message));
        }
    }
    Ok(())
}

/// Claims of a machine keep their class.
pub(super) fn validate_classes(had: &[ClaimTemplate], wanted: &[ClaimTemplate]) -> AdmissionResult {
    let class =
        |own: &ClaimTemplate| own.claim["spec"]["storageClassName"].as_str().map(str::to_owned);
    let mut changed = Vec::new();
    for own in wanted {
        let before = had.iter().find(|old| old.name == own.name).and_then(class);
        if let (Some(before), Some(now)) = (before, class(own))
            && before != now
        {
            changed.push(format!(" new name {now} in volume {};", own.name));
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let message = format!(
        "storage class names for the volumes in the harvesterhci.io/volumeClaimTemplates annotation cannot be changed;{}",
        changed.concat()
    );
    Err(Refusal::invalid(ANNOTATIONS, message))
}

/// A disk has a class that exists, and a disk of an image the class of that image.
pub(super) fn validate_image(
    write: &Write<'_>,
    had: &[ClaimTemplate],
    wanted: &[ClaimTemplate],
) -> AdmissionResult {
    for own in wanted {
        let said = text(&own.claim, "/metadata/annotations/harvesterhci.io~1imageId");
        let class = text(&own.claim, "/spec/storageClassName");
        if !had.contains(own) {
            validate_class(write, ANNOTATIONS, class)?;
        }
        if said.is_empty() || class.is_empty() {
            continue;
        }
        let images = write.objects.list(HARVESTER, "virtualmachineimages", "");
        let image = images.iter().find(|image| text(image, "/status/storageClassName") == class);
        let Some(image) = image else { continue };
        let expected =
            format!("{}/{}", text(image, "/metadata/namespace"), text(image, "/metadata/name"));
        if expected != said {
            let message = format!(
                "imageId {said:?} in volume template does not match backing image of storage class {class:?} (expected {expected:?})"
            );
            return Err(Refusal::invalid(ANNOTATIONS, message));
        }
    }
    Ok(())
}

/// A machine is not stopped while a backup of it is made.
pub(super) fn validate_stop(write: &Write<'_>, machine: &Value) -> AdmissionResult {
    let Some(old) = write.old else { return Ok(()) };
    let stops = text(old, "/spec/runStrategy") != "Halted"
        && text(machine, "/spec/runStrategy") == "Halted";
    if !stops {
        return Ok(());
    }
    let backups = write.objects.list(HARVESTER, "virtualmachinebackups", write.namespace);
    let active = backups.iter().any(|backup| {
        text(backup, "/spec/source/name") == write.name
            && backup["metadata"]["deletionTimestamp"].is_null()
            && backup["status"]["readyToUse"] != true
            && backup["status"]["error"].is_null()
            && backup["status"].is_object()
    });
    if !active {
        return Ok(());
    }
    let message = format!(
        "vm {}/{} has a backup in progress; wait for it to finish or delete it before stopping/restarting",
        write.namespace, write.name
    );
    Err(Refusal::new(400, "", message))
}

#[cfg(test)]
mod tests;
