//! Operations of a cluster: add-ons, versions, upgrades, support bundles, quotas.

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, LONGHORN, Refusal, Write, snapshot_quota, text};
use crate::addon::DEFAULT_ADDONS;
use crate::claim_template::claim_templates;
use crate::snapshot_usage::QUOTA_NAME;
use crate::upgrade::{self, CheckedObjects, INTENT, SKIP_CHECKS, UpgradeIntent, check_version};

/// Namespace of the operators' objects.
const SYSTEM: &str = "harvester-system";

pub(super) fn validate_addon(write: &Write<'_>) -> AdmissionResult {
    let refuse = |message: String| Err(Refusal::new(400, "", message));
    match (write.object, write.old) {
        (Some(object), None) => {
            let chart = text(object, "/spec/chart");
            let all = write.objects.list(HARVESTER, "addons", "");
            if !write.trusted && all.iter().any(|other| text(other, "/spec/chart") == chart) {
                let message = format!(
                    "addon with Chart \"{chart}\" has been created, cannot create a new one"
                );
                return Err(Refusal::new(409, "", message));
            }
            Ok(())
        }
        (Some(object), Some(old)) => {
            if text(object, "/spec/chart") != text(old, "/spec/chart") {
                return refuse("chart field cannot be changed.".to_owned());
            }
            if object["spec"] == old["spec"] || write.trusted {
                return Ok(());
            }
            if has_condition(old, "InProgress") {
                return refuse(format!(
                    "cannot perform operation, as an existing operation is in progress on addon {}",
                    write.name
                ));
            }
            validate_toggle(write, object, old)
        }
        (None, Some(_)) if !write.trusted => {
            let own = (write.namespace, write.name);
            if DEFAULT_ADDONS.iter().any(|addon| (addon.namespace, addon.name) == own) {
                return refuse(format!("{}/{} addon cannot be deleted", own.0, own.1));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn has_condition(object: &Value, name: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|own| own["type"] == name && own["status"] == "True")
}

fn validate_toggle(write: &Write<'_>, object: &Value, old: &Value) -> AdmissionResult {
    let enabled = |addon: &Value| addon["spec"]["enabled"] == true;
    let (was, is) = (enabled(old), enabled(object));
    let refuse = |message: String| Err(Refusal::new(400, "spec.enabled", message));
    match write.name {
        "descheduler" if is && write.objects.list("", "nodes", "").len() <= 1 => refuse(
            "descheduler addon cannot be enabled as not enough nodes exist in the cluster".into(),
        ),
        "rancher-logging" if was != is => {
            let logs = write.objects.list(HARVESTER, "upgradelogs", SYSTEM);
            let Some(log) = logs.first() else { return Ok(()) };
            let verb = if is { "enabled" } else { "disabled" };
            refuse(format!(
                "rancher-logging addon cannot be {verb} as upgradeLog {SYSTEM}/{} exists in the cluster, wait until the Harvester upgrade is finished or removed",
                text(log, "/metadata/name")
            ))
        }
        "pcidevices-controller" if was && !is => {
            let machines = write.objects.list("kubevirt.io", "virtualmachines", "");
            let users: Vec<String> = machines.iter().filter(|vm| has_devices(vm)).map(id).collect();
            if users.is_empty() {
                return Ok(());
            }
            refuse(format!(
                "pcidevices-controller addon cannot be disabled as the following VMs are using passthrough devices: [{}]",
                users.join(" ")
            ))
        }
        _ => Ok(()),
    }
}

fn id(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn has_devices(machine: &Value) -> bool {
    let devices = machine.pointer("/spec/template/spec/domain/devices");
    let some = |kind: &str| {
        devices.and_then(|all| all[kind].as_array()).is_some_and(|all| !all.is_empty())
    };
    some("hostDevices") || some("gpus")
}

pub(super) fn validate_version(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let checksum = text(object, "/spec/isoChecksum");
    let is_hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    if checksum.is_empty() || (checksum.len() == 128 && checksum.bytes().all(is_hex)) {
        return Ok(());
    }
    let message = format!("invalid isoChecksum {checksum}");
    Err(Refusal::new(400, "spec.isoChecksum", message))
}

/// An image of an operating system is of no use here.
const NO_IMAGE: &str =
    "spec.image is not supported: create a Version with the URL of the program in spec.isoURL";

fn is_unchecked(upgrade: &Value) -> bool {
    upgrade["metadata"]["annotations"][SKIP_CHECKS] == "true"
}

pub(super) fn validate_upgrade(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    if write.namespace != SYSTEM {
        let message = format!("upgrades are created in the namespace {SYSTEM}");
        return Err(Refusal::new(400, "metadata.namespace", message));
    }
    let intent = object["metadata"]["annotations"][INTENT].as_str();
    if UpgradeIntent::parse(intent).is_none() {
        let message = format!("annotation {INTENT} must be pause, abort or finalize");
        return Err(Refusal::new(400, "metadata.annotations", message));
    }
    match write.old {
        None => validate_new_upgrade(write, object),
        Some(old) if text(old, "/spec/version") != text(object, "/spec/version") => {
            let message = "the version of an upgrade cannot be changed; abort it first";
            Err(Refusal::new(400, "spec.version", message))
        }
        Some(_) => Ok(()),
    }
}

fn validate_new_upgrade(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let (version, image) = (text(object, "/spec/version"), text(object, "/spec/image"));
    let refuse = |message: String| Err(Refusal::new(400, "spec.version", message));
    if version.is_empty() && image.is_empty() {
        return refuse("version or image field are not specified.".to_owned());
    }
    if version.is_empty() {
        return Err(Refusal::new(400, "spec.image", NO_IMAGE));
    }
    let Some(found) = write.objects.get(HARVESTER, "versions", write.namespace, version) else {
        return refuse(format!("version {version} is not found"));
    };
    if let Err(finding) = check_version(&found) {
        return refuse(finding.to_string());
    }
    let all = write.objects.list(HARVESTER, "upgrades", write.namespace);
    let unfinished = all.iter().find(|other| !upgrade::has_ended(other));
    match unfinished {
        None if is_unchecked(object) => Ok(()),
        None => check_cluster(write),
        Some(other) => {
            let name = text(other, "/metadata/name");
            let message = format!("cannot proceed until previous upgrade {name:?} completes");
            Err(Refusal::new(409, "", message))
        }
    }
}

/// Fails with the first reason not to begin an upgrade now.
fn check_cluster(write: &Write<'_>) -> AdmissionResult {
    let list = |group, resource| write.objects.list(group, resource, "");
    let objects = CheckedObjects {
        nodes: &list("", "nodes"),
        volumes: &list(LONGHORN, "volumes"),
        backups: &list(HARVESTER, "virtualmachinebackups"),
        migrations: &list("kubevirt.io", "virtualmachineinstancemigrations"),
    };
    match upgrade::check(&objects).first() {
        Some(finding) => Err(Refusal::new(400, "", finding.to_string())),
        None => Ok(()),
    }
}

pub(super) fn validate_upgrade_log(write: &Write<'_>) -> AdmissionResult {
    let refuse = |message: &str| Err(Refusal::new(400, "spec.upgradeName", message));
    match (write.object, write.old) {
        (Some(_), None) if !write.trusted => {
            refuse("upgradelog can only be created by the harvester controller")
        }
        (Some(object), None) if text(object, "/spec/upgradeName").is_empty() => {
            refuse("upgradeName field is not specified")
        }
        (Some(_), None) if write.namespace != SYSTEM => {
            refuse("UpgradeLog must be created in namespace harvester-system")
        }
        (Some(object), Some(old))
            if text(object, "/spec/upgradeName") != text(old, "/spec/upgradeName") =>
        {
            refuse("spec.upgradeName is immutable and cannot be changed")
        }
        _ => Ok(()),
    }
}

pub(super) fn validate_support_bundle(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(object), None) => {
            let extra = object["spec"]["extraCollectionNamespaces"].as_array();
            let extra = extra.into_iter().flatten().filter_map(Value::as_str);
            for namespace in extra.filter(|namespace| !namespace.is_empty()) {
                if write.objects.get("", "namespaces", "", namespace).is_none() {
                    let message = format!("namespace {namespace} not found");
                    return Err(Refusal::new(400, "spec.extraCollectionNamespaces", message));
                }
            }
            Ok(())
        }
        (Some(object), Some(old)) if object["spec"] != old["spec"] => Err(Refusal::new(
            400,
            "spec",
            "modifying the spec of an existing support bundle is not allowed",
        )),
        _ => Ok(()),
    }
}

pub(super) fn validate_quota(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    if write.name != QUOTA_NAME && write.old.is_none() {
        return Err(Refusal::invalid("name", format!("name must be {QUOTA_NAME}")));
    }
    let limit = &object["spec"]["snapshotLimit"];
    let machines = limit["vmTotalSnapshotSizeQuota"].as_object();
    let machines = machines.into_iter().flatten().map(|(_, bytes)| bytes);
    let mut all = machines.chain([&limit["namespaceTotalSnapshotSizeQuota"]]);
    if all.any(|bytes| bytes.as_i64().is_some_and(|bytes| bytes < 0)) {
        return Err(Refusal::invalid("spec.snapshotLimit", "must be greater than or equal to 0"));
    }
    Ok(())
}

/// Secrets that encrypted classes need stay.
pub(super) fn validate_secret(write: &Write<'_>) -> AdmissionResult {
    if write.object.is_some() || write.trusted {
        return Ok(());
    }
    let classes = write.objects.list("storage.k8s.io", "storageclasses", "");
    let uses = |class: &&Value| {
        let parameter =
            |name: &str| text(class, &format!("/parameters/csi.storage.k8s.io~1{name}")).to_owned();
        text(class, "/parameters/encrypted") == "true"
            && ["provisioner-secret", "node-publish-secret", "node-stage-secret"].iter().any(
                |own| {
                    parameter(&format!("{own}-name")) == write.name
                        && parameter(&format!("{own}-namespace")) == write.namespace
                },
            )
    };
    let names: Vec<&str> =
        classes.iter().filter(uses).map(|class| text(class, "/metadata/name")).collect();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!("Secret is used by encrypted storage classes: [{}]", names.join(" "));
    Err(Refusal::invalid("", message))
}

/// A volume that several machines write to has no state to keep.
pub(super) fn validate_snapshot(write: &Write<'_>) -> AdmissionResult {
    let (Some(object), None) = (write.object, write.old) else { return Ok(()) };
    let claim = text(object, "/spec/source/persistentVolumeClaimName");
    if claim.is_empty() || write.trusted {
        return Ok(());
    }
    let machines = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    let Some(machine) = machines.iter().find(|machine| shares(machine, claim)) else {
        return snapshot_quota::check_claim(write, claim);
    };
    let message = format!(
        "cannot snapshot PVC {}/{claim}: it is attached to VM {} as a shareable disk and may be written by multiple VMs concurrently",
        write.namespace,
        id(machine)
    );
    Err(Refusal::invalid("spec.source.persistentVolumeClaimName", message))
}

fn shares(machine: &Value, claim: &str) -> bool {
    let list =
        |pointer: &str| machine.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    list("/spec/template/spec/volumes")
        .filter(|volume| text(volume, "/persistentVolumeClaim/claimName") == claim)
        .any(|volume| {
            list("/spec/template/spec/domain/devices/disks")
                .any(|disk| disk["name"] == volume["name"] && disk["shareable"] == true)
        })
}

/// Data of images and disks of machines are not removed under them.
pub(super) fn validate_data_volume(write: &Write<'_>) -> AdmissionResult {
    let (None, Some(old)) = (write.object, write.old) else { return Ok(()) };
    if write.trusted {
        return Ok(());
    }
    let own = format!("{}/{}", write.namespace, write.name);
    let owners = old.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let image = owners.into_iter().flatten().find(|owner| owner["kind"] == "VirtualMachineImage");
    if let Some(image) = image {
        let name = text(image, "/name");
        if write.objects.get(HARVESTER, "virtualmachineimages", write.namespace, name).is_some() {
            let message = format!(
                "can not delete DataVolume {own} which is owned by VMImage {}/{name}",
                write.namespace
            );
            return Err(Refusal::invalid("", message));
        }
    }
    let machines = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    let has = |machine: &&Value| {
        let templates = claim_templates(&machine["metadata"]).unwrap_or_default();
        templates.iter().any(|template| template.name == write.name)
    };
    let Some(machine) = machines.iter().find(has) else { return Ok(()) };
    let message =
        format!("can not delete DataVolume {own} which is attached to VM {}", id(machine));
    Err(Refusal::invalid("", message))
}

/// The repository of an upgrade stays until it has ended. Upstream answers 500.
pub(super) fn validate_deployment(write: &Write<'_>) -> AdmissionResult {
    let (None, Some(old), false) = (write.object, write.old, write.trusted) else { return Ok(()) };
    let labels = &old["metadata"]["labels"];
    let name = labels["harvesterhci.io/upgrade"].as_str().unwrap_or_default();
    if labels["harvesterhci.io/upgradeComponent"] != "repo" {
        return Ok(());
    }
    let found = write.objects.get(HARVESTER, "upgrades", write.namespace, name);
    if found.is_none_or(|own| upgrade::has_ended(&own)) {
        return Ok(());
    }
    let message = format!(
        "cannot delete deployment {}/{}: upgrade {name} is still in progress (component: repo)",
        write.namespace, write.name
    );
    Err(Refusal::invalid("", message))
}

#[cfg(test)]
mod tests;
