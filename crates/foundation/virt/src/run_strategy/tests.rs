use serde_json::json;

use super::*;
use InstancePhase as P;
use RunAction as A;
use RunStrategy as S;

const START: Option<StateChangeRequest> = Some(StateChangeRequest::Start { paused: false });
const STOP: Option<StateChangeRequest> = Some(StateChangeRequest::Stop);

fn situation(strategy: S, phase: Option<P>, request: Option<StateChangeRequest>) -> RunSituation {
    let instance =
        phase.map(|phase| Instance { phase, deleting: false, receiving: false, journey: None });
    RunSituation { strategy, last: Some(strategy), instance, request, retry_in: 0, held: false }
}

#[test]
fn every_strategy_answers_every_state() {
    let start = || A::Start { paused: false };
    let table = [
        (S::Always, None, None, start()),
        (S::Always, Some(P::Scheduling), None, A::Nothing),
        (S::Always, Some(P::Running), None, A::Nothing),
        (S::Always, Some(P::Running), STOP, A::Stop),
        (S::Always, Some(P::Failed), None, A::Stop),
        (S::Always, Some(P::Succeeded), None, A::Stop),
        (S::RerunOnFailure, None, None, A::Nothing),
        (S::RerunOnFailure, None, START, start()),
        (S::RerunOnFailure, Some(P::Running), None, A::Nothing),
        (S::RerunOnFailure, Some(P::Running), STOP, A::Stop),
        (S::RerunOnFailure, Some(P::Failed), None, A::StopAndAskForStart),
        (S::RerunOnFailure, Some(P::Succeeded), None, A::Stop),
        (S::Manual, None, None, A::Nothing),
        (S::Manual, None, START, start()),
        (S::Manual, Some(P::Running), None, A::Nothing),
        (S::Manual, Some(P::Running), STOP, A::Stop),
        (S::Manual, Some(P::Failed), None, A::Nothing),
        (S::Manual, Some(P::Succeeded), None, A::Nothing),
        (S::Manual, Some(P::Succeeded), STOP, A::Stop),
        (S::Halted, None, None, A::Nothing),
        (S::Halted, None, START, A::Become(S::Always)),
        (S::Halted, Some(P::Running), None, A::Stop),
        (S::Halted, Some(P::Failed), None, A::Stop),
        (S::Once, None, None, start()),
        (S::Once, Some(P::Running), None, A::Nothing),
        (S::Once, Some(P::Failed), None, A::Nothing),
        (S::Once, Some(P::Succeeded), None, A::Nothing),
        (S::WaitAsReceiver, None, None, start()),
        (S::WaitAsReceiver, Some(P::Running), None, A::Stray),
    ];
    for (strategy, phase, request, expected) in table {
        let now = situation(strategy, phase, request);
        assert_eq!(decide(now), expected, "{now:?}");
    }
}

#[test]
fn a_strategy_that_is_new_starts_the_machine() {
    for last in [None, Some(S::Halted)] {
        let now = RunSituation { last, ..situation(S::RerunOnFailure, None, None) };
        assert_eq!(decide(now), A::Start { paused: false });
    }
}

#[test]
fn a_start_waits_for_its_time_but_not_if_a_person_asked_by_hand() {
    for strategy in [S::Always, S::RerunOnFailure] {
        let now = RunSituation { retry_in: 7, last: None, ..situation(strategy, None, None) };
        assert_eq!(decide(now), A::Wait { seconds: 7 });
    }
    let now = RunSituation { retry_in: 7, ..situation(S::Manual, None, START) };
    assert_eq!(decide(now), A::Start { paused: false });
}

#[test]
fn a_machine_that_must_be_repaired_does_not_start() {
    for strategy in [S::Always, S::Once, S::Manual, S::RerunOnFailure, S::WaitAsReceiver] {
        let now = RunSituation { held: true, ..situation(strategy, None, START) };
        assert_eq!(decide(now), A::Nothing, "{strategy}");
    }
}

#[test]
fn an_instance_that_is_going_is_not_deleted_twice() {
    for (strategy, request) in
        [(S::Always, STOP), (S::Halted, None), (S::Manual, STOP), (S::RerunOnFailure, STOP)]
    {
        let mut now = situation(strategy, Some(P::Running), request);
        now.instance.as_mut().unwrap().deleting = true;
        assert_eq!(decide(now), A::Nothing, "{strategy}");
    }
}

#[test]
fn a_guest_that_moved_to_another_cluster_is_not_started_again() {
    let mut now = situation(S::Always, Some(P::Succeeded), None);
    now.instance.as_mut().unwrap().journey = Some(CrossClusterMigration::UnderWay);
    assert_eq!(decide(now), A::Wait { seconds: 2 });
    now.instance.as_mut().unwrap().journey = Some(CrossClusterMigration::Done);
    assert_eq!(decide(now), A::Become(S::Halted));
    now.strategy = S::WaitAsReceiver;
    assert_eq!(decide(now), A::BecomeWhatItWas);
}

