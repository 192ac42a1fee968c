use super::*;
use crate::fake::Fake;
use crate::object;
use crate::object::text;

const JOB_KIND: &str = "longhorn.io/recurringjobs";
const SNAPSHOT_KIND: &str = "longhorn.io/snapshots";

fn cluster(spec: Value) -> (Fake, JobReconciler) {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
    fake.create(JOB_KIND, NAMESPACE, json!({"metadata": {"name": "nightly"}, "spec": spec}));
    let made = json!({"metadata": {"creationTimestamp": "2030-12-31T23:30:00Z"}});
    fake.merge(JOB_KIND, NAMESPACE, "nightly", &made);
    for (name, state) in [("v1", "attached"), ("v2", "detached")] {
        let volume = json!({"metadata": {"name": name}, "status": {"state": state}});
        fake.create("longhorn.io/volumes", NAMESPACE, volume);
    }
    let reconciler = JobReconciler::new(fake.client());
    (fake, reconciler)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_run_takes_one_snapshot_of_each_volume_and_keeps_as_many_as_it_should() {
    let spec = json!({"task": "snapshot", "cron": "0 * * * *", "groups": ["default"], "retain": 1,
        "retentionPolicy": "count-based", "labels": {"team": "red"}});
    let (fake, jobs) = cluster(spec);
    let first = at("2031-01-01T08:00:01Z");
    for _ in 0..2 {
        jobs.job("nightly", first).await.unwrap();
    }
    let names = fake.names(SNAPSHOT_KIND);
    assert_eq!(names.len(), 1, "the volume at rest is left alone: {names:?}");
    assert!(names[0].starts_with("nightly--"), "{names:?}");
    let snapshot = fake.get(SNAPSHOT_KIND, NAMESPACE, &names[0]).unwrap();
    assert_eq!(snapshot["spec"]["volume"], "v1");
    assert_eq!(snapshot["spec"]["labels"], json!({"team": "red", "RecurringJob": "nightly"}));
    let job = fake.get(JOB_KIND, NAMESPACE, "nightly").unwrap();
    assert_eq!(job["status"]["executionCount"], 1);
    assert_eq!(object::annotation(&job, LAST_RUN), Some("2031-01-01T08:00:00Z"));

    let ready = json!({"status": {"readyToUse": true, "creationTime": "t"}});
    fake.merge(SNAPSHOT_KIND, NAMESPACE, &names[0], &ready);
    let made = json!({"metadata": {"finalizers": [], "creationTimestamp": "2031-01-01T08:00:00Z"}});
    fake.merge(SNAPSHOT_KIND, NAMESPACE, &names[0], &made);
    jobs.job("nightly", at("2031-01-01T11:30:00Z")).await.unwrap();
    let both = fake.names(SNAPSHOT_KIND);
    assert_eq!(both.len(), 2, "three runs were missed and one is done: {both:?}");
    let new = both.iter().find(|name| **name != names[0]).unwrap();
    let made = json!({"metadata": {"creationTimestamp": "2031-01-01T11:30:00Z"}});
    fake.merge(SNAPSHOT_KIND, NAMESPACE, new, &made);
    fake.merge(SNAPSHOT_KIND, NAMESPACE, new, &ready);
    jobs.snapshot(new).await.unwrap();
    assert_eq!(fake.names(SNAPSHOT_KIND), std::slice::from_ref(new));
}

#[tokio::test]
async fn a_job_that_cannot_run_is_reported_by_an_event() {
    let spec = json!({"task": "filesystem-trim", "cron": "0 * * * *", "groups": ["default"]});
    let (fake, jobs) = cluster(spec);
    jobs.job("nightly", at("2031-01-01T08:00:01Z")).await.unwrap();
    assert!(fake.any("/events", |event| {
        event["reason"] == "FailedFilesystemTrim"
            && text(event, "/message").starts_with("volume v1: ")
    }));
}

#[tokio::test]
async fn a_trim_is_requested_of_the_instance_with_the_volume() {
    const INSTANCES: &str = "kubevirt.io/virtualmachineinstances";
    let spec = json!({"task": "filesystem-trim", "cron": "0 * * * *", "groups": ["default"]});
    let (fake, jobs) = cluster(spec);
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let used = json!({"status": {"kubernetesStatus": {"namespace": "n", "pvcName": "c"}}});
    fake.merge("longhorn.io/volumes", NAMESPACE, "v1", &used);
    let volume = json!({"name": "d", "persistentVolumeClaim": {"claimName": "c"}});
    let vmi = json!({"metadata": {"name": "m"}, "spec": {"volumes": [volume]},
        "status": {"phase": "Running"}});
    fake.create(INSTANCES, "n", vmi);
    jobs.job("nightly", at("2031-01-01T08:00:01Z")).await.unwrap();
    let vmi = fake.get(INSTANCES, "n", "m").unwrap();
    let requested = &vmi["metadata"]["annotations"][virt::FILESYSTEM_TRIM_AT];
    assert_eq!(requested, "2031-01-01T08:00:00Z");
}

#[tokio::test]
async fn a_run_backs_a_new_snapshot_up_and_removes_what_is_too_old() {
    const BACKUP_KIND: &str = "longhorn.io/backups";
    let spec = json!({"task": "backup", "cron": "0 * * * *", "groups": ["default"], "retain": 1,
        "labels": {"team": "red"}});
    let (fake, jobs) = cluster(spec);
    jobs.job("nightly", at("2031-01-01T07:00:01Z")).await.unwrap();
    assert!(fake.any("/events", |event| {
        text(event, "/message") == "volume v1: backup target is not set"
    }));
    let target = json!({"metadata": {"name": "default"},
        "spec": {"backupTargetURL": "s3://b@r/"}});
    fake.create("longhorn.io/backuptargets", NAMESPACE, target);
    let mut made = Vec::new();
    for hour in ["08", "09"] {
        let now = format!("2031-01-01T{hour}:00:01Z");
        jobs.job("nightly", at(&now)).await.unwrap();
        let names = fake.names(BACKUP_KIND);
        let name = names.iter().find(|name| !made.contains(*name)).unwrap().clone();
        let backup = fake.get(BACKUP_KIND, NAMESPACE, &name).unwrap();
        assert_eq!(backup["spec"]["labels"], json!({"team": "red", "RecurringJob": "nightly"}));
        let snapshot = text(&backup, "/spec/snapshotName").to_owned();
        let at = json!({"metadata": {"creationTimestamp": now, "finalizers": []}});
        let ready = json!({"status": {"readyToUse": true, "creationTime": now}});
        for patch in [&at, &ready] {
            fake.merge(SNAPSHOT_KIND, NAMESPACE, &snapshot, patch);
        }
        let complete = json!({"status": {"state": "Completed"}});
        for patch in [&at, &complete] {
            fake.merge(BACKUP_KIND, NAMESPACE, &name, patch);
        }
        jobs.backup(&name).await.unwrap();
        made.push(name);
    }
    assert_eq!(fake.names(BACKUP_KIND), [made[1].clone()]);
    assert_eq!(fake.names(SNAPSHOT_KIND).len(), 1);
}
