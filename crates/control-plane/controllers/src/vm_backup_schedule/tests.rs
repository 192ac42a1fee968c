use super::*;
use crate::fake::Fake;
use crate::object::{annotation, list, text};

const KIND: &str = "harvesterhci.io/schedulevmbackups";
const BACKUP_KIND: &str = "harvesterhci.io/virtualmachinebackups";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn cluster() -> (Fake, ScheduleReconciler, ObjectKey) {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let spec = json!({"cron": "0 * * * *", "retain": 2, "maxFailure": 1,
        "vmbackup": {"type": "snapshot", "source": {"name": "m"}}});
    fake.create(KIND, "n", json!({"metadata": {"name": "s"}, "spec": spec}));
    let made = json!({"metadata": {"creationTimestamp": "2030-12-31T23:30:00Z"}});
    fake.merge(KIND, "n", "s", &made);
    let reconciler = ScheduleReconciler::new(fake.client(), Dependents::default());
    (fake, reconciler, ObjectKey::new("n", "s"))
}

#[tokio::test]
async fn a_schedule_makes_backups_and_keeps_as_many_as_it_should() {
    let (fake, schedules, key) = cluster();
    for hour in 1..=3 {
        let now = at(&format!("2031-01-01T0{hour}:00:01Z"));
        for _ in 0..2 {
            schedules.at(&key, now).await.unwrap();
        }
        let names = fake.names(BACKUP_KIND);
        let newest = names.iter().find(|name| name.ends_with(&format!("0{hour}00"))).unwrap();
        let touch = plan::schedule_uid(newest).unwrap();
        assert_eq!(schedules.waiting.of(&ObjectKey::new("n", touch)), std::slice::from_ref(&key));
        fake.merge(BACKUP_KIND, "n", newest, &json!({"status": {"readyToUse": true}}));
        schedules.at(&key, now).await.unwrap();
    }
    let names = fake.names(BACKUP_KIND);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("-20310101.0200") && names[1].ends_with("-20310101.0300"));
    let schedule = fake.get(KIND, "n", "s").unwrap();
    assert_eq!(annotation(&schedule, LAST_RUN), Some("2031-01-01T03:00:00Z"));
    schedules.at(&key, at("2031-01-01T03:10:00Z")).await.unwrap();
    let schedule = fake.get(KIND, "n", "s").unwrap();
    assert_eq!(list(&schedule, "/status/vmbackupInfo").len(), 2);
}

#[tokio::test]
async fn a_schedule_whose_backups_fail_is_suspended_and_can_be_resumed() {
    let (fake, schedules, key) = cluster();
    schedules.at(&key, at("2031-01-01T01:00:01Z")).await.unwrap();
    let [name] = &fake.names(BACKUP_KIND)[..] else { panic!("one backup") };
    let failed = json!({"status": {"readyToUse": false, "error": {"message": "no"}}});
    fake.merge(BACKUP_KIND, "n", name, &failed);
    schedules.at(&key, at("2031-01-01T01:01:00Z")).await.unwrap();
    let schedule = fake.get(KIND, "n", "s").unwrap();
    assert_eq!(
        (&schedule["spec"]["suspend"], &schedule["status"]["suspended"]),
        (&true.into(), &true.into())
    );
    assert_eq!(text(&schedule, "/status/conditions/0/reason"), "Reach Max Failure");
    schedules.at(&key, at("2031-01-01T05:00:01Z")).await.unwrap();
    assert_eq!(fake.names(BACKUP_KIND).len(), 1);

    fake.merge(KIND, "n", "s", &json!({"spec": {"suspend": false}}));
    for _ in 0..2 {
        schedules.at(&key, at("2031-01-01T05:30:00Z")).await.unwrap();
    }
    assert_eq!(fake.names(BACKUP_KIND), Vec::<String>::new());
    let schedule = fake.get(KIND, "n", "s").unwrap();
    assert_eq!(schedule["status"]["suspended"], false);
    schedules.at(&key, at("2031-01-01T06:00:01Z")).await.unwrap();
    assert!(fake.names(BACKUP_KIND)[0].ends_with("0600"));
}

#[tokio::test]
async fn a_refused_backup_is_reported_and_left_out() {
    let (fake, schedules, key) = cluster();
    fake.refuse(BACKUP_KIND, 422);
    schedules.at(&key, at("2031-01-01T01:00:01Z")).await.unwrap();
    assert!(fake.any("/events", |event| event["reason"] == "FailedCreating"));
    fake.accept(BACKUP_KIND);
    schedules.at(&key, at("2031-01-01T01:10:00Z")).await.unwrap();
    assert_eq!(fake.names(BACKUP_KIND), Vec::<String>::new());
}
