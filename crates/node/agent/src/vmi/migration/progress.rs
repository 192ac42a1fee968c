//! What the object of a machine says of its migration, and the patches that tell it. Pure.

use std::time::{Duration, Instant};

use base::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use virt::v1::VirtualMachineInstanceMigrationState;

use crate::vmi::object::Vmi;

/// Milliseconds that a guest may stand still, unless the configuration says otherwise.
const DOWNTIME: u64 = 300;
/// Seconds for each GiB of memory, as KubeVirt has it.
const COMPLETION_PER_GIB: u64 = 150;

/// For how long the rest may not shrink, as KubeVirt has it.
const PROGRESS: Duration = Duration::from_secs(150);

/// Whether the memory that is left to send still shrinks: the least so far, and since when.
#[derive(Debug)]
pub(super) struct StallDetector {
    limit: Duration,
    least: u64,
    since: Instant,
}

impl StallDetector {
    pub(super) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, least: u64::MAX, since: now }
    }

    /// Whether less was left at no time since the limit.
    pub(super) fn is_stalled(&mut self, remaining: u64, now: Instant) -> bool {
        if remaining < self.least {
            (self.least, self.since) = (remaining, now);
        }
        now.duration_since(self.since) > self.limit
    }
}

/// A migration that this node is to carry out as its source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MigrationRequest {
    pub(super) migration: String,
    pub(super) target: String,
    pub(super) is_aborted: bool,
    pub(super) bandwidth: Option<u64>,
    pub(super) downtime_millis: u64,
    pub(super) auto_converge: bool,
    pub(super) completion_per_gib: u64,
    /// For how long the rest of the memory may not shrink.
    pub(super) progress_limit: Duration,
}

/// The migration state of an object.
pub(super) fn state(vmi: &Vmi) -> VirtualMachineInstanceMigrationState {
    serde_json::from_value(vmi.status["migrationState"].clone()).unwrap_or_default()
}

pub(super) fn owner(vmi: &Vmi) -> &str {
    vmi.status["nodeName"].as_str().unwrap_or_default()
}

impl MigrationRequest {
    /// What is asked of `node`; nothing if no migration is, or it is over.
    pub(super) fn of(vmi: &Vmi, node: &str) -> Option<Self> {
        let state = state(vmi);
        let is_over = state.completed == Some(true) || state.failed == Some(true);
        let target = state.target_node.filter(|target| !target.is_empty() && target != node)?;
        if is_over || owner(vmi) != node || state.source_node.as_deref() != Some(node) {
            return None;
        }
        let config = state.migration_configuration.unwrap_or_default();
        let bandwidth = config.bandwidth_per_migration.and_then(|limit| limit.units());
        Some(Self {
            migration: state.migration_uid.filter(|uid| !uid.is_empty())?,
            target,
            is_aborted: state.abort_requested == Some(true),
            bandwidth: bandwidth.and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0),
            downtime_millis: config.max_downtime_ms.unwrap_or(DOWNTIME),
            auto_converge: config.allow_auto_converge == Some(true),
            completion_per_gib: config
                .completion_timeout_per_gi_b
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .unwrap_or(COMPLETION_PER_GIB),
            progress_limit: config
                .progress_timeout
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map_or(PROGRESS, Duration::from_secs),
        })
    }

    /// Whether the object still asks for this migration.
    pub(super) fn is_asked_by(&self, vmi: &Vmi, node: &str) -> bool {
        Self::of(vmi, node).is_some_and(|own| own.migration == self.migration)
    }
}

fn patch(vmi: &Vmi, state: Value) -> Value {
    json!({"metadata": {"resourceVersion": vmi.version}, "status": {"migrationState": state}})
}

/// The target waits for the stream, and the stream begins.
pub(super) fn started(vmi: &Vmi, address: &str, now: Timestamp) -> Value {
    let now = rfc3339(now);
    patch(
        vmi,
        json!({"targetNodeDomainReadyTimestamp": now, "targetNodeDomainDetected": true,
            "targetNodeAddress": address, "startTimestamp": now, "mode": "PreCopy"}),
    )
}

