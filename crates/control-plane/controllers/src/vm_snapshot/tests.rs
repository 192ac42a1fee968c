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
        fake.bind("n", name, name);
        volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    }
    let vm = json!({"metadata": {"name": "m"},
        "spec": {"template": {"spec": {"volumes": volumes}}}});
    fake.create("kubevirt.io/virtualmachines", "n", vm);
    let snapshot = json!({"metadata": {"name": "s"}, "spec": {"source": {"name": "m"}}});
    let kind = "snapshot.kubevirt.io/virtualmachinesnapshots";
    let uid = fake.create(kind, "n", snapshot);
    let reconciler = VmSnapshotReconciler::new(fake.client(), Dependents::default());
    let key = ObjectKey::new("n", "s");
    reconciler.reconcile(&key).await.unwrap();
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
    reconciler.reconcile(&key).await.unwrap();
    assert_eq!(phase(), "Succeeded");
    fake.delete(kind, "n", "s", "Background");
    reconciler.reconcile(&key).await.unwrap();
    assert!(fake.names(kind).is_empty());
    assert!(fake.names("snapshot.kubevirt.io/virtualmachinesnapshotcontents").is_empty());
}

#[tokio::test]
async fn a_refused_freeze_is_reported() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
    let csi = json!({"driver": hci::DRIVER, "volumeHandle": "a"});
    fake.create("/persistentvolumes", "", json!({"metadata": {"name": "a"}, "spec": {"csi": csi}}));
    let claim = json!({"metadata": {"name": "a"}, "spec": {"volumeName": "a"},
        "status": {"phase": "Bound"}});
    fake.create("/persistentvolumeclaims", "n", claim);
    fake.bind("n", "a", "a");
    let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]);
    let vm = json!({"metadata": {"name": "m"},
        "spec": {"template": {"spec": {"volumes": volumes}}}});
    fake.create("kubevirt.io/virtualmachines", "n", vm);
    let connected = json!([{"type": "AgentConnected", "status": "True"}]);
    let vmi = json!({"metadata": {"name": "m"},
        "status": {"phase": "Running", "conditions": connected}});
    fake.create("kubevirt.io/virtualmachineinstances", "n", vmi);
    let kind = "snapshot.kubevirt.io/virtualmachinesnapshots";
    fake.create(kind, "n", json!({"metadata": {"name": "s"}, "spec": {"source": {"name": "m"}}}));
    let reconciler = VmSnapshotReconciler::new(fake.client(), Dependents::default());
    let key = ObjectKey::new("n", "s");
    reconciler.reconcile(&key).await.unwrap();
    let disks = "snapshot.storage.k8s.io/volumesnapshots";
    let [disk] = fake.names(disks).try_into().unwrap();
    let uid = object::uid(&fake.get(disks, "n", &disk).unwrap()).to_owned();
    let labels = json!({hci::together::QUIESCE_LABEL: "failed"});
    let own =
        json!({"metadata": {"name": format!("snapshot-{uid}")}, "status": {"labels": labels}});
    fake.create("longhorn.io/snapshots", NAMESPACE, own);
    let taken = json!({"status": {"creationTime": "2026-01-02T03:04:05Z", "readyToUse": true}});
    fake.merge(disks, "n", &disk, &taken);
    reconciler.reconcile(&key).await.unwrap();
    let done = fake.get(kind, "n", "s").unwrap();
    assert_eq!(done["status"]["indications"], json!(["GuestAgent", "Online", "QuiesceFailed"]));
}

