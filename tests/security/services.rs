//! Addresses of others.

use serde_json::{Value, json};

use super::{bind, role, tenant};
use crate::harness::{Sheaf, assert_has};

const TEAM_SERVICES: &str = "/api/v1/namespaces/team/services";
const TEAM_INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/team/virtualmachineinstances";

fn service(name: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": "mine"}, "externalIPs": addresses,
            "ports": [{"port": 6443, "targetPort": 8443}]},
    })
}

/// Every node would send connections to these addresses to the tenant's guests.
#[test]
fn a_service_takes_no_address_that_was_not_given_to_it() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    let refusal = "user mallory cannot create services/externalips in namespace team";
    for address in ["10.0.0.7", "10.53.0.1", "192.0.2.7"] {
        let refused = mallory.post(TEAM_SERVICES, &service("mine", &[address]));
        assert_has(refused.refused(403), refusal);
    }
    mallory.post(TEAM_SERVICES, &service("mine", &[])).ok();
    let patch = json!({"spec": {"externalIPs": ["192.0.2.7"]}});
    let own = format!("{TEAM_SERVICES}/mine");
    assert_has(mallory.merge(&own, &patch).refused(403), refusal);

    // An administrator gives one; the tenant edits the rest.
    admin.merge(&own, &patch).ok();
    mallory.merge(&own, &json!({"metadata": {"labels": {"a": "b"}}})).ok();
    let rule = json!({
        "apiGroups": [""], "resources": ["services/externalips"], "verbs": ["create"],
    });
    role(&admin, "team", "addresses", rule);
    bind(&admin, "team", "Role/addresses", "User", "mallory");
    mallory.post(TEAM_SERVICES, &service("other", &["192.0.2.8"])).ok();
}

/// Addresses in the status become endpoints of services, and `nodeName` is where it runs.
#[test]
fn the_status_of_a_new_instance_is_not_its_writers() {
    let sheaf = Sheaf::start();
    let mallory = tenant(&sheaf);
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vmi"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}},
            "nodeSelector": {"none": "such"}},
        "status": {"nodeName": "elsewhere",
            "interfaces": [{"ipAddress": "10.0.0.5", "ipAddresses": ["10.0.0.5"]}]},
    });
    let made = mallory.post(TEAM_INSTANCES, &instance).ok();
    assert_eq!(made["status"]["phase"], "Pending");
    assert!(made["status"]["interfaces"].is_null(), "{made}");
    assert!(made["status"]["nodeName"].is_null(), "{made}");
}
