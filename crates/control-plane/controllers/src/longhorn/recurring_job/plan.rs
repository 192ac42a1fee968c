//! When a recurring job runs, on which volumes, and which snapshots it removes: pure.

use std::collections::BTreeMap;

use hci::longhorn::job::{RecurringJob, RecurringJobSpec};
use hci::longhorn::snapshot::Snapshot;
use hci::longhorn::volume::Volume;
use hci::schedule::{LAST_RUN, Schedule, ScheduleError, ScheduleTimes};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::object::{name, read};
use crate::record::instance::InstanceFields;
use crate::record::vm_volume::has_claim;

/// On every snapshot of a job, among `spec.labels`.
pub(super) const JOB_LABEL: &str = "RecurringJob";
/// On a claim: its labels decide about the jobs of its volume.
pub(super) const SOURCE_LABEL: &str = "recurring-job.longhorn.io/source";
const JOB: &str = "recurring-job.longhorn.io/";
const GROUP: &str = "recurring-job-group.longhorn.io/";
const ENABLED: &str = "enabled";
/// Volumes without jobs and groups of their own are in this one.
const DEFAULT_GROUP: &str = "default";

/// The task of a job for each of its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecurringTask {
    /// Take a snapshot, and remove old ones of the same job.
    Snapshot,
    /// Remove snapshots that the system made.
    Cleanup,
    /// Remove old snapshots of any creator.
    Delete,
    Trim,
    /// Back a new snapshot up, and remove old backups of the same job.
    Backup,
    /// Backups of the system, which do not exist here.
    Unsupported,
}

impl RecurringTask {
    pub(super) fn of(spec: &RecurringJobSpec) -> Self {
        match spec.task.as_deref().unwrap_or_default() {
            "snapshot" | "snapshot-force-create" => Self::Snapshot,
            "snapshot-cleanup" => Self::Cleanup,
            "snapshot-delete" => Self::Delete,
            "filesystem-trim" => Self::Trim,
            "backup" | "backup-force-create" => Self::Backup,
            _ => Self::Unsupported,
        }
    }
}

/// When a job runs.
pub(super) fn times(job: &RecurringJob, now: Timestamp) -> Result<ScheduleTimes, ScheduleError> {
    let cron = job.spec.as_ref().and_then(|spec| spec.cron.as_deref()).unwrap_or_default();
    let schedule = Schedule::parse(cron)?;
    let noted = job.metadata.annotations.get(LAST_RUN).and_then(|time| time.parse().ok());
    let created = job.metadata.creation_timestamp.as_ref();
    let created = created.and_then(|time| time.to_string().parse().ok());
    Ok(schedule.times(noted.or(created).unwrap_or(now), now))
}

/// Whether a volume with these labels takes part in a job.
pub(super) fn is_selected(job: &RecurringJob, labels: &BTreeMap<String, String>) -> bool {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let groups = job.spec.as_ref().map_or(&[][..], |spec| &spec.groups);
    let mut own = labels
        .iter()
        .filter(|(key, value)| value.as_str() == ENABLED && key.as_str() != SOURCE_LABEL)
        .filter(|(key, _)| key.starts_with(JOB) || key.starts_with(GROUP))
        .peekable();
    if own.peek().is_none() {
        return groups.iter().any(|group| group == DEFAULT_GROUP);
    }
    own.any(|(key, _)| {
        key.strip_prefix(JOB).is_some_and(|job| job == name)
            || key.strip_prefix(GROUP).is_some_and(|own| groups.iter().any(|group| group == own))
    })
}

/// Whether a job can be done on a volume as it is now.
pub(super) fn is_fit(volume: &Volume, while_detached: bool) -> bool {
    let status = volume.status.clone().unwrap_or_default();
    let attached = status.state.as_deref() == Some("attached");
    let resting = status.state.as_deref() == Some("detached");
    volume.metadata.deletion_timestamp.is_none()
        && status.robustness.as_deref() != Some("faulted")
        && status.restore_required != Some(true)
        && (attached || while_detached && resting)
}

/// The running instance that has a claim as a disk.
pub(super) fn user_of<'a>(vmis: &'a [Value], claim: &str) -> Option<&'a str> {
    let uses = |vmi: &&Value| {
        read::<InstanceFields<'_>>(vmi).status.phase == "Running" && has_claim(vmi, claim)
    };
    vmis.iter().find(uses).map(name)
}