#[tokio::test]
async fn two_snapshots_of_one_machine_are_taken_one_after_the_other() {
    let fake = Fake::new();
    let kind = "snapshot.kubevirt.io/virtualmachinesnapshots";
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    fake.create("kubevirt.io/virtualmachines", "n", json!({"metadata": {"name": "m"}}));
    for name in ["first", "second"] {
        let snapshot = json!({"metadata": {"name": name}, "spec": {"source": {"name": "m"}}});
        fake.create(kind, "n", snapshot);
    }
    let reconciler = VmSnapshotReconciler::new(fake.client(), Dependents::default());
    let held = json!({"status": {"snapshotInProgress": "first"}});
    fake.merge("kubevirt.io/virtualmachines", "n", "m", &held);
    assert_eq!(
        reconciler.reconcile(&ObjectKey::new("n", "second")).await.unwrap(),
        ReconcileResult::Again(RECHECK_INTERVAL)
    );
    let second = fake.get(kind, "n", "second").unwrap();
    let progressing =
        crate::condition::find(object::list(&second, "/status/conditions"), "Progressing");
    assert_eq!(progressing.unwrap()["reason"], "Source not locked snapshot \"first\" in progress");
    assert_eq!(second["status"]["indications"], Value::Null);
    assert!(fake.names("snapshot.kubevirt.io/virtualmachinesnapshotcontents").is_empty());

    // A machine without disks is captured at once, and unlocked.
    reconciler.reconcile(&ObjectKey::new("n", "first")).await.unwrap();
    assert_eq!(text(&fake.get(kind, "n", "first").unwrap(), "/status/phase"), "Succeeded");
    reconciler.reconcile(&ObjectKey::new("n", "second")).await.unwrap();
    assert_eq!(text(&fake.get(kind, "n", "second").unwrap(), "/status/phase"), "Succeeded");
}

#[tokio::test]
async fn a_lock_of_a_snapshot_that_is_gone_does_not_count() {
    let fake = Fake::new();
    let kind = "snapshot.kubevirt.io/virtualmachinesnapshots";
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let vm = json!({"metadata": {"name": "m"}, "status": {"snapshotInProgress": "gone"}});
    fake.create("kubevirt.io/virtualmachines", "n", vm);
    let snapshot = json!({"metadata": {"name": "s"}, "spec": {"source": {"name": "m"}}});
    fake.create(kind, "n", snapshot);
    let vmi = json!({"metadata": {"name": "m"}, "status": {"phase": "Running"}});
    fake.create("kubevirt.io/virtualmachineinstances", "n", vmi);
    let reconciler = VmSnapshotReconciler::new(fake.client(), Dependents::default());
    reconciler.reconcile(&ObjectKey::new("n", "s")).await.unwrap();
    let done = fake.get(kind, "n", "s").unwrap();
    assert_eq!(text(&done, "/status/phase"), "Succeeded");
    assert_eq!(done["status"]["indications"], json!(["NoGuestAgent", "Online"]));
    let ready = crate::condition::find(object::list(&done, "/status/conditions"), "Ready");
    assert_eq!(ready.unwrap()["reason"], "Ready");
}

/// Any user with the right to write contents could have guessed its name.
#[tokio::test]
async fn a_content_that_was_created_by_another_is_not_taken() {
    let fake = Fake::new();
    let kind = "snapshot.kubevirt.io/virtualmachinesnapshots";
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    let uid = fake.create(
        kind,
        "n",
        json!({"metadata": {"name": "s"}, "spec": {"source": {"name": "m"}}}),
    );
    let backup = json!({"volumeName": "d", "volumeSnapshotName": "d",
        "persistentVolumeClaim": {"metadata": {"name": "own"}, "spec": {}}});
    let forged = json!({
        "metadata": {"name": format!("vmsnapshot-content-{uid}")},
        "spec": {"virtualMachineSnapshotName": "s", "source": {"virtualMachine": {"spec": {}}},
            "volumeBackups": [backup]},
    });
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshotcontents", "n", forged);
    let reconciler = VmSnapshotReconciler::new(fake.client(), Dependents::default());
    reconciler.reconcile(&ObjectKey::new("n", "s")).await.unwrap();
    assert!(fake.names("snapshot.storage.k8s.io/volumesnapshots").is_empty());
    let status = &fake.get(kind, "n", "s").unwrap()["status"];
    assert_eq!(status["phase"], "Failed");
    assert!(status["conditions"].to_string().contains(source::FOREIGN_CONTENT), "{status}");
}
