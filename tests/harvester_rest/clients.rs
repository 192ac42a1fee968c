//! The requests of Harvester's own clients: its Terraform provider, its CSI driver and its cloud
//! provider. The programs themselves are in `harvester_clients`, which takes minutes.

use serde_json::{Value, json};

use super::{PASSWORD, client_of, server};
use crate::harness::{Http, Sheaf, assert_has, eventually};

const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const BALANCERS: &str =
    "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";

#[test]
fn harvesters_clients_find_what_they_need() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    a_machine_takes_its_claims_along(&http);
    the_account_of_a_guest_cluster_has_its_rights(&sheaf, &http);
    a_load_balancer_has_an_address_of_a_pool(&http);
}

/// Terraform and the machine driver name the claims, delete the machine at once, and then delete
/// what the claims were made of.
fn a_machine_takes_its_claims_along(http: &Http) {
    let claim = json!({
        "metadata": {"name": "tf-root"},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "tf", "annotations":
            {"harvesterhci.io/volumeClaimTemplates": json!([claim]).to_string()}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"resources": {"limits": {"memory": "256Mi", "cpu": "1"}},
                "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "tf-root"}}]}}},
    });
    http.post(MACHINES, &machine).ok();
    eventually("the claim is made", || http.get(&format!("{CLAIMS}/tf-root")).status == 200);
    let path = format!("{MACHINES}/tf");
    eventually("the machine is marked", || {
        let mut machine = http.get(&path).ok();
        machine["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] =
            "tf-root".into();
        http.put(&path, &machine).status == 200
    });
    http.delete_with(&path, &json!({"propagationPolicy": "Foreground"})).ok();
    eventually("the machine is gone", || http.get(&path).status == 404);
    assert_eq!(http.get(&format!("{CLAIMS}/tf-root")).status, 404);
}

/// The kubeconfig of the cloud provider and the CSI driver.
fn the_account_of_a_guest_cluster_has_its_rights(sheaf: &Sheaf, http: &Http) {
    let asked = json!({"namespace": "default", "serviceAccountName": "guest"});
    let config = http.post("/v1/harvester/kubeconfig", &asked).ok();
    let file = sheaf.scratch("guest.kubeconfig");
    std::fs::write(&file, config.as_str().unwrap()).unwrap();
    let guest = Http::from_kubeconfig(&file);
    let settings = "/apis/harvesterhci.io/v1beta1/settings";
    for (path, status) in [
        (format!("{settings}/server-version"), 200),
        (format!("{settings}/csi-driver-config"), 200),
        (format!("{settings}/csi-online-expand-validation"), 200),
        (format!("{settings}/backup-target"), 403),
        (CLAIMS.to_owned(), 200),
        (MACHINES.to_owned(), 200),
        (BALANCERS.to_owned(), 200),
        ("/apis/storage.k8s.io/v1/volumeattachments".to_owned(), 200),
        ("/api/v1/namespaces/kube-system/persistentvolumeclaims".to_owned(), 403),
        ("/api/v1/namespaces/default/secrets".to_owned(), 403),
    ] {
        let reply = guest.get(&path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
    }
}

fn a_load_balancer_has_an_address_of_a_pool(http: &Http) {
    let pool = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": "services"},
        "spec": {
            "ranges": [{"rangeStart": "192.0.2.10", "rangeEnd": "192.0.2.20",
                "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}],
            "selector": {"priority": 100, "scope": [{"namespace": "default"}]},
        },
    });
    http.post(POOLS, &pool).ok();
    let balancer = |port: u32| {
        json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "metadata": {"name": "web"},
            "spec": {"listeners": [{"name": "http", "port": port, "protocol": "TCP",
                "backendPort": 8080}], "backendServerSelector": {"app": ["web"]}},
        })
    };
    let refusal = http.post(BALANCERS, &balancer(0)).refused(422);
    assert_has(&refusal, "listener port 0 must >= 1");
    http.post(BALANCERS, &balancer(80)).ok();
    let path = format!("{BALANCERS}/web");
    let address = |path: &str| http.get(path).ok()["status"]["address"].clone();
    eventually("the load balancer has an address", || address(&path) == "192.0.2.10");
    let shown = http.get(&path).ok();
    assert_eq!(shown["status"]["allocatedAddress"]["ipPool"], "services");
    assert_eq!(shown["spec"]["workloadType"], "vm");
    let services = "/api/v1/namespaces/default/services/web";
    eventually("the service shows the address", || {
        let service = http.get(services).json();
        service["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.10"
    });
    let pool = format!("{POOLS}/services");
    assert_has(http.delete(&pool).refused(422), "before releasing all the allocated IP");
    http.delete(&path).ok();
    eventually("the address is free", || {
        let pool: Value = http.get(&pool).ok();
        pool["status"]["available"] == 11
    });
    http.delete(&pool).ok();
}
