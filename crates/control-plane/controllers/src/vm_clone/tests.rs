use serde_json::json;

use super::*;
use crate::fake::Fake;

const KIND: &str = "clone.kubevirt.io/virtualmachineclones";
const SNAPSHOTS: &str = "snapshot.kubevirt.io/virtualmachinesnapshots";
const RESTORES: &str = "snapshot.kubevirt.io/virtualmachinerestores";

#[tokio::test]
async fn a_machine_is_captured_restored_and_cleaned_up_after() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let clone = json!({"metadata": {"name": "c"}, "spec": {
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "m"},
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "t"}}});
    let uid = fake.create(KIND, "n", clone);
    let cloner = VmCloneReconciler::new(fake.client(), Dependents::default());
    let key = ObjectKey::new("n", "c");
    let status = || fake.get(KIND, "n", "c").unwrap()["status"].clone();
    cloner.reconcile(&key).await.unwrap();
    assert_eq!(status()["conditions"][1]["reason"], "Source doesnt exist");

    let vm = json!({"metadata": {"name": "m"}, "spec": {"template": {"spec": {}}}});
    fake.create("kubevirt.io/virtualmachines", "n", vm);
    cloner.reconcile(&key).await.unwrap();
    let snapshot = format!("tmp-snapshot-{uid}");
    assert_eq!(fake.names(SNAPSHOTS), [snapshot.as_str()]);
    assert_eq!(status()["phase"], "SnapshotInProgress");

    let content = json!({"metadata": {"name": "x"},
        "spec": {"source": {"virtualMachine": {"metadata": {"name": "m"}}}}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshotcontents", "n", content);
    let ready = json!({"status": {"readyToUse": true, "virtualMachineSnapshotContentName": "x"}});
    fake.merge(SNAPSHOTS, "n", &snapshot, &ready);
    cloner.reconcile(&key).await.unwrap();
    let restore = format!("tmp-restore-{uid}");
    let made = fake.get(RESTORES, "n", &restore).unwrap();
    assert_eq!(made["spec"]["target"]["name"], "t");
    assert_eq!(status()["phase"], "RestoreInProgress");

    fake.create("kubevirt.io/virtualmachines", "n", json!({"metadata": {"name": "t"}}));
    fake.merge(RESTORES, "n", &restore, &json!({"status": {"complete": true}}));
    cloner.reconcile(&key).await.unwrap();
    cloner.reconcile(&key).await.unwrap();
    assert_eq!((&status()["phase"], &status()["targetName"]), (&json!("Succeeded"), &json!("t")));
    assert!(fake.names(RESTORES).is_empty() && fake.names(SNAPSHOTS).is_empty());

    fake.delete("kubevirt.io/virtualmachines", "n", "t", "Background");
    cloner.reconcile(&key).await.unwrap();
    assert!(fake.names(KIND).is_empty());
}