/// The guest is the target's from this write on.
pub(super) fn handed_over(vmi: &Vmi, request: &MigrationRequest, now: Timestamp) -> Value {
    let mut patch = patch(vmi, json!({"completed": true, "endTimestamp": rfc3339(now)}));
    patch["metadata"]["labels"] = json!({"kubevirt.io/nodeName": request.target, "kubevirt.io/migrationTargetNodeName": null});
    patch["metadata"]["annotations"] = json!({virt::LAUNCHER: request.migration});
    patch["status"]["nodeName"] = json!(request.target);
    patch
}

/// The migration is over, and the guest stays.
pub(super) fn failed(vmi: &Vmi, why: &str, is_aborted: bool, now: Timestamp) -> Value {
    let mut state = json!({"failed": true, "failureReason": why, "endTimestamp": rfc3339(now)});
    if is_aborted {
        state["abortStatus"] = json!("Succeeded");
        state["abortRequested"] = json!(true);
    }
    let mut patch = patch(vmi, state);
    patch["metadata"]["labels"] = json!({"kubevirt.io/migrationTargetNodeName": null});
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi::fixture;

    #[test]
    fn a_migration_stalls_when_the_rest_does_not_shrink() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut detector = StallDetector::new(Duration::from_secs(10), began);
        for (second, remaining, stalled) in [
            (0, 100, false),
            (9, 100, false),
            (10, 90, false),
            (15, 99, false),
            (20, 90, false),
            (21, 95, true),
            (22, 89, false),
        ] {
            assert_eq!(detector.is_stalled(remaining, at(second)), stalled, "second {second}");
        }
    }

    #[test]
    fn the_configuration_of_the_cluster_is_obeyed() {
        let request = |config: Value| {
            let mut vmi = fixture::vmi(json!({"domain": {}}));
            vmi.status = json!({"nodeName": "a", "migrationState": {"migrationUid": "m",
                "sourceNode": "a", "targetNode": "b", "migrationConfiguration": config}});
            MigrationRequest::of(&vmi, "a").unwrap()
        };
        let plain = request(json!({"bandwidthPerMigration": "0", "progressTimeout": 0}));
        assert_eq!((plain.bandwidth, plain.progress_limit), (None, PROGRESS));
        let set = request(json!({"bandwidthPerMigration": "64Mi", "progressTimeout": 30,
            "completionTimeoutPerGiB": 60, "allowAutoConverge": true, "maxDowntimeMs": 50}));
        assert_eq!(set.bandwidth, Some(64 << 20));
        assert_eq!(set.progress_limit, Duration::from_secs(30));
        assert_eq!((set.completion_per_gib, set.downtime_millis), (60, 50));
        assert!(set.auto_converge);
    }

    #[test]
    fn a_node_migrates_what_it_has_and_is_asked_to() {
        let vmi = |state: Value, node: &str| {
            let mut vmi = fixture::vmi(json!({"domain": {}}));
            vmi.status = json!({"nodeName": node, "migrationState": state});
            vmi
        };
        let asked = json!({"migrationUid": "m", "sourceNode": "a", "targetNode": "b"});
        let request = MigrationRequest::of(&vmi(asked.clone(), "a"), "a").unwrap();
        assert_eq!((request.target.as_str(), request.downtime_millis), ("b", 300));
        assert!(request.is_asked_by(&vmi(asked.clone(), "a"), "a"));
        let mut over = asked.clone();
        over["failed"] = json!(true);
        for (state, node) in [
            (asked.clone(), "b"),
            (over, "a"),
            (Value::Null, "a"),
            (json!({"migrationUid": "m", "sourceNode": "a", "targetNode": "a"}), "a"),
        ] {
            assert_eq!(MigrationRequest::of(&vmi(state, node), "a"), None);
        }
        let given = handed_over(&vmi(asked, "a"), &request, Timestamp::UNIX_EPOCH);
        assert_eq!(given["status"]["nodeName"], "b");
        assert_eq!(given["metadata"]["labels"]["kubevirt.io/nodeName"], "b");
    }
}
