//! Which actions a type has, and which of them an object allows now. Pure: only the object decides,
//! so an action that depends on other objects (nodes, networks, a backup target) may still be refused.

use client::CatalogKind;
use hci::cpu_manager::{self, CpuPolicy};
use hci::maintenance::{DRAIN_REQUESTED, MAINTAIN_STATUS};
use serde_json::Value;

const MACHINE: &[&str] = &[
    "abortMigration",
    "addNic",
    "addVolume",
    "backup",
    "cancelStorageMigration",
    "clone",
    "cpuAndMemoryHotplug",
    "createTemplate",
    "deleteResourceQuota",
    "dismissInsufficientResourceQuota",
    "ejectCdRomVolume",
    "findHotunpluggableNics",
    "findMigratableNodes",
    "forceStop",
    "insertCdRomVolume",
    "migrate",
    "pause",
    "removeNic",
    "removeVolume",
    "restart",
    "restore",
    "snapshot",
    "softreboot",
    "start",
    "stop",
    "storageMigration",
    "unpause",
    "updateResourceQuota",
];
/// Label of a machine, and its value if a guest cluster has created the machine.
const CREATOR: &str = "harvesterhci.io/creator";
const GUEST_CLUSTER: &str = "docker-machine-driver-harvester";
const HOTPLUG: &str = "harvesterhci.io/enableCPUAndMemoryHotplug";
const CLAIM: &[&str] = &["cancelExpand", "clone", "dataMigration", "export", "snapshot"];
const SNAPSHOT: &[&str] = &["restore"];
const NAMESPACE: &[&str] = &["deleteResourceQuota", "updateResourceQuota"];
const NODE: &[&str] = &[
    "cordon",
    "disableCPUManager",
    "disableMaintenanceMode",
    "enableCPUManager",
    "enableMaintenanceMode",
    "listUnhealthyVM",
    "maintenancePossible",
    "powerAction",
    "powerActionPossible",
    "uncordon",
];

const IMAGE: &[&str] = &["upload"];

/// All actions of a type that are carried out here.
pub(super) fn names(kind: &CatalogKind) -> &'static [&'static str] {
    match (&*kind.group, &*kind.plural) {
        ("kubevirt.io", "virtualmachines") => MACHINE,
        ("", "persistentvolumeclaims") => CLAIM,
        ("snapshot.storage.k8s.io", "volumesnapshots") => SNAPSHOT,
        ("", "namespaces") => NAMESPACE,
        ("", "nodes") => NODE,
        _ => &[],
    }
}

/// The actions that resources of a type can show. The data of images goes past this API.
pub(super) fn shown(kind: &CatalogKind) -> &'static [&'static str] {
    if has_data(kind) { IMAGE } else { names(kind) }
}

/// Whether resources of a type have data of their own: images.
pub(crate) fn has_data(kind: &CatalogKind) -> bool {
    kind.is("harvesterhci.io", "virtualmachineimages")
}

/// Whether an image has data that can be downloaded.
pub(crate) fn is_downloadable(kind: &CatalogKind, object: &Value) -> bool {
    has_data(kind)
        && has_condition(object, "Imported")
        && object["spec"]["securityParameters"]["cryptoOperation"] != "encrypt"
}

/// The actions that an object allows now.
pub(crate) fn possible(kind: &CatalogKind, object: &Value) -> Vec<&'static str> {
    let allows = |action: &&str| {
        if object["metadata"]["deletionTimestamp"].is_string() {
            return false;
        }
        match (&*kind.group, &*kind.plural) {
            ("kubevirt.io", "virtualmachines") => machine_allows(object, action),
            ("", "namespaces") => true,
            ("", "persistentvolumeclaims") => claim_allows(object, action),
            ("snapshot.storage.k8s.io", "volumesnapshots") => {
                object["status"]["readyToUse"] == true
            }
            ("", "nodes") => node_allows(object, action),
            _ => has_data(kind) && awaits_upload(object),
        }
    };
    shown(kind).iter().copied().filter(|action| allows(action)).collect()
}

fn machine_allows(vm: &Value, action: &str) -> bool {
    let status = vm["status"]["printableStatus"].as_str().unwrap_or_default();
    let exists = vm["status"]["created"] == true;
    let halted = vm["spec"]["runStrategy"] == "Halted" || vm["spec"]["running"] == false;
    let requested = vm["status"]["stateChangeRequests"].as_array();
    let starting = requested.is_some_and(|all| all.iter().any(|one| one["action"] == "Start"));
    let paused = has_condition(vm, "Paused");
    let running = exists && matches!(status, "Running" | "Paused" | "Migrating");
    let settled = !exists || matches!(status, "Running" | "Stopped");
    match action {
        "start" => !starting && (!exists || status == "Stopped"),
        "stop" => !halted && (exists || !is_manual(vm)),
        "forceStop" => status == "Stopping",
        "restart" => !starting && !halted && exists,
        "softreboot" | "pause" => running && !paused && !has_liveness_probe(vm),
        "unpause" => running && paused,
        "backup" | "snapshot" | "createTemplate" => settled,
        "restore" => !exists && vm["status"]["ready"] != true,
        "addVolume" | "removeVolume" | "clone" | "updateResourceQuota" | "deleteResourceQuota" => {
            true
        }
        "insertCdRomVolume" => has_empty_cdrom(vm),
        "ejectCdRomVolume" => has_hotplugged_cdrom(vm),
        "dismissInsufficientResourceQuota" => {
            vm["metadata"]["annotations"]["harvesterhci.io/insufficient-resource-quota"].is_string()
        }
        "migrate" | "findMigratableNodes" => {
            running && !paused && status != "Migrating" && has_condition(vm, "LiveMigratable")
        }
        "abortMigration" => status == "Migrating",
        "storageMigration" => {
            status == "Running"
                && has_condition(vm, "StorageLiveMigratable")
                && super::storage_migration::active(vm).is_empty()
        }
        "cancelStorageMigration" => !super::storage_migration::active(vm).is_empty(),
        "addNic" => status == "Running" && can_get_interfaces(vm),
        "removeNic" | "findHotunpluggableNics" => {
            status == "Running" && !super::machine_device::unpluggable_nics(vm).is_empty()
        }
        "cpuAndMemoryHotplug" => status == "Running" && can_grow(vm),
        _ => false,
    }
}