#[test]
fn a_situation_is_read_from_the_objects() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let vm = json!({
        "spec": {"running": true},
        "status": {
            "runStrategy": "Manual",
            "stateChangeRequests": [{"action": "Stop", "uid": "u"}, {"action": "Start"}],
            "startFailure": {"retryAfterTimestamp": "2026-01-01T00:00:30Z"},
        },
    });
    let vmi = json!({
        "metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": "Running"},
    });
    let seen = RunSituation::of(&vm, Some(&vmi), now).unwrap();
    assert_eq!((seen.strategy, seen.last), (S::Always, Some(S::Manual)));
    assert_eq!((seen.request, seen.retry_in, seen.held), (STOP, 30, false));
    assert!(seen.instance.unwrap().deleting);
    // A request to stop another instance is none.
    let other = json!({"metadata": {"uid": "v"}});
    assert_eq!(RunSituation::of(&vm, Some(&other), now).unwrap().request, None);
    assert_eq!(RunSituation::of(&json!({"spec": {"runStrategy": "Often"}}), None, now), None);
}

#[test]
fn requests_are_done_when_their_wish_is_fulfilled() {
    let stop = json!({"status": {"stateChangeRequests": [{"action": "Stop", "uid": "u"}]}});
    let start = json!({"status": {"stateChangeRequests": [{"action": "Start"}]}});
    let running = json!({"metadata": {"uid": "u"}, "status": {"phase": "Running"}});
    let next = json!({"metadata": {"uid": "v"}, "status": {"phase": "Running"}});
    let ended = json!({"metadata": {"uid": "u"}, "status": {"phase": "Failed"}});
    let going =
        json!({"metadata": {"uid": "u", "deletionTimestamp": "t"}, "status": {"phase": "Running"}});
    let table = [
        (&stop, None, true),
        (&stop, Some(&running), false),
        (&stop, Some(&next), true),
        (&start, None, false),
        (&start, Some(&running), true),
        (&start, Some(&ended), false),
        (&start, Some(&going), false),
    ];
    for (vm, vmi, done) in table {
        assert_eq!(is_request_done(vm, vmi), done, "{vm} {vmi:?}");
    }
    assert!(!is_request_done(&json!({}), None));
}

#[test]
fn the_delay_grows_with_the_square_and_has_a_limit() {
    for (failures, delay) in [(0, 10), (1, 10), (2, 40), (3, 90), (5, 250), (6, 300), (9999, 300)] {
        assert_eq!(delay_seconds(failures, 0), delay, "{failures}");
    }
    for random in 0..100 {
        let delay = delay_seconds(2, random);
        assert!((40..=60).contains(&delay), "{delay}");
    }
}

#[test]
fn failures_are_counted_once_and_forgotten_when_the_guest_ran() {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let vm = json!({"spec": {"runStrategy": "Always"}});
    let early = json!({"metadata": {"uid": "a"}, "status": {"phase": "Failed"}});
    let first = start_failure(&vm, Some(&early), now, 0);
    let expected = json!({
        "consecutiveFailCount": 1,
        "lastFailedVMIUID": "a",
        "retryAfterTimestamp": "2026-01-01T00:00:10Z",
    });
    assert_eq!(first, expected);
    let vm = json!({"spec": {"runStrategy": "Always"}, "status": {"startFailure": first}});
    assert_eq!(start_failure(&vm, Some(&early), now, 9), expected);
    assert_eq!(start_failure(&vm, None, now, 9), expected);
    let again = json!({"metadata": {"uid": "b"}, "status": {"phase": "Failed"}});
    assert_eq!(start_failure(&vm, Some(&again), now, 0)["consecutiveFailCount"], 2);
    let ran = json!({"metadata": {"uid": "b"}, "status": {
        "phase": "Failed", "phaseTransitionTimestamps": [{"phase": "Running"}],
    }});
    assert_eq!(start_failure(&vm, Some(&ran), now, 0), Value::Null);
    let manual = json!({"spec": {"runStrategy": "Manual"}, "status": vm["status"]});
    // Its instance was deleted: nothing starts it, and nothing is put off.
    let mut rerun = json!({"spec": {"runStrategy": "RerunOnFailure"}, "status": vm["status"]});
    rerun["status"]["runStrategy"] = json!("RerunOnFailure");
    assert_eq!(start_failure(&rerun, None, now, 0), Value::Null);
    rerun["status"]["stateChangeRequests"] = json!([{"action": "Start"}]);
    assert_eq!(start_failure(&rerun, None, now, 0), expected);
    assert_eq!(start_failure(&manual, Some(&again), now, 0), Value::Null);
}

#[test]
fn a_machine_is_set_to_start_or_not() {
    let table = [
        (S::Always, None, None, true),
        (S::Halted, Some(P::Running), None, false),
        (S::Manual, None, None, false),
        (S::Manual, None, START, true),
        (S::Manual, Some(P::Running), None, true),
        (S::Manual, Some(P::Running), STOP, false),
        (S::RerunOnFailure, None, None, false),
        (S::RerunOnFailure, Some(P::Failed), None, true),
        (S::RerunOnFailure, Some(P::Succeeded), None, false),
        (S::Once, None, None, true),
        (S::Once, Some(P::Running), None, false),
    ];
    for (strategy, phase, request, expected) in table {
        let now = situation(strategy, phase, request);
        assert_eq!(is_set_to_start(now), expected, "{now:?}");
    }
}
