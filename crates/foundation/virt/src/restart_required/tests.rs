use serde_json::json;

use super::*;

fn config() -> ClusterConfig {
    ClusterConfig::new(&json!({}), "amd64")
}

fn machine() -> Value {
    json!({"template": {"spec": {
        "architecture": "amd64",
        "domain": {
            "cpu": {"sockets": 1, "cores": 2, "threads": 1},
            "memory": {"guest": "1Gi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "i"}}],
    }}})
}

fn instance() -> Value {
    let mut spec = machine()["template"]["spec"].clone();
    spec["domain"]["cpu"]["maxSockets"] = json!(4);
    spec["domain"]["memory"]["maxGuest"] = json!("4Gi");
    json!({"spec": spec, "status": {
        "phase": "Running",
        "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi"},
        "conditions": [{"type": "LiveMigratable", "status": "True"}],
    }})
}

#[test]
fn some_changes_are_live_and_others_are_not() {
    let table: [(&str, Value, bool); 14] = [
        ("/template/spec/domain/cpu/sockets", json!(2), false),
        ("/template/spec/domain/cpu/cores", json!(4), true),
        ("/template/spec/domain/cpu/model", json!("Haswell"), true),
        ("/template/spec/domain/memory/guest", json!("2Gi"), false),
        ("/template/spec/nodeSelector", json!({"a": "b"}), false),
        ("/template/spec/affinity", json!({"nodeAffinity": {}}), false),
        ("/template/spec/tolerations", json!([{"key": "a"}]), false),
        ("/template/spec/hostname", json!("h"), true),
        ("/template/spec/domain/machine", json!({"type": "q35"}), true),
        ("/template/metadata", json!({"labels": {"a": "b"}}), false),
        ("/template/spec/domain/devices/interfaces/0/state", json!("down"), false),
        ("/template/spec/domain/devices/interfaces/0/model", json!("e1000"), true),
        ("/template/spec/volumes/0/containerDisk/image", json!("j"), true),
        ("/runStrategy", json!("Halted"), false),
    ];
    let vmi = instance();
    for (pointer, value, expected) in table {
        let mut now = machine();
        put(&mut now, pointer, value);
        let found = needs_restart(&machine(), &now, Some(&vmi), &config());
        assert_eq!(found, expected, "{pointer}");
    }
}

fn put(document: &mut Value, pointer: &str, value: Value) {
    let (holder, last) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(holder).unwrap()[last] = value;
}

#[test]
fn everything_waits_when_the_cluster_stages_changes() {
    let stage =
        ClusterConfig::new(&json!({"spec": {"configuration": {"vmRolloutStrategy": "Stage"}}}), "");
    let mut now = machine();
    now["template"]["spec"]["domain"]["cpu"]["sockets"] = json!(2);
    assert!(needs_restart(&machine(), &now, Some(&instance()), &stage));
}

#[test]
fn hotplugged_volumes_come_and_go() {
    let mut now = machine();
    let spec = &mut now["template"]["spec"];
    array(&mut spec["volumes"]).push(json!({
        "name": "data", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true},
    }));
    array(&mut spec["domain"]["devices"]["disks"])
        .push(json!({"name": "data", "disk": {"bus": "scsi"}}));
    let vmi = instance();
    assert!(!needs_restart(&machine(), &now, Some(&vmi), &config()));
    assert!(!needs_restart(&now, &machine(), Some(&vmi), &config()));
}

fn array(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().unwrap()
}

#[test]
fn a_fixed_volume_that_comes_needs_a_restart() {
    let mut now = machine();
    array(&mut now["template"]["spec"]["volumes"])
        .push(json!({"name": "data", "persistentVolumeClaim": {"claimName": "c"}}));
    assert!(needs_restart(&machine(), &now, Some(&instance()), &config()));
}

#[test]
fn an_uuid_that_the_instance_has_already_is_no_change() {
    let mut now = machine();
    now["template"]["spec"]["domain"]["firmware"] = json!({"uuid": "u"});
    let mut vmi = instance();
    assert!(needs_restart(&machine(), &now, Some(&vmi), &config()));
    vmi["spec"]["domain"]["firmware"] = json!({"uuid": "u"});
    assert!(!needs_restart(&machine(), &now, Some(&vmi), &config()));
}
