//! Conditions of HostNetworkConfigs, and entries of nodes that are gone. Pure.

use std::collections::BTreeMap;

use hci::harvester::network::HostNetworkConfig;
use hci::network::selects_host;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::condition::{self, Condition};
use crate::object::{self, is_deleting, is_merged, name, read};
use crate::record::condition::{ConditionFields, of_type};
use crate::record::fields;

fields! {
    struct ConfigFields<'a> {
        spec: ConfigSpec<'a>,
        status: ConfigStatus<'a>,
    }

    struct ConfigSpec<'a> {
        cluster_network: &'a str,
        underlay: bool,
    }

    struct ConfigStatus<'a> {
        node_status: BTreeMap<&'a str, NodeEntry<'a>>,
    }

    /// The report of a node.
    struct NodeEntry<'a> {
        observed_generation: i64,
        conditions: Vec<ConditionFields<'a>>,
    }
}

/// No more nodes than this are named in a message.
const MOST_NAMED: usize = 5;

#[derive(Debug, Default)]
pub(super) struct HostNetworkState {
    pub(super) configs: Vec<Value>,
    pub(super) cluster_networks: Vec<Value>,
    pub(super) nodes: Vec<Value>,
}

/// Patches of statuses, by name.
pub(super) fn plan(state: &HostNetworkState, now: Timestamp) -> Vec<(String, Value)> {
    let live = state.configs.iter().filter(|config| !is_deleting(config));
    live.filter_map(|config| {
        let mut conditions = condition::of(config);
        condition::set(&mut conditions, &ready(config, state), now);
        match underlay(config) {
            Some(own) => condition::set(&mut conditions, &own, now),
            None => condition::remove(&mut conditions, UNDERLAY),
        }
        let mut patch = json!({"status": {"conditions": conditions}});
        let gone = gone(config, state);
        if !gone.is_empty() {
            patch["status"]["nodeStatus"] = gone.into();
        }
        (!is_merged(config, &patch)).then(|| (name(config).to_owned(), patch))
    })
    .collect()
}

/// Entries of nodes that are gone, to be removed.
fn gone(config: &Value, state: &HostNetworkState) -> Map<String, Value> {
    let exists = |node: &str| state.nodes.iter().any(|own| name(own) == node);
    let reported = read::<ConfigFields<'_>>(config).status.node_status.into_keys();
    reported.filter(|node| !exists(node)).map(|node| (node.to_owned(), Value::Null)).collect()
}

fn ready(config: &Value, state: &HostNetworkState) -> Condition {
    const KIND: &str = "ready";
    let network = read::<ConfigFields<'_>>(config).spec.cluster_network;
    let mut networks = state.cluster_networks.iter().filter(|own| name(own) == network);
    if !networks.any(|own| condition::is(own, KIND, "True")) {
        let why = "cluster network is down, global host network status is unready";
        return Condition::new(KIND, "False").because("ClusterNetworkDown", why);
    }
    let selected = selected(config, state);
    if selected.is_empty() {
        let why = "spec.nodeSelector selects no node";
        return Condition::new(KIND, "False").because("NoNode", why);
    }
    let problems: Vec<String> = selected.iter().filter_map(|node| problem(config, node)).collect();
    if problems.is_empty() {
        return Condition::new(KIND, "True");
    }
    let done = selected.len() - problems.len();
    let mut why = format!("{done} of {} nodes are ready; ", selected.len());
    why += &problems[..problems.len().min(MOST_NAMED)].join("; ");
    if problems.len() > MOST_NAMED {
        why += &format!("; and {} more", problems.len() - MOST_NAMED);
    }
    Condition::new(KIND, "False").because("NodesNotReady", why)
}

/// Names of the nodes that are to have the interface.
fn selected<'a>(config: &Value, state: &'a HostNetworkState) -> Vec<&'a str> {
    let Ok(config) = serde_json::from_value::<HostNetworkConfig>(config.clone()) else {
        return Vec::new();
    };
    let labels = |node: &Value| -> BTreeMap<String, String> { read(object::labels(node)) };
    let nodes = state.nodes.iter().filter(|node| selects_host(&config, &labels(node)));
    nodes.map(name).collect()
}

