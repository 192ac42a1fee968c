use super::*;
use crate::fake::Fake;

const SNAPSHOT_KIND: &str = "snapshot.storage.k8s.io/volumesnapshots";
const CONTENT_KIND: &str = "snapshot.storage.k8s.io/volumesnapshotcontents";
const OWN_KIND: &str = "longhorn.io/snapshots";

#[tokio::test]
async fn a_snapshot_is_taken_reported_and_removed() {
    let fake = Fake::new();
    for name in ["n", NAMESPACE] {
        fake.create("/namespaces", "", json!({"metadata": {"name": name}}));
    }
    let csi = json!({"driver": hci::DRIVER, "volumeHandle": "v"});
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": csi}});
    fake.create("/persistentvolumes", "", volume);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"}});
    fake.create("/persistentvolumeclaims", "n", claim);
    fake.bind("n", "c", "pv");
    let class = json!({"metadata": {"name": "k"}, "driver": hci::DRIVER,
        "deletionPolicy": "Delete", "parameters": {"type": "snap"}});
    fake.create("snapshot.storage.k8s.io/volumesnapshotclasses", "", class);
    let snapshot = json!({"metadata": {"name": "s"}, "spec": {"volumeSnapshotClassName": "k",
        "source": {"persistentVolumeClaimName": "c"}}});
    let uid = fake.create(SNAPSHOT_KIND, "n", snapshot);
    let (content, own) = (format!("snapcontent-{uid}"), format!("snapshot-{uid}"));
    let archivist = VolumeSnapshotReconciler::new(fake.client());
    let key = ObjectKey::new("n", "s");
    archivist.snapshot(&key).await.unwrap();
    archivist.content(&content).await.unwrap();
    assert_eq!(fake.names(OWN_KIND), std::slice::from_ref(&own));
    let status = || fake.get(SNAPSHOT_KIND, "n", "s").unwrap()["status"].clone();
    assert_eq!(status()["readyToUse"], false);
    let taken = json!({"status": {"readyToUse": true, "restoreSize": 1024,
        "creationTime": "2026-01-02T03:04:05Z"}});
    fake.merge(OWN_KIND, NAMESPACE, &own, &taken);
    archivist.content(&content).await.unwrap();
    assert_eq!((&status()["readyToUse"], &status()["restoreSize"]), (&json!(true), &json!("1Ki")));
    assert_eq!(status()["boundVolumeSnapshotContentName"], content.as_str());

    fake.delete(SNAPSHOT_KIND, "n", "s", "Background");
    archivist.snapshot(&key).await.unwrap();
    archivist.content(&content).await.unwrap();
    assert_eq!(fake.names(SNAPSHOT_KIND).len(), 1, "it waits for what is behind it");
    fake.merge(OWN_KIND, NAMESPACE, &own, &json!({"metadata": {"finalizers": []}}));
    archivist.content(&content).await.unwrap();
    assert!(fake.names(CONTENT_KIND).is_empty() && fake.names(SNAPSHOT_KIND).is_empty());
}
