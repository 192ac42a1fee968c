//! Tables of what is done about which migration.

mod simulation;

use super::*;

fn migration(phase: &str) -> VirtualMachineInstanceMigration {
    serde_json::from_value(json!({
        "metadata": {"name": "m", "uid": "u"}, "spec": {"vmiName": "v"},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn vmi(phase: &str, state: Value) -> Value {
    json!({"metadata": {"name": "v", "resourceVersion": "7"},
        "status": {"phase": phase, "nodeName": "a", "migrationState": state}})
}

fn step(phase: &str, vmi: Option<&Value>, deleting: bool, under_way: &[&str]) -> MigrationStep {
    let under_way: Vec<String> = under_way.iter().map(|&node| node.to_owned()).collect();
    next(&MigrationInput {
        migration: &migration(phase),
        uid: "u",
        is_deleting: deleting,
        vmi,
        under_way: &under_way,
        limits: ParallelLimits::of(&MigrationConfiguration::default()),
    })
}

fn failed(step: &MigrationStep, part: &str) {
    let MigrationStep::Fail { message } = step else { panic!("{step:?} is no failure") };
    assert!(message.contains(part), "{message}");
}

#[test]
fn a_migration_passes_all_phases_in_order() {
    let enter = MigrationStep::Enter;
    let still = vmi("Running", Value::Null);
    let announced = vmi("Running", json!({"migrationUid": "u"}));
    let ready =
        json!({"migrationUid": "u", "targetNodeDomainReadyTimestamp": "2026-01-01T00:00:00Z"});
    let mut running = ready.clone();
    running["startTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut over = running.clone();
    over["completed"] = json!(true);
    let (ready, running, over) =
        (vmi("Running", ready), vmi("Running", running), vmi("Running", over));
    for (phase, vmi, expected) in [
        ("", &still, enter(MigrationPhase::Pending)),
        ("Pending", &still, MigrationStep::FindTarget),
        ("Scheduling", &still, enter(MigrationPhase::Scheduled)),
        ("Scheduled", &still, MigrationStep::Announce),
        ("Scheduled", &announced, enter(MigrationPhase::PreparingTarget)),
        ("PreparingTarget", &announced, MigrationStep::Wait),
        ("PreparingTarget", &ready, enter(MigrationPhase::TargetReady)),
        ("TargetReady", &ready, MigrationStep::Wait),
        ("TargetReady", &running, enter(MigrationPhase::Running)),
        ("Running", &running, MigrationStep::Wait),
        ("Running", &over, MigrationStep::Succeed),
        // The nodes were quicker than this controller.
        ("PreparingTarget", &over, enter(MigrationPhase::TargetReady)),
        ("TargetReady", &over, enter(MigrationPhase::Running)),
        ("Succeeded", &over, MigrationStep::Wait),
    ] {
        assert_eq!(step(phase, Some(vmi), false, &[]), expected, "{phase} {vmi}");
    }
}

#[test]
fn a_migration_waits_for_its_turn_and_for_its_instance() {
    let still = vmi("Running", Value::Null);
    for (under_way, expected) in [
        (&["a"][..], MigrationStep::FindTarget),
        (&["a", "a"], MigrationStep::Queue),
        (&["b", "b", "c", "c"], MigrationStep::FindTarget),
        (&["b", "b", "c", "c", "d"], MigrationStep::Queue),
    ] {
        assert_eq!(step("Pending", Some(&still), false, under_way), expected, "{under_way:?}");
    }
    let early = vmi("Scheduled", Value::Null);
    assert_eq!(step("Pending", Some(&early), false, &[]), MigrationStep::Wait);
    let busy = vmi("Running", json!({"migrationUid": "other"}));
    assert_eq!(step("Pending", Some(&busy), false, &[]), MigrationStep::Wait);
    let done = vmi("Running", json!({"migrationUid": "other", "failed": true}));
    assert_eq!(step("Pending", Some(&done), false, &[]), MigrationStep::FindTarget);
}

#[test]
fn a_migration_ends_with_its_instance_its_cancel_or_its_source() {
    failed(&step("Running", None, false, &[]), "does not exist");
    let over = vmi("Failed", json!({"migrationUid": "u"}));
    failed(&step("Running", Some(&over), false, &[]), "shutdown during migration");
    let still = vmi("Running", Value::Null);
    failed(&step("Pending", Some(&still), true, &[]), "canceled");
    let announced = vmi("Running", json!({"migrationUid": "u"}));
    assert_eq!(step("Running", Some(&announced), true, &[]), MigrationStep::RequestAbort);
    let asked = vmi("Running", json!({"migrationUid": "u", "abortRequested": true}));
    assert_eq!(step("Running", Some(&asked), true, &[]), MigrationStep::Wait);
    let broken = vmi("Running", json!({"migrationUid": "u", "failed": true, "failureReason": "x"}));
    failed(&step("Running", Some(&broken), false, &[]), "migration failed: x");
    let other = vmi("Running", json!({"migrationUid": "other"}));
    failed(&step("Running", Some(&other), false, &[]), "taken over by another");
    assert_eq!(step("Failed", Some(&still), true, &[]), MigrationStep::Release);
}

#[test]
fn an_instance_that_has_to_leave_its_node_is_migrated_once() {
    let mut leaving = vmi("Running", Value::Null);
    leaving["status"]["evacuationNodeName"] = json!("a");
    let made = evacuation(&leaving, 0).unwrap();
    assert_eq!(made["metadata"]["annotations"]["kubevirt.io/evacuationMigration"], "a");
    assert_eq!(evacuation(&leaving, 1), None);
    let failed = |second: &str| {
        json!({"status": {"phase": "Failed", "phaseTransitionTimestamps": [
            {"phase": "Failed", "phaseTransitionTimestamp": second}]}})
    };
    let now: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
    let (one, two) = (failed("2026-01-01T00:00:00Z"), failed("2026-01-01T00:00:20Z"));
    assert_eq!(evacuation_delay(&[], now), None);
    assert_eq!(evacuation_delay(std::slice::from_ref(&one), now), None);
    assert_eq!(evacuation_delay(&[one, two], now), Some(Duration::from_secs(30)));
    leaving["status"]["nodeName"] = json!("b");
    assert_eq!(evacuation(&leaving, 0), None, "it has left");
}
