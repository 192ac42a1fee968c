//! The state of a virtual machine in one word: pure. The first that applies is it.

use serde_json::Value;

use super::decision::{is_meant_to_run, is_over, strategy};
use super::status::Disks;
use crate::condition;
use crate::object::{int, is_deleting, list, name, text};

pub(crate) fn printable_status(vm: &Value, vmi: Option<&Value>, disks: &Disks) -> &'static str {
    let phase = vmi.map_or("", |vmi| text(vmi, "/status/phase"));
    let has = |kind, status, reason: &str| {
        let conditions = vmi.map_or(&[][..], |vmi| list(vmi, "/status/conditions"));
        condition::find(conditions, kind).is_some_and(|own| {
            text(own, "/status") == status && (reason.is_empty() || text(own, "/reason") == reason)
        })
    };
    let unsynchronized = |reason| has("Synchronized", "False", reason);
    let moving = |vmi: &Value| {
        !text(vmi, "/status/migrationState/startTimestamp").is_empty()
            && text(vmi, "/status/migrationState/endTimestamp").is_empty()
    };
    if is_deleting(vm) {
        "Terminating"
    } else if vmi.is_some_and(|vmi| is_deleting(vmi) && !is_over(vmi)) {
        "Stopping"
    } else if vmi.is_some_and(moving) {
        "Migrating"
    } else if phase == "Running" {
        if has("Paused", "True", "") { "Paused" } else { "Running" }
    } else if unsynchronized("FailedPvcNotFound") {
        "ErrorPvcNotFound"
    } else if referenced(vm, disks).any(has_failed) {
        "DataVolumeError"
    } else if has("PodScheduled", "False", "Unschedulable") {
        "ErrorUnschedulable"
    } else if referenced(vm, disks).any(is_provisioning) {
        "Provisioning"
    } else if is_meant_to_run(vm, vmi) && disks.claims.iter().any(is_unbound) {
        "WaitingForVolumeBinding"
    } else if unsynchronized("ErrImagePull") {
        "ErrImagePull"
    } else if unsynchronized("ImagePullBackOff") {
        "ImagePullBackOff"
    } else if vmi.is_some() && matches!(phase, "" | "Pending" | "Scheduling" | "Scheduled") {
        "Starting"
    } else if keeps_failing(vm) && vmi.is_none_or(is_over) {
        "CrashLoopBackOff"
    } else if vmi.is_none_or(is_over) {
        "Stopped"
    } else {
        "Unknown"
    }
}

/// Data volumes that the machine refers to as such.
fn referenced<'a>(vm: &'a Value, disks: &'a Disks) -> impl Iterator<Item = &'a Value> {
    let volumes = list(vm, "/spec/template/spec/volumes");
    disks.data_volumes.iter().filter(move |own| {
        volumes.iter().any(|volume| text(volume, "/dataVolume/name") == name(own))
    })
}

pub(crate) fn has_failed(data_volume: &Value) -> bool {
    let conditions = list(data_volume, "/status/conditions");
    text(data_volume, "/status/phase") == "Failed"
        || condition::find(conditions, "Running").is_some_and(|own| {
            text(own, "/status") == "False"
                && matches!(text(own, "/reason"), "Error" | "ImagePullFailed")
        })
}

/// One that only waits for its consumer is not being filled.
fn is_provisioning(data_volume: &Value) -> bool {
    match text(data_volume, "/status/phase") {
        "Succeeded" | "PendingPopulation" => false,
        "WaitForFirstConsumer" => condition::is(data_volume, "Bound", "True"),
        _ => true,
    }
}

fn is_unbound(claim: &Value) -> bool {
    text(claim, "/status/phase") != "Bound"
}

fn keeps_failing(vm: &Value) -> bool {
    int(vm, "/status/startFailure/consecutiveFailCount").is_some_and(|count| count > 0)
        && matches!(strategy(vm), "Always" | "RerunOnFailure" | "Once")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn data_volume(phase: &str) -> Disks {
        let own = json!({"metadata": {"name": "d"}, "status": {"phase": phase}});
        Disks { data_volumes: vec![own], claims: vec![] }
    }

    fn claim(phase: &str) -> Disks {
        Disks { claims: vec![json!({"status": {"phase": phase}})], data_volumes: vec![] }
    }

    fn vmi(phase: &str, condition: Value) -> Option<Value> {
        Some(json!({"status": {"phase": phase, "conditions": [condition]}}))
    }

    #[test]
    fn one_word_says_how_a_machine_stands() {
        let none = || json!({});
        let off =
            |kind: &str, reason: &str| json!({"type": kind, "status": "False", "reason": reason});
        let failing = json!({"startFailure": {"consecutiveFailCount": 1}});
        let cases = [
            ("Running", none(), vmi("Running", none()), Disks::default()),
            (
                "Paused",
                none(),
                vmi("Running", json!({"type": "Paused", "status": "True"})),
                Disks::default(),
            ),
            (
                "ErrorPvcNotFound",
                none(),
                vmi("Pending", off("Synchronized", "FailedPvcNotFound")),
                Disks::default(),
            ),
            ("DataVolumeError", none(), None, data_volume("Failed")),
            (
                "ErrorUnschedulable",
                none(),
                vmi("Scheduling", off("PodScheduled", "Unschedulable")),
                Disks::default(),
            ),
            ("Provisioning", none(), None, data_volume("ImportInProgress")),
            ("WaitingForVolumeBinding", none(), vmi("Pending", none()), claim("Pending")),
            ("Starting", none(), vmi("Scheduled", none()), claim("Bound")),
            (
                "ErrImagePull",
                none(),
                vmi("Scheduled", off("Synchronized", "ErrImagePull")),
                Disks::default(),
            ),
            ("CrashLoopBackOff", failing.clone(), vmi("Failed", none()), Disks::default()),
            ("CrashLoopBackOff", failing, None, Disks::default()),
            ("Stopped", none(), None, data_volume("WaitForFirstConsumer")),
            ("Stopped", none(), vmi("Succeeded", none()), Disks::default()),
            ("Unknown", none(), vmi("Unknown", none()), Disks::default()),
        ];
        for (expected, status, vmi, disks) in cases {
            let volumes = json!([{"name": "v", "dataVolume": {"name": "d"}}]);
            let vm = json!({"spec": {"runStrategy": "Always",
                "template": {"spec": {"volumes": volumes}}}, "status": status});
            assert_eq!(printable_status(&vm, vmi.as_ref(), &disks), expected);
        }
    }

    #[test]
    fn what_is_deleted_says_so_first() {
        let gone = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running"}});
        let disks = Disks::default();
        assert_eq!(printable_status(&gone, Some(&gone), &disks), "Terminating");
        assert_eq!(printable_status(&json!({}), Some(&gone), &disks), "Stopping");
    }
}
