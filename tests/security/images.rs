//! Contents of images, which many machines boot from.

use serde_json::json;

use super::{bind, tenant};
use crate::harness::{Sheaf, assert_has};

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
