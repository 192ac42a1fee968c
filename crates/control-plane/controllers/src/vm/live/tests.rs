use super::*;

fn vmi(spec: Value) -> Value {
    json!({"metadata": {"name": "v", "uid": "u", "resourceVersion": "1"}, "spec": spec,
        "status": {"phase": "Running",
            "memory": {"guestAtBoot": "2Gi", "guestCurrent": "2Gi", "guestRequested": "2Gi"}}})
}

/// The spec part of the patch and why a restart is needed.
fn outcome(template: Value, own: Value) -> (Value, String) {
    let found = update(&template, &vmi(own), ChangeScope::Everything, false);
    let patch = found.patch.map(|patch| patch["spec"].clone()).unwrap_or_default();
    (patch, found.restart.unwrap_or_default())
}

#[test]
fn sockets_grow_as_far_as_there_is_room() {
    let cpu = |sockets: i64| json!({"domain": {"cpu": {"sockets": sockets, "cores": 2}}});
    let own = || json!({"domain": {"cpu": {"sockets": 2, "cores": 2, "maxSockets": 4}}});
    let none = Value::Null;
    assert_eq!(outcome(cpu(2), own()), (none.clone(), String::new()));
    let grown = json!({"domain": {"cpu": {"sockets": 3}}});
    assert_eq!(outcome(cpu(3), own()), (grown, String::new()));
    let (patch, reason) = outcome(cpu(5), own());
    assert_eq!(patch, none);
    assert_eq!(
        reason,
        "CPU sockets updated in template spec to a value higher than what's available"
    );
    let (_, reason) = outcome(cpu(1), own());
    assert_eq!(reason, "Reduction of CPU socket count requires a restart");
}

#[test]
fn requests_grow_with_processors_and_memory() {
    let template = json!({"architecture": "amd64", "domain": {"cpu": {"sockets": 2}, "memory": {"guest": "3Gi"},
        "resources": {"requests": {"cpu": "100m"}}}});
    let own = json!({"domain": {"cpu": {"sockets": 1, "maxSockets": 4},
        "memory": {"guest": "2Gi", "maxGuest": "8Gi"},
        "resources": {"requests": {"cpu": "100m", "memory": "2Gi"}}}});
    let (patch, reason) = outcome(template, own);
    assert_eq!(reason, "");
    assert_eq!(
        patch["domain"],
        json!({"cpu": {"sockets": 2}, "memory": {"guest": "3Gi"},
            "resources": {"requests": {"cpu": "200m", "memory": "3Gi"}}})
    );
}

#[test]
fn memory_grows_within_its_bounds() {
    let check = |wanted: &str, most: Value, expected: &str| {
        let template = json!({"architecture": "amd64", "domain": {"memory": {"guest": wanted}}});
        let own = json!({"domain": {"memory": {"guest": "2Gi", "maxGuest": most}}});
        let (patch, reason) = outcome(template, own);
        assert_eq!(reason, expected, "{wanted}");
        assert_eq!(patch.is_null(), !expected.is_empty() || wanted == "2048Mi", "{wanted}");
    };
    check("2048Mi", json!("8Gi"), "");
    check("4Gi", json!("8Gi"), "");
    check(
        "1Gi",
        json!("8Gi"),
        "memory updated in template spec to a value lower than what the VM started with",
    );
    check(
        "9Gi",
        json!("8Gi"),
        "memory hotplug not supported, Guest memory is greater than the configured maxGuest memory",
    );
    check(
        "3Gi",
        Value::Null,
        "memory updated in template spec. Memory-hotplug is not available for this VM \
         configuration",
    );
    check("3073Mi", json!("8Gi"), "memory hotplug not supported, Guest memory must be 2Mi aligned");
}

#[test]
fn placement_is_copied_and_what_is_gone_is_removed() {
    let own = json!({"nodeSelector": {"a": "1", "b": "2"}, "tolerations": [{"key": "k"}]});
    let (patch, _) = outcome(json!({"nodeSelector": {"a": "3"}, "affinity": {}}), own);
    assert_eq!(patch, json!({"nodeSelector": {"a": "3", "b": null}, "tolerations": null}));
}

fn pluggable(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}})
}

