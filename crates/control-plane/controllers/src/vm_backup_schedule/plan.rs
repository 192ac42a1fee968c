//! The next step of a backup schedule: pure.

use hci::schedule::{LAST_RUN, Schedule, ScheduleError};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};
use crate::object::{
    annotation, int, is_deleting, is_true, label, list, name, namespace, text, uid,
};

/// On each backup of a schedule: the schedule's UID.
pub(super) const UID_LABEL: &str = "harvesterhci.io/svmbackupUID";
/// The time of the run.
const TIMESTAMP_LABEL: &str = "harvesterhci.io/svmbackupTimestamp";
/// `NAMESPACE/NAME` of the schedule.
const ID: &str = "harvesterhci.io/svmbackupId";
const PREFIX: &str = "svmb";
const SUSPENDED: &str = "BackupSuspend";
const BY_USER: &str = "Proactive Schedule Suspend";
pub(crate) const BY_FAILURES: &str = "Reach Max Failure";
/// The defaults of the definition.
const RETAIN: i64 = 8;
const MAX_FAILURE: i64 = 4;

/// The next step of a schedule; its parts are carried out in the order of the fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScheduleStep<'a> {
    /// The run for which a backup is made.
    pub(super) create: Option<Timestamp>,
    pub(super) delete: Vec<&'a Value>,
    /// The schedule is not to go on by itself.
    pub(super) suspend: bool,
    /// The run that counts as the last one.
    pub(super) mark: Option<Timestamp>,
    pub(super) status: Value,
    /// When there is something to do again.
    pub(super) wake: Option<Timestamp>,
}

/// The backups of a schedule, oldest first, and what became of them.
struct Made<'a> {
    all: Vec<&'a Value>,
    /// How many failed since the last that did not.
    failures: i64,
}

impl<'a> Made<'a> {
    fn new(backups: &'a [Value]) -> Self {
        let mut all: Vec<_> = backups.iter().filter(|own| !is_deleting(own)).collect();
        all.sort_by_key(|own| (timestamp(own), name(own)));
        let failures = all.iter().fold(0, |failures: i64, own| match own {
            own if is_ready(own) => 0,
            own if is_failed(own) => failures.saturating_add(1),
            _ => failures,
        });
        Self { all, failures }
    }

    fn failed(&self) -> Vec<&'a Value> {
        self.all.iter().copied().filter(|own| is_failed(own)).collect()
    }

    fn is_in_progress(&self) -> bool {
        self.all.last().is_some_and(|own| !is_ready(own) && !is_failed(own))
    }

    /// The backups beyond `retain`: those that failed first, then the oldest. Nothing is removed
    /// before the newest is ready.
    fn surplus(&self, retain: i64) -> Vec<&'a Value> {
        if !self.all.last().is_some_and(|own| is_ready(own)) {
            return Vec::new();
        }
        let retain = usize::try_from(retain).unwrap_or_default();
        let (failed, good): (Vec<_>, Vec<_>) =
            self.all.iter().copied().partition(|own| is_failed(own));
        let surplus = self.all.len().saturating_sub(retain);
        failed.into_iter().chain(good).take(surplus).collect()
    }
}

fn timestamp(backup: &Value) -> &str {
    label(backup, TIMESTAMP_LABEL).unwrap_or_default()
}

fn is_ready(backup: &Value) -> bool {
    is_true(backup, "/status/readyToUse")
}

fn is_failed(backup: &Value) -> bool {
    !is_ready(backup) && backup["status"]["error"].is_object()
}

pub(super) fn plan<'a>(
    schedule: &Value,
    backups: &'a [Value],
    now: Timestamp,
) -> Result<ScheduleStep<'a>, ScheduleError> {
    let cron = Schedule::parse(text(schedule, "/spec/cron"))?;
    let made = Made::new(backups);
    let most = int(schedule, "/spec/maxFailure").unwrap_or(MAX_FAILURE);
    let too_many = made.failures >= most;
    let wanted = is_true(schedule, "/spec/suspend");
    let is_suspended = is_true(schedule, "/status/suspended");
    let mut step = ScheduleStep {
        create: None,
        delete: made.surplus(int(schedule, "/spec/retain").unwrap_or(RETAIN)),
        suspend: false,
        mark: None,
        status: Value::Null,
        wake: None,
    };
    let suspended = match (wanted, is_suspended) {
        (true, true) => None,
        (true, false) => Some(Condition::new(SUSPENDED, "True").because(BY_USER, BY_USER)),
        // Failures that stopped the schedule are removed before it goes on.
        (false, true) if too_many => {
            step.delete = made.failed();
            None
        }
        (false, true) => {
            // Runs that were missed while it was suspended are not made up for.
            step.mark = Some(now);
            step.wake = cron.next_after(now);
            Some(Condition::new(SUSPENDED, "False"))
        }
        (false, false) if too_many => {
            step.suspend = true;
            let why = format!("failure backups {} reach max tolerance {most}", made.failures);
            Some(Condition::new(SUSPENDED, "True").because(BY_FAILURES, why))
        }
        (false, false) => {
            run(schedule, &cron, &made, now, &mut step);
            None
        }
    };
    step.status = status(schedule, &made, suspended.as_ref(), now);
    Ok(step)
}

