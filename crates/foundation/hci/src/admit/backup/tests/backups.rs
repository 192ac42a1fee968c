//! All rules of backups and snapshots of machines, with their texts.

use serde_json::{Value, json};

use super::target;
use crate::admit::tests::{Cluster, judged, named, refused, uuid};
use crate::admit::{HARVESTER, LONGHORN, STORAGE, Write, complete};

const KIND: (&str, &str) = (HARVESTER, "virtualmachinebackups");

fn machine(name: &str, claim: &str, disk: Value) -> Value {
    let volumes = match claim {
        "" => json!([]),
        claim => json!([{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]),
    };
    let spec = json!({"volumes": volumes, "domain": {"devices": {"disks": [disk]}}});
    named(name, &json!({"spec": {"template": {"spec": spec}}}))
}

fn claim(name: &str, class: &str) -> Value {
    named(name, &json!({"spec": {"storageClassName": class, "volumeName": format!("pv-{name}")}}))
}

fn cluster() -> Cluster {
    let class = |name: &str, driver: &str| {
        let class = json!({"metadata": {"name": name}, "provisioner": driver});
        (STORAGE, "storageclasses", class)
    };
    let volume = json!({"metadata": {"namespace": "longhorn-system", "name": "pv-second"},
        "spec": {"dataEngine": "v2"}});
    let config = json!({"driver.longhorn.io": {"volumeSnapshotClassName": "s",
        "backupVolumeSnapshotClassName": "b"}, "half": {"volumeSnapshotClassName": "s"}});
    let config = json!({"metadata": {"name": "csi-driver-config"}, "value": config.to_string()});
    let move_of = |name: &str, phase: &str| {
        let object = json!({"spec": {"vmiName": name}, "status": {"phase": phase}});
        ("kubevirt.io", "virtualmachineinstancemigrations", named(name, &object))
    };
    let vm = |name: &str, claim: &str, disk: Value| {
        ("kubevirt.io", "virtualmachines", machine(name, claim, disk))
    };
    Cluster(vec![
        class("longhorn", "driver.longhorn.io"),
        class("half", "half"),
        class("local", "local.io"),
        ("", "persistentvolumeclaims", claim("root", "longhorn")),
        ("", "persistentvolumeclaims", claim("second", "longhorn")),
        ("", "persistentvolumeclaims", claim("half", "half")),
        ("", "persistentvolumeclaims", claim("local", "local")),
        (LONGHORN, "volumes", volume),
        (HARVESTER, "settings", config),
        (HARVESTER, "settings", target()),
        vm("m", "root", json!({"name": "d"})),
        vm("moves", "root", json!({"name": "d"})),
        vm("waits", "root", json!({"name": "d"})),
        vm("shares", "root", json!({"name": "d", "shareable": true})),
        vm("second", "second", json!({"name": "d"})),
        vm("half", "half", json!({"name": "d"})),
        vm("local", "local", json!({"name": "d"})),
        vm("lost", "lost", json!({"name": "d"})),
        move_of("moves", "Running"),
        move_of("waits", "Pending"),
        move_of("m", "Succeeded"),
    ])
}

fn backup(source: &str, kind: &str) -> Value {
    named("b", &json!({"spec": {"source": {"name": source}, "type": kind}}))
}

#[test]
fn a_backup_is_created_only_if_it_can_be_made() {
    let cluster = cluster();
    for (source, kind, text) in [
        ("m", "snapshot", ""),
        ("m", "backup", ""),
        ("waits", "backup", ""),
        ("half", "snapshot", ""),
        ("", "snapshot", "source VM name is empty"),
        ("x", "backup", "virtualmachines.kubevirt.io \"x\" not found"),
        ("moves", "backup", "vm default/moves is in migration"),
        (
            "shares",
            "snapshot",
            "cannot back up VM default/shares: disk d is shareable and may be written by multiple VMs concurrently",
        ),
        (
            "lost",
            "backup",
            "failed to get PVC default/lost: persistentvolumeclaims \"lost\" not found",
        ),
        (
            "second",
            "backup",
            "vm default/second contains Longhorn v2 volume pv-second from PVC default/second, which does not support VM backup",
        ),
        (
            "local",
            "snapshot",
            "provisioner local.io is not configured in the csi-driver-config setting",
        ),
        (
            "half",
            "backup",
            "backup's snapshot class is not configured for provisioner half in the csi-driver-config setting",
        ),
    ] {
        let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
        let own = backup(source, kind);
        assert_eq!(judged(KIND, Some(&own), None, &cluster), expected, "{source} {kind}");
    }
}

#[test]
fn a_backup_that_is_restored_stays() {
    let restore = |name: &str, status: Value| {
        let spec = json!({"virtualMachineBackupName": "b"});
        (HARVESTER, "virtualmachinerestores", named(name, &json!({"spec": spec, "status": status})))
    };
    let going = json!({"conditions": [{"type": "InProgress", "status": "True"}]});
    let own = backup("m", "backup");
    let busy = Cluster(vec![restore("r", going)]);
    let text = "vmrestore default/r is in progress";
    assert_eq!(judged(KIND, None, Some(&own), &busy), refused(400, text));
    let free = Cluster(vec![restore("r", json!({"complete": true}))]);
    assert_eq!(judged(KIND, None, Some(&own), &free), Ok(()));
}

#[test]
fn a_name_that_is_taken_is_refused_with_its_kind() {
    let taken = backup("m", "snapshot");
    let cluster = Cluster(vec![(KIND.0, KIND.1, taken)]);
    for (name, kind, text) in [
        ("b", "snapshot", "snapshot \"b\" already exists"),
        (
            "b",
            "backup",
            "name \"b\" is already used by a snapshot (backup and snapshot share names)",
        ),
        ("other", "backup", ""),
    ] {
        let write = Write {
            group: KIND.0,
            resource: KIND.1,
            namespace: "default",
            name,
            object: None,
            old: None,
            trusted: false,
            objects: &cluster,
            writer: &cluster,
            uuid: &uuid,
        };
        let found = complete(&write, &mut backup("m", kind)).err();
        let found = found.map(|refusal| (refusal.code, refusal.message)).unwrap_or_default();
        let code = if text.is_empty() { 0 } else { 400 };
        assert!(found.0 == code && found.1.ends_with(text), "{found:?}");
    }
}
