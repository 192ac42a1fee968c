//! Announcements as tables, and against nodes that stall, with messages that are late.

mod simulation;

use std::time::Duration;

use hci::announcement::{AnnouncementLease, HANDOVER};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::plan::{AnnouncementChange, AnnouncementState, plan};
use crate::object::text;

const ADDRESS: &str = "10.0.0.10";
const LEASE: &str = "announce-10.0.0.10";

fn node(name: &str, ready: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"node.sheaf.io/subnets": "10.0.0.0/24"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

/// A cluster with one load balancer, whose address is held by `holder`, if any node has its lease.
fn cluster(nodes: &[&str], lease: Option<(&str, &str)>) -> AnnouncementState {
    let leases = lease.map(|(holder, renewed)| {
        let address = ADDRESS.parse().unwrap();
        let mut lease = AnnouncementLease::object(address, holder, "t");
        lease["metadata"]["resourceVersion"] = json!("5");
        lease["spec"]["renewTime"] = json!(renewed);
        lease
    });
    AnnouncementState {
        pools: vec![json!({"metadata": {"name": "p"},
            "status": {"allocated": {ADDRESS: "default/lb"}}})],
        balancers: vec![json!({"metadata": {"namespace": "default", "name": "lb"},
            "spec": {"workloadType": "vm"}})],
        services: vec![json!({"metadata": {"namespace": "default", "name": "lb"},
            "spec": {"loadBalancerIP": ADDRESS}, "status": {"loadBalancer": {}}})],
        nodes: nodes.iter().map(|name| node(name, "True")).collect(),
        unchanged: leases.iter().map(|_| (LEASE.to_owned(), Duration::ZERO)).collect(),
        leases: leases.into_iter().collect(),
    }
}

/// The holder that is written, and the node that is to announce.
fn written(state: &AnnouncementState) -> Option<(Value, Value)> {
    let notes = |object: &Value| object["metadata"]["annotations"]["sheaf.io/announce-on"].clone();
    plan(state, Timestamp::UNIX_EPOCH).into_iter().find_map(|change| match change {
        AnnouncementChange::CreateLease(object) => {
            Some((object["spec"]["holderIdentity"].clone(), notes(&object)))
        }
        AnnouncementChange::PatchLease { patch, .. } => {
            assert_eq!(patch["metadata"]["resourceVersion"], "5", "{patch}");
            Some((patch["spec"]["holderIdentity"].clone(), notes(&patch)))
        }
        AnnouncementChange::DeleteLease { .. } | AnnouncementChange::Status { .. } => None,
    })
}

#[test]
fn an_address_moves_when_its_holder_has_stopped() {
    let silent = |mut state: AnnouncementState| {
        state.unchanged.insert(LEASE.into(), HANDOVER);
        state
    };
    let down = |mut state: AnnouncementState| {
        state.nodes.push(node("a", "False"));
        state
    };
    let null = Value::Null;
    for (what, state, expected) in [
        ("no node has it", cluster(&["a", "b"], None), Some((json!("a"), json!("a")))),
        ("the holder renews", cluster(&["a", "b"], Some(("b", "t"))), None),
        (
            "it has been given back",
            cluster(&["a"], Some(("", "t"))),
            Some((json!("a"), json!("a"))),
        ),
        // The holder is asked to give it back first.
        (
            "the holder is not ready",
            cluster(&["b"], Some(("a", "t"))),
            Some((null.clone(), json!("b"))),
        ),
        ("the holder is the last", down(cluster(&[], Some(("a", "t")))), None),
        (
            "the holder is silent",
            silent(cluster(&["a", "b"], Some(("a", "t")))),
            Some((json!("b"), json!("b"))),
        ),
        (
            "the only one is silent",
            silent(cluster(&["a"], Some(("a", "t")))),
            Some((json!("a"), json!("a"))),
        ),
        (
            "silent and none is ready",
            silent(down(cluster(&[], Some(("a", "t"))))),
            Some((null, json!(""))),
        ),
    ] {
        assert_eq!(written(&state), expected, "{what}");
    }
    // The lease was deleted by another client while it was held.
    let mut state = cluster(&["a"], None);
    state.unchanged.insert(LEASE.into(), Duration::from_secs(1));
    assert_eq!(written(&state), None);
}

#[test]
fn many_addresses_are_spread_over_nodes() {
    let mut state = cluster(&["a", "b"], None);
    state.pools[0]["status"]["allocated"] = json!({
        "10.0.0.10": "default/lb", "10.0.0.11": "default/lb", "10.0.0.12": "default/lb",
    });
    let changes = plan(&state, Timestamp::UNIX_EPOCH);
    let holders: Vec<&str> = changes
        .iter()
        .filter_map(|change| match change {
            AnnouncementChange::CreateLease(object) => Some(text(object, "/spec/holderIdentity")),
            _ => None,
        })
        .collect();
    assert_eq!(holders, ["a", "b", "a"]);
}

#[test]
fn a_lease_goes_when_its_address_is_neither_used_nor_announced() {
    for (holder, silence, is_deleted) in
        [("a", Duration::ZERO, false), ("a", HANDOVER, true), ("", Duration::ZERO, true)]
    {
        let mut state = cluster(&["a"], Some((holder, "t")));
        state.balancers.clear();
        state.unchanged.insert(LEASE.into(), silence);
        let changes = plan(&state, Timestamp::UNIX_EPOCH);
        let deleted = matches!(changes[..], [AnnouncementChange::DeleteLease { .. }]);
        assert_eq!(deleted, is_deleted, "{holder} {silence:?}");
        if !is_deleted {
            assert_eq!(written(&state), Some((Value::Null, json!(""))));
        }
    }
    // A guest cluster announces its addresses itself.
    let mut state = cluster(&["a"], None);
    state.balancers[0]["spec"]["workloadType"] = json!("cluster");
    assert_eq!(plan(&state, Timestamp::UNIX_EPOCH), []);
}

#[test]
fn a_service_shows_an_address_that_is_announced() {
    let shown = json!({"loadBalancer": {"ingress": [{"ip": ADDRESS, "ipMode": "VIP"}]}});
    let external = |mut state: AnnouncementState| {
        state.pools[0]["metadata"]["annotations"] = json!({"sheaf.io/announcement": "external"});
        state
    };
    let unready = |mut state: AnnouncementState| {
        state.nodes.push(node("z", "False"));
        state
    };
    let before = |mut state: AnnouncementState| {
        state.services[0]["status"] = shown.clone();
        state
    };
    for (what, state, is_shown, message) in [
        (
            "no node is ready",
            unready(cluster(&[], None)),
            false,
            "no node that is ready has an interface in the subnet of 10.0.0.10",
        ),
        (
            "no node has the subnet",
            cluster(&[], None),
            true,
            "no node has an interface in the subnet of 10.0.0.10: routers have to lead to it",
        ),
        (
            "assigned",
            cluster(&["a"], Some(("a", ""))),
            false,
            "node a has not announced the address yet",
        ),
        ("announced", cluster(&["a"], Some(("a", "t"))), true, "node a announces the address"),
        (
            "taken over",
            before(cluster(&["a"], Some(("a", "")))),
            true,
            "node a has not announced the address yet",
        ),
        (
            "lost",
            before(unready(cluster(&[], Some(("", ""))))),
            false,
            "no node that is ready has an interface in the subnet of 10.0.0.10",
        ),
        (
            "external",
            external(cluster(&[], None)),
            true,
            "routers outside of the cluster lead to the address",
        ),
    ] {
        let changes = plan(&state, Timestamp::UNIX_EPOCH);
        let mut service = state.services[0].clone();
        for change in changes {
            if let AnnouncementChange::Status { patch, .. } = change {
                for (key, value) in patch["status"].as_object().unwrap() {
                    service["status"][key] = value.clone();
                }
            }
        }
        let ip = text(&service, "/status/loadBalancer/ingress/0/ip");
        assert_eq!(ip == ADDRESS, is_shown, "{what}: {service}");
        assert_eq!(text(&service, "/status/conditions/0/message"), message, "{what}");
    }
    // An address that a service requests without a pool is not announced.
    let mut state = cluster(&["a"], None);
    state.pools.clear();
    assert_eq!(plan(&state, Timestamp::UNIX_EPOCH), []);
}