#[test]
fn volumes_join_and_leave() {
    let root = json!({"name": "root", "containerDisk": {"image": "i"}});
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "scsi"}});
    let spec = |volumes: Value, disks: Value| json!({"volumes": volumes, "domain": {"devices": {"disks": disks}}});
    let with = spec(json!([root, pluggable("d", "c")]), json!([disk("root"), disk("d")]));
    let without = spec(json!([root]), json!([disk("root")]));
    assert_eq!(outcome(with.clone(), without.clone()).0, with);
    assert_eq!(outcome(without.clone(), with.clone()).0, without);
    let changed = spec(json!([root, pluggable("d", "other")]), json!([disk("root"), disk("d")]));
    assert_eq!(outcome(changed.clone(), with.clone()).0, without, "it leaves first");
    assert_eq!(update(&changed, &vmi(with), ChangeScope::Everything, true).patch, None, "it moves");
    let plain = spec(
        json!([root, {"name": "x", "persistentVolumeClaim": {"claimName": "c"}}]),
        json!([disk("root"), disk("x")]),
    );
    assert_eq!(outcome(plain, without.clone()).0, Value::Null, "that needs a restart");
    let mut leaving = vmi(without);
    leaving["status"]["volumeStatus"] = json!([{"name": "d"}]);
    assert_eq!(
        update(&changed, &leaving, ChangeScope::Everything, false).patch,
        None,
        "its node has not released it yet"
    );
}

#[test]
fn a_drive_keeps_its_place_without_a_medium() {
    let drive = json!({"name": "cd", "cdrom": {"bus": "sata"}});
    let spec =
        |volumes: Value| json!({"volumes": volumes, "domain": {"devices": {"disks": [drive]}}});
    let (full, empty) = (spec(json!([pluggable("cd", "c")])), spec(json!([])));
    assert_eq!(outcome(empty.clone(), full.clone()).0, json!({"volumes": []}));
    assert_eq!(outcome(full.clone(), empty).0, json!({"volumes": [pluggable("cd", "c")]}));
    let other = spec(json!([pluggable("cd", "d")]));
    let exchanged = update(&other, &vmi(full), ChangeScope::Everything, true).patch.unwrap();
    assert_eq!(exchanged["spec"]["volumes"], json!([]), "a medium is not copied");
}

#[test]
fn interfaces_join_on_further_networks_and_say_when_they_go() {
    let first = json!({"name": "default", "masquerade": {}});
    let second = json!({"name": "blue", "bridge": {}});
    let networks = json!([{"name": "default", "pod": {}},
        {"name": "blue", "multus": {"networkName": "blue"}}]);
    let spec = |interfaces: Value, networks: Value| json!({"networks": networks, "domain": {"devices": {"interfaces": interfaces}}});
    let own = || spec(json!([first]), json!([networks[0]]));
    let both = spec(json!([first, second]), networks.clone());
    assert_eq!(outcome(both.clone(), own()).0, both);
    let mut gone = second.clone();
    gone["state"] = json!("absent");
    let absent = spec(json!([first, gone]), networks.clone());
    let expected = json!({"domain": {"devices": {"interfaces": [first, gone]}}});
    assert_eq!(outcome(absent.clone(), both).0, expected);
    assert_eq!(outcome(absent, own()).0, Value::Null);
}

#[test]
fn an_instance_that_ends_is_left_alone() {
    let mut own = vmi(json!({"domain": {"cpu": {"sockets": 1, "maxSockets": 4}}}));
    own["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let template = json!({"domain": {"cpu": {"sockets": 2}}});
    assert_eq!(update(&template, &own, ChangeScope::Everything, false), Update::default());
}

#[test]
fn devices_are_plugged_in_although_a_restart_is_due() {
    let root = json!({"name": "root", "containerDisk": {"image": "i"}});
    let own = vmi(json!({"volumes": [root], "domain": {"cpu": {"sockets": 1, "maxSockets": 4},
        "devices": {"disks": [{"name": "root"}]}}}));
    let template = json!({"volumes": [root, pluggable("d", "c")], "nodeSelector": {"a": "b"},
        "domain": {"cpu": {"sockets": 2}, "devices": {"disks": [{"name": "root"}, {"name": "d"}]}}});
    let spec = update(&template, &own, ChangeScope::Devices, false).patch.unwrap()["spec"].clone();
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 2);
    assert_eq!((spec["domain"].get("cpu"), spec.get("nodeSelector")), (None, None));
}
