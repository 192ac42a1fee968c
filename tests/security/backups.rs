//! Backups: what their status makes controllers do, and who restores those of another namespace.

use serde_json::{Value, json};

use super::{bind, controller, tenant};
use crate::harness::{Sheaf, assert_has, eventually, poll};

const TEAM_MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/team/virtualmachines";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces";
const REFUSAL: &str = "User mallory has insufficient permissions in clone source namespace victim";

/// A snapshot of a machine, complete, with the image of another namespace as a further disk.
fn forged() -> Value {
    let template = json!([{"metadata": {"name": "copy",
        "annotations": {"harvesterhci.io/imageId": "victim/debian"}},
        "spec": {"storageClassName": "longhorn-debian"}}]);
    let annotations = json!({"harvesterhci.io/volumeClaimTemplates": template.to_string()});
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "b"},
        "spec": {"type": "snapshot",
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
        "status": {"readyToUse": true, "volumeBackups": [], "source": {
            "metadata": {"name": "vm", "namespace": "team", "annotations": annotations},
            "spec": {"template": {"spec": {}}}}},
    })
}

fn restore(backup: &str) -> Value {
    let target = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "new"});
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore",
        "metadata": {"name": "r"},
        "spec": {"newVM": true, "target": target, "virtualMachineBackupName": "b",
            "virtualMachineBackupNamespace": backup},
    })
}

#[test]
fn the_status_of_a_backup_is_not_its_writers() {
    let sheaf = Sheaf::start();
    let mallory = tenant(&sheaf);
    let domain = json!({"memory": {"guest": "64Mi"}, "devices": {}});
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}},
    });
    mallory.post(TEAM_MACHINES, &machine).ok();
    let path = format!("{BACKUPS}/team/virtualmachinebackups");
    let made = mallory.post(&path, &forged()).ok();
    assert_eq!(made["status"], Value::Null);
    let own = format!("{path}/b");
    let says = |status: &Value| status.to_string().contains("victim/debian");
    let patch = json!({"status": forged()["status"]});
    assert!(!says(&mallory.merge(&own, &patch).ok()["status"]));
    // Controllers write it as well.
    let put = poll("the whole backup is put back", || {
        let mut whole = mallory.get(&own).ok();
        whole["metadata"]["labels"] = json!({"put": "back"});
        whole["status"] = forged()["status"].clone();
        let put = mallory.put(&own, &whole);
        if put.status == 409 { Err(put.text()) } else { Ok(put.ok()) }
    });
    assert_eq!(put["metadata"]["labels"]["put"], "back");
    assert!(!says(&put["status"]));

    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "i"}, "spec": {"displayName": "i", "sourceType": "upload"},
        "status": {"storageClassName": "longhorn-debian"},
    });
    let images = format!("{BACKUPS}/team/virtualmachineimages");
    assert_eq!(mallory.post(&images, &image).ok()["status"], Value::Null);
}

/// A backup whose status was written before admission kept users from that.
#[test]
fn a_restore_creates_no_disk_that_its_user_may_not_create() {
    let sheaf = Sheaf::start();
    let mallory = tenant(&sheaf);
    let backups = format!("{BACKUPS}/team/virtualmachinebackups");
    controller(&sheaf).post(&backups, &forged()).ok();
    let restores = format!("{BACKUPS}/team/virtualmachinerestores");
    let refused = mallory.post(&restores, &restore("team")).refused(403);
    assert_has(refused, "virtualmachineimages.harvesterhci.io victim/debian, which user mallory");
}

#[test]
fn a_viewer_of_a_namespace_does_not_restore_its_backups_elsewhere() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    let mut backup = forged();
    backup["status"]["source"]["metadata"] = json!({"name": "vm", "namespace": "victim"});
    backup["status"]["secretBackups"] = json!([{"name": "cloud-init", "data": {}}]);
    let backups = format!("{BACKUPS}/victim/virtualmachinebackups");
    let controller = controller(&sheaf);
    controller.post(&backups, &backup).ok();
    bind(&admin, "victim", "ClusterRole/view", "User", "mallory");
    eventually("the viewer sees the backup", || mallory.get(&format!("{backups}/b")).status == 200);
    assert_eq!(mallory.get("/api/v1/namespaces/victim/secrets").status, 403);
    let restores = format!("{BACKUPS}/team/virtualmachinerestores");
    // The controller of backups finds no snapshot behind this one, and takes its status back.
    let attempt = |code: u16, part: &str| {
        poll(&format!("the restore is refused: {part}"), || {
            controller.merge(&format!("{backups}/b"), &json!({"status": backup["status"]})).ok();
            let reply = mallory.post(&restores, &restore("victim"));
            assert!(reply.status >= 400, "the attack worked: {}", reply.text());
            let is_expected = reply.status == code && reply.text().contains(part);
            if is_expected { Ok(()) } else { Err(reply.text()) }
        });
    };
    attempt(403, REFUSAL);
    let rule = json!({
        "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"], "verbs": ["create"],
    });
    super::role(&admin, "victim", "cloner", rule);
    bind(&admin, "victim", "Role/cloner", "User", "mallory");
    attempt(403, "secrets victim/cloud-init, which user mallory cannot get");
    // Their owners may, as far as the kind of the backup allows.
    bind(&admin, "victim", "ClusterRole/edit", "User", "mallory");
    attempt(422, "restore to other namespace with backup type snapshot is not supported");
}
