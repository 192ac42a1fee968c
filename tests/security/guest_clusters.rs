//! The credentials of a guest cluster's cloud provider and CSI driver, in the hands of its owner.

use std::fs;

use serde_json::{Value, json};

use super::tenant;
use crate::harness::{Http, Sheaf, assert_has, eventually};

const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1";
const MACHINES: &str = "/apis/kubevirt.io/v1";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1";
const PROJECT: &str = "loadbalancer.harvesterhci.io/project";

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

fn pool(name: &str, project: &str, net: u8) -> Value {
    json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": name},
        "spec": {
            "ranges": [{"rangeStart": format!("192.0.{net}.10"), "rangeEnd": format!("192.0.{net}.20"),
                "subnet": format!("192.0.{net}.0/24")}],
            "selector": {"scope": [{"project": project, "namespace": "*", "guestCluster": "*"}]},
        },
    })
}

/// The annotations of a load balancer chose its pool, and whoever wrote them.
#[test]
fn a_guest_cluster_takes_no_address_of_another_project() {
    let sheaf = Sheaf::start();
    let (admin, _) = (sheaf.http(), tenant(&sheaf));
    let guest = guest_cluster(&sheaf);
    admin.post(&format!("{BALANCERS}/ippools"), &pool("theirs", "local/p-victim", 2)).ok();
    let own = format!("{BALANCERS}/namespaces/team/loadbalancers");
    let message = |name: &str| {
        let path = format!("{own}/{name}");
        eventually("the load balancer is judged", || {
            guest.get(&path).ok()["status"]["conditions"][0]["message"].is_string()
        });
        let balancer = guest.get(&path).ok();
        assert!(balancer["status"]["allocatedAddress"].is_null(), "{balancer}");
        balancer["status"]["conditions"][0]["message"].as_str().unwrap().to_owned()
    };
    for (name, annotations, pool, expected) in [
        ("named", json!({}), "theirs", "IPPool theirs is not for namespace team"),
        ("claimed", json!({PROJECT: "local/p-victim"}), "", "no matched IPPool"),
        ("any", json!({PROJECT: "*"}), "", "no matched IPPool"),
        ("both", json!({PROJECT: "local/p-victim"}), "theirs", "is not for namespace team"),
    ] {
        let balancer = json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"ipPool": pool, "backendServerSelector": {"app": ["web"]},
                "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 80}]},
        });
        guest.post(&own, &balancer).ok();
        assert_has(message(name), expected);
    }

    // A namespace of the project uses its pool.
    let project =
        json!({"metadata": {"annotations": {"field.cattle.io/projectId": "local:p-team"}}});
    admin.merge("/api/v1/namespaces/team", &project).ok();
    admin.post(&format!("{BALANCERS}/ippools"), &pool("ours", "local/p-team", 3)).ok();
    let balancer = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": "ours"},
        "spec": {"ipPool": "ours", "backendServerSelector": {"app": ["web"]},
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 80}]},
    });
    guest.post(&own, &balancer).ok();
    eventually("it has an address", || {
        guest.get(&format!("{own}/ours")).ok()["status"]["allocatedAddress"]["ip"] == "192.0.3.10"
    });
}
