//! Which machines of a pool do not come up and are replaced: pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use virt::api::pool::VirtualMachinePoolAutohealingStrategy;

use crate::condition;
use crate::object::{int, text};

/// Upstream's defaults.
const FAILURES: i64 = 3;
const FAILING: Duration = Duration::from_secs(300);
/// States in which a machine does not come up by itself.
const STUCK: &[&str] = &[
    "CrashLoopBackOff",
    "ErrorUnschedulable",
    "DataVolumeError",
    "ErrorPvcNotFound",
    "ErrImagePull",
    "ImagePullBackOff",
];

/// The health of a machine, which decides whether it is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Fine,
    /// It fails, and is given this much longer.
    Failing(Duration),
    Hopeless,
}

/// How `vm` fares by the rules of its pool.
pub(super) fn health(
    rules: Option<&VirtualMachinePoolAutohealingStrategy>,
    vm: &Value,
    now: Timestamp,
) -> Health {
    let Some(rules) = rules else { return Health::Fine };
    let most = rules.start_up_failure_threshold.map_or(FAILURES, i64::from);
    if int(vm, "/status/startFailure/consecutiveFailCount").unwrap_or(0) >= most {
        return Health::Hopeless;
    }
    if !STUCK.contains(&text(vm, "/status/printableStatus")) {
        return Health::Fine;
    }
    let given = rules.min_failing_to_start_duration.as_ref();
    let limit = given.and_then(|given| span(&given.0)).unwrap_or(FAILING);
    let conditions = condition::of(vm);
    let ready = condition::find(&conditions, "Ready").filter(|own| own["status"] == "False");
    let since = ready.and_then(|own| text(own, "/lastTransitionTime").parse::<Timestamp>().ok());
    let Some(since) = since else { return Health::Fine };
    let failing = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match limit.checked_sub(failing).filter(|left| !left.is_zero()) {
        Some(left) => Health::Failing(left),
        None => Health::Hopeless,
    }
}

/// A span of time as Go writes it: `5m0s`, `1h30m`, `1.5s`.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at(digits);
        let length = behind.find(|letter: char| letter.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(length);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        rest = behind;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rules::PoolRules;
    use super::*;

    #[test]
    fn a_machine_that_does_not_come_up_is_given_time_and_then_up() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let vm = |status: &str, failures: u32, since: &str| {
            let time = format!("2026-01-01T00:{since}:00Z");
            json!({"status": {"printableStatus": status,
                "startFailure": {"consecutiveFailCount": failures},
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": time}]}})
        };
        let minutes = |count: u64| Health::Failing(Duration::from_secs(60 * count));
        let (none, plain) = (json!({}), json!({"autohealing": {}}));
        let patient = json!({"autohealing":
            {"startUpFailureThreshold": 9, "minFailingToStartDuration": "1h0m0s"}});
        for (rules, vm, expected) in [
            (&none, vm("CrashLoopBackOff", 9, "00"), Health::Fine),
            (&plain, vm("Running", 0, "00"), Health::Fine),
            (&plain, vm("Stopped", 0, "00"), Health::Fine),
            (&plain, vm("Starting", 3, "09"), Health::Hopeless),
            (&plain, vm("Starting", 2, "00"), Health::Fine),
            (&plain, vm("CrashLoopBackOff", 1, "08"), minutes(3)),
            (&plain, vm("ErrorPvcNotFound", 0, "05"), Health::Hopeless),
            (&patient, vm("CrashLoopBackOff", 8, "00"), minutes(50)),
            (&patient, vm("CrashLoopBackOff", 9, "00"), Health::Hopeless),
        ] {
            let read = PoolRules::of(&json!({"spec": rules}));
            assert_eq!(health(read.autohealing.as_ref(), &vm, now), expected, "{rules} {vm}");
        }
    }

    #[test]
    fn spans_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("5m0s", Some(300.0)),
            ("1h1m", Some(3660.0)),
            ("1.5s", Some(1.5)),
            ("5", None),
            ("", None),
        ] {
            assert_eq!(span(text).map(|span| span.as_secs_f64()), seconds, "{text}");
        }
    }
}
