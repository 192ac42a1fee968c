//! The state of a machine in one word.
//!
//! Several of the words may be true at once (a guest that runs may be migrating); the order
//! of the table decides, and it is upstream's.

use serde_json::Value;

use crate::condition;
use crate::run_strategy::{RunSituation, is_set_to_start};
use crate::state::{InstancePhase, RunStrategy, is_deleting, is_migrating, list};

/// The facts about a machine besides the machine itself.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    pub vm: &'a Value,
    pub vmi: Option<&'a Value>,
    pub situation: RunSituation,
    /// The creation of an instance was sent and is not seen yet.
    pub starting: bool,
    /// The deletion of the instance was sent and is not seen yet.
    pub stopping: bool,
    /// The data volumes that the machine's volumes name, as far as they exist.
    pub data_volumes: &'a [Value],
    /// The claims that the machine's volumes name, as far as they exist.
    pub claims: &'a [Value],
}

type Predicate = fn(&StatusInput<'_>) -> bool;

const WORDS: &[(&str, Predicate)] = &[
    ("Terminating", |seen| is_deleting(seen.vm)),
    ("Stopping", |seen| seen.live().is_some_and(|vmi| is_deleting(vmi) || seen.stopping)),
    ("Migrating", |seen| seen.vmi.is_some_and(is_migrating)),
    ("Paused", |seen| seen.is_running() && seen.is_paused()),
    ("Running", |seen| seen.is_running() && !seen.is_paused()),
    ("ErrorPvcNotFound", |seen| seen.sync_fails_for("FailedPvcNotFound")),
    ("DataVolumeError", |seen| seen.data_volumes.iter().any(has_failed)),
    ("ErrorUnschedulable", |seen| {
        seen.vmi.is_some_and(|vmi| condition::is_false_for(vmi, "PodScheduled", "Unschedulable"))
    }),
    ("Provisioning", |seen| seen.data_volumes.iter().any(is_provisioning)),
    ("WaitingForVolumeBinding", |seen| {
        is_set_to_start(seen.situation)
            && seen.claims.iter().any(|claim| claim["status"]["phase"] != "Bound")
    }),
    ("ErrImagePull", |seen| seen.sync_fails_for("ErrImagePull")),
    ("ImagePullBackOff", |seen| seen.sync_fails_for("ImagePullBackOff")),
    ("Starting", |seen| match seen.phase() {
        None => seen.starting,
        Some(phase) => {
            matches!(
                phase,
                InstancePhase::Unset
                    | InstancePhase::Pending
                    | InstancePhase::Scheduling
                    | InstancePhase::Scheduled
            )
        }
    }),
    ("CrashLoopBackOff", |seen| seen.is_crash_looping()),
    ("Stopped", |seen| match seen.phase() {
        None => !seen.starting,
        Some(phase) => phase.is_final(),
    }),
    ("WaitingForReceiver", |seen| {
        seen.situation.strategy == RunStrategy::WaitAsReceiver
            && seen.phase().is_none_or(|phase| phase == InstancePhase::WaitingForSync)
    }),
];

/// The first word of the table that is true.
pub fn printable_status(seen: &StatusInput<'_>) -> &'static str {
    WORDS.iter().find(|(_, holds)| holds(seen)).map_or("Unknown", |(word, _)| word)
}

impl StatusInput<'_> {
    fn phase(&self) -> Option<InstancePhase> {
        self.vmi.map(InstancePhase::of)
    }

    fn live(&self) -> Option<&Value> {
        self.vmi.filter(|vmi| !InstancePhase::of(vmi).is_final())
    }

    fn is_running(&self) -> bool {
        self.phase() == Some(InstancePhase::Running)
    }

    fn is_paused(&self) -> bool {
        self.vmi.is_some_and(|vmi| condition::is_true(vmi, "Paused"))
    }

    fn sync_fails_for(&self, reason: &str) -> bool {
        self.vmi.is_some_and(|vmi| condition::is_false_for(vmi, "Synchronized", reason))
    }

    fn is_crash_looping(&self) -> bool {
        let failures = self.vm["status"]["startFailure"]["consecutiveFailCount"].as_i64();
        let restarts = matches!(
            self.situation.strategy,
            RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once
        );
        self.live().is_none()
            && !self.starting
            && restarts
            // Without an instance and without a start to come there is nothing to back off from.
            && (self.vmi.is_some() || is_set_to_start(self.situation))
            && failures.is_some_and(|failures| failures > 0)
    }
}

/// Whether a data volume cannot be filled.
pub fn has_failed(volume: &Value) -> bool {
    volume["status"]["phase"] == "Failed"
        || ["Error", "ImagePullFailed"]
            .iter()
            .any(|reason| condition::is_false_for(volume, "Running", reason))
}

/// Whether a data volume is still being filled. One that waits for its first consumer is
/// not: the machine is that consumer.
pub fn is_provisioning(volume: &Value) -> bool {
    match volume["status"]["phase"].as_str().unwrap_or_default() {
        "Succeeded" | "PendingPopulation" => false,
        "WaitForFirstConsumer" => condition::is_true(volume, "Bound"),
        _ => true,
    }
}

/// The names of the claims behind a list of volumes, and of those the data volumes.
pub fn claims_of(volumes: &Value) -> Vec<&str> {
    let sources = list(volumes).iter().filter_map(|volume| {
        volume["persistentVolumeClaim"]["claimName"]
            .as_str()
            .or(volume["dataVolume"]["name"].as_str())
            .or(volume["ephemeral"]["persistentVolumeClaim"]["claimName"].as_str())
            .or(volume["memoryDump"]["claimName"].as_str())
    });
    sources.collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    struct Case {
        vm: Value,
        vmi: Option<Value>,
        volumes: Vec<Value>,
        claims: Vec<Value>,
        starting: bool,
        stopping: bool,
    }

    fn case() -> Case {
        Case {
            vm: json!({"spec": {"runStrategy": "Always"}, "status": {"runStrategy": "Always"}}),
            vmi: None,
            volumes: Vec::new(),
            claims: Vec::new(),
            starting: false,
            stopping: false,
        }
    }

    fn in_phase(phase: &str) -> Case {
        Case { vmi: Some(json!({"status": {"phase": phase}})), ..case() }
    }

    fn with(phase: &str, kind: &str, status: &str, reason: &str) -> Case {
        let condition = json!({"type": kind, "status": status, "reason": reason});
        Case { vmi: Some(json!({"status": {"phase": phase, "conditions": [condition]}})), ..case() }
    }

    fn word(case: &Case) -> &'static str {
        let now = Timestamp::from_second(0).unwrap();
        let vmi = case.vmi.as_ref();
        printable_status(&StatusInput {
            vm: &case.vm,
            vmi,
            situation: RunSituation::of(&case.vm, vmi, now).unwrap(),
            starting: case.starting,
            stopping: case.stopping,
            data_volumes: &case.volumes,
            claims: &case.claims,
        })
    }

    #[test]
    fn every_word_has_its_moment() {
        let deleting = json!({"metadata": {"deletionTimestamp": "t"}, "spec": {"running": true}});
        let crashed = json!({
            "spec": {"runStrategy": "Always"}, "status": {"startFailure": {"consecutiveFailCount": 2}},
        });
        let ended = json!({"spec": {"runStrategy": "RerunOnFailure"}, "status":
            {"runStrategy": "RerunOnFailure", "startFailure": {"consecutiveFailCount": 2}}});
        let going = json!({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Running"}});
        let moving =
            json!({"status": {"phase": "Running", "migrationState": {"startTimestamp": "t"}}});
        let moved = json!({"status": {
            "phase": "Running", "migrationState": {"startTimestamp": "t", "endTimestamp": "u"},
        }});
        let volume = |phase: &str| vec![json!({"status": {"phase": phase}})];
        let receiver = json!({"spec": {"runStrategy": "WaitAsReceiver"}});
        let table = [
            ("Terminating", Case { vm: deleting, ..in_phase("Running") }),
            ("Stopping", Case { vmi: Some(going), ..case() }),
            ("Stopping", Case { stopping: true, ..in_phase("Running") }),
            ("Migrating", Case { vmi: Some(moving), ..case() }),
            ("Running", Case { vmi: Some(moved), ..case() }),
            ("Paused", with("Running", "Paused", "True", "PausedByUser")),
            ("Running", Case { volumes: volume("Failed"), ..in_phase("Running") }),
            ("ErrorPvcNotFound", with("Pending", "Synchronized", "False", "FailedPvcNotFound")),
            ("DataVolumeError", Case { volumes: volume("Failed"), ..in_phase("Pending") }),
            ("ErrorUnschedulable", with("Scheduling", "PodScheduled", "False", "Unschedulable")),
            ("Provisioning", Case { volumes: volume("ImportInProgress"), ..in_phase("Pending") }),
            ("Starting", Case { volumes: volume("WaitForFirstConsumer"), ..in_phase("Pending") }),
            ("WaitingForVolumeBinding", Case { claims: volume("Pending"), ..in_phase("Pending") }),
            ("ErrImagePull", with("Scheduling", "Synchronized", "False", "ErrImagePull")),
            ("ImagePullBackOff", with("Scheduling", "Synchronized", "False", "ImagePullBackOff")),
            ("Starting", Case { starting: true, ..case() }),
            ("Starting", in_phase("")),
            ("Starting", in_phase("Scheduled")),
            ("CrashLoopBackOff", Case { vm: crashed.clone(), ..case() }),
            ("CrashLoopBackOff", Case { vm: crashed, ..in_phase("Failed") }),
            ("Stopped", Case { vm: ended, ..case() }),
            ("Stopped", case()),
            ("Stopped", in_phase("Succeeded")),
            ("Stopped", Case { vm: receiver.clone(), ..case() }),
            (
                "WaitingForReceiver",
                Case { starting: false, vm: receiver, ..in_phase("WaitingForSync") },
            ),
            ("Unknown", in_phase("Unknown")),
        ];
        for (expected, case) in table {
            assert_eq!(word(&case), expected, "{} {:?}", case.vm, case.vmi);
        }
    }

    #[test]
    fn volumes_of_a_halted_machine_are_reported() {
        let vm = json!({"spec": {"runStrategy": "Halted"}});
        let volumes = vec![json!({"status": {"phase": "ImportScheduled"}})];
        assert_eq!(word(&Case { vm: vm.clone(), volumes, ..case() }), "Provisioning");
        let claims = vec![json!({"status": {"phase": "Pending"}})];
        assert_eq!(word(&Case { vm, claims, ..case() }), "Stopped");
    }

    #[test]
    fn claims_are_found_behind_every_kind_of_volume() {
        let volumes = json!([
            {"persistentVolumeClaim": {"claimName": "a"}},
            {"dataVolume": {"name": "b"}},
            {"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
            {"emptyDisk": {}},
        ]);
        assert_eq!(claims_of(&volumes), ["a", "b", "c"]);
    }
}
