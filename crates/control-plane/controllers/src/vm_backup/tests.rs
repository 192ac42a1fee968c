use super::*;
use crate::fake::Fake;

#[tokio::test]
async fn a_backup_of_type_snapshot_repeats_its_snapshot() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let kind = "harvesterhci.io/virtualmachinebackups";
    let backup = |name: &str, kind: &str| {
        json!({"metadata": {"name": name},
        "spec": {"type": kind, "source": {"name": "m"}}})
    };
    fake.create(kind, "n", backup("b", "snapshot"));
    fake.create(kind, "n", backup("far", "backup"));
    let reconciler = VmBackupReconciler::new(fake.client());
    let key = ObjectKey::new("n", "b");
    reconciler.backup(&key).await.unwrap();
    reconciler.backup(&ObjectKey::new("n", "far")).await.unwrap();
    let inner = "snapshot.kubevirt.io/virtualmachinesnapshots";
    assert_eq!(fake.names(inner), ["b"]);
    let far = ObjectKey::new("n", "far");
    let held = fake.get(kind, "n", "far").unwrap();
    assert_eq!(object::list(&held, "/metadata/finalizers").len(), 1);
    reconciler.backup(&far).await.unwrap();
    let refused = fake.get(kind, "n", "far").unwrap();
    assert_eq!(text(&refused, "/status/error/message"), "backup target is not set");
    let done = json!({"status": {"readyToUse": true, "creationTime": "2026-01-02T03:04:05Z"}});
    fake.merge(inner, "n", "b", &done);
    reconciler.backup(&key).await.unwrap();
    let status = fake.get(kind, "n", "b").unwrap()["status"].clone();
    assert_eq!((&status["readyToUse"], &status["progress"]), (&json!(true), &json!(100)));
}
