use serde_json::json;

use super::*;

fn vm(strategy: &str, requests: Value) -> Value {
    json!({"spec": {"runStrategy": strategy}, "status": {"stateChangeRequests": requests,
        "runStrategy": strategy}})
}

fn vmi(phase: &str) -> Value {
    json!({"metadata": {"uid": "i"}, "status": {"phase": phase}})
}

fn now() -> Timestamp {
    Timestamp::from_second(100).unwrap()
}

#[test]
fn the_strategy_decides() {
    use Decision::{Nothing, Replace, Start, Stop, Unhalt};
    let none = || json!([]);
    let start = || json!([{"action": "Start"}]);
    let stop = || json!([{"action": "Stop", "uid": "i"}]);
    let other = || json!([{"action": "Stop", "uid": "other"}]);
    for (strategy, requests, phase, expected) in [
        ("Always", none(), "", Start),
        ("Always", none(), "Running", Nothing),
        ("Always", none(), "Failed", Stop),
        ("Always", none(), "Succeeded", Stop),
        ("Always", stop(), "Running", Stop),
        ("Always", other(), "Running", Nothing),
        ("RerunOnFailure", none(), "", Nothing),
        ("RerunOnFailure", start(), "", Start),
        ("RerunOnFailure", none(), "Failed", Replace),
        ("RerunOnFailure", none(), "Succeeded", Stop),
        ("RerunOnFailure", stop(), "Running", Stop),
        ("RerunOnFailure", none(), "Running", Nothing),
        ("Manual", none(), "", Nothing),
        ("Manual", start(), "", Start),
        ("Manual", none(), "Failed", Nothing),
        ("Manual", stop(), "Running", Stop),
        ("Halted", none(), "", Nothing),
        ("Halted", start(), "", Unhalt),
        ("Halted", none(), "Running", Stop),
        ("Halted", none(), "Succeeded", Stop),
        ("Once", none(), "", Start),
        ("Once", none(), "Failed", Nothing),
        ("WaitAsReceiver", none(), "", Nothing),
    ] {
        let instance = (!phase.is_empty()).then(|| vmi(phase));
        let found = decide(&vm(strategy, requests.clone()), instance.as_ref(), now());
        assert_eq!(found, expected, "{strategy} {requests} {phase}");
    }
}

#[test]
fn a_machine_newly_run_again_after_failures_starts() {
    let mut vm = vm("RerunOnFailure", json!([]));
    vm["status"]["runStrategy"] = json!("Halted");
    assert_eq!(decide(&vm, None, now()), Decision::Start);
}

#[test]
fn an_instance_that_goes_is_waited_for() {
    let mut going = vmi("Running");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(decide(&vm("Halted", json!([])), Some(&going), now()), Decision::Nothing);
}

#[test]
fn a_machine_that_failed_to_start_waits() {
    let mut vm = vm("Always", json!([]));
    vm["status"]["startFailure"] = json!({"retryAfterTimestamp": "1970-01-01T00:02:00Z"});
    assert_eq!(decide(&vm, None, now()), Decision::StartLater(Duration::from_secs(20)));
    let later = Timestamp::from_second(120).unwrap();
    assert_eq!(decide(&vm, None, later), Decision::Start);
}

#[test]
fn the_deprecated_switch_is_a_strategy() {
    assert_eq!(strategy(&json!({"spec": {"running": true}})), "Always");
    assert_eq!(strategy(&json!({"spec": {"running": false}})), "Halted");
}

#[test]
fn a_request_is_met_by_what_it_asked_for() {
    let met = |request: Value, instance: Option<Value>| {
        is_first_request_met(&vm("Manual", json!([request])), instance.as_ref())
    };
    let stop = |uid: &str| json!({"action": "Stop", "uid": uid});
    assert!(met(stop("i"), None) && met(stop("x"), Some(vmi("Running"))));
    assert!(!met(stop("i"), Some(vmi("Running"))));
    let start = || json!({"action": "Start"});
    assert!(met(start(), Some(vmi("Pending"))) && !met(start(), Some(vmi("Failed"))));
    assert!(!met(start(), None));
}
