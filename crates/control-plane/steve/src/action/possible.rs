//! Which actions a type has, and which of them an object allows now. Pure.

use client::CatalogKind;
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

/// All actions of a type.
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
            _ => false,
        }
    };
    names(kind).iter().copied().filter(|action| allows(action)).collect()
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
        "softreboot" | "pause" => running && !paused,
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
        _ => false,
    }
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
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::type_name::{find, tests::catalog};

    #[test]
    fn a_machine_allows_what_its_state_does() {
        let catalog = catalog();
        let kind = find(&catalog, "kubevirt.io.virtualmachines").unwrap();
        let vm = |strategy: &str, status: &str, created: bool| {
            json!({
                "spec": {"runStrategy": strategy},
                "status": {"printableStatus": status, "created": created},
            })
        };
        let mut paused = vm("Always", "Paused", true);
        paused["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
        let mut deleted = vm("Always", "Running", true);
        deleted["metadata"]["deletionTimestamp"] = "t".into();
        let mut movable = vm("Manual", "Running", true);
        movable["status"]["conditions"] =
            json!([{"type": "StorageLiveMigratable", "status": "True"}]);
        let mut moving = movable.clone();
        moving["status"]["volumeUpdateState"] =
            json!({"volumeMigrationState": {"migratedVolumes": [{"volumeName": "root"}]}});
        for (object, expected) in [
            (vm("Halted", "Stopped", false), "backup clone createTemplate restore snapshot start"),
            (
                vm("RerunOnFailure", "Running", true),
                "backup clone createTemplate pause restart snapshot softreboot stop",
            ),
            (paused, "clone restart stop unpause"),
            (
                movable,
                "backup clone createTemplate pause restart snapshot softreboot stop \
                 storageMigration",
            ),
            (
                moving,
                "backup cancelStorageMigration clone createTemplate pause restart snapshot \
                 softreboot stop",
            ),
            (vm("Always", "Stopping", true), "clone forceStop restart stop"),
            (deleted, ""),
        ] {
            let found = possible(kind, &object);
            let always =
                ["addVolume", "removeVolume", "updateResourceQuota", "deleteResourceQuota"];
            let found: Vec<&str> =
                found.into_iter().filter(|action| !always.contains(action)).collect();
            assert_eq!(found.join(" "), expected, "{object}");
        }
    }

    #[test]
    fn volumes_and_nodes_allow_what_their_state_does() {
        let catalog = catalog();
        let claims = find(&catalog, "persistentvolumeclaims").unwrap();
        let bound = json!({"status": {"phase": "Bound"}});
        assert_eq!(possible(claims, &bound), ["clone", "dataMigration", "export", "snapshot"]);
        assert!(possible(claims, &json!({"status": {"phase": "Pending"}})).is_empty());
        let condition = json!({"type": "Resizing", "status": "True"});
        let resizing = json!({"status": {"phase": "Bound", "conditions": [condition]}});
        assert_eq!(possible(claims, &resizing), ["cancelExpand"]);
        let nodes = find(&catalog, "nodes").unwrap();
        assert!(possible(nodes, &json!({})).contains(&"cordon"));
        let cordoned = json!({"spec": {"unschedulable": true}});
        assert!(possible(nodes, &cordoned).contains(&"uncordon"));
    }
}
