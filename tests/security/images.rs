//! Contents of images, which many machines boot from, and images of the disks of others.

use serde_json::json;

use super::{bind, role, tenant};
use crate::harness::{Sheaf, assert_has, eventually};

const KINDS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/team";
const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/team/virtualmachineimages";
const IMAGE: &str = "/v1/harvester/harvesterhci.io.virtualmachineimages/team/golden";

/// The path that a viewer may read the content of an image at is none to write it.
#[test]
fn who_may_download_an_image_does_not_upload_it() {
    let sheaf = Sheaf::start();
    let (admin, _) = (sheaf.http(), tenant(&sheaf));
    bind(&admin, "team", "ClusterRole/view", "User", "victor");
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "golden"}, "spec": {"displayName": "golden", "sourceType": "upload"},
    });
    admin.post(IMAGES, &image).ok();
    let victor = sheaf.http().with("impersonate-user", "victor");
    victor.get(&format!("{IMAGES}/golden")).ok();
    let send = |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(format!("{IMAGE}{path}"));
        victor.send(request.header("content-type", "application/octet-stream"), vec![7; 4096])
    };
    let refused = send("POST", "?action=upload&size=4096").refused(403);
    assert_has(refused, "User \"victor\" cannot update resource \"virtualmachineimages\"");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for path in ["/download?action=upload&size=4096", "/download/?action=upload"] {
            send(method, path).refused(405);
        }
    }
}

/// A view of the claims and the backups of a namespace is none of the data on its disks.
#[test]
fn a_viewer_of_a_namespace_makes_no_copies_of_its_disks() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    let claims = "/api/v1/namespaces/victim/persistentvolumeclaims";
    admin.post(claims, &claim).ok();
    bind(&admin, "victim", "ClusterRole/view", "User", "mallory");
    let backups = json!({
        "apiGroups": ["harvesterhci.io"], "resources": ["volumeremotebackups"], "verbs": ["get"],
    });
    role(&admin, "victim", "backup-viewer", backups);
    bind(&admin, "victim", "Role/backup-viewer", "User", "mallory");
    let restorer = json!({
        "apiGroups": ["harvesterhci.io"], "resources": ["volumeremoterestores"],
        "verbs": ["create"],
    });
    role(&admin, "team", "restorer", restorer);
    bind(&admin, "team", "Role/restorer", "User", "mallory");
    eventually("the viewer sees the claim", || {
        mallory.get(&format!("{claims}/disk")).status == 200
    });
    let exported = |namespace: &str| {
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": "copy"},
            "spec": {"displayName": "copy", "sourceType": "export-from-volume",
                "pvcNamespace": namespace, "pvcName": "disk"},
        })
    };
    let restore = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VolumeRemoteRestore",
        "metadata": {"name": "copy"}, "spec": {"type": "lh", "from": "victim/backup"},
    });
    let refusal = "User mallory has insufficient permissions in clone source namespace victim";
    assert_has(mallory.post(IMAGES, &exported("victim")).refused(403), refusal);
    let restores = format!("{KINDS}/volumeremoterestores");
    assert_has(mallory.post(&restores, &restore).refused(403), refusal);
    // Editors may clone disks anyway.
    bind(&admin, "victim", "ClusterRole/edit", "User", "mallory");
    eventually("an editor makes an image", || {
        mallory.post(IMAGES, &exported("victim")).status == 201
    });
}
