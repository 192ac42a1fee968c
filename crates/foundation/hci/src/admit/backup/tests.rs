mod backups;
mod restores;

use serde_json::json;

use super::super::tests::{Cluster, uuid};
use super::super::{RequestUser, STORAGE, validate};
use super::*;

/// May get backups everywhere, and what the lists have.
struct Viewer {
    gets: &'static [&'static str],
    creates: &'static [&'static str],
}

impl RequestUser for Viewer {
    fn name(&self) -> &str {
        "mallory"
    }

    fn may_get(&self, _: &str, resource: &str, _: &str, _: &str) -> bool {
        resource == BACKUPS || self.gets.contains(&resource)
    }

    fn may_create(&self, _: &str, resource: &str, _: &str, _: &str) -> bool {
        self.creates.contains(&resource)
    }
}

/// The setting with the backup target.
fn target() -> Value {
    let value = json!({"type": "nfs", "endpoint": "nfs://h:/b"}).to_string();
    json!({"metadata": {"name": "backup-target"}, "value": value})
}

fn restored(status: &Value, viewer: &Viewer, namespace: &str) -> String {
    let mut status = status.clone();
    status["readyToUse"] = true.into();
    status["backupTarget"] = json!({"endpoint": "nfs://h:/b"});
    let backup = json!({"metadata": {"namespace": "victim", "name": "b"}, "status": status});
    let class = json!({"metadata": {"name": "lh-1", "annotations":
        {"harvesterhci.io/imageId": "other/debian"}}});
    let cluster = Cluster(vec![
        (HARVESTER, BACKUPS, backup),
        (HARVESTER, "settings", target()),
        (STORAGE, "storageclasses", class),
    ]);
    let object = json!({"spec": {"target": {"name": "m"}, "newVM": true,
        "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "victim"}});
    let write = Write {
        group: HARVESTER,
        resource: RESTORES,
        namespace,
        name: "r",
        object: Some(&object),
        old: None,
        trusted: false,
        objects: &cluster,
        writer: viewer,
        uuid: &uuid,
    };
    validate(&write).map_or_else(|refusal| refusal.message, |()| "admitted".into())
}

#[test]
fn a_viewer_of_a_namespace_does_not_restore_its_disks_and_secrets_elsewhere() {
    let plain = json!({"volumeBackups": []});
    let with_secret = json!({"secretBackups": [{"name": "cloud-init"}]});
    let viewer = Viewer { gets: &[], creates: &[] };
    let refusal = "User mallory has insufficient permissions in clone source namespace victim";
    assert!(restored(&plain, &viewer, "team").contains(refusal));
    assert_eq!(restored(&plain, &viewer, "victim"), "admitted");
    for creates in [&["datavolumes/source"][..], &["pods", "persistentvolumeclaims"]] {
        let cloner = Viewer { gets: &[], creates };
        assert_eq!(restored(&plain, &cloner, "team"), "admitted");
        let message = restored(&with_secret, &cloner, "team");
        assert!(message.contains("secrets victim/cloud-init, which user mallory"), "{message}");
        let reader = Viewer { gets: &["secrets"], creates };
        assert_eq!(restored(&with_secret, &reader, "team"), "admitted");
    }
    let partly = Viewer { gets: &["secrets"], creates: &["pods"] };
    assert!(restored(&plain, &partly, "team").contains(refusal));
}

#[test]
fn a_restore_creates_no_disk_of_an_image_beside_those_of_the_backup() {
    let viewer = Viewer { gets: &[], creates: &[] };
    let template = json!([{"metadata": {"name": "root"},
        "spec": {"storageClassName": "lh-1"}}]);
    let annotations = json!({"harvesterhci.io/volumeClaimTemplates": template.to_string()});
    let source = json!({"metadata": {"annotations": annotations}});
    let forged = json!({"source": source, "volumeBackups": []});
    let message = restored(&forged, &viewer, "victim");
    assert!(message.contains("virtualmachineimages.harvesterhci.io other/debian"), "{message}");
    let disk = json!({"longhornBackupName": "backup-1",
        "persistentVolumeClaim": {"metadata": {"name": "root"}}});
    let own = json!({"source": source, "volumeBackups": [disk]});
    assert_eq!(restored(&own, &viewer, "victim"), "admitted");
}
