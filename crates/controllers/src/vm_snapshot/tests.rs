use super::*;
use crate::fake::Fake;

#[tokio::test]
async fn a_machine_is_captured_disk_by_disk() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let mut volumes = Vec::new();
    for name in ["a", "b"] {
        let csi = json!({"driver": hci::DRIVER, "volumeHandle": name});
        fake.create(
            "/persistentvolumes",
            "",
            json!({"metadata": {"name": name}, "spec": {"csi": csi}}),
        );
        let claim = json!({"metadata": {"name": name}, "spec": {"volumeName": name},
            "status": {"phase": "Bound"}});
        fake.create("/persistentvolumeclaims", "n", claim);
        volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    }
    let vm = json!({"metadata": {"name": "m"},
        "spec": {"template": {"spec": {"volumes": volumes}}}});
    fake.create("kubevirt.io/virtualmachines", "n", vm);
    let snapshot = json!({"metadata": {"name": "s"}, "spec": {"source": {"name": "m"}}});
    let kind = "snapshot.kubevirt.io/virtualmachinesnapshots";
    let uid = fake.create(kind, "n", snapshot);
    let photographer = Photographer::new(fake.client(), Dependents::default());
    let key = Key::new("n", "s");
    photographer.reconcile(&key).await.unwrap();
    let disks = "snapshot.storage.k8s.io/volumesnapshots";
    let names = ["a", "b"].map(|name| format!("vmsnapshot-{uid}-volume-{name}"));
    assert_eq!(fake.names(disks), names);
    let phase = || text(&fake.get(kind, "n", "s").unwrap(), "/status/phase").to_owned();
    assert_eq!(phase(), "InProgress");
    for name in &names {
        let status =
            json!({"status": {"creationTime": "2026-01-02T03:04:05Z", "readyToUse": true}});
        fake.merge(disks, "n", name, &status);
    }
    photographer.reconcile(&key).await.unwrap();
    assert_eq!(phase(), "Succeeded");
    fake.delete(kind, "n", "s", "Background");
    photographer.reconcile(&key).await.unwrap();
    assert!(fake.names(kind).is_empty());
    assert!(fake.names("snapshot.kubevirt.io/virtualmachinesnapshotcontents").is_empty());
}
