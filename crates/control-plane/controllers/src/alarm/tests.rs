use super::*;
use crate::fake::Fake;

const KIND: &str = "sheaf.io/alarms";
const BACKUP_KIND: &str = "harvesterhci.io/virtualmachinebackups";

#[tokio::test]
async fn an_alarm_is_raised_kept_and_deleted_with_its_cause() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    fake.create(
        BACKUP_KIND,
        "n",
        json!({"metadata": {"name": "b"},
        "spec": {"source": {"name": "m"}}, "status": {"error": {"message": "no room"}}}),
    );
    let reconciler = AlarmReconciler::new(fake.client());
    let key = (Subject::Backup, ObjectKey::new("n", "b"));
    reconciler.reconcile(&key).await.unwrap();
    let [name] = &fake.names(KIND)[..] else { panic!("{:?}", fake.names(KIND)) };
    let raised = fake.get(KIND, "", name).unwrap();
    assert_eq!(raised["status"]["summary"], "backup n/b of machine m failed");
    assert_eq!(raised["status"]["reason"], "no room");
    // The user's decision stays when the cause changes.
    fake.merge(KIND, "", name, &json!({"spec": {"acknowledged": true}}));
    fake.merge(BACKUP_KIND, "n", "b", &json!({"status": {"error": {"message": "no keys"}}}));
    reconciler.reconcile(&key).await.unwrap();
    let kept = fake.get(KIND, "", name).unwrap();
    assert_eq!(
        (&kept["spec"]["acknowledged"], &kept["status"]["reason"]),
        (&json!(true), &json!("no keys"))
    );
    assert_eq!(kept["status"]["since"], raised["status"]["since"]);
    fake.merge(BACKUP_KIND, "n", "b", &json!({"status": {"readyToUse": true}}));
    reconciler.reconcile(&key).await.unwrap();
    assert!(fake.names(KIND).is_empty());
}

#[tokio::test]
async fn temporary_failures_are_waited_for() {
    let fake = Fake::new();
    fake.create("/nodes", "", json!({"metadata": {"name": "a"}}));
    let reconciler = AlarmReconciler::new(fake.client());
    let key = (Subject::Host, ObjectKey::new("", "a"));
    let result = reconciler.reconcile(&key).await.unwrap();
    assert!(matches!(result, ReconcileResult::Again(_)), "{result:?}");
    assert!(fake.names(KIND).is_empty());
    // It lasted.
    let long_ago = Instant::now().checked_sub(Duration::from_secs(3600)).unwrap();
    for since in reconciler.noticed.lock().unwrap().values_mut() {
        *since = long_ago;
    }
    reconciler.reconcile(&key).await.unwrap();
    assert_eq!(fake.names(KIND).len(), 1);
    // A process that starts anew does not wait again.
    let restarted = AlarmReconciler::new(fake.client());
    restarted.reconcile(&key).await.unwrap();
    assert_eq!(fake.names(KIND).len(), 1);
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    fake.merge("/nodes", "", "a", &ready);
    restarted.reconcile(&key).await.unwrap();
    assert!(fake.names(KIND).is_empty());
}
