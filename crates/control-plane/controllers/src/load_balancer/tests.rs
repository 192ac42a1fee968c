//! Load balancers as tables: objects in, changes out.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::BalancerReconciler;
use super::plan::{BalancerChange, BalancerState, ManagedKind, plan};
use crate::fake::Fake;
use crate::key::ObjectKey;
use crate::object::{name, text};
use crate::reconcile::Reconciler as _;

fn pool(name: &str, start: &str, end: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {
            "ranges": [{"subnet": "10.0.0.0/24", "rangeStart": start, "rangeEnd": end}],
            "selector": {"scope": [{"namespace": "default"}]},
        },
    })
}

fn balancer(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}")},
        "spec": {
            "workloadType": "vm", "ipam": "pool",
            "listeners": [{"name": "web", "port": 80, "backendPort": 8080, "protocol": "TCP"}],
            "backendServerSelector": {"app": ["web", "www"]},
        },
    })
}

fn instance(name: &str, app: &str, address: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"app": app}},
        "spec": {"networks": [{"name": "lan", "multus": {"networkName": "lan"}},
            {"name": "other", "multus": {"networkName": "other"}}]},
        "status": {
            "phase": "Running", "nodeName": "one",
            "interfaces": [{"name": "lan", "ipAddress": "fd00::1"},
                {"name": "other", "ipAddress": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut object[key], value);
        }
    }
}

fn objects(state: &mut BalancerState, kind: ManagedKind) -> &mut Vec<Value> {
    match kind {
        ManagedKind::Balancer => &mut state.balancers,
        ManagedKind::Pool => &mut state.pools,
        ManagedKind::Service => &mut state.services,
        ManagedKind::Slice => &mut state.slices,
    }
}

/// Carries out changes until there are none, and lets services have their addresses.
fn settle(state: &mut BalancerState) {
    settle_unannounced(state);
    for service in &mut state.services {
        let address = service["spec"]["loadBalancerIP"].clone();
        service["status"] = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
    }
    settle_unannounced(state);
}

fn settle_unannounced(state: &mut BalancerState) {
    for _ in 0..5 {
        let changes = plan(state, Timestamp::UNIX_EPOCH);
        if changes.is_empty() {
            return;
        }
        for change in changes {
            carry_out(state, change);
        }
    }
    panic!("still changing: {:?}", plan(state, Timestamp::UNIX_EPOCH));
}

fn carry_out(state: &mut BalancerState, change: BalancerChange) {
    match change {
        BalancerChange::Create { kind, object, .. } => objects(state, kind).push(object),
        BalancerChange::Delete { kind, name: gone, .. } => {
            objects(state, kind).retain(|own| name(own) != gone);
        }
        BalancerChange::Patch { kind, name: wanted, patch, .. } => {
            let own = objects(state, kind).iter_mut().find(|own| name(own) == wanted);
            merge(own.unwrap(), &patch);
        }
    }
}

fn ready(object: &Value) -> (&str, &str) {
    (text(object, "/status/conditions/0/status"), text(object, "/status/conditions/0/message"))
}

