use hci::maintenance::{MigrationBlocker, STRATEGY};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node(notes: Value, condition: Option<&str>) -> Value {
    let conditions: Vec<Value> = condition
        .iter()
        .map(|status| {
            json!({"type": CONDITION, "status": status,
                "lastTransitionTime": "1970-01-01T00:00:10Z"})
        })
        .collect();
    json!({"metadata": {"name": "a", "annotations": notes}, "status": {"conditions": conditions}})
}

#[test]
fn annotations_and_the_condition_say_how_far_it_is() {
    use MaintenancePhase::{Completed, Ended, Off, Requested, Running};
    for (notes, condition, expected) in [
        (json!({}), None, Off),
        (json!({}), Some("False"), Off),
        (json!({DRAIN_REQUESTED: "true"}), None, Requested),
        (json!({DRAIN_REQUESTED: "false"}), None, Off),
        // A second request after the first was refused.
        (json!({DRAIN_REQUESTED: "true"}), Some("False"), Requested),
        (json!({DRAIN_REQUESTED: "true", MAINTAIN_STATUS: RUNNING}), Some("True"), Running),
        (json!({MAINTAIN_STATUS: RUNNING}), None, Running),
        (json!({MAINTAIN_STATUS: COMPLETED}), Some("True"), Completed),
        (json!({}), Some("True"), Ended),
    ] {
        let node = node(notes, condition);
        assert_eq!(MaintenancePhase::of(&node), expected, "{node}");
    }
}

fn machine(name: &str, obstacle: Option<MigrationBlocker>) -> AffectedMachine {
    AffectedMachine {
        namespace: "n".into(),
        name: name.into(),
        is_here: true,
        strategy: MaintainStrategy::Migrate,
        obstacle,
    }
}

#[test]
fn the_node_reports_who_is_left_and_why() {
    let fixed = Some(MigrationBlocker::NotMigratable("HostDevice".into()));
    let machines = [machine("moves", None), machine("fixed", fixed)];
    let report =
        |is_forced, second| DrainPlan::of(&machines, is_forced).condition(Some(at(10)), at(second));
    let blocked = report(false, 20);
    assert_eq!(blocked.reason, "Blocked");
    assert_eq!(
        blocked.message,
        "migrating n/moves; cannot migrate n/fixed (HostDevice): shut them down, or force \
         maintenance"
    );
    let forced = report(true, 20);
    assert_eq!(forced.reason, "Draining");
    assert_eq!(forced.message, "migrating n/moves; shutting down n/fixed");
    assert_eq!(report(true, 4000).reason, "Blocked", "it is over an hour");
    let none = DrainPlan::of(&[], false);
    assert!(none.is_done());
    assert_eq!(none.condition(None, at(20)).reason, "Completed");
    let many: Vec<_> = (0..7).map(|n| machine(&format!("m{n}"), None)).collect();
    let message = DrainPlan::of(&many, false).condition(None, at(20)).message;
    assert_eq!(message, "migrating n/m0, n/m1, n/m2, n/m3, n/m4 and 2 more");
}

#[test]
fn a_report_is_written_once() {
    let quiet = node(json!({}), None);
    let patch = report(&quiet, &ended(), at(20)).unwrap();
    let mut reported = quiet;
    reported["status"] = patch["status"].clone();
    assert_eq!(report(&reported, &ended(), at(30)), None);
    assert_eq!(since(&reported), None);
    assert_eq!(since(&node(json!({}), Some("True"))), Some(at(10)));
}

fn vm(run: &str, label: &str, notes: Value, status: &str) -> Value {
    json!({"metadata": {"labels": {STRATEGY: label}, "annotations": notes},
        "spec": {"runStrategy": run}, "status": {"printableStatus": status}})
}

#[test]
fn machines_stop_and_start_as_they_ran() {
    let plain = vm("RerunOnFailure", "", json!({}), "Running");
    let PowerChange::Patch(patch) = stop(&plain, "a") else { panic!("a patch") };
    assert_eq!(patch["spec"]["runStrategy"], "Halted");
    assert_eq!(patch["metadata"]["annotations"], json!({RUN_STRATEGY: "RerunOnFailure"}));
    let label = "ShutdownAndRestartAfterDisable";
    let back = vm("Always", label, json!({}), "Running");
    let PowerChange::Patch(patch) = stop(&back, "a") else { panic!("a patch") };
    assert_eq!(patch["metadata"]["annotations"][STRATEGY_NODE], "a");
    assert_eq!(stop(&vm("Halted", "", json!({}), "Stopped"), "a"), PowerChange::Nothing);
    assert!(matches!(stop(&vm("Manual", "", json!({}), ""), "a"), PowerChange::Act("stop", _)));
    let halted =
        vm("Halted", label, json!({RUN_STRATEGY: "Always", STRATEGY_NODE: "a"}), "Stopped");
    let PowerChange::Patch(patch) = start(&halted) else { panic!("a patch") };
    assert_eq!(patch["spec"]["runStrategy"], "Always");
    assert_eq!(patch["metadata"]["annotations"][STRATEGY_NODE], Value::Null);
    assert!(matches!(start(&vm("Manual", "", json!({}), "")), PowerChange::Act("start", _)));
}

#[test]
fn machines_start_when_their_label_says() {
    use MaintenancePhase::{Completed, Ended, Running};
    let marked = || json!({STRATEGY_NODE: "a"});
    let (enable, disable) = ("ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable");
    for (label, notes, status, phase, expected) in [
        (enable, marked(), "Stopping", Running, false),
        (enable, marked(), "Stopped", Running, true),
        (enable, marked(), "Stopped", Completed, true),
        (disable, marked(), "Stopped", Completed, false),
        (disable, marked(), "Stopped", Ended, true),
        (disable, json!({STRATEGY_NODE: "b"}), "Stopped", Ended, false),
        ("Shutdown", json!({}), "Stopped", Ended, false),
    ] {
        let machine = vm("Halted", label, notes, status);
        assert_eq!(is_start_due(&machine, "a", phase), expected, "{machine} {phase:?}");
    }
}
