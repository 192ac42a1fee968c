use serde_json::json;

use super::*;

fn rules(subject: Subject, object: Value) -> Vec<&'static str> {
    findings(subject, &object, &[]).iter().map(|own| own.rule).collect()
}

fn conditions(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": kind, "status": status, "reason": reason, "message": message}])
}

#[test]
fn working_objects_raise_no_alarm() {
    let ready = json!({"status": {"conditions": conditions("Ready", "True", "", "")}});
    for (subject, object) in [
        (Subject::Host, ready.clone()),
        (Subject::Volume, json!({"status": {"robustness": "healthy"}})),
        (Subject::Volume, json!({"status": {"robustness": "unknown"}})),
        (Subject::Machine, json!({"spec": {}, "status": {"printableStatus": "Stopped"}})),
        (
            Subject::Machine,
            json!({"spec": {}, "status": {"printableStatus": "Running",
            "conditions": conditions("Ready", "False", "ContainersNotReady", "")}}),
        ),
        (Subject::Image, ready),
        (
            Subject::BackupTarget,
            json!({"spec": {"backupTargetURL": ""},
            "status": {"available": false}}),
        ),
        (Subject::BackupTarget, json!({"spec": {"backupTargetURL": "s3://b@r/"}})),
        (Subject::Backup, json!({"status": {"readyToUse": true, "error": {"message": "x"}}})),
        (
            Subject::BackupSchedule,
            json!({"status":
            {"conditions": conditions("BackupSuspend", "True", "", "by a user")}}),
        ),
        (
            Subject::Upgrade,
            json!({"metadata": {"labels": {LATEST_LABEL: "true"}}, "status":
            {"conditions": conditions("Completed", "False", "Aborted", "as before")}}),
        ),
    ] {
        assert_eq!(rules(subject, object.clone()), [""; 0], "{subject:?} {object}");
    }
}

#[test]
fn lasting_failures_that_need_a_user_raise_one() {
    let machine = |state: &str| {
        json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {},
            "status": {"printableStatus": state}})
    };
    let failed = |kind: &str, status: &str, reason: &str| {
        json!({"metadata": {"labels": {LATEST_LABEL: "true"}},
            "status": {"conditions": conditions(kind, status, reason, "why")}})
    };
    for (subject, object, expected) in [
        (Subject::Host, json!({"metadata": {"name": "a"}}), "HostNotReady"),
        (Subject::Host, failed("Ready", "Unknown", ""), "HostNotReady"),
        (Subject::Volume, json!({"status": {"robustness": "faulted"}}), "VolumeFaulted"),
        (Subject::Volume, json!({"status": {"robustness": "degraded"}}), "VolumeDegraded"),
        (Subject::Volume, failed("SnapshotsIntact", "False", ""), "SnapshotDamaged"),
        (Subject::Volume, failed("MetadataIntact", "False", ""), "MetadataDamaged"),
        (Subject::Machine, machine("CrashLoopBackOff"), "MachineFailing"),
        (Subject::Machine, machine("ErrorUnschedulable"), "MachineFailing"),
        (Subject::Image, failed("Intact", "False", ""), "ImageDamaged"),
        (Subject::Image, failed("RetryLimitExceeded", "True", ""), "ImageFailed"),
        (
            Subject::BackupTarget,
            json!({"spec": {"backupTargetURL": "s3://b@r/"},
            "status": {"available": false}}),
            "BackupTargetUnavailable",
        ),
        (Subject::Backup, json!({"status": {"error": {"message": "no room"}}}), "BackupFailed"),
        (
            Subject::BackupSchedule,
            failed("BackupSuspend", "True", BY_FAILURES),
            "BackupScheduleSuspended",
        ),
        (Subject::Upgrade, failed("Completed", "False", "Failed"), "UpgradeFailed"),
    ] {
        assert_eq!(rules(subject, object.clone()), [expected], "{object}");
    }
    let mut running = machine("Running");
    running["status"]["conditions"] = conditions("Ready", "False", "GuestNotResponding", "60 s");
    let found = findings(Subject::Machine, &running, &[]);
    assert_eq!(found[0].summary, "machine n/web does not respond");
    assert_eq!((&*found[0].reason, &*found[0].remedy), ("60 s", "sheaf vm why web -n n"));
}

#[test]
fn an_object_that_is_deleted_has_no_alarms() {
    let mut volume = json!({"metadata": {}, "status": {"robustness": "faulted"}});
    assert_eq!(rules(Subject::Volume, volume.clone()), ["VolumeFaulted"]);
    volume["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(rules(Subject::Volume, volume), [""; 0]);
}

#[test]
fn a_host_that_is_away_is_one_alarm_and_not_one_for_each_volume() {
    let degraded = json!({"status": {"robustness": "degraded"}});
    assert_eq!(findings(Subject::Volume, &degraded, &["a".into()]), []);
    let faulted = json!({"status": {"robustness": "faulted"}});
    assert_eq!(findings(Subject::Volume, &faulted, &["a".into()]).len(), 1, "data is not there");
    let disk = json!({"metadata": {"name": "a"}, "status": {"diskStatus": {"d": {"conditions":
        conditions("Ready", "False", "", "gone")}}}});
    assert_eq!(findings(Subject::Disks, &disk, &["a".into()]), []);
    assert_eq!(findings(Subject::Disks, &disk, &["b".into()]).len(), 1);
}

#[test]
fn disks_that_fail_or_fill_up_are_named() {
    let node = json!({"metadata": {"name": "a"}, "status": {"diskStatus": {
        "d1": {"diskPath": "/srv/one", "conditions":
            conditions("Ready", "False", "", "input/output error")},
        "d2": {"diskPath": "/srv/two", "conditions":
            conditions("Schedulable", "False", "DiskPressure", "4% is free")},
        "d3": {"conditions": conditions("Schedulable", "False", "DiskEvicted", "")},
    }}});
    let found = findings(Subject::Disks, &node, &[]);
    let reported: Vec<_> = found.iter().map(|own| (own.severity, own.summary.as_str())).collect();
    assert_eq!(
        reported,
        [
            (AlarmSeverity::Critical, "disk /srv/one of host a cannot be used"),
            (AlarmSeverity::Warning, "disk /srv/two of host a is almost full"),
        ]
    );
}

#[test]
fn names_of_alarms_are_of_the_rule_and_the_object() {
    let (one, other) = (label(Subject::Host, "", "a"), label(Subject::Disks, "", "a"));
    assert_ne!(one, other, "the kinds differ");
    assert_eq!(alarm_name("HostNotReady", "0123"), "hostnotready-0123");
    assert_eq!(one.len(), 16);
}
