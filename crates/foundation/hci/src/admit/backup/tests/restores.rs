//! All rules of restores, with their texts.

use serde_json::{Value, json};

use super::target;
use crate::admit::tests::{Cluster, judged, named, refused};
use crate::admit::{HARVESTER, SNAPSHOTS};

const KIND: (&str, &str) = (HARVESTER, "virtualmachinerestores");

/// A backup of the machine `m` on the target that is set, with changes of its status.
fn backup(name: &str, kind: &str, changes: Value) -> Value {
    let claim = json!({"metadata": {"namespace": "default", "name": "root"}});
    let volume = json!({"name": "v", "longhornBackupName": "b-1", "persistentVolumeClaim": claim});
    let mut status = json!({"readyToUse": true, "sourceUID": "u", "volumeBackups": [volume],
        "backupTarget": {"endpoint": "h:/b"}});
    for (key, value) in changes.as_object().unwrap() {
        status[key] = value.clone();
    }
    named(name, &json!({"spec": {"type": kind, "source": {"name": "m"}}, "status": status}))
}

fn machine(name: &str, status: Value) -> Value {
    let mut vm = named(name, &json!({"spec": {"runStrategy": "Halted"}, "status": status}));
    vm["metadata"]["uid"] = "u".into();
    vm
}

/// A restore of the machine `target`, with changes of its specification.
fn restore(target: &str, backup: &str, changes: Value) -> Value {
    let mut spec = json!({"target": {"name": target}, "virtualMachineBackupName": backup,
        "virtualMachineBackupNamespace": "default", "deletionPolicy": "retain"});
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    named("r", &json!({"spec": spec}))
}

fn cluster() -> Cluster {
    let backups = "virtualmachinebackups";
    let network = json!({"name": "n", "multus": {"networkName": "default/lan"}});
    let networks = json!({"spec": {"template": {"spec": {"networks": [network]}}}});
    let limits = json!({"domain": {"resources": {"limits": {"cpu": "4"}}}});
    let large = json!({"spec": {"template": {"spec": limits}}});
    let mut scheduled = backup("scheduled", "backup", json!({}));
    scheduled["metadata"]["annotations"] =
        json!({"harvesterhci.io/svmbackupId": "default/nightly"});
    let mut dying = backup("dying", "backup", json!({}));
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let foreign = json!({"volumeBackups": [{"name": "v"}]});
    let elsewhere = json!({"backupTarget": {"endpoint": "nfs://other:/b"}});
    let running = json!({"conditions": [{"type": "InProgress", "status": "True"}]});
    let busy = json!({"spec": {"target": {"name": "busy"}}, "status": running});
    let twin = json!({"newVM": true, "keepMacAddress": true, "virtualMachineBackupName": "twin",
        "virtualMachineBackupNamespace": "default"});
    let class = json!({"driver.longhorn.io": "gone"});
    let of = |name: &str, changes: Value| (HARVESTER, backups, backup(name, "backup", changes));
    let mut quota = named("quota", &json!({"spec": {"hard": {"limits.cpu": "3"}}}));
    quota["metadata"]["labels"] = json!({"management.cattle.io/project": "p"});
    Cluster(vec![
        of("b", json!({})),
        of("twin", json!({})),
        of("early", json!({"readyToUse": false})),
        of("class", json!({"csiDriverVolumeSnapshotClassNames": class})),
        of("lan", json!({"source": networks})),
        of("large", json!({"source": large})),
        of("foreign", foreign),
        of("elsewhere", elsewhere),
        (HARVESTER, backups, scheduled),
        (HARVESTER, backups, dying),
        (HARVESTER, backups, backup("snap", "snapshot", json!({"volumeBackups": []}))),
        (HARVESTER, "settings", target()),
        (HARVESTER, "schedulevmbackups", named("nightly", &json!({"spec": {}}))),
        (HARVESTER, KIND.1, named("going", &busy)),
        (HARVESTER, KIND.1, named("second", &json!({"spec": twin}))),
        (SNAPSHOTS, "volumesnapshotclasses", json!({"metadata": {"name": "longhorn"}})),
        ("", "resourcequotas", quota),
        ("kubevirt.io", "virtualmachines", machine("m", json!({}))),
        ("kubevirt.io", "virtualmachines", machine("runs", json!({"ready": true}))),
        ("kubevirt.io", "virtualmachines", machine("busy", json!({}))),
    ])
}

