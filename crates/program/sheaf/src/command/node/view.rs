//! The output of commands about nodes. Pure.

use std::fmt;
use std::fmt::Write as _;

use hci::cluster::{CONTROL_PLANE, MANAGEMENT_ROLE, WITNESS_ROLE};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use crate::command::table;

pub(super) const HEADER: [&str; 8] =
    ["NAME", "ROLE", "STATUS", "ADDRESS", "CPU", "MEMORY", "MACHINES", "REPLICAS"];

/// The machines and replicas placed on a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeLoad {
    /// `namespace/name` of machines that have not ended.
    machines: Vec<String>,
    /// Names of volumes with a replica there.
    volumes: Vec<String>,
}

impl NodeLoad {
    pub(super) fn of(node: &str, machines: &[Value], replicas: &[Value]) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let runs = |vmi: &&Value| {
            let phase = vmi["status"]["phase"].as_str().unwrap_or_default();
            vmi["status"]["nodeName"] == node && !matches!(phase, "Succeeded" | "Failed")
        };
        let name = |vmi: &Value| {
            let meta = &vmi["metadata"];
            format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]))
        };
        let here = |replica: &&Value| replica["spec"]["nodeID"] == node;
        Self {
            machines: machines.iter().filter(runs).map(name).collect(),
            volumes: replicas
                .iter()
                .filter(here)
                .map(|replica| text(&replica["spec"]["volumeName"]))
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.volumes.is_empty()
    }
}

impl fmt::Display for NodeLoad {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (one, several, names) in [
            ("machine", "machines", &self.machines),
            ("replica of a volume", "replicas of volumes", &self.volumes),
        ] {
            let count = names.len();
            let what = if count == 1 { one } else { several };
            if count > 0 {
                parts.push(format!("{count} {what} ({})", names.join(", ")));
            }
        }
        out.write_str(&parts.join(" and "))
    }
}

pub(super) fn is_management(node: &Node) -> bool {
    node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(CONTROL_PLANE))
}

/// Whether a node joined as a management node and does not vote yet.
pub(super) fn is_candidate(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(MANAGEMENT_ROLE)) && !is_management(node)
}

/// Whether a node votes in etcd and does nothing else.
pub(super) fn is_witness(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(WITNESS_ROLE)).is_some_and(|role| role == "true")
}

fn role(node: &Node) -> &'static str {
    match (is_management(node), is_candidate(node)) {
        _ if is_witness(node) => "witness",
        (true, _) => "management",
        (false, true) => "management (waiting)",
        (false, false) => "worker",
    }
}

fn state(node: &Node) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let mut state = match ready.map(|ready| ready.status.as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
    .to_owned();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        state.push_str(",SchedulingDisabled");
    }
    state
}

fn address(node: &Node) -> String {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.into_iter().find(|address| address.type_ == "InternalIP");
    internal.map(|address| address.address.clone()).unwrap_or_default()
}

fn capacity(node: &Node, resource: &str) -> String {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|all| all.get(resource)).map(|it| it.0.clone()).unwrap_or_default()
}

fn memory(node: &Node) -> String {
    let text = capacity(node, "memory");
    let kibibytes = text.strip_suffix("Ki").and_then(|number| number.parse::<i64>().ok());
    kibibytes.map_or(text, |number| table::size(number << 10))
}

pub(super) fn row(node: &Node, load: &NodeLoad) -> Vec<String> {
    vec![
        node.metadata.name.clone().unwrap_or_default(),
        role(node).to_owned(),
        state(node),
        address(node),
        capacity(node, "cpu"),
        memory(node),
        load.machines.len().to_string(),
        load.volumes.len().to_string(),
    ]
}

pub(super) fn description(node: &Node, load: &NodeLoad) -> String {
    let mut text = String::new();
    let values = row(node, load);
    for (title, value) in HEADER.iter().zip(&values) {
        let _ = writeln!(text, "{:<10} {}", title.to_lowercase(), value);
    }
    for condition in node.status.iter().flat_map(|status| status.conditions.iter().flatten()) {
        let message = condition.message.as_deref().unwrap_or_default();
        let _ = writeln!(text, "condition  {}={}: {message}", condition.type_, condition.status);
    }
    for (key, value) in node.metadata.labels.iter().flatten() {
        if !key.contains("node.kubevirt.io/") {
            let _ = writeln!(text, "label      {key}={value}");
        }
    }
    for (title, names) in [("machine", &load.machines), ("replica of", &load.volumes)] {
        for name in names {
            let _ = writeln!(text, "{title:<10} {name}");
        }
    }
    text
}

