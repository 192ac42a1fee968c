use virt::reason::MachineFailure;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(0).unwrap()
}

fn vm(status: Value) -> Value {
    json!({"metadata": {"name": "v", "generation": 4}, "status": status,
        "spec": {"runStrategy": "Always", "template": {"spec": {"volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "seed", "cloudInitNoCloud": {}}]}}}})
}

fn vmi(phase: &str, conditions: Value) -> Value {
    json!({"metadata": {"uid": "i", "annotations": {GENERATION: "3"}},
        "status": {"phase": phase, "conditions": conditions}})
}

fn made(vm: &Value, vmi: Option<&Value>, findings: &Findings) -> Value {
    status(vm, vmi, &Disks::default(), findings, now())["status"].clone()
}

fn kinds(status: &Value) -> Vec<&str> {
    list(status, "/conditions").iter().map(|own| text(own, "/type")).collect()
}

#[test]
fn a_machine_that_never_ran_says_so() {
    let status = made(&vm(json!({})), None, &Findings::default());
    assert_eq!((&status["created"], &status["ready"]), (&json!(false), &json!(false)));
    assert_eq!(status.get("runStrategy"), None, "known only from the first start on");
    assert_eq!(status["conditions"][0]["reason"], "VMINotExists");
    assert_eq!(status["printableStatus"], "Stopped");
}

#[test]
fn conditions_are_those_of_the_instance_and_some_of_its_own() {
    let theirs = json!([{"type": "Ready", "status": "True"}, {"type": "LiveMigratable",
        "status": "False", "reason": "R"}]);
    let findings = Findings {
        restart: Restart::Needed("changed".into()),
        failure: Some((MachineFailure::Create, "no".into())),
        ..Findings::default()
    };
    let before = vm(json!({"conditions": [{"type": "Paused", "status": "True"}]}));
    let status = made(&before, Some(&vmi("Running", theirs)), &findings);
    assert_eq!(kinds(&status), ["Ready", "Failure", "LiveMigratable", "RestartRequired"]);
    assert_eq!((&status["ready"], &status["runStrategy"]), (&json!(true), &json!("Always")));
    assert_eq!(
        (&status["observedGeneration"], &status["desiredGeneration"]),
        (&json!(3), &json!(4))
    );
    let over = Findings { restart: Restart::NotNeeded, ..Findings::default() };
    let over = made(&vm(status), None, &over);
    assert_eq!(kinds(&over), ["Ready", "LiveMigratable"], "as it was last seen");
}

#[test]
fn an_instance_without_a_ready_condition_is_not_ready() {
    let status = made(&vm(json!({})), Some(&vmi("Pending", json!([]))), &Findings::default());
    assert_eq!(status["conditions"][0]["reason"], "VMIConditionMissing");
}

#[test]
fn requests_are_met_in_order() {
    let before = vm(json!({"stateChangeRequests": [{"action": "Stop", "uid": "i"},
        {"action": "Start"}]}));
    let instance = vmi("Running", json!([]));
    let requests = |vmi: Option<&Value>| {
        made(&before, vmi, &Findings::default())["stateChangeRequests"].clone()
    };
    assert_eq!(requests(Some(&instance)).as_array().unwrap().len(), 2);
    assert_eq!(requests(None), json!([{"action": "Start"}]));
    let asked = Findings { asks_to_start: true, ..Findings::default() };
    let status = made(&vm(json!({})), Some(&vmi("Failed", json!([]))), &asked);
    assert_eq!(status["stateChangeRequests"], json!([{"action": "Start"}]));
    let done = vm(json!({"stateChangeRequests": [{"action": "Start"}]}));
    assert!(made(&done, Some(&instance), &Findings::default())["stateChangeRequests"].is_null());
}

#[test]
fn starts_that_fail_are_counted_once_and_forgotten_when_one_succeeds() {
    let failed = vmi("Failed", json!([]));
    let first = made(&vm(json!({})), Some(&failed), &Findings::default());
    assert_eq!(first["startFailure"]["consecutiveFailCount"], 1);
    assert_eq!(first["printableStatus"], "CrashLoopBackOff");
    let again = made(&vm(first.clone()), Some(&failed), &Findings::default());
    assert_eq!(again["startFailure"], first["startFailure"]);
    let mut second = failed.clone();
    second["metadata"]["uid"] = json!("j");
    let counted = made(&vm(first.clone()), Some(&second), &Findings::default());
    assert_eq!(counted["startFailure"]["consecutiveFailCount"], 2);
    let mut ran = vmi("Running", json!([]));
    ran["status"]["phaseTransitionTimestamps"] = json!([{"phase": "Running"}]);
    assert!(made(&vm(counted), Some(&ran), &Findings::default())["startFailure"].is_null());
    let mut halted = vm(first);
    halted["spec"]["runStrategy"] = json!("Halted");
    assert!(made(&halted, None, &Findings::default())["startFailure"].is_null());
}

#[test]
fn every_volume_says_whether_it_can_be_in_a_snapshot() {
    let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "local"}});
    let mut disks = Disks { claims: vec![claim], ..Disks::default() };
    let found = snapshot_statuses(&vm(json!({})), &disks);
    assert_eq!(
        found[0]["reason"],
        "No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass \
         [local] [root]"
    );
    assert_eq!(found[1]["reason"], "Snapshot is not supported for this volumeSource type [seed]");
    disks.snapshottable.insert("local".to_owned());
    let found = snapshot_statuses(&vm(json!({})), &disks);
    assert_eq!(found[0], json!({"name": "root", "enabled": true}));
}

#[test]
fn a_second_reconciliation_is_no_change() {
    let first = made(&vm(json!({})), None, &Findings::default());
    let later = Timestamp::from_second(60).unwrap();
    let second = status(&vm(first.clone()), None, &Disks::default(), &Findings::default(), later);
    assert_eq!(second["status"]["conditions"], first["conditions"]);
}
