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
    let told = fake.get(kind, "n", "r").unwrap();
    assert_eq!(told["status"]["complete"], true);
    let owned = fake.get("/persistentvolumeclaims", "n", &claim).unwrap();
    assert!(object::controller(&owned).is_some_and(|own| text(own, "/name") == "m"));
}
