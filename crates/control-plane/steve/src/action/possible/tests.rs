//! Which actions are shown, by the state of an object and the rights of the caller.

use serde_json::json;

use super::*;
use crate::object_rights::ObjectRights;
use crate::rights::Rights;
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
    movable["status"]["conditions"] = json!([{"type": "StorageLiveMigratable", "status": "True"}]);
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
        let always = ["addVolume", "removeVolume", "updateResourceQuota", "deleteResourceQuota"];
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
    let cpu = |label: &str| json!({"metadata": {"name": "a", "labels": {"cpumanager": label}}});
    assert!(possible(nodes, &cpu("false")).contains(&"enableCPUManager"));
    assert!(possible(nodes, &cpu("true")).contains(&"disableCPUManager"));
    assert!(!possible(nodes, &cpu("true")).contains(&"enableCPUManager"));
    assert!(!possible(nodes, &cpu("true")).contains(&"powerAction"));
}

/// A running machine that can move, with two interfaces, one of which can be removed.
fn running() -> Value {
    json!({
        "metadata": {"name": "web", "annotations": {HOTPLUG: "true"}},
        "spec": {
            "runStrategy": "Always",
            "template": {"spec": {"domain": {"cpu": {"cores": 1, "sockets": 2}, "devices": {
                "interfaces": [
                    {"name": "a", "masquerade": {}, "macAddress": "02:00:00:00:00:01"},
                    {"name": "b", "bridge": {}, "macAddress": "02:00:00:00:00:02"},
                ],
            }}}},
        },
        "status": {
            "printableStatus": "Running", "created": true,
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        },
    })
}

#[test]
fn devices_are_plugged_into_machines_that_were_made_for_it() {
    const CAN_MOVE: &str = "addNic cpuAndMemoryHotplug findHotunpluggableNics removeNic";
    let catalog = catalog();
    let kind = find(&catalog, "kubevirt.io.virtualmachines").unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut vm = running();
        change(&mut vm);
        vm
    };
    let domain = |vm: &mut Value| vm["spec"]["template"]["spec"]["domain"].take();
    let rows: [(Value, &str); 8] = [
        (running(), CAN_MOVE),
        (with(&|vm| vm["status"]["conditions"] = json!([])), "findHotunpluggableNics removeNic"),
        (
            with(&|vm| vm["metadata"]["annotations"] = json!({})),
            "addNic findHotunpluggableNics removeNic",
        ),
        (
            with(&|vm| vm["metadata"]["labels"] = json!({CREATOR: GUEST_CLUSTER})),
            "cpuAndMemoryHotplug findHotunpluggableNics removeNic",
        ),
        (with(&|vm| drop(domain(vm))), "addNic cpuAndMemoryHotplug"),
        (
            with(&|vm| vm["spec"]["template"]["spec"]["domain"]["cpu"]["cores"] = json!(2)),
            "addNic findHotunpluggableNics removeNic",
        ),
        (
            with(&|vm| {
                let changing = json!({"type": "HotVCPUChange", "status": "True"});
                vm["status"]["conditions"].as_array_mut().unwrap().push(changing);
            }),
            "addNic findHotunpluggableNics removeNic",
        ),
        (with(&|vm| vm["status"]["printableStatus"] = json!("Stopped")), ""),
    ];
    for (object, expected) in rows {
        let found: Vec<&str> = possible(kind, &object)
            .into_iter()
            .filter(|action| CAN_MOVE.split(' ').any(|own| own == *action))
            .collect();
        assert_eq!(found.join(" "), expected, "{object}");
    }
    let mut probed = running();
    probed["spec"]["template"]["spec"]["livenessProbe"] = json!({});
    assert!(!possible(kind, &probed).contains(&"pause"));
}

/// Verb, group, resource, and the name of one object if it is for one only.
type NamedRule = (&'static str, &'static str, &'static str, &'static str);

/// The actions that a caller with these rules can carry out.
fn shown_to(rules: &[NamedRule], type_name: &str, object: &Value) -> String {
    let catalog = catalog();
    let kind = find(&catalog, type_name).unwrap();
    let rule = |(verb, group, resource, name): &NamedRule| {
        let names: &[&str] = if name.is_empty() { &[] } else { &[name] };
        json!({"verbs": [verb], "apiGroups": [group], "resources": [resource],
            "resourceNames": names})
    };
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    let rights = Rights::read(&json!({"status": {"resourceRules": rules}}));
    let rights = ObjectRights::of(kind, &rights);
    let mut actions = possible(kind, object);
    actions.retain(|action| rights.allow(kind, action, object));
    actions.join(" ")
}