/// The rules of `addNic`: the machine can move, which gives the guest the interface, its addresses
/// stay the same when it does, and no guest cluster depends on its interfaces.
fn can_get_interfaces(vm: &Value) -> bool {
    let interfaces = &vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"];
    let mut interfaces = interfaces.as_array().into_iter().flatten();
    let has_address = |own: &Value| own["macAddress"].as_str().is_some_and(|mac| !mac.is_empty());
    has_condition(vm, "LiveMigratable")
        && interfaces.all(has_address)
        && vm["metadata"]["labels"][CREATOR] != GUEST_CLUSTER
}

/// The rules of `cpuAndMemoryHotplug`: sockets are added one by one, and one change is made at a time.
fn can_grow(vm: &Value) -> bool {
    let cpu = &vm["spec"]["template"]["spec"]["domain"]["cpu"];
    let is_one = |field: &str| cpu[field].as_u64().unwrap_or(1) == 1;
    let changes = ["RestartRequired", "HotVCPUChange", "HotMemoryChange"];
    vm["metadata"]["annotations"][HOTPLUG] == "true"
        && has_condition(vm, "LiveMigratable")
        && is_one("cores")
        && is_one("threads")
        && !changes.iter().any(|change| has_condition(vm, change))
}

fn has_liveness_probe(vm: &Value) -> bool {
    vm["spec"]["template"]["spec"]["livenessProbe"].is_object()
}

fn awaits_upload(image: &Value) -> bool {
    image["spec"]["sourceType"] == "upload" && !has_condition(image, "Imported")
}

fn is_manual(vm: &Value) -> bool {
    matches!(vm["spec"]["runStrategy"].as_str(), Some("Manual" | "RerunOnFailure"))
}

fn has_condition(object: &Value, name: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == "True")
}

fn claim_allows(claim: &Value, action: &str) -> bool {
    let bound = claim["status"]["phase"] == "Bound";
    let resizing = has_condition(claim, "Resizing");
    match action {
        "cancelExpand" => resizing,
        _ => bound && !resizing,
    }
}

fn has_empty_cdrom(vm: &Value) -> bool {
    let spec = &vm["spec"]["template"]["spec"];
    let disks = spec["domain"]["devices"]["disks"].as_array();
    let mut disks = disks.into_iter().flatten();
    disks.any(|disk| {
        let volumes = spec["volumes"].as_array();
        super::machine_device::is_sata_cdrom(disk)
            && !volumes.into_iter().flatten().any(|volume| volume["name"] == disk["name"])
    })
}

fn has_hotplugged_cdrom(vm: &Value) -> bool {
    let spec = &vm["spec"]["template"]["spec"];
    let disks = spec["domain"]["devices"]["disks"].as_array();
    let mut disks = disks.into_iter().flatten();
    disks.any(|disk| {
        let volumes = spec["volumes"].as_array();
        let volume = volumes.into_iter().flatten().find(|volume| volume["name"] == disk["name"]);
        disk["cdrom"].is_object()
            && volume.is_some_and(|volume| volume["persistentVolumeClaim"]["hotpluggable"] == true)
    })
}

fn node_allows(node: &Value, action: &str) -> bool {
    let cordoned = node["spec"]["unschedulable"] == true;
    let notes = &node["metadata"]["annotations"];
    let maintained = [DRAIN_REQUESTED, MAINTAIN_STATUS].iter().any(|own| notes[*own].is_string());
    match action {
        "cordon" => !cordoned,
        "uncordon" => cordoned && !maintained,
        "enableMaintenanceMode" | "maintenancePossible" | "listUnhealthyVM" => !maintained,
        "disableMaintenanceMode" => maintained,
        "powerActionPossible" => true,
        "enableCPUManager" => cpu_manager::check(node, CpuPolicy::Static, &[]).is_ok(),
        "disableCPUManager" => cpu_manager::check(node, CpuPolicy::None, &[]).is_ok(),
        // powerAction: no node has an inventory of its hardware here.
        _ => false,
    }
}

#[cfg(test)]
mod tests;
