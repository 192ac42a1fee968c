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
    let operations = follow(&now["template"]["spec"], &vmi, &config()).unwrap();
    let paths: Vec<&str> = operations.iter().map(|one| text(one, "/path")).collect();
    assert_eq!(
        paths,
        [
            "/spec/volumes",
            "/spec/volumes",
            "/spec/domain/devices/disks",
            "/spec/domain/devices/disks"
        ]
    );
    assert_eq!(operations[1]["value"], now["template"]["spec"]["volumes"]);
    let mut with = vmi.clone();
    with["spec"]["volumes"] = now["template"]["spec"]["volumes"].clone();
    with["spec"]["domain"]["devices"]["disks"] =
        now["template"]["spec"]["domain"]["devices"]["disks"].clone();
    assert_eq!(follow(&now["template"]["spec"], &with, &config()), None);
    let operations = follow(&machine()["template"]["spec"], &with, &config()).unwrap();
    assert_eq!(operations[1]["value"], machine()["template"]["spec"]["volumes"]);
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

fn told(live: Option<Live>) -> String {
    match live {
        None => "nothing".to_owned(),
        Some(Live::Restart(why)) => why,
        Some(Live::Busy(why)) => why.to_owned(),
        Some(Live::Patch(operations)) => {
            let writes = operations.iter().filter(|one| one["op"] == "add");
            let writes: Vec<String> =
                writes.map(|one| format!("{}={}", text(one, "/path"), one["value"])).collect();
            writes.join(" ")
        }
    }
}

#[test]
fn sockets_are_added_up_to_the_most() {
    let table = [
        (1, "nothing"),
        (2, "/spec/domain/cpu/sockets=2"),
        (4, "/spec/domain/cpu/sockets=4"),
        (5, "CPU sockets updated in template spec to a value higher than what's available"),
        (0, "Reduction of CPU socket count requires a restart"),
    ];
    for (sockets, expected) in table {
        let mut spec = machine()["template"]["spec"].clone();
        spec["domain"]["cpu"]["sockets"] = json!(sockets);
        assert_eq!(told(processors(&spec, &instance(), &config())), expected);
    }
    let mut busy = instance();
    busy["status"]["conditions"] = json!([{"type": "HotVCPUChange", "status": "True"}]);
    let mut spec = machine()["template"]["spec"].clone();
    spec["domain"]["cpu"]["sockets"] = json!(2);
    assert_eq!(told(processors(&spec, &busy, &config())), "another CPU hotplug is in progress");
}

#[test]
fn reservations_grow_with_processors_and_memory() {
    let mut spec = machine()["template"]["spec"].clone();
    spec["domain"]["cpu"]["sockets"] = json!(2);
    spec["domain"]["memory"]["guest"] = json!("2Gi");
    spec["domain"]["resources"] = json!({"requests": {"cpu": "200m"}});
    let mut vmi = instance();
    vmi["spec"]["domain"]["resources"] = json!({"requests": {"cpu": "200m", "memory": "1Gi"}});
    assert_eq!(
        told(processors(&spec, &vmi, &config())),
        "/spec/domain/cpu/sockets=2 /spec/domain/resources/requests/cpu=\"400m\""
    );
    assert_eq!(
        told(memory(&spec, &vmi)),
        "/spec/domain/memory/guest=\"2Gi\" /spec/domain/resources/requests/memory=\"2Gi\""
    );
}

#[test]
fn memory_that_cannot_grow_says_why() {
    let table = [
        ("1Gi", "nothing"),
        (
            "512Mi",
            "memory hotplug not supported, Memory hotplug is only available for VMs with at least 1Gi of guest memory",
        ),
        (
            "5Gi",
            "memory hotplug not supported, Guest memory is greater than the configured maxGuest memory",
        ),
    ];
    for (guest, expected) in table {
        let mut spec = machine()["template"]["spec"].clone();
        spec["domain"]["memory"]["guest"] = json!(guest);
        assert_eq!(told(memory(&spec, &instance())), expected, "{guest}");
    }
    let mut spec = machine()["template"]["spec"].clone();
    spec["domain"]["memory"]["guest"] = json!("2Gi");
    let mut fixed = instance();
    fixed["status"]["conditions"] = json!([]);
    assert_eq!(
        told(memory(&spec, &fixed)),
        "memory updated in template spec. Memory-hotplug is only available for migratable VMs"
    );
    let mut grown = instance();
    grown["status"]["memory"]["guestAtBoot"] = json!("3Gi");
    grown["spec"]["domain"]["memory"]["guest"] = json!("3Gi");
    assert_eq!(
        told(memory(&spec, &grown)),
        "memory updated in template spec to a value lower than what the VM started with"
    );
}