fn run(
    schedule: &Value,
    cron: &Schedule,
    made: &Made<'_>,
    now: Timestamp,
    step: &mut ScheduleStep<'_>,
) {
    let noted = annotation(schedule, LAST_RUN).and_then(|time| time.parse().ok());
    let created = text(schedule, "/metadata/creationTimestamp").parse().ok();
    let times = cron.times(noted.or(created).unwrap_or(now), now);
    step.wake = times.next;
    // A run waits for the one before it; several missed runs are made up for by one.
    if times.due.is_some() && made.is_in_progress() {
        return;
    }
    step.create = times.due;
    step.mark = times.mark;
}

fn status(
    schedule: &Value,
    made: &Made<'_>,
    suspended: Option<&Condition>,
    now: Timestamp,
) -> Value {
    let info: Vec<Value> = made.all.iter().map(|own| information(own)).collect();
    let mut status = json!({"vmbackupInfo": info, "failure": made.failures});
    if let Some(wanted) = suspended {
        let mut conditions = condition::of(schedule);
        condition::set(&mut conditions, wanted, now);
        status["conditions"] = conditions.into();
        status["suspended"] = json!(wanted.status == "True");
    }
    status
}

/// The fields of a backup in the status of its schedule.
fn information(backup: &Value) -> Value {
    let known = |own: &Value| -> Map<String, Value> {
        let fields = ["name", "readyToUse", "error"].into_iter();
        let known = fields.filter_map(|field| Some((field, own.get(field)?)));
        known.map(|(field, value)| (field.to_owned(), value.clone())).collect()
    };
    let mut info = known(&backup["status"]);
    info.insert("name".into(), json!(name(backup)));
    let disks: Vec<Value> =
        list(backup, "/status/volumeBackups").iter().map(|own| known(own).into()).collect();
    if !disks.is_empty() {
        info.insert("volumeBackupInfo".into(), disks.into());
    }
    info.into()
}

/// The backup of one run.
pub(super) fn backup(schedule: &Value, due: Timestamp) -> Value {
    let time = due.strftime("%Y%m%d.%H%M").to_string();
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {
            "name": format!("{PREFIX}-{}-{time}", uid(schedule)),
            "namespace": namespace(schedule),
            "labels": {UID_LABEL: uid(schedule), TIMESTAMP_LABEL: time},
            "annotations": {ID: format!("{}/{}", namespace(schedule), name(schedule))},
        },
        "spec": schedule["spec"]["vmbackup"],
    })
}

