//! What a virtual machine's run strategy and the requests to it mean now: pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::object::{is_deleting, is_true, list, text, uid};

/// What to do with the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Nothing,
    Start,
    /// Start after this long: it failed to start before.
    StartLater(Duration),
    Stop,
    /// Stop what has failed and ask for a start.
    Replace,
    /// Somebody asked to start a machine that is meant to be halted: from now on it is meant
    /// to run.
    Unhalt,
}

/// The strategy, also of those that only say whether they run.
pub(crate) fn strategy(vm: &Value) -> &str {
    match vm.pointer("/spec/running").and_then(Value::as_bool) {
        Some(true) => "Always",
        Some(false) => "Halted",
        None => match text(vm, "/spec/runStrategy") {
            "" => "Halted",
            own => own,
        },
    }
}

pub(crate) fn decide(vm: &Value, vmi: Option<&Value>, now: Timestamp) -> Decision {
    let strategy = strategy(vm);
    let Some(vmi) = vmi else { return without_instance(vm, strategy, now) };
    if is_deleting(vmi) {
        return Decision::Nothing;
    }
    let asked = asks_to_stop(vm, vmi);
    let phase = text(vmi, "/status/phase");
    match strategy {
        "Always" if asked || is_over(vmi) => Decision::Stop,
        "RerunOnFailure" if asked || phase == "Succeeded" => Decision::Stop,
        "RerunOnFailure" if phase == "Failed" => Decision::Replace,
        "Manual" if asked => Decision::Stop,
        "Halted" => Decision::Stop,
        _ => Decision::Nothing,
    }
}

fn without_instance(vm: &Value, strategy: &str, now: Timestamp) -> Decision {
    let start = || match time_left(vm, now) {
        Some(left) => Decision::StartLater(left),
        None => Decision::Start,
    };
    match strategy {
        "Always" => start(),
        "RerunOnFailure" if starts_again(vm) => start(),
        "Once" => Decision::Start,
        "Manual" if asks_to_start(vm) => Decision::Start,
        "Halted" if asks_to_start(vm) => Decision::Unhalt,
        _ => Decision::Nothing,
    }
}

/// Whether a machine that is run again after failures only has a reason to start.
fn starts_again(vm: &Value) -> bool {
    asks_to_start(vm) || text(vm, "/status/runStrategy") != "RerunOnFailure"
}

/// Whether the machine is meant to run now.
pub(crate) fn is_meant_to_run(vm: &Value, vmi: Option<&Value>) -> bool {
    match (strategy(vm), vmi) {
        ("Always", _) | ("Once", None) => true,
        ("Manual", Some(vmi)) => !asks_to_stop(vm, vmi),
        ("Manual", None) => asks_to_start(vm),
        ("RerunOnFailure", Some(vmi)) => text(vmi, "/status/phase") != "Succeeded",
        ("RerunOnFailure", None) => starts_again(vm),
        _ => false,
    }
}

pub(crate) fn is_over(vmi: &Value) -> bool {
    matches!(text(vmi, "/status/phase"), "Succeeded" | "Failed")
}

pub(crate) fn asks_to_start(vm: &Value) -> bool {
    first_request(vm).is_some_and(|own| text(own, "/action") == "Start")
}

/// Whether the guest's processors shall wait after the start that is asked for.
pub(crate) fn asks_to_start_paused(vm: &Value) -> bool {
    asks_to_start(vm)
        && first_request(vm)
            .is_some_and(|own| text(own, "/data/paused") == "true" || is_true(own, "/data/paused"))
}

fn asks_to_stop(vm: &Value, vmi: &Value) -> bool {
    first_request(vm)
        .is_some_and(|own| text(own, "/action") == "Stop" && text(own, "/uid") == uid(vmi))
}

fn first_request(vm: &Value) -> Option<&Value> {
    list(vm, "/status/stateChangeRequests").first()
}

/// Whether the first request has been met.
pub(crate) fn is_first_request_met(vm: &Value, vmi: Option<&Value>) -> bool {
    let Some(first) = first_request(vm) else { return false };
    match (text(first, "/action"), vmi) {
        ("Stop", None) => true,
        ("Stop", Some(vmi)) => text(first, "/uid") != uid(vmi),
        ("Start", Some(vmi)) => !is_deleting(vmi) && !is_over(vmi),
        _ => false,
    }
}

fn time_left(vm: &Value, now: Timestamp) -> Option<Duration> {
    let after: Timestamp = text(vm, "/status/startFailure/retryAfterTimestamp").parse().ok()?;
    let left = after.duration_since(now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests;