pub(super) fn status(nodes: &[Node], machines: &[Value], volumes: &[Value]) -> String {
    let ready = nodes.iter().filter(|node| state(node).starts_with("Ready")).count();
    let names = |is_one: fn(&Node) -> bool| -> Vec<String> {
        let own = nodes.iter().filter(|node| is_one(node));
        own.filter_map(|node| node.metadata.name.clone()).collect()
    };
    let (management, witness) = (names(is_management), names(is_witness));
    let phase = |wanted: &str| {
        machines.iter().filter(|machine| machine["status"]["phase"] == wanted).count()
    };
    let robustness = |wanted: &str| {
        volumes.iter().filter(|volume| volume["status"]["robustness"] == wanted).count()
    };
    let mut text = format!(
        "nodes      {ready} of {} ready\nmanagement {}\nmachines   {} running of {}\n\
         volumes    {}, of which {} degraded and {} faulted\n",
        nodes.len(),
        management.join(", "),
        phase("Running"),
        machines.len(),
        volumes.len(),
        robustness("degraded"),
        robustness("faulted"),
    );
    if !witness.is_empty() {
        let _ = writeln!(text, "witness    {}", witness.join(", "));
    }
    for node in nodes.iter().filter(|node| !state(node).starts_with("Ready")) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let _ = writeln!(text, "attention  node {name} is {}", state(node));
    }
    text
}

/// The line about the virtual address of the API, by its lease; nothing if it was never used.
pub(super) fn virtual_address(lease: &Value) -> Option<String> {
    let address = lease["metadata"]["annotations"][hci::announcement::ADDRESS].as_str()?;
    Some(match lease["spec"]["holderIdentity"].as_str().unwrap_or_default() {
        "" => format!("address    {address}, on no node\n"),
        holder => format!("address    {address}, on {holder}\n"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, ready: &str, labels: &[&str]) -> Node {
        let labels: serde_json::Map<String, Value> =
            labels.iter().map(|label| ((*label).to_owned(), "true".into())).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
                "capacity": {"cpu": "4", "memory": "4194304Ki"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_node_is_shown_with_what_is_on_it() {
        let vmi = |name: &str, node: &str, phase: &str| {
            json!({"metadata": {"namespace": "d", "name": name},
                "status": {"nodeName": node, "phase": phase}})
        };
        let machines =
            [vmi("a", "n2", "Running"), vmi("b", "n2", "Succeeded"), vmi("c", "n1", "Running")];
        let replicas = [json!({"spec": {"nodeID": "n2", "volumeName": "v"}})];
        let load = NodeLoad::of("n2", &machines, &replicas);
        assert_eq!(load.to_string(), "1 machine (d/a) and 1 replica of a volume (v)");
        assert!(NodeLoad::of("n3", &machines, &replicas).is_empty());
        let row = row(&node("n2", "True", &[]), &load);
        assert_eq!(role(&node("n2", "True", &[MANAGEMENT_ROLE])), "management (waiting)");
        assert_eq!(role(&node("n2", "True", &[MANAGEMENT_ROLE, CONTROL_PLANE])), "management");
        assert_eq!(role(&node("x1", "True", &[WITNESS_ROLE])), "witness");
        assert_eq!(row, ["n2", "worker", "Ready", "10.0.0.2", "4", "4 GiB", "1", "1"]);
    }

    #[test]
    fn the_virtual_address_is_shown_with_its_node() {
        let lease = |holder: &str| {
            json!({"metadata": {"annotations": {"sheaf.io/address": "10.0.0.10"}},
                "spec": {"holderIdentity": holder}})
        };
        let shown = virtual_address(&lease("n1"));
        assert_eq!(shown.as_deref(), Some("address    10.0.0.10, on n1\n"));
        let shown = virtual_address(&lease(""));
        assert_eq!(shown.as_deref(), Some("address    10.0.0.10, on no node\n"));
        assert_eq!(virtual_address(&json!({})), None);
    }

    #[test]
    fn the_state_of_a_cluster_names_what_needs_attention() {
        let nodes = [
            node("n1", "True", &[CONTROL_PLANE]),
            node("n2", "Unknown", &[]),
            node("x1", "True", &[WITNESS_ROLE]),
        ];
        let volumes = [json!({"status": {"robustness": "degraded"}})];
        let text = status(&nodes, &[], &volumes);
        for part in [
            "2 of 3 ready",
            "management n1\n",
            "witness    x1\n",
            "1 degraded",
            "node n2 is Unknown",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
