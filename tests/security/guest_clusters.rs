//! The credentials of a guest cluster's cloud provider and CSI driver, in the hands of its owner.

use std::fs;

use serde_json::{Value, json};

use super::tenant;
use crate::harness::{Http, Sheaf, assert_has};

const MACHINES: &str = "/apis/kubevirt.io/v1";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1";

/// The kubeconfig that the administrator made for a guest cluster in the namespace `team`.
fn guest_cluster(sheaf: &Sheaf) -> Http {
    let asked = json!({"namespace": "team", "serviceAccountName": "guest"});
    let config = sheaf.http().post("/v1/harvester/kubeconfig", &asked).ok();
    let file = sheaf.scratch("guest.kubeconfig");
    fs::write(&file, config.as_str().unwrap()).unwrap();
    Http::from_kubeconfig(&file)
}

fn machine(user_data: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"memory": {"guest": "64Mi"},
                "devices": {"disks": [{"name": "seed", "disk": {}}]}},
            "volumes": [{"name": "seed", "cloudInitNoCloud": {"userData": user_data}}]}}},
    })
}

/// A patch answers with the machine and its user data; a content made by hand names any snapshot.
#[test]
fn a_guest_cluster_reaches_no_other_namespace() {
    let sheaf = Sheaf::start();
    let (admin, _) = (sheaf.http(), tenant(&sheaf));
    let guest = guest_cluster(&sheaf);
    for namespace in ["team", "victim"] {
        let machines = format!("{MACHINES}/namespaces/{namespace}/virtualmachines");
        admin.post(&machines, &machine("password: hush")).ok();
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let refused = guest.merge(&format!("{MACHINES}/namespaces/victim/virtualmachines/vm"), &label);
    assert_has(
        refused.refused(403),
        "cannot patch resource \"virtualmachines\" in API group \"kubevirt.io\" in the namespace \"victim\"",
    );
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "stolen"}, "spec": {"source": {"persistentVolumeClaimName": "disk"}},
    });
    let snapshots = |namespace: &str| format!("{SNAPSHOTS}/namespaces/{namespace}/volumesnapshots");
    assert_has(
        guest.post(&snapshots("victim"), &snapshot).refused(403),
        "cannot create resource \"volumesnapshots\"",
    );
    guest.get(&snapshots("victim")).refused(403);
    let content = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": "stolen"},
        "spec": {"deletionPolicy": "Retain", "driver": "driver.longhorn.io",
            "source": {"snapshotHandle": "snap://pvc-victim/snapshot-1"},
            "volumeSnapshotRef": {"namespace": "team", "name": "stolen"}},
    });
    assert_has(
        guest.post(&format!("{SNAPSHOTS}/volumesnapshotcontents"), &content).refused(403),
        "cannot create resource \"volumesnapshotcontents\"",
    );

    // In its own namespace it does what its drivers need.
    guest.merge(&format!("{MACHINES}/namespaces/team/virtualmachines/vm"), &label).ok();
    guest.get(&snapshots("team")).ok();
    guest.get(&format!("{SNAPSHOTS}/volumesnapshotclasses")).ok();
}