#[test]
fn actions_are_shown_to_those_who_can_carry_them_out() {
    const ACTS: &str = "subresources.kubevirt.io";
    const START: NamedRule = ("update", ACTS, "virtualmachines/start", "");
    const UPDATE: NamedRule = ("update", "kubevirt.io", "virtualmachines", "");
    const PATCH: NamedRule = ("patch", "kubevirt.io", "virtualmachines", "");
    let machine = |strategy: &str, status: &str| {
        json!({"metadata": {"name": "web"}, "spec": {"runStrategy": strategy},
            "status": {"printableStatus": status, "created": status == "Running"}})
    };
    let (stopped, manual) = (machine("Halted", "Stopped"), machine("Manual", "Stopped"));
    let running = machine("Always", "Running");
    let rows: Vec<(&[NamedRule], &Value, &str)> = vec![
        (&[], &stopped, ""),
        (&[START], &stopped, "start"),
        (&[("update", ACTS, "virtualmachines/start", "web")], &stopped, "start"),
        (&[("update", ACTS, "virtualmachines/start", "db")], &stopped, ""),
        (&[("update", ACTS, "*", "")], &running, "pause restart softreboot stop"),
        (&[("update", ACTS, "*/restart", "")], &running, "restart"),
        (&[UPDATE], &stopped, "removeVolume"),
        (&[UPDATE, ("get", "", "persistentvolumeclaims", "")], &stopped, "addVolume removeVolume"),
        // The action patches the strategy.
        (&[PATCH], &stopped, "start"),
        (&[PATCH], &manual, ""),
        (&[PATCH], &running, "stop"),
        (
            &[("create", "harvesterhci.io", "virtualmachinebackups", "")],
            &running,
            "backup snapshot",
        ),
        (&[("patch", "harvesterhci.io", "resourcequotas", "")], &running, "deleteResourceQuota"),
    ];
    for (rules, object, expected) in rows {
        let shown = shown_to(rules, "kubevirt.io.virtualmachines", object);
        assert_eq!(shown, expected, "{rules:?} {object}");
    }
}

#[test]
fn rights_decide_about_actions_of_other_types() {
    const HARVESTER: &str = "harvesterhci.io";
    const QUOTA: NamedRule = ("patch", HARVESTER, "resourcequotas", "default-resource-quota");
    const IMAGE: NamedRule = ("update", HARVESTER, "virtualmachineimages", "");
    let bound = json!({"metadata": {"name": "a"}, "status": {"phase": "Bound"}});
    let node = json!({"metadata": {"name": "one"}});
    let image = |source: &str, imported: &str| {
        json!({"metadata": {"name": "i"}, "spec": {"sourceType": source},
            "status": {"conditions": [{"type": "Imported", "status": imported}]}})
    };
    let images = "harvesterhci.io.virtualmachineimages";
    let (uploading, uploaded) = (image("upload", "Unknown"), image("upload", "True"));
    let downloading = image("download", "Unknown");
    let claims = "persistentvolumeclaims";
    let rows: Vec<(&[NamedRule], &str, &Value, &str)> = vec![
        (&[("create", "", "persistentvolumeclaims", "")], claims, &bound, "clone"),
        (&[("create", "snapshot.storage.k8s.io", "*", "")], claims, &bound, "snapshot"),
        (&[("update", "", "nodes", "")], "nodes", &node, ""),
        (&[("patch", "", "nodes", "one")], "nodes", &node, "cordon"),
        (&[("list", "", "nodes", "")], "nodes", &node, "maintenancePossible"),
        (&[QUOTA], "namespaces", &bound, "deleteResourceQuota"),
        (&[IMAGE], images, &uploading, "upload"),
        (&[IMAGE], images, &uploaded, ""),
        (&[IMAGE], images, &downloading, ""),
        (&[], images, &uploading, ""),
    ];
    for (rules, type_name, object, expected) in rows {
        assert_eq!(shown_to(rules, type_name, object), expected, "{rules:?} {object}");
    }
}
