use super::machine::TEMPLATES;
use super::*;

fn content() -> Value {
    let claim = json!({
        "metadata": {"name": "data", "labels": {"a": "b"}},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "longhorn",
            "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}},
    });
    json!({"spec": {
        "source": {"virtualMachine": {
            "metadata": {"name": "m", "annotations":
                {TEMPLATES: r#"[{"metadata":{"name":"data"}},{"metadata":{"name":"x"}}]"#}},
            "spec": {
                "runStrategy": "Always", "dataVolumeTemplates": [{"metadata": {"name": "data"}}],
                "template": {"spec": {
                    "domain": {"devices": {"interfaces": [{"name": "i", "macAddress": "a"}]}},
                    "volumes": [{"name": "root", "dataVolume": {"name": "data"}},
                        {"name": "seed", "cloudInitNoCloud": {}}],
                }},
            },
        }},
        "volumeBackups": [{"volumeName": "root", "volumeSnapshotName": "vs",
            "persistentVolumeClaim": claim}],
    }})
}

fn restore(changes: Value) -> Value {
    let mut spec = json!({"target": {"name": "t"}, "virtualMachineSnapshotName": "s"});
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "r", "namespace": "n", "uid": "u",
        "creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": spec})
}

#[test]
fn another_machine_is_replaced_only_if_the_user_confirmed_it() {
    let snapshot = |source: &str| json!({"status": {"sourceUID": source}});
    let owned = |kind: &str| {
        let mut own = restore(json!({}));
        let owner = json!({"kind": kind, "name": "o", "uid": "o", "controller": true});
        own["metadata"]["ownerReferences"] = json!([owner]);
        own
    };
    let vm = |made_by: &str| {
        json!({"metadata": {"name": "m", "uid": "v",
        "annotations": {RESTORED_BY: made_by}}})
    };
    let own = restore(json!({}));
    for (vm, source, restore, expected) in [
        (vm("x"), "v", &own, false),
        (vm("x"), "w", &own, true),
        (vm("x"), "", &own, false),
        (vm("u"), "w", &own, false),
        (vm("x"), "w", &owned("VirtualMachine"), true),
        (vm("x"), "w", &owned("VirtualMachineClone"), false),
    ] {
        assert_eq!(is_foreign(&vm, &snapshot(source), restore), expected, "{vm} {source}");
    }
}

#[test]
fn disks_come_back_as_claims_of_their_size() {
    let own = restore(json!({}));
    let disks = disks(&own, &content());
    assert_eq!(disks[0].claim, "restore-u-root");
    let taken = json!({"status": {"restoreSize": "2Gi"}});
    let made = claim(&own, &content(), &disks[0], Some(&taken));
    assert_eq!(made["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert_eq!(made["spec"]["dataSource"]["name"], "vs");
    assert_eq!(made["spec"]["volumeMode"], "Block");
    let prefixed = restore(json!({"volumeRestorePolicy": "PrefixTargetName"}));
    assert_eq!(super::disks(&prefixed, &content())[0].claim, "t-root");
    let named = restore(json!({"volumeRestoreOverrides": [
        {"volumeName": "root", "restoreName": "mine"}]}));
    assert_eq!(super::disks(&named, &content())[0].claim, "mine");
}

#[test]
fn a_machine_becomes_what_it_was_with_new_disks() {
    let own = restore(json!({}));
    let disks = disks(&own, &content());
    let vm = json!({"metadata": {"name": "t", "uid": "v"}, "spec": {
        "runStrategy": "Halted", "instancetype": {"name": "x"},
        "template": {"spec": {"hostname": "later", "volumes": []}}}});
    let patch = machine_patch(&own, &content(), &vm, &disks);
    let spec = &patch["spec"];
    assert_eq!(spec["runStrategy"], "Halted");
    assert_eq!(
        (&spec["instancetype"], &spec["template"]["spec"]["hostname"]),
        (&Value::Null, &Value::Null)
    );
    let volumes = &spec["template"]["spec"]["volumes"];
    assert_eq!(
        volumes[0],
        json!({"name": "root", "persistentVolumeClaim": {"claimName": "restore-u-root"}})
    );
    assert_eq!(volumes[1]["name"], "seed");
    assert_eq!(spec["dataVolumeTemplates"], json!([]));
    let templates = patch["metadata"]["annotations"][TEMPLATES].as_str().unwrap();
    assert!(templates.contains("restore-u-root") && templates.contains("\"x\""), "{templates}");
    let new = machine(&own, &content(), &disks).unwrap();
    assert_eq!(new["spec"]["runStrategy"], "Halted");
    assert_eq!(name(&new), "t");
    let interface = new.pointer("/spec/template/spec/domain/devices/interfaces/0").unwrap();
    assert_eq!(interface, &json!({"name": "i"}));
}

#[test]
fn a_target_that_runs_is_awaited_stopped_or_too_much() {
    let at = |second| Timestamp::from_second(second).unwrap();
    for (policy, second, expected) in [
        ("WaitGracePeriod", 10, TargetReadiness::Wait),
        ("WaitGracePeriod", 301, TargetReadiness::Fail),
        ("WaitEventually", 301, TargetReadiness::Wait),
        ("StopTarget", 10, TargetReadiness::Stop),
        ("FailImmediate", 10, TargetReadiness::Fail),
    ] {
        let own = restore(json!({"targetReadinessPolicy": policy}));
        assert_eq!(readiness(&own, true, at(second)), expected, "{policy} at {second}");
        assert_eq!(readiness(&own, false, at(second)), TargetReadiness::Yes);
    }
}
