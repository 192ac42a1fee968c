//! The status of a migration in the object of a machine, and the patches that write it. Pure.

use std::time::{Duration, Instant};

use base::clock::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use virt::v1::VirtualMachineInstanceMigrationState;

use super::local_volume::{self, MovedVolume};
use super::offer::Prepared;
use crate::machine::Vmi;

/// Milliseconds that a guest may be paused, unless the configuration says otherwise.
const DOWNTIME: u64 = 300;
/// Seconds for each GiB of memory, as KubeVirt has it.
const COMPLETION_PER_GIB: u64 = 150;

/// For how long the rest may not shrink, as KubeVirt has it.
const PROGRESS: Duration = Duration::from_secs(150);

/// The least time for the rest of a paused guest: a migration that is nearly over is not
/// given up.
const PAUSED_LIMIT: Duration = Duration::from_secs(60);

/// The next action for a migration whose memory is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Continue,
    /// The guest is to be paused, so that the rest can be sent.
    Pause,
    /// The guest is to go on at the target, and the rest follows.
    PostCopy,
    /// The remaining memory has not shrunk for this long.
    Stalled(Duration),
    /// It was not sent within this time.
    Late(Duration),
}

/// Whether a migration comes to its end: by its time, and by the memory that is left to send.
#[derive(Debug)]
pub(super) struct MigrationPace {
    limit: Duration,
    stall: Duration,
    /// The action, taken once, when the time is over.
    escalation: Option<Pace>,
    began: Instant,
    /// The least that was left so far, and since when.
    least: u64,
    since: Instant,
}

impl MigrationPace {
    pub(super) fn new(request: &MigrationRequest, memory: u64, now: Instant) -> Self {
        let gib = memory.div_ceil(1 << 30).max(1);
        Self {
            limit: Duration::from_secs(request.completion_per_gib.saturating_mul(gib)),
            stall: request.progress_limit,
            escalation: match (request.allows_post_copy, request.allows_pause) {
                (true, _) => Some(Pace::PostCopy),
                (false, true) => Some(Pace::Pause),
                (false, false) => None,
            },
            began: now,
            least: u64::MAX,
            since: now,
        }
    }

    /// A time within which it is over, whatever is decided.
    pub(super) fn bound(&self) -> Duration {
        self.limit.saturating_add(self.limit.max(PAUSED_LIMIT)).saturating_add(PAUSED_LIMIT)
    }