/// Whether the last snapshot of a job is still to be taken.
pub(super) fn is_pending(job: &str, snapshots: &[Snapshot]) -> bool {
    snapshots.iter().any(|own| {
        let status = own.status.clone().unwrap_or_default();
        made_by(own, job)
            && own.metadata.deletion_timestamp.is_none()
            && status.creation_time.unwrap_or_default().is_empty()
            && status.error.unwrap_or_default().is_empty()
    })
}

fn made_by(snapshot: &Snapshot, job: &str) -> bool {
    let labels = snapshot.spec.as_ref().map(|spec| &spec.labels);
    labels.and_then(|labels| labels.get(JOB_LABEL)).is_some_and(|own| own == job)
}

/// The snapshots of a volume that a job removes.
pub(super) fn expired<'a>(
    job: &str,
    spec: &RecurringJobSpec,
    snapshots: &'a [Snapshot],
    now: Timestamp,
) -> Vec<&'a str> {
    let task = RecurringTask::of(spec);
    let own: Vec<(Timestamp, &str)> = snapshots
        .iter()
        .filter(|own| own.metadata.deletion_timestamp.is_none())
        .filter(|own| match task {
            RecurringTask::Snapshot | RecurringTask::Backup => made_by(own, job) && is_taken(own),
            RecurringTask::Delete => is_taken(own),
            RecurringTask::Cleanup => {
                is_taken(own)
                    && own.status.as_ref().and_then(|status| status.user_created) == Some(false)
            }
            RecurringTask::Trim | RecurringTask::Unsupported => false,
        })
        .filter_map(|own| {
            let made = own.metadata.creation_timestamp.as_ref()?.to_string().parse().ok()?;
            Some((made, own.metadata.name.as_deref()?))
        })
        .collect();
    if task == RecurringTask::Cleanup {
        return own.into_iter().map(|(_, name)| name).collect();
    }
    surplus(own, spec, now)
}

/// The names beyond the number or the age that a job keeps, oldest first.
pub(super) fn surplus<'a>(
    mut own: Vec<(Timestamp, &'a str)>,
    spec: &RecurringJobSpec,
    now: Timestamp,
) -> Vec<&'a str> {
    own.sort_unstable();
    let is_old: Box<dyn Fn(usize, Timestamp) -> bool> = match spec.retention_policy.as_deref() {
        Some("age-based") => {
            let age = spec.retain_age.as_deref().and_then(|age| age.parse().ok());
            let age = age.filter(|age: &SignedDuration| age.is_positive());
            Box::new(move |_, made| age.is_some_and(|age| now.duration_since(made) > age))
        }
        _ => {
            let retain = usize::try_from(spec.retain.unwrap_or_default()).unwrap_or_default();
            let beyond = own.len().saturating_sub(retain);
            Box::new(move |index, _| index < beyond)
        }
    };
    let old = own.iter().enumerate().filter(|(index, (made, _))| is_old(*index, *made));
    old.map(|(_, (_, name))| *name).collect()
}