#[test]
fn a_load_balancer_gets_an_address_and_leads_to_its_machines() {
    let mut state = BalancerState {
        balancers: vec![balancer("lb")],
        pools: vec![pool("p", "10.0.0.10", "10.0.0.11")],
        instances: vec![
            instance("b", "www", "10.52.0.2"),
            instance("a", "web", "10.52.0.1"),
            instance("c", "db", "10.52.0.3"),
        ],
        ..BalancerState::default()
    };
    // The address is the pool's before other clients see it.
    let first = plan(&state, Timestamp::UNIX_EPOCH).into_iter().next();
    assert!(matches!(first, Some(BalancerChange::Patch { kind: ManagedKind::Pool, .. })));
    settle(&mut state);
    let status = &state.balancers[0]["status"];
    assert_eq!(status["address"], "10.0.0.10");
    assert_eq!(
        status["allocatedAddress"],
        json!({"ipPool": "p", "ip": "10.0.0.10", "mask": "255.255.255.0", "gateway": "10.0.0.1"})
    );
    assert_eq!(status["backendServers"], json!(["10.52.0.1", "10.52.0.2"]));
    assert_eq!(ready(&state.balancers[0]), ("True", ""));
    let pool = &state.pools[0]["status"];
    assert_eq!(pool["allocated"], json!({"10.0.0.10": "default/lb"}));
    assert_eq!((&pool["total"], &pool["available"]), (&json!(2), &json!(1)));
    let service = &state.services[0];
    assert_eq!(service["spec"]["externalIPs"], json!(["10.0.0.10"]));
    assert_eq!(text(service, "/status/loadBalancer/ingress/0/ip"), "10.0.0.10");
    let slice = &state.slices[0];
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "lb");
    assert_eq!(slice["ports"], json!([{"name": "web", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slice["endpoints"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_machine_that_reports_an_address_of_the_cluster_is_not_behind_a_load_balancer() {
    let node = json!({
        "metadata": {"name": "one", "annotations": {
            hci::guest_network::NETWORK: "10.52.0.0/24",
            hci::cluster::HOST_ADDRESSES: "203.0.113.1",
        }},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    });
    let lease = json!({"metadata": {"name": hci::cluster::VIP_LEASE,
        "annotations": {hci::announcement::ADDRESS: "192.0.2.9"}}});
    for address in ["192.0.2.1", "203.0.113.1", "192.0.2.9", "10.52.0.2", "127.0.0.1"] {
        let mut state = BalancerState {
            balancers: vec![balancer("lb")],
            pools: vec![pool("p", "10.0.0.10", "10.0.0.11")],
            instances: vec![instance("liar", "web", address)],
            nodes: vec![node.clone()],
            leases: vec![lease.clone()],
            ..BalancerState::default()
        };
        settle(&mut state);
        assert_eq!(state.slices[0]["endpoints"], json!([]), "{address}");
        let message = "running backend servers have no IP";
        assert_eq!(ready(&state.balancers[0]), ("False", message), "{address}");
        state.instances = vec![instance("honest", "web", "198.51.100.7")];
        settle(&mut state);
        assert_eq!(state.balancers[0]["status"]["backendServers"], json!(["198.51.100.7"]));
    }
}

#[test]
fn an_address_is_shown_when_the_service_has_it() {
    let mut state = BalancerState {
        balancers: vec![balancer("lb")],
        pools: vec![pool("p", "10.0.0.10", "10.0.0.11")],
        instances: vec![instance("a", "web", "10.52.0.1")],
        ..BalancerState::default()
    };
    settle_unannounced(&mut state);
    assert_eq!(text(&state.balancers[0], "/status/allocatedAddress/ip"), "10.0.0.10");
    assert_eq!(state.balancers[0]["status"].get("address"), None);
    assert_eq!(ready(&state.balancers[0]), ("False", "service is waiting for external IP"));
    let condition = json!({"type": "Announced", "status": "False", "message": "no node"});
    state.services[0]["status"] = json!({"conditions": [condition]});
    settle_unannounced(&mut state);
    let message = "service is waiting for external IP: no node";
    assert_eq!(ready(&state.balancers[0]), ("False", message));
    settle(&mut state);
    assert_eq!(state.balancers[0]["status"]["address"], "10.0.0.10");
    assert_eq!(ready(&state.balancers[0]), ("True", ""));
}

#[test]
fn machines_that_do_not_answer_the_health_check_are_left_out() {
    let health = |mut instance: Value, port: u16, healthy: bool| {
        let text = json!({"lb": {"port": port, "healthy": healthy}}).to_string();
        instance["metadata"]["annotations"] = json!({"sheaf.io/backend-health": text});
        instance
    };
    let (a, b) = (instance("a", "web", "10.52.0.1"), instance("b", "web", "10.52.0.2"));
    let mut bare = instance("c", "web", "");
    bare["status"]["interfaces"] = json!([]);
    let none = "running backend servers are not probed as healthy total:2, healthy:0";
    for (what, instances, servers, ready_count, message) in [
        ("none run", vec![], json!([]), 0, "no running backend servers"),
        ("no address", vec![bare], json!([]), 0, "running backend servers have no IP"),
        ("not probed", vec![a.clone(), b.clone()], json!([]), 0, none),
        (
            "another port",
            vec![health(a.clone(), 81, true), health(b.clone(), 8080, false)],
            json!([]),
            0,
            none,
        ),
        (
            "one answers",
            vec![health(a, 8080, false), health(b, 8080, true)],
            json!(["10.52.0.2"]),
            1,
            "",
        ),
    ] {
        let mut own = balancer("lb");
        own["spec"]["healthCheck"] = json!({"port": 8080, "successThreshold": 2});
        let mut state = BalancerState {
            balancers: vec![own],
            pools: vec![pool("p", "10.0.0.10", "10.0.0.11")],
            instances,
            ..BalancerState::default()
        };
        settle(&mut state);
        assert_eq!(ready(&state.balancers[0]).1, message, "{what}");
        assert_eq!(state.balancers[0]["status"]["backendServers"], servers, "{what}");
        let endpoints = state.slices[0]["endpoints"].as_array().unwrap();
        let ready = endpoints.iter().filter(|own| own["conditions"]["ready"] == true).count();
        assert_eq!(ready, ready_count, "{what}");
    }
}

#[test]
fn addresses_come_back_and_are_kept_for_those_who_had_them() {
    let mut state = BalancerState {
        balancers: vec![balancer("one"), balancer("two"), balancer("three")],
        pools: vec![pool("p", "10.0.0.10", "10.0.0.11")],
        ..BalancerState::default()
    };
    settle(&mut state);
    let message = "fail to get ip from pool p, error: no available IP";
    assert_eq!(ready(&state.balancers[2]), ("False", message));
    assert_eq!(ready(&state.balancers[0]), ("False", "no running backend servers"));
    // The first goes: the third gets its address.
    state.balancers.remove(0);
    state.services.retain(|service| name(service) != "one");
    state.slices.retain(|slice| name(slice) != "one");
    settle(&mut state);
    assert_eq!(state.balancers[1]["status"]["address"], "10.0.0.10");
    assert_eq!(
        state.pools[0]["status"]["allocated"],
        json!({"10.0.0.10": "default/three", "10.0.0.11": "default/two"})
    );
    // All are deleted: a load balancer that is created again gets its former address.
    state.balancers.clear();
    state.services.clear();
    state.slices.clear();
    settle(&mut state);
    assert_eq!(state.pools[0]["status"]["allocated"], json!({}));
    state.balancers = vec![balancer("two")];
    settle(&mut state);
    assert_eq!(state.balancers[0]["status"]["address"], "10.0.0.11");
}

#[test]
fn a_pool_of_another_namespace_cannot_be_named() {
    let mut foreign = balancer("foreign");
    foreign["metadata"]["namespace"] = json!("tenant");
    foreign["spec"]["ipPool"] = json!("p");
    let pools = vec![pool("p", "10.0.0.10", "10.0.0.20")];
    let mut state = BalancerState { balancers: vec![foreign], pools, ..BalancerState::default() };
    settle(&mut state);
    let message = "IPPool p is not for namespace tenant; see its selector";
    assert_eq!(ready(&state.balancers[0]).1, message);
    assert!(state.services.is_empty());
}

#[test]
fn without_a_pool_the_condition_names_what_is_missing() {
    let mut other = balancer("other");
    other["spec"]["ipPool"] = json!("none");
    let mut dhcp = balancer("dhcp");
    dhcp["spec"]["ipam"] = json!("dhcp");
    let mut state =
        BalancerState { balancers: vec![balancer("lb"), other, dhcp], ..BalancerState::default() };
    settle(&mut state);
    let messages: Vec<&str> = state.balancers.iter().map(|own| ready(own).1).collect();
    assert_eq!(
        messages,
        [
            "no matched IPPool with requirement &{Network: Project: Namespace:default Cluster:}",
            "fail to get allocator none",
            "addresses by DHCP are not supported; use ipam: pool",
        ]
    );
    assert!(state.services.is_empty());
}

#[test]
fn the_cloud_provider_announces_the_address_of_a_cluster_itself() {
    let mut own = balancer("lb");
    own["spec"]["workloadType"] = json!("cluster");
    let mut state = BalancerState {
        balancers: vec![own],
        pools: vec![pool("p", "10.0.0.10", "10.0.0.11")],
        ..BalancerState::default()
    };
    settle(&mut state);
    assert_eq!(text(&state.balancers[0], "/status/allocatedAddress/ip"), "10.0.0.10");
    assert_eq!(ready(&state.balancers[0]), ("True", ""));
    assert_eq!(state.balancers[0]["status"].get("address"), None);
    assert!(state.services.is_empty() && state.slices.is_empty());
    // Fields that the provider writes are kept.
    state.balancers[0]["status"]["address"] = json!("10.0.0.10");
    settle(&mut state);
    assert_eq!(state.balancers[0]["status"]["address"], "10.0.0.10");
}

#[tokio::test]
async fn a_quota_of_one_namespace_stops_no_load_balancer_of_another() {
    for code in [403, 422] {
        let fake = Fake::new();
        let mut shared = pool("shared", "10.0.0.10", "10.0.0.20");
        shared["metadata"] = json!({"name": "shared"});
        shared["spec"]["selector"]["scope"] = json!([{"namespace": "acme"}, {"namespace": "beta"}]);
        fake.create("loadbalancer.harvesterhci.io/ippools", "", shared);
        // The first in order is the one that is refused.
        for namespace in ["acme", "beta"] {
            fake.create("/namespaces", "", json!({"metadata": {"name": namespace}}));
            let mut own = balancer("web");
            own["metadata"] = json!({"name": "web"});
            own["spec"]["ipPool"] = json!("shared");
            fake.create("loadbalancer.harvesterhci.io/loadbalancers", namespace, own);
        }
        fake.refuse_in("/services", "acme", code);
        let reconciler = BalancerReconciler::new(fake.client());
        let ended = reconciler.reconcile(&ObjectKey::new("", "all")).await;
        assert!(ended.is_err(), "the refusal is reported and tried again: {:?}", fake.writes());
        let services = fake.names("/services");
        assert_eq!(services.len(), 1, "{services:?}");
        assert!(fake.get("/services", "beta", &services[0]).is_some(), "{services:?}");
    }
}
