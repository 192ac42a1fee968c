//! Names that resemble parts of the cluster.

use serde_json::json;

use super::tenant;
use crate::harness::{Sheaf, assert_has};

#[test]
fn a_name_does_not_make_a_user_a_part_of_the_cluster() {
    let sheaf = Sheaf::start();
    tenant(&sheaf);
    let claims = "/api/v1/namespaces/team/persistentvolumeclaims";
    let forged = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "forged", "annotations": {"sheaf.io/populator": "VolumeCloneSource"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    for user in [
        "system:serviceaccount:kubevirt:default",
        "system:serviceaccount:kubevirt:kubevirt-controller",
        "system:sheaf-",
        "system:sheaf-controllers-2",
        // Their names, without their group.
        "system:sheaf-controllers",
        "system:sheaf-controller:machines",
        "system:apiserver-of-mallory",
        "system:node:mallory",
    ] {
        // Authorized for everything, and still no part of the cluster.
        let stranger =
            sheaf.http().with("impersonate-user", user).with("impersonate-group", "system:masters");
        let refused = stranger.post(claims, &forged).refused(422);
        assert_has(refused, "may only be set by the controllers of the cluster");
    }
}
