//! Claims on the small server.

use hci::guest_network::{LOCATION, NETWORK};

use super::*;
use crate::fake::Fake;

const INSTANCES: &str = "kubevirt.io/virtualmachineinstances";
const MACHINES: &str = "kubevirt.io/virtualmachines";
const CLAIMS: &str = "networking.k8s.io/ipaddresses";

fn node(name: &str, network: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {NETWORK: network}}})
}

fn vmi(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"},
        "spec": {"networks": [{"name": "default", "pod": {}}]}})
}

fn reconciler(fake: &Fake) -> AddressReconciler {
    AddressReconciler::new(fake.client(), KnownHolders::default())
}

#[tokio::test]
async fn racing_controllers_never_give_an_address_twice() {
    let fake = Fake::new();
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    for name in ["one", "two"] {
        fake.create("/nodes", "", node(name, "10.52.0.0/27"));
    }
    let objects = [Objects(fake.client()), Objects(fake.client())];
    // Two leaders place 40 instances on a network with 29 addresses, each instance twice.
    let instances: Vec<_> = (0..40).map(|number| vmi(&format!("v{number}"))).collect();
    let all = instances.iter().flat_map(|vmi| {
        [(&objects[0], "one"), (&objects[1], "two")]
            .map(|(objects, node)| claim(objects, vmi, node))
    });
    for outcome in futures_util::future::join_all(all).await {
        outcome.unwrap();
    }
    assert_eq!(fake.names(CLAIMS).len(), 29, "all but the gateway are given, each once");
    let holders: BTreeSet<_> = fake
        .names(CLAIMS)
        .iter()
        .filter_map(|name| AddressClaim::read(&fake.get(CLAIMS, "", name)?))
        .map(|claim| claim.holder)
        .collect();
    assert!(holders.iter().all(|holder| matches!(holder, AddressHolder::Instance { .. })));
}

#[tokio::test]
async fn nodes_hold_an_address_while_they_have_guests_on_the_network() {
    let fake = Fake::new();
    let reconciler = reconciler(&fake);
    fake.create("/nodes", "", node("one", "10.52.0.0/24"));
    let key = AddressKey::Node("one".into());
    let reconcile = || reconciler.reconcile(&key);
    reconcile().await.unwrap();
    reconcile().await.unwrap();
    assert_eq!(fake.names(CLAIMS).len(), 1);
    let moved = json!({"metadata": {"annotations": {NETWORK: "10.60.0.0/24"}}});
    fake.merge("/nodes", "", "one", &moved);
    reconcile().await.unwrap();
    let names = fake.names(CLAIMS);
    assert!(names.len() == 1 && names[0].starts_with("10.60.0."), "{names:?}");
    fake.delete("/nodes", "", "one", "Background");
    reconcile().await.unwrap();
    assert!(fake.names(CLAIMS).is_empty());
}

#[tokio::test]
async fn a_claim_follows_its_guest_and_is_made_again_when_a_user_deletes_it() {
    let fake = Fake::new();
    let reconciler = reconciler(&fake);
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    fake.create("/nodes", "", node("one", "10.52.0.0/24"));
    fake.create(MACHINES, "n", json!({"metadata": {"name": "a"}}));
    let mut instance = vmi("a");
    instance["metadata"]["ownerReferences"] =
        json!([{"kind": "VirtualMachine", "name": "a", "controller": true}]);
    claim(&reconciler.objects, &instance, "one").await.unwrap();
    let address = fake.names(CLAIMS).remove(0);
    instance["status"] = json!({"phase": "Running", "nodeName": "one",
        "interfaces": [{"name": "default", "ipAddress": address}]});
    fake.create(INSTANCES, "n", instance);
    let key = || AddressKey::Guest(ObjectKey::new("n", "a"));
    reconciler.reconcile(&key()).await.unwrap();
    let notes = |name: &str| fake.get(CLAIMS, "", name).unwrap()["metadata"]["annotations"].clone();
    assert_eq!(notes(&address)[LOCATION], "one");

    fake.delete(CLAIMS, "", &address, "Background");
    assert_eq!(reconciler.holders.forget(&address), Some(key()));
    reconciler.reconcile(&key()).await.unwrap();
    assert_eq!(fake.names(CLAIMS), std::slice::from_ref(&address));

    fake.delete(INSTANCES, "n", "a", "Background");
    reconciler.reconcile(&key()).await.unwrap();
    assert_eq!(fake.names(CLAIMS), std::slice::from_ref(&address), "it is the machine's");
    fake.delete(MACHINES, "n", "a", "Background");
    reconciler.reconcile(&AddressKey::Everything).await.unwrap();
    assert!(!fake.names(CLAIMS).contains(&address), "only the node has one");
    assert_eq!(fake.names(CLAIMS).len(), 1);
}
