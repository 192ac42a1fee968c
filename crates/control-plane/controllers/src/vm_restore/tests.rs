use super::*;
use crate::fake::Fake;

#[tokio::test]
async fn a_machine_goes_back_to_its_snapshot() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let volumes =
        |claim: &str| json!([{"name": "root", "persistentVolumeClaim": {"claimName": claim}}]);
    let machine = |claim: &str| json!({"template": {"spec": {"volumes": volumes(claim)}}});
    let vm = json!({"metadata": {"name": "m"}, "spec": machine("data")});
    fake.create("kubevirt.io/virtualmachines", "n", vm.clone());
    let snapshot = json!({"metadata": {"name": "s"}, "status": {"readyToUse": true,
        "virtualMachineSnapshotContentName": "k"}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshots", "n", snapshot);
    let backup = json!({"volumeName": "root", "volumeSnapshotName": "vs",
        "persistentVolumeClaim": {"metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}});
    let content = json!({"metadata": {"name": "k"},
        "spec": {"source": {"virtualMachine": vm}, "volumeBackups": [backup]}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshotcontents", "n", content);
    let kind = "snapshot.kubevirt.io/virtualmachinerestores";
    let restore = json!({"metadata": {"name": "r"},
        "spec": {"target": {"name": "m"}, "virtualMachineSnapshotName": "s"}});
    let uid = fake.create(kind, "n", restore);
    let restorer = VmRestoreReconciler::new(fake.client(), Dependents::default());
    let key = ObjectKey::new("n", "r");
    restorer.reconcile(&key).await.unwrap();
    let claim = format!("restore-{uid}-root");
    assert_eq!(fake.names("/persistentvolumeclaims"), std::slice::from_ref(&claim));
    let used = || {
        let vm = fake.get("kubevirt.io/virtualmachines", "n", "m").unwrap();
        text(&vm, "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName").to_owned()
    };
    assert_eq!(used(), "data", "nothing changes before the data are there");
    let bound = json!({"status": {"phase": "Bound"}});
    fake.merge("/persistentvolumeclaims", "n", &claim, &bound);
    restorer.reconcile(&key).await.unwrap();
    assert_eq!(used(), claim);
    let restore = fake.get(kind, "n", "r").unwrap();
    assert_eq!(restore["status"]["complete"], true);
    assert!(object::controller(&restore).is_some_and(|own| text(own, "/name") == "m"), "{restore}");
    assert_eq!(reasons(&fake), ["VirtualMachineRestoreComplete"]);
    let owned = fake.get("/persistentvolumeclaims", "n", &claim).unwrap();
    assert!(object::controller(&owned).is_some_and(|own| text(own, "/name") == "m"));
}

/// The reasons of all events.
fn reasons(fake: &Fake) -> Vec<String> {
    let names = fake.names("/events");
    let events = names.iter().filter_map(|name| fake.get("/events", "n", name));
    events.map(|event| text(&event, "/reason").to_owned()).collect()
}

const RESTORE: &str = "snapshot.kubevirt.io/virtualmachinerestores";

/// A machine `m`, and a restore of it from a snapshot that is not there.
fn waiting_world() -> (Fake, String, VmRestoreReconciler) {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let vm = json!({"metadata": {"name": "m"}, "spec": {"template": {"spec": {}}}});
    let uid = fake.create("kubevirt.io/virtualmachines", "n", vm);
    let restore = json!({"metadata": {"name": "r"},
        "spec": {"target": {"name": "m"}, "virtualMachineSnapshotName": "s"}});
    fake.create(RESTORE, "n", restore);
    let restorer = VmRestoreReconciler::new(fake.client(), Dependents::default());
    (fake, uid, restorer)
}

/// The snapshot of a machine without disks.
fn add_snapshot(fake: &Fake, source: &str) {
    let snapshot = json!({"metadata": {"name": "s"}, "status": {"readyToUse": true,
        "sourceUID": source, "virtualMachineSnapshotContentName": "k"}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshots", "n", snapshot);
    let vm =
        json!({"metadata": {"name": "m"}, "spec": {"template": {"spec": {"hostname": "old"}}}});
    let content = json!({"metadata": {"name": "k"},
        "spec": {"source": {"virtualMachine": vm}, "volumeBackups": []}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshotcontents", "n", content);
}

/// The reason of every condition of the restore.
fn conditions(fake: &Fake) -> Vec<String> {
    let restore = fake.get(RESTORE, "n", "r").unwrap();
    let all = object::list(&restore, "/status/conditions").iter();
    all.map(|own| text(own, "/reason").to_owned()).collect()
}

#[tokio::test]
async fn a_restore_waits_for_its_snapshot_and_says_so_once() {
    let (fake, uid, restorer) = waiting_world();
    let key = ObjectKey::new("n", "r");
    for _ in 0..2 {
        let next = restorer.reconcile(&key).await.unwrap();
        assert!(matches!(next, ReconcileResult::Again(_)));
    }
    assert_eq!(conditions(&fake), ["VMSnapshot does not exist or is not ready"; 2]);
    assert_eq!(reasons(&fake), ["VirtualMachineRestoreError"]);
    add_snapshot(&fake, &uid);
    restorer.reconcile(&key).await.unwrap();
    assert_eq!(fake.get(RESTORE, "n", "r").unwrap()["status"]["complete"], true);
}

#[tokio::test]
async fn a_restore_does_not_replace_another_machine() {
    let (fake, _, restorer) = waiting_world();
    add_snapshot(&fake, "of-another");
    restorer.reconcile(&ObjectKey::new("n", "r")).await.unwrap();
    assert_eq!(conditions(&fake), [plan::FOREIGN; 2]);
    let vm = fake.get("kubevirt.io/virtualmachines", "n", "m").unwrap();
    assert!(vm.pointer("/spec/template/spec/hostname").is_none(), "{vm}");
    assert_eq!(reasons(&fake), ["VirtualMachineRestoreError"]);
}

#[tokio::test]
async fn a_refused_change_of_the_machine_is_reported_and_tried_again() {
    let (fake, uid, restorer) = waiting_world();
    add_snapshot(&fake, &uid);
    fake.refuse("kubevirt.io/virtualmachines", 500);
    let next = restorer.reconcile(&ObjectKey::new("n", "r")).await.unwrap();
    assert!(matches!(next, ReconcileResult::Again(_)));
    assert_eq!(reasons(&fake), ["VirtualMachineRestoreError"]);
    fake.accept("kubevirt.io/virtualmachines");
    restorer.reconcile(&ObjectKey::new("n", "r")).await.unwrap();
    assert_eq!(fake.get(RESTORE, "n", "r").unwrap()["status"]["complete"], true);
}
