//! Steps and patches by the machine and its instance.

use super::*;

fn vm(strategy: &str) -> Value {
    json!({"metadata": {"name": "v", "namespace": "n", "uid": "u", "generation": 2},
        "spec": {"runStrategy": strategy}})
}

fn vmi(phase: &str) -> Value {
    json!({"metadata": {"name": "v", "namespace": "n", "uid": "i"}, "status": {"phase": phase}})
}

#[test]
fn the_step_follows_from_the_strategy_and_the_instance() {
    let running = vmi("Running");
    let failed = vmi("Failed");
    let refuse = |message: &str| VmStep::Refuse { message: message.into() };
    for (strategy, vmi, expected) in [
        ("Always", None, VmStep::Start { paused: false }),
        ("Always", Some(&running), VmStep::Update),
        ("Halted", None, VmStep::Nothing),
        ("Halted", Some(&running), VmStep::Stop),
        ("Manual", None, VmStep::Nothing),
        ("Manual", Some(&running), VmStep::Update),
        ("Sometimes", Some(&running), refuse("unknown runstrategy: Sometimes")),
        ("WaitAsReceiver", Some(&running), refuse("VMI exists and is not a receiver VMI")),
        ("RerunOnFailure", Some(&failed), VmStep::RequestStart),
    ] {
        assert_eq!(next_step(&vm(strategy), vmi, Timestamp::UNIX_EPOCH), expected, "{strategy}");
    }
}

#[test]
fn a_failed_instance_is_stopped_after_the_request_to_start_is_recorded() {
    let mut vm = vm("RerunOnFailure");
    let failed = vmi("Failed");
    let step = |vm: &Value| next_step(vm, Some(&failed), Timestamp::UNIX_EPOCH);
    assert_eq!(step(&vm), VmStep::RequestStart);
    vm["status"] = json!({"stateChangeRequests": [{"action": "Start"}]});
    assert_eq!(step(&vm), VmStep::Stop);
}

#[test]
fn an_instance_is_adopted_only_if_no_object_controls_it() {
    let (own, free) = (vm("Always"), vmi("Running"));
    let Ownership::Adopt { patch } = ownership(&own, &free) else { panic!("it is free") };
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(patch["metadata"]["finalizers"], json!([VM_FINALIZER]));
    let controlled = |uid: &str| {
        let mut vmi = free.clone();
        vmi["metadata"]["ownerReferences"] = json!([{"uid": uid, "controller": true}]);
        vmi
    };
    let deleting = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object
    };
    for (vm, vmi, expected) in [
        (&own, controlled("u"), Ownership::Own),
        (&own, controlled("other"), Ownership::Foreign),
        (&own, deleting(&free), Ownership::Foreign),
        (&deleting(&own), free.clone(), Ownership::Foreign),
        (&own, vmi("Succeeded"), Ownership::Foreign),
    ] {
        assert_eq!(ownership(vm, &vmi), expected, "{vmi}");
    }
}

#[test]
fn a_machine_is_kept_by_one_finalizer_until_it_is_released() {
    let mut vm = vm("Always");
    assert_eq!(release(&vm), None);
    vm["metadata"]["finalizers"] = json!(["other"]);
    let patch = protection(&vm).unwrap();
    assert_eq!(patch["metadata"]["finalizers"], json!(["other", VM_FINALIZER]));
    vm["metadata"]["finalizers"] = patch["metadata"]["finalizers"].clone();
    assert_eq!(protection(&vm), None);
    assert_eq!(release(&vm).unwrap()["metadata"]["finalizers"], json!(["other"]));
    assert!(ends_instance(&vm));
    vm["metadata"]["finalizers"] = json!(["orphan"]);
    assert!(!ends_instance(&vm));
}

#[test]
fn the_strategy_is_written_to_the_field_that_the_machine_uses() {
    let spec = |vm: &Value| strategy_patch(vm, RunStrategy::Always)["spec"].clone();
    assert_eq!(spec(&vm("Halted")), json!({"runStrategy": "Always"}));
    let mut old = vm("Halted");
    old["spec"] = json!({"running": false});
    assert_eq!(spec(&old), json!({"running": true}));
    assert_eq!(strategy_patch(&old, RunStrategy::Halted)["spec"], json!({"running": false}));
}

#[test]
fn data_volumes_wait_for_a_start_only_if_the_machine_says_so() {
    let mut vm = vm("Always");
    assert!(makes_volumes_early(&vm));
    for (value, expected) in [("true", true), ("false", false)] {
        vm["metadata"]["annotations"] = json!({EARLY_VOLUMES: value});
        assert_eq!(makes_volumes_early(&vm), expected, "{value}");
    }
}

#[test]
fn the_revision_of_an_earlier_generation_is_outdated() {
    for (name, expected) in [("", None), ("revision-start-vm-u-1", Some("revision-start-vm-u-1"))] {
        let mut vmi = vmi("Succeeded");
        vmi["status"]["virtualMachineRevisionName"] = json!(name);
        assert_eq!(outdated_revision(&vm("Always"), &vmi), expected);
    }
    let mut current = vmi("Succeeded");
    current["status"]["virtualMachineRevisionName"] = json!("revision-start-vm-u-2");
    assert_eq!(outdated_revision(&vm("Always"), &current), None);
}

#[test]
fn a_failed_import_is_reported_once() {
    let volumes = [
        json!({"metadata": {"name": "a"}, "status": {"phase": "Failed"}}),
        json!({"metadata": {"name": "b"}, "status": {"phase": "Succeeded"}}),
    ];
    let status = |printable: &str| json!({"status": {"printableStatus": printable}});
    let (failed, other) = (status(IMPORT_FAILED), status("Provisioning"));
    assert_eq!(failed_imports(&other, &failed, &volumes), ["a"]);
    assert!(failed_imports(&failed, &failed, &volumes).is_empty());
    assert!(failed_imports(&failed, &other, &volumes).is_empty());
}
