use serde_json::json;

use super::*;

fn volume(name: &str, claim: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
}

fn machine(strategy: &str, volumes: Value) -> Value {
    json!({"spec": {"updateVolumesStrategy": strategy,
        "template": {"spec": {"volumes": volumes}}}})
}

fn entry(name: &str, from: &str, to: &str) -> Value {
    json!({"volumeName": name, "sourcePVCInfo": {"claimName": from},
        "destinationPVCInfo": {"claimName": to}})
}

fn instance(volumes: Value, migrated: Value) -> Value {
    let names: Vec<Value> = volumes.as_array().unwrap().iter().map(|v| v["name"].clone()).collect();
    let disks: Vec<Value> = names.iter().map(|name| json!({"name": name, "disk": {}})).collect();
    json!({"metadata": {"name": "m", "uid": "own"},
        "spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}},
        "status": {"phase": "Running", "migratedVolumes": migrated}})
}

fn decide(vm: &Value, vmi: &Value, claims: &[Value], instances: &[Value]) -> VolumeUpdate {
    update(vm, &vm["spec"]["template"]["spec"], vmi, VolumeUpdateContext { claims, instances })
}

fn sized(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}}},
        "status": {"capacity": {"storage": size}}})
}

#[test]
fn a_replaced_claim_moves_with_the_strategy_and_waits_without() {
    let vmi = instance(json!([volume("root", "old"), volume("data", "d")]), json!([]));
    let wanted = json!([volume("root", "new"), volume("data", "d")]);
    let claims = [sized("old", "1Gi"), sized("new", "2Gi")];
    let VolumeUpdate::Write { volumes, migrated } =
        decide(&machine("Migration", wanted.clone()), &vmi, &claims, &[])
    else {
        panic!("it does not move");
    };
    assert_eq!(volumes, [volume("root", "new")]);
    assert_eq!(migrated.len(), 1);
    let moved = super::entry(&migrated[0]);
    assert_eq!((moved.source(), moved.target()), ("old", "new"));
    assert_eq!(migrated[0]["destinationPVCInfo"]["capacity"]["storage"], "2Gi");
    for strategy in ["", "Replacement"] {
        let vm = machine(strategy, wanted.clone());
        assert_eq!(decide(&vm, &vmi, &claims, &[]), VolumeUpdate::Restart(REPLACED.into()));
    }
    let vm = machine("Migration", vmi["spec"]["volumes"].clone());
    assert_eq!(decide(&vm, &vmi, &[], &[]), VolumeUpdate::Nothing);
    let vm = machine("Migration", wanted);
    let mut early = vmi.clone();
    early["status"]["phase"] = json!("Scheduled");
    assert_eq!(decide(&vm, &early, &[], &[]), VolumeUpdate::Nothing);
    let mut travels = vmi;
    travels["status"]["migrationState"] =
        json!({"migrationUid": "u", "startTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(is_migrating(&travels), decide(&vm, &travels, &[], &[]) == VolumeUpdate::Nothing);
}

#[test]
fn during_a_move_a_volume_can_only_be_reverted() {
    let moving = json!([entry("root", "old", "new")]);
    let vmi = instance(json!([volume("root", "new")]), moving.clone());
    // The current strategy does not matter.
    for strategy in ["Migration", "Replacement"] {
        let vm = machine(strategy, json!([volume("root", "old")]));
        let expected = VolumeUpdate::Write {
            volumes: vec![volume("root", "old")],
            migrated: moving.as_array().unwrap().clone(),
        };
        assert_eq!(decide(&vm, &vmi, &[], &[]), expected);
    }
    let vm = machine("Migration", json!([volume("root", "third")]));
    assert_eq!(decide(&vm, &vmi, &[], &[]), VolumeUpdate::Refused(REVERT_ONLY));
    // Reverted, and wanted again before that was done.
    let vmi = instance(json!([volume("root", "old")]), moving);
    let vm = machine("Migration", json!([volume("root", "new")]));
    assert!(matches!(decide(&vm, &vmi, &[], &[]), VolumeUpdate::Write { .. }));
}

#[test]
fn unsuitable_volumes_wait_for_a_restart_and_say_why() {
    let vm = machine("Migration", json!([volume("root", "new")]));
    let vmi = instance(json!([volume("root", "old")]), json!([]));
    let restart = |claims: &[Value], instances: &[Value]| match decide(&vm, &vmi, claims, instances)
    {
        VolumeUpdate::Restart(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        restart(&[sized("old", "2Gi"), sized("new", "1Gi")], &[]),
        "cannot migrate volume root: claim new has 1Gi, less than the 2Gi of claim old"
    );
    let mut other = instance(json!([volume("x", "new")]), json!([]));
    other["metadata"] = json!({"name": "other", "uid": "u"});
    assert_eq!(
        restart(&[], std::slice::from_ref(&other)),
        "cannot migrate volume root: claim new is in use by virtual machine instance other"
    );
    other["status"]["phase"] = json!("Succeeded");
    assert!(matches!(decide(&vm, &vmi, &[], &[other]), VolumeUpdate::Write { .. }));
    for (disk, kind) in [
        (json!({"name": "root", "disk": {}, "shareable": true}), "shareable"),
        (json!({"name": "root", "lun": {}}), "luns"),
        (json!({"name": "root", "cdrom": {}}), "cdroms"),
    ] {
        let mut vmi = vmi.clone();
        vmi["spec"]["domain"]["devices"]["disks"] = json!([disk]);
        let expected = format!("invalid volumes to update with migration: {kind}: [root]");
        assert_eq!(decide(&vm, &vmi, &[], &[]), VolumeUpdate::Restart(expected));
    }
}

#[test]
fn a_machine_keeps_what_its_next_instance_has_to_know() {
    let moving = json!([entry("root", "old", "new")]);
    let recorded = json!({"volumeMigrationState": {"migratedVolumes": moving}});
    let mut vm = machine("Migration", json!([volume("root", "new")]));
    let going = instance(json!([volume("root", "new")]), moving.clone());
    assert_eq!(state(&vm, Some(&going)), recorded);
    vm["status"]["volumeUpdateState"] = recorded.clone();
    // Without an instance, and with one that was started on the old claim.
    assert_eq!(state(&vm, None), recorded);
    let restarted = instance(json!([volume("root", "old")]), json!([]));
    assert_eq!(state(&vm, Some(&restarted)), recorded);
    // Done.
    let done = instance(json!([volume("root", "new")]), json!([]));
    assert_eq!(state(&vm, Some(&done)), Value::Null);
    assert_eq!(recovery(&vm, Some(&done)), Recovery::NotNeeded);
    // Given up by a person.
    for vm in [
        machine("Migration", json!([volume("root", "old")])),
        machine("Replacement", json!([volume("root", "new")])),
    ] {
        let mut vm = vm;
        vm["status"]["volumeUpdateState"] = recorded.clone();
        assert_eq!(state(&vm, None), Value::Null);
    }
    let mut next = instance(json!([volume("root", "new"), volume("data", "d")]), json!([]));
    begin_on_sources(&vm, &mut next);
    assert_eq!(next["spec"]["volumes"], json!([volume("root", "old"), volume("data", "d")]));
}

#[test]
fn a_guest_that_ended_in_the_switch_needs_a_person() {
    let vm = machine("Migration", json!([volume("root", "new")]));
    let mut vmi = instance(json!([volume("root", "new")]), json!([entry("root", "old", "new")]));
    for (phase, reason, needed) in [
        ("Running", VolumesChange::Switching, false),
        ("Failed", VolumesChange::Copying, false),
        ("Failed", VolumesChange::Failed, false),
        ("Failed", VolumesChange::Switching, true),
        ("Succeeded", VolumesChange::Switching, true),
    ] {
        vmi["status"]["phase"] = json!(phase);
        vmi["status"]["conditions"] =
            json!([{"type": "VolumesChange", "status": "True", "reason": reason.as_str()}]);
        let found = recovery(&vm, Some(&vmi));
        assert_eq!(matches!(found, Recovery::Needed { .. }), needed, "{phase} {reason:?}");
    }
}