#[test]
fn a_restore_is_created_only_if_it_can_succeed() {
    let cluster = cluster();
    let new = || json!({"newVM": true});
    let keeps = || json!({"newVM": true, "keepMacAddress": true});
    let none = json!({});
    for (own, text) in [
        (restore("m", "b", none.clone()), ""),
        (restore("n", "b", new()), ""),
        (restore("m", "snap", none.clone()), ""),
        (
            restore("m", "none", none.clone()),
            "can't get vmbackup default/none, err: virtualmachinebackups.harvesterhci.io \"none\" not found",
        ),
        (restore("m", "early", none.clone()), "VMBackup default/early is not ready"),
        (restore("m", "dying", none.clone()), "vmbackup default/dying is deleted"),
        (restore("m", "scheduled", none.clone()), "Source schedule default/nightly is running"),
        (
            restore("m", "class", none.clone()),
            "can't get volumeSnapshotClass gone for driver driver.longhorn.io",
        ),
        (
            restore("m", "lan", none.clone()),
            "failed to get network attachment definition default/lan, err: network-attachment-definitions.k8s.cni.cncf.io \"lan\" not found",
        ),
        (
            restore("m", "elsewhere", none.clone()),
            "backup target {endpoint:nfs://h:/b bucketName: bucketRegion:} is not matched in vmBackup default/elsewhere",
        ),
        (
            restore("m", "foreign", none.clone()),
            "vmbackup default/foreign vb v at index 0 not from LH, it can't be recovered",
        ),
        (
            restore("m", "snap", json!({"deletionPolicy": "delete"})),
            "delete policy with backup type snapshot for replacing VM is not supported",
        ),
        (restore("m", "b", new()), "VM m is already exists"),
        (restore("n", "b", none.clone()), "can't replace nonexistent vm n"),
        (restore("runs", "b", none.clone()), "Please stop the VM \"runs\" before doing a restore"),
        (
            restore("busy", "b", none),
            "Please wait for the previous VM restore on the default/busy to be complete first.",
        ),
        (
            restore("n", "large", new()),
            "Failed to restore the new vm, err: cpu insufficient resources due to resource quota",
        ),
        (
            restore("n", "twin", keeps()),
            "can't restore the new vm with the same macaddress as the vmrestore default/second",
        ),
        (
            restore("n", "b", keeps()),
            "can't restore the new vm with the same macaddress because the source vm is still existent",
        ),
    ] {
        let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
        assert_eq!(judged(KIND, Some(&own), None, &cluster), expected, "{own}");
    }
    let bad = judged(KIND, Some(&restore("A_b", "b", json!({}))), None, &cluster).unwrap_err();
    assert!(bad.0 == 422 && bad.1.starts_with("Target VM name is invalid, err: "), "{bad:?}");
}

#[test]
fn a_volume_that_a_snapshot_holds_is_not_deleted_by_a_restore() {
    let mut cluster = cluster();
    let own = restore("m", "b", json!({"deletionPolicy": "delete"}));
    assert_eq!(judged(KIND, Some(&own), None, &cluster), Ok(()));
    let snapshot = backup("held", "snapshot", json!({}));
    cluster.0.push((HARVESTER, "virtualmachinebackups", snapshot));
    let text =
        "can't use delete policy, the volume \"default/root\" is used by the VM Snapshot(s) held";
    assert_eq!(judged(KIND, Some(&own), None, &cluster), refused(422, text));
    cluster.0.retain(|own| own.1 != "settings");
    let unset = judged(KIND, Some(&own), None, &cluster);
    assert_eq!(unset, refused(422, "backup target is not set"));
}

#[test]
fn a_restore_stays_as_it_is_as_long_as_its_machine() {
    let cluster = cluster();
    let (old, new) = (restore("m", "b", json!({})), restore("m", "twin", json!({})));
    let changed = judged(KIND, Some(&new), Some(&old), &cluster);
    assert_eq!(changed, refused(422, "VirtualMachineRestore spec is immutable"));
    let removed = judged(KIND, None, Some(&old), &cluster);
    let text = "The restore can't be removed because the restored VM m exists";
    assert_eq!(removed, refused(422, text));
    let gone = restore("n", "b", json!({}));
    assert_eq!(judged(KIND, None, Some(&gone), &cluster), Ok(()));
    let mut dying = machine("m", json!({}));
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let cluster = Cluster(vec![("kubevirt.io", "virtualmachines", dying)]);
    assert_eq!(judged(KIND, None, Some(&old), &cluster), Ok(()));
}