    pub(super) fn judge(&mut self, remaining: u64, now: Instant) -> Pace {
        if remaining < self.least {
            (self.least, self.since) = (remaining, now);
        }
        let pace = if now.duration_since(self.began) > self.limit {
            Pace::Late(self.limit)
        } else if now.duration_since(self.since) > self.stall {
            Pace::Stalled(self.stall)
        } else {
            return Pace::Continue;
        };
        let Some(escalation) = self.escalation.take() else { return pace };
        // The same time again for the rest, of a guest that does not change it any more.
        (self.limit, self.stall) = (self.limit.max(PAUSED_LIMIT), self.stall.max(PAUSED_LIMIT));
        (self.began, self.least, self.since) = (now, remaining, now);
        escalation
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
    /// Whether the guest may go on at the target before all of its memory is there, once its time
    /// is over.
    pub(super) allows_post_copy: bool,
    /// Whether the guest may be paused while the rest is sent, once its time is over.
    pub(super) allows_pause: bool,
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
    /// The request to `node`; nothing if there is no migration, or it is over.
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
            allows_post_copy: config.allow_post_copy == Some(true),
            // As in KubeVirt: allowing post-copy allows this too, unless it is set.
            allows_pause: config
                .allow_workload_disruption
                .unwrap_or(config.allow_post_copy == Some(true)),
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

/// The guest is paused while the rest of its memory is sent.
pub(super) fn paused(vmi: &Vmi) -> Value {
    patch(vmi, json!({"mode": "Paused"}))
}

/// Why a migration goes without post-copy, and what follows.
pub(super) fn post_copy_refused(request: &MigrationRequest, prepared: &Prepared) -> String {
    let why = prepared.post_copy_refusal.as_deref().unwrap_or("its program is too old");
    let instead = if request.allows_pause {
        "the guest is paused instead if it does not converge"
    } else {
        "the migration is aborted if it does not converge"
    };
    format!(
        "Node {} cannot take in a guest in post-copy ({why}); {instead}. QEMU needs userfaultfd \
         there: sysctl vm.unprivileged_userfaultfd=1",
        request.target
    )
}

/// Whether the guest runs here while some of its memory is still at the source.
pub(super) fn is_post_copy(vmi: &Vmi) -> bool {
    let state = state(vmi);
    let is_over = state.completed == Some(true) || state.failed == Some(true);
    state.mode.as_deref() == Some("PostCopy") && !is_over
}

/// The guest is the target's from this write on, and the rest of its memory follows.
pub(super) fn handed_over_post_copy(
    vmi: &Vmi,
    request: &MigrationRequest,
    moved: &[MovedVolume],
) -> Value {
    let mut patch = patch(vmi, json!({"mode": "PostCopy"}));
    give(&mut patch, request, moved);
    patch
}

/// All memory has arrived.
pub(super) fn completed(vmi: &Vmi, now: Timestamp) -> Value {
    patch(vmi, json!({"completed": true, "endTimestamp": rfc3339(now)}))
}

/// In post-copy the guest cannot go back.
pub(super) fn abort_refused(vmi: &Vmi) -> Value {
    patch(vmi, json!({"abortStatus": "Failed"}))
}

/// The guest is the target's from this write on.
pub(super) fn handed_over(
    vmi: &Vmi,
    request: &MigrationRequest,
    moved: &[MovedVolume],
    now: Timestamp,
) -> Value {
    let mut patch = patch(vmi, json!({"completed": true, "endTimestamp": rfc3339(now)}));
    give(&mut patch, request, moved);
    patch
}

fn give(patch: &mut Value, request: &MigrationRequest, moved: &[MovedVolume]) {
    patch["metadata"]["labels"] = json!({"kubevirt.io/nodeName": request.target, "kubevirt.io/migrationTargetNodeName": null});
    patch["metadata"]["annotations"] = json!({virt::LAUNCHER: request.migration});
    local_volume::name(patch, &request.migration, moved);
    patch["status"]["nodeName"] = json!(request.target);
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
    use crate::machine::fixture;

    fn request(state: &Value) -> MigrationRequest {
        let mut vmi = fixture::vmi(json!({"domain": {}}));
        vmi.status = json!({"nodeName": "a", "migrationState": {"migrationUid": "m",
            "sourceNode": "a", "targetNode": "b", "migrationConfiguration": state}});
        MigrationRequest::of(&vmi, "a").unwrap()
    }

    #[test]
    fn a_migration_ends_when_the_rest_does_not_shrink_or_its_time_is_over() {
        let (late, stalled) = (Duration::from_secs(30), Duration::from_secs(10));
        let config = |(post_copy, pause): (bool, bool)| {
            request(&json!({"progressTimeout": 10, "completionTimeoutPerGiB": 30,
                "allowPostCopy": post_copy, "allowWorkloadDisruption": pause}))
        };
        let (none, pause, post_copy) = ((false, false), (false, true), (true, true));
        for (name, allows, polls) in [
            (
                "it stalls",
                none,
                vec![
                    (0, 100, Pace::Continue),
                    (10, 90, Pace::Continue),
                    (20, 95, Pace::Continue),
                    (21, 95, Pace::Stalled(stalled)),
                ],
            ),
            (
                "it shrinks, too slowly",
                none,
                vec![
                    (10, 90, Pace::Continue),
                    (20, 80, Pace::Continue),
                    (30, 70, Pace::Continue),
                    (31, 60, Pace::Late(late)),
                ],
            ),
            (
                "post-copy comes before a pause, once",
                post_copy,
                vec![
                    (10, 90, Pace::Continue),
                    (31, 80, Pace::PostCopy),
                    (60, 80, Pace::Continue),
                    (92, 80, Pace::Late(PAUSED_LIMIT)),
                ],
            ),
            (
                "it may pause the guest, once",
                pause,
                vec![
                    (0, 90, Pace::Continue),
                    (11, 90, Pace::Pause),
                    (30, 80, Pace::Continue),
                    (60, 70, Pace::Continue),
                    (71, 60, Pace::Continue),
                    (72, 50, Pace::Late(PAUSED_LIMIT)),
                ],
            ),
        ] {
            let began = Instant::now();
            let mut pace = MigrationPace::new(&config(allows), 1, began);
            for (second, remaining, expected) in polls {
                let now = began + Duration::from_secs(second);
                assert_eq!(pace.judge(remaining, now), expected, "{name}: second {second}");
            }
        }
    }

    #[test]
    fn the_configuration_of_the_cluster_is_obeyed() {
        let plain = request(&json!({"bandwidthPerMigration": "0", "progressTimeout": 0}));
        assert_eq!((plain.bandwidth, plain.progress_limit), (None, PROGRESS));
        let set = request(&json!({"bandwidthPerMigration": "64Mi", "progressTimeout": 30,
            "completionTimeoutPerGiB": 60, "allowAutoConverge": true, "maxDowntimeMs": 50,
            "allowWorkloadDisruption": true}));
        assert!(set.allows_pause && !plain.allows_pause);
        assert_eq!(set.bandwidth, Some(64 << 20));
        assert_eq!(set.progress_limit, Duration::from_secs(30));
        assert_eq!((set.completion_per_gib, set.downtime_millis), (60, 50));
        assert!(set.auto_converge);
        assert!(!set.allows_post_copy);
        let late = request(&json!({"allowPostCopy": true}));
        assert!(late.allows_post_copy && late.allows_pause, "a pause is allowed with post-copy");
        let late = request(&json!({"allowPostCopy": true, "allowWorkloadDisruption": false}));
        assert!(late.allows_post_copy && !late.allows_pause);
        let refusal = Some("Postcopy is not supported".to_owned());
        let refused = Prepared { post_copy_refusal: refusal, ..Prepared::default() };
        let message = post_copy_refused(&late, &refused);
        assert!(message.contains("Node b cannot"), "{message}");
        assert!(message.contains("(Postcopy is not supported); the migration is aborted"));
    }

    #[test]
    fn in_post_copy_the_target_owns_the_guest_before_it_is_completed() {
        let request = request(&json!({"allowPostCopy": true}));
        let mut vmi = fixture::vmi(json!({"domain": {}}));
        let given = handed_over_post_copy(&vmi, &request, &[]);
        assert_eq!(given["status"]["nodeName"], "b");
        let state = &given["status"]["migrationState"];
        assert_eq!((&state["mode"], &state["completed"]), (&json!("PostCopy"), &Value::Null));
        vmi.status = given["status"].clone();
        assert!(is_post_copy(&vmi));
        vmi.status["migrationState"]["completed"] = json!(true);
        assert!(!is_post_copy(&vmi));
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
        let given = handed_over(&vmi(asked, "a"), &request, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(given["status"]["nodeName"], "b");
        assert_eq!(given["metadata"]["labels"]["kubevirt.io/nodeName"], "b");
    }
}