fn is_taken(snapshot: &Snapshot) -> bool {
    snapshot.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn job(spec: Value, last: Option<&str>) -> RecurringJob {
        let mut job = json!({
            "metadata": {"name": "j", "creationTimestamp": "2026-11-16T07:10:00Z"}, "spec": spec,
        });
        if let Some(last) = last {
            job["metadata"]["annotations"] = json!({LAST_RUN: last});
        }
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn a_job_runs_at_its_times_and_once_for_all_that_were_missed() {
        let hourly = json!({"cron": "0 * * * *"});
        let eight = Some(at("2026-11-16T08:00:00Z"));
        let times_at = |last, now| times(&job(hourly.clone(), last), at(now)).unwrap();
        let first = times_at(None, "2026-11-16T07:30:00Z");
        assert_eq!((first.due, first.next), (None, eight));
        let nine = Some(at("2026-11-16T09:00:00Z"));
        let run = times_at(None, "2026-11-16T08:00:05Z");
        assert_eq!((run.due, run.next, run.mark), (eight, nine, eight));
        let missed = times_at(Some("2026-11-16T08:00:00Z"), "2026-11-17T03:20:00Z");
        let last = Some(at("2026-11-17T03:00:00Z"));
        assert_eq!((missed.due, missed.next), (last, Some(at("2026-11-17T04:00:00Z"))));
        let done = times_at(Some("2026-11-17T03:00:00Z"), "2026-11-17T03:20:00Z");
        assert_eq!(done.due, None);
        assert!(times(&job(json!({"cron": "x"}), None), at("2026-11-16T08:00:00Z")).is_err());
    }

    #[test]
    fn file_systems_are_trimmed_by_the_instance_that_runs_with_the_claim() {
        let vmi = |name: &str, phase: &str| {
            json!({"metadata": {"name": name}, "status": {"phase": phase}, "spec": {"volumes": [
                {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}})
        };
        let all = [vmi("old", "Succeeded"), vmi("new", "Running")];
        assert_eq!(user_of(&all, "c"), Some("new"));
        assert_eq!(user_of(&all, "d"), None);
        assert_eq!(user_of(&all[..1], "c"), None);
        assert_eq!(user_of(&all, ""), None);
    }

    #[test]
    fn volumes_are_selected_by_job_by_group_or_by_having_none() {
        let labels = |value: Value| serde_json::from_value::<BTreeMap<_, _>>(value).unwrap();
        let plain = job(json!({}), None);
        let grouped = job(json!({"groups": ["default", "g"]}), None);
        let by_job = labels(json!({"recurring-job.longhorn.io/j": "enabled"}));
        let by_group = labels(json!({"recurring-job-group.longhorn.io/g": "enabled"}));
        let other = labels(json!({"recurring-job.longhorn.io/other": "enabled"}));
        let off = labels(json!({"recurring-job.longhorn.io/j": "disabled"}));
        let none = labels(json!({"longhornvolume": "v", SOURCE_LABEL: "enabled"}));
        for (labels, plainly, by_groups) in [
            (&by_job, true, true),
            (&by_group, false, true),
            (&other, false, false),
            (&off, false, true),
            (&none, false, true),
        ] {
            assert_eq!(is_selected(&plain, labels), plainly, "{labels:?}");
            assert_eq!(is_selected(&grouped, labels), by_groups, "{labels:?}");
        }
    }

    #[test]
    fn a_volume_at_rest_is_left_alone_unless_the_setting_says_otherwise() {
        let volume = |state: &str, robustness: &str| {
            serde_json::from_value::<Volume>(
                json!({"status": {"state": state, "robustness": robustness}}),
            )
            .unwrap()
        };
        assert!(is_fit(&volume("attached", "degraded"), false));
        assert!(!is_fit(&volume("detached", "unknown"), false));
        assert!(is_fit(&volume("detached", "unknown"), true));
        assert!(!is_fit(&volume("detached", "faulted"), true));
        assert!(!is_fit(&volume("attaching", "unknown"), true));
    }

    fn snapshots() -> Vec<Snapshot> {
        let snapshot = |name: &str, minute: u32, labels: Value, user: bool, ready: bool| {
            json!({
                "metadata": {
                    "name": name, "creationTimestamp": format!("2026-11-16T07:{minute:02}:00Z"),
                },
                "spec": {"volume": "v", "labels": labels},
                "status": {"readyToUse": ready, "userCreated": user,
                    "creationTime": if ready { "t" } else { "" }},
            })
        };
        let own = || json!({JOB_LABEL: "j"});
        let all = json!([
            snapshot("a", 1, own(), true, true),
            snapshot("by-hand", 2, json!({}), true, true),
            snapshot("system", 3, json!({}), false, true),
            snapshot("b", 4, own(), true, true),
            snapshot("c", 5, own(), true, true),
            snapshot("pending", 6, own(), true, false),
        ]);
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn the_oldest_snapshots_go_by_count_or_by_age() {
        let now = at("2026-11-16T07:10:00Z");
        let all = snapshots();
        for (spec, expected) in [
            (json!({"task": "snapshot", "retain": 2}), vec!["a"]),
            (json!({"task": "snapshot-force-create", "retain": 5}), vec![]),
            (json!({"task": "snapshot-delete", "retain": 1}), vec!["a", "by-hand", "system", "b"]),
            (json!({"task": "snapshot-cleanup", "retain": 0}), vec!["system"]),
            (json!({"task": "filesystem-trim", "retain": 0}), vec![]),
            (
                json!({"task": "snapshot", "retentionPolicy": "age-based", "retainAge": "5m30s"}),
                vec!["a", "b"],
            ),
            (
                json!({"task": "snapshot", "retentionPolicy": "age-based", "retainAge": "0s"}),
                vec![],
            ),
        ] {
            let read: RecurringJobSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(expired("j", &read, &all, now), expected, "{spec}");
        }
        assert!(is_pending("j", &all) && !is_pending("other", &all));
    }
}