/// The UID of the schedule that a backup of this name is of.
pub(super) fn schedule_uid(backup: &str) -> Option<&str> {
    let (uid, _) = backup.strip_prefix(PREFIX)?.strip_prefix('-')?.rsplit_once('-')?;
    Some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(suspend: bool, suspended: bool) -> Value {
        json!({
            "metadata": {"name": "s", "namespace": "n", "uid": "u",
                "creationTimestamp": "2026-11-16T07:10:00Z"},
            "spec": {"cron": "0 * * * *", "retain": 3, "maxFailure": 2, "suspend": suspend,
                "vmbackup": {"type": "snapshot", "source": {"name": "m"}}},
            "status": {"suspended": suspended},
        })
    }

    /// Backups of consecutive hours: ready, failed or under way.
    fn backups(outcomes: &str) -> Vec<Value> {
        let all = outcomes.split_whitespace().zip(0..).map(|(outcome, hour): (_, i64)| {
            let due = at("2026-11-15T00:00:00Z") + jiff::SignedDuration::from_hours(hour);
            let mut own = backup(&schedule(false, false), due);
            own["status"] = match outcome {
                "ready" => json!({"readyToUse": true}),
                "failed" => json!({"readyToUse": false, "error": {"message": "no"}}),
                _ => json!({"readyToUse": false}),
            };
            own
        });
        let mut all: Vec<Value> = all.collect();
        all.reverse();
        all
    }

    fn hours(step: &ScheduleStep<'_>) -> Vec<String> {
        step.delete.iter().map(|own| timestamp(own)[9..11].to_owned()).collect()
    }

    #[test]
    fn the_backup_of_a_run_is_named_after_the_schedule_and_its_time() {
        let own = backup(&schedule(false, false), at("2026-11-16T08:00:00Z"));
        assert_eq!(
            own["metadata"],
            json!({
                "name": "svmb-u-20261116.0800", "namespace": "n",
                "labels": {UID_LABEL: "u", TIMESTAMP_LABEL: "20261116.0800"},
                "annotations": {ID: "n/s"},
            })
        );
        assert_eq!(own["spec"], json!({"type": "snapshot", "source": {"name": "m"}}));
        assert_eq!(schedule_uid("svmb-a-b-c-20261116.0800"), Some("a-b-c"));
        assert_eq!((schedule_uid("monday"), schedule_uid("svmb-x")), (None, None));
    }

    #[test]
    fn runs_are_made_once_and_wait_for_each_other() {
        let (eight, nine) = (at("2026-11-16T08:00:00Z"), at("2026-11-16T09:00:00Z"));
        for (made, last, now, create, wake) in [
            ("", "", "2026-11-16T07:30:00Z", None, eight),
            ("", "", "2026-11-16T08:00:01Z", Some(eight), nine),
            ("ready", "2026-11-10T08:00:00Z", "2026-11-16T08:40:00Z", Some(eight), nine),
            ("ready", "2026-11-16T08:00:00Z", "2026-11-16T08:40:00Z", None, nine),
            ("going", "2026-11-16T07:00:00Z", "2026-11-16T08:00:01Z", None, nine),
            ("failed", "2026-11-16T07:00:00Z", "2026-11-16T08:00:01Z", Some(eight), nine),
        ] {
            let mut own = schedule(false, false);
            if !last.is_empty() {
                own["metadata"]["annotations"] = json!({LAST_RUN: last});
            }
            let made = backups(made);
            let step = plan(&own, &made, at(now)).unwrap();
            assert_eq!((step.create, step.mark, step.wake), (create, create, Some(wake)), "{now}");
        }
        let mut ahead = schedule(false, false);
        ahead["metadata"]["annotations"] = json!({LAST_RUN: "2027-11-16T08:00:00Z"});
        let now = at("2026-11-16T07:30:00Z");
        let step = plan(&ahead, &[], now).unwrap();
        assert_eq!((step.create, step.mark, step.wake), (None, Some(now), Some(eight)));
    }

    #[test]
    fn failed_backups_go_first_and_then_the_oldest() {
        for (made, expected) in [
            ("ready ready ready", &[][..]),
            ("ready ready ready ready", &["00"]),
            ("ready failed ready ready ready", &["01", "00"]),
            ("ready failed ready failed ready ready", &["01", "03", "00"]),
            ("ready ready ready going", &[]),
            ("ready ready ready failed", &[]),
        ] {
            let all = backups(made);
            let step = plan(&schedule(false, false), &all, at("2026-11-16T07:30:00Z")).unwrap();
            assert_eq!(hours(&step), expected, "{made}");
        }
    }

    #[test]
    fn a_schedule_is_suspended_by_its_user_or_by_failures_and_resumed() {
        let now = at("2026-11-16T08:30:00Z");
        // Wanted and actual state, backups: the condition, suspended, deleted, noted.
        for (suspend, suspended, made, reason, state, deleted, mark) in [
            (false, false, "ready failed", None, None, 0, true),
            (true, false, "ready", Some(BY_USER), Some(true), 0, false),
            (true, true, "ready", None, None, 0, false),
            (false, false, "ready failed failed", Some(BY_FAILURES), Some(true), 0, false),
            (false, true, "ready failed failed", None, None, 2, false),
            (false, true, "ready failed", Some(""), Some(false), 0, true),
            (false, false, "failed failed ready", None, None, 0, true),
        ] {
            let all = backups(made);
            let step = plan(&schedule(suspend, suspended), &all, now).unwrap();
            let condition = condition::find(list(&step.status, "/conditions"), SUSPENDED);
            assert_eq!(condition.map(|own| text(own, "/reason")), reason, "{made}");
            assert_eq!(step.status.get("suspended").and_then(Value::as_bool), state, "{made}");
            assert_eq!((step.delete.len(), step.mark.is_some()), (deleted, mark), "{made}");
            assert_eq!(step.suspend, reason == Some(BY_FAILURES), "{made}");
        }
        let resumed = plan(&schedule(false, true), &[], now).unwrap();
        assert_eq!((resumed.create, resumed.mark), (None, Some(now)));
    }

    #[test]
    fn created_backups_are_reported() {
        let mut all = backups("failed ready");
        all[0]["status"]["volumeBackups"] = json!([
            {"name": "v", "volumeName": "d", "readyToUse": true, "progress": 100}]);
        let step = plan(&schedule(false, false), &all, at("2026-11-16T07:30:00Z")).unwrap();
        assert_eq!(
            step.status,
            json!({"failure": 0, "vmbackupInfo": [
                {"name": "svmb-u-20261115.0000", "readyToUse": false, "error": {"message": "no"}},
                {"name": "svmb-u-20261115.0100", "readyToUse": true,
                    "volumeBackupInfo": [{"name": "v", "readyToUse": true}]},
            ]})
        );
    }
}
