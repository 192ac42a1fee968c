//! The LinkMonitors to create, and the nodes that they no longer report. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hci::link_monitor::{card_monitor, network_monitor};
use hci::network::{GROUP, VERSION};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::condition;
use crate::object::{is_deleting, name, read, uid};
use crate::record::fields;

fields! {
    struct MonitorFields<'a> {
        status: MonitorStatus<'a>,
    }

    struct MonitorStatus<'a> {
        link_status: BTreeMap<&'a str, IgnoredAny>,
    }
}

#[derive(Debug, Default)]
pub(super) struct MonitorState {
    pub(super) cluster_networks: Vec<Value>,
    pub(super) monitors: Vec<Value>,
    pub(super) nodes: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum MonitorChange {
    Create(Value),
    /// Removes the links of nodes that are gone.
    Forget {
        name: String,
        patch: Value,
    },
}

/// Every cluster has a LinkMonitor for network cards and one for each cluster network that is ready;
/// the latter is removed with its network.
pub(super) fn plan(state: &MonitorState) -> Vec<MonitorChange> {
    let is_ready =
        |network: &&Value| condition::is(network, "ready", "True") && !is_deleting(network);
    let networks = state.cluster_networks.iter().filter(is_ready).map(|network| {
        let mut monitor = network_monitor(name(network));
        monitor["metadata"]["ownerReferences"] = json!([{
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ClusterNetwork",
            "name": name(network), "uid": uid(network),
        }]);
        monitor
    });
    let exists = |wanted: &Value| state.monitors.iter().any(|own| name(own) == name(wanted));
    let wanted = std::iter::once(card_monitor()).chain(networks);
    let missing = wanted.filter(|monitor| !exists(monitor)).map(MonitorChange::Create);
    missing.chain(state.monitors.iter().filter_map(|monitor| forget(monitor, state))).collect()
}

fn forget(monitor: &Value, state: &MonitorState) -> Option<MonitorChange> {
    let reported = read::<MonitorFields<'_>>(monitor).status.link_status.into_keys();
    let gone = reported.filter(|node| !state.nodes.contains(*node));
    let gone: Map<String, Value> = gone.map(|node| (node.to_owned(), Value::Null)).collect();
    let patch = json!({"status": {"linkStatus": gone.clone()}});
    (!gone.is_empty()).then(|| MonitorChange::Forget { name: name(monitor).to_owned(), patch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_follow_networks_and_nodes() {
        let network = |name: &str, ready: &str| {
            json!({"metadata": {"name": name, "uid": format!("u-{name}")},
                "status": {"conditions": [{"type": "ready", "status": ready}]}})
        };
        let mut state = MonitorState {
            cluster_networks: vec![network("mgmt", "True"), network("lan", "False")],
            nodes: BTreeSet::from(["one".to_owned()]),
            ..MonitorState::default()
        };
        let created = |changes: &[MonitorChange]| -> Vec<String> {
            let name = |change: &MonitorChange| match change {
                MonitorChange::Create(object) => Some(name(object).to_owned()),
                MonitorChange::Forget { .. } => None,
            };
            changes.iter().filter_map(name).collect()
        };
        assert_eq!(created(&plan(&state)), ["nic", "mgmt"]);
        state.cluster_networks[1] = network("lan", "True");
        state.monitors = vec![
            json!({"metadata": {"name": "nic"},
                "status": {"linkStatus": {"one": [], "two": [{"name": "eth0"}]}}}),
            json!({"metadata": {"name": "mgmt"}}),
        ];
        let changes = plan(&state);
        assert_eq!(created(&changes), ["lan"]);
        let MonitorChange::Create(made) = &changes[0] else { panic!("{changes:?}") };
        assert_eq!(made["spec"]["targetLinkRule"]["nameRule"], "lan(-br|-bo)");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u-lan");
        let patch = json!({"status": {"linkStatus": {"two": null}}});
        assert_eq!(changes[1], MonitorChange::Forget { name: "nic".into(), patch });
        state.cluster_networks.pop();
        state.nodes.insert("two".to_owned());
        assert_eq!(plan(&state), []);
    }
}