/// Why a node is not ready, with its name.
fn problem(config: &Value, node: &str) -> Option<String> {
    let reports = read::<ConfigFields<'_>>(config).status.node_status;
    let found = reports.get(node).and_then(|own| Some((own, of_type(&own.conditions, "ready")?)));
    let Some((entry, ready)) = found else {
        return Some(format!("{node}: the node has not reported yet"));
    };
    let is_current = entry.observed_generation == object::generation(config);
    match (ready.status, is_current) {
        ("True", true) => None,
        ("True", false) => Some(format!("{node}: the node has not seen the last change yet")),
        _ => Some(format!("{node}: {}", ready.message)),
    }
}

/// The condition that says that a field has no effect.
const UNDERLAY: &str = "underlay";

fn underlay(config: &Value) -> Option<Condition> {
    let why = "overlay networks use the addresses by which nodes reach each other; \
               spec.underlay has no effect";
    read::<ConfigFields<'_>>(config)
        .spec
        .underlay
        .then(|| Condition::new(UNDERLAY, "False").because("NotSupported", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    fn config(underlay: bool, status: Value) -> Value {
        json!({"metadata": {"name": "storage", "generation": 2},
            "spec": {"clusterNetwork": "lan", "vlanID": 100, "mode": "static",
                "ips": {"one": "198.51.100.1/24"}, "underlay": underlay,
                "nodeSelector": {"matchLabels": {"rack": "a"}}},
            "status": status})
    }

    fn entry(generation: i64, status: &str, message: &str) -> Value {
        json!({"observedGeneration": generation,
            "conditions": [{"type": "ready", "status": status, "message": message}]})
    }

    fn state(config: Value, network: &str) -> HostNetworkState {
        let node =
            |name: &str, rack: &str| json!({"metadata": {"name": name, "labels": {"rack": rack}}});
        HostNetworkState {
            configs: vec![config],
            cluster_networks: vec![json!({"metadata": {"name": "lan"},
                "status": {"conditions": [{"type": "ready", "status": network}]}})],
            nodes: vec![node("one", "a"), node("two", "a"), node("three", "b")],
        }
    }

    /// Status and message of the condition.
    fn judged(status: Value, network: &str) -> String {
        let patches = plan(&state(config(false, status), network), Timestamp::UNIX_EPOCH);
        let ready = &patches[0].1["status"]["conditions"][0];
        format!("{} {}", text(ready, "/status"), text(ready, "/message")).trim_end().to_owned()
    }

    #[test]
    fn a_config_is_ready_when_all_nodes_that_it_selects_are() {
        for (status, network, expected) in [
            (
                json!({}),
                "False",
                "False cluster network is down, global host network status is unready",
            ),
            (
                json!({"nodeStatus": {"one": entry(2, "True", ""), "two": entry(2, "True", "")}}),
                "True",
                "True",
            ),
            (
                json!({"nodeStatus": {"one": entry(2, "True", "")}}),
                "True",
                "False 1 of 2 nodes are ready; two: the node has not reported yet",
            ),
            (
                json!({"nodeStatus": {"one": entry(1, "True", ""), "two": entry(2, "False", "no")}}),
                "True",
                "False 0 of 2 nodes are ready; one: the node has not seen the last change yet; two: no",
            ),
        ] {
            assert_eq!(judged(status, network), expected);
        }
    }

    #[test]
    fn entries_of_nodes_that_are_gone_are_removed_and_a_second_reconciliation_changes_nothing() {
        let nodes = json!({"one": entry(2, "True", ""), "two": entry(2, "True", ""),
            "gone": entry(2, "True", "")});
        let mut state = state(config(true, json!({"nodeStatus": nodes})), "True");
        let patches = plan(&state, Timestamp::UNIX_EPOCH);
        let [(name, patch)] = patches.as_slice() else { panic!("{patches:?}") };
        assert_eq!(
            (name.as_str(), &patch["status"]["nodeStatus"]),
            ("storage", &json!({"gone": null}))
        );
        let conditions = &patch["status"]["conditions"];
        assert_eq!(
            (&conditions[1]["type"], &conditions[1]["status"]),
            (&json!("underlay"), &json!("False"))
        );
        state.configs[0]["status"]["conditions"] = conditions.clone();
        state.configs[0]["status"]["nodeStatus"].as_object_mut().unwrap().remove("gone");
        assert_eq!(plan(&state, Timestamp::from_second(9).unwrap()), []);
    }
}
