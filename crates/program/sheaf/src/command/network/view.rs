//! The output of `sheaf network list` and `show`, and the object that `sheaf network create` writes.
//! Pure.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use hci::network::{NetworkConfig, bridge_of, network_of, node_label};
use serde_json::{Value, json};

use crate::cli::{NetworkTypeArg, NewNetworkArgs};
use crate::command::table;

pub(super) const HEADER: [&str; 7] =
    ["NAME", "TYPE", "VLAN", "CLUSTER NETWORK", "MTU", "NODES", "MACHINES"];
/// The label of a network with its type.
const TYPE: &str = hci::network::TYPE_KEY;

/// A network with its nodes and machines.
pub(super) struct NetworkView<'a> {
    namespace: &'a str,
    name: &'a str,
    config: NetworkConfig,
    kind: String,
    /// Nodes with the bridge of the network, and whether they are ready.
    nodes: Vec<(&'a str, bool)>,
    guests: Vec<GuestInterface<'a>>,
}

/// An interface of a machine that is on the network.
struct GuestInterface<'a> {
    machine: String,
    node: &'a str,
    mac: &'a str,
    addresses: String,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

impl<'a> NetworkView<'a> {
    pub(super) fn new(network: &'a Value, nodes: &'a [Value], instances: &'a [Value]) -> Self {
        let (namespace, name) =
            (text(network, "/metadata/namespace"), text(network, "/metadata/name"));
        let config = NetworkConfig::read(network).unwrap_or_default();
        let label = network_of(&config.bridge).map(node_label).unwrap_or_default();
        let has = |node: &&Value| node["metadata"]["labels"][&label] == "true";
        let is_ready = |node: &Value| {
            list(node, "/status/conditions")
                .any(|own| own["type"] == "Ready" && own["status"] == "True")
        };
        let labelled = text(&network["metadata"]["labels"], &format!("/{}", escaped(TYPE)));
        let kind = match (labelled, config.network_type()) {
            ("", Some(own)) => own.label().to_owned(),
            ("", None) => config.r#type.clone(),
            (labelled, _) => labelled.to_owned(),
        };
        let nodes = nodes.iter().filter(has);
        let guests = instances.iter().flat_map(|vmi| guests(vmi, namespace, name));
        Self {
            namespace,
            name,
            kind,
            nodes: nodes.map(|node| (text(node, "/metadata/name"), is_ready(node))).collect(),
            guests: guests.collect(),
            config,
        }
    }

    fn vlans(&self) -> String {
        if self.config.vlan_trunk.is_empty() {
            return if self.config.vlan == 0 {
                String::new()
            } else {
                self.config.vlan.to_string()
            };
        }
        let range = |range: &hci::network::TrunkRange| match (range.min_id, range.max_id, range.id)
        {
            (Some(min), Some(max), _) => format!("{min}-{max}"),
            (_, _, Some(id)) => id.to_string(),
            _ => String::new(),
        };
        self.config.vlan_trunk.iter().map(range).collect::<Vec<_>>().join(",")
    }

    fn cluster_network(&self) -> &str {
        network_of(&self.config.bridge).unwrap_or_default()
    }

    fn mtu(&self) -> String {
        if self.config.mtu == 0 { String::new() } else { self.config.mtu.to_string() }
    }

    fn ready_nodes(&self) -> String {
        let ready = self.nodes.iter().filter(|(_, ready)| *ready).count();
        format!("{ready}/{} ready", self.nodes.len())
    }

    /// How many machines have an interface on it.
    fn machines(&self) -> usize {
        let names: std::collections::BTreeSet<_> =
            self.guests.iter().map(|guest| guest.machine.as_str()).collect();
        names.len()
    }

    /// Its line of a list; with the namespace where there are several.
    pub(super) fn row(&self, with_namespace: bool) -> Vec<String> {
        let name = if with_namespace {
            format!("{}/{}", self.namespace, self.name)
        } else {
            self.name.to_owned()
        };
        vec![
            name,
            self.kind.clone(),
            self.vlans(),
            self.cluster_network().to_owned(),
            self.mtu(),
            self.ready_nodes(),
            self.machines().to_string(),
        ]
    }

    pub(super) fn description(&self) -> String {
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let mut out = String::new();
        for (key, value) in [
            ("Network", format!("{}/{}", self.namespace, self.name)),
            ("Type", dash(&self.kind)),
            ("VLAN", dash(&self.vlans())),
            ("Cluster network", dash(self.cluster_network())),
            ("Bridge", dash(&self.config.bridge)),
            ("MTU", dash(&self.mtu())),
        ] {
            let _ = writeln!(out, "{key:<17}{value}");
        }
        let state = |(name, ready): &(&str, bool)| {
            if *ready { (*name).to_owned() } else { format!("{name} (not ready)") }
        };
        let nodes: Vec<String> = self.nodes.iter().map(state).collect();
        let _ = writeln!(out, "{:<17}{}", "Nodes", dash(&nodes.join(", ")));
        if self.guests.is_empty() {
            out.push_str("\nNo machine that runs is on it.\n");
            return out;
        }
        let mut rows = vec![["MACHINE", "NODE", "MAC", "ADDRESSES"].map(str::to_owned).to_vec()];
        for guest in &self.guests {
            let GuestInterface { machine, node, mac, addresses } = guest;
            rows.push(vec![
                machine.clone(),
                (*node).to_owned(),
                (*mac).to_owned(),
                addresses.clone(),
            ]);
        }
        let _ = write!(out, "\n{}", table::align(&rows));
        out
    }
}

/// A key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The interfaces of a machine that are on a network.
fn guests<'a>(vmi: &'a Value, namespace: &str, network: &str) -> Vec<GuestInterface<'a>> {
    let own = text(vmi, "/metadata/namespace");
    let is_on = |wanted: &str| match wanted.split_once('/') {
        Some((of, name)) => of == namespace && name == network,
        None => own == namespace && wanted == network,
    };
    let names =
        list(vmi, "/spec/networks").filter(|entry| is_on(text(entry, "/multus/networkName")));
    names
        .map(|entry| {
            let name = text(entry, "/name");
            let shown = list(vmi, "/status/interfaces").find(|own| text(own, "/name") == name);
            let addresses = shown.map(|own| {
                let all: Vec<&str> = list(own, "/ipAddresses").filter_map(Value::as_str).collect();
                if all.is_empty() { text(own, "/ipAddress").to_owned() } else { all.join(", ") }
            });
            GuestInterface {
                machine: format!("{own}/{}", text(vmi, "/metadata/name")),
                node: text(vmi, "/status/nodeName"),
                mac: shown.map(|own| text(own, "/mac")).unwrap_or_default(),
                addresses: addresses.unwrap_or_default(),
            }
        })
        .collect()
}

/// The object that a new network becomes.
pub(super) fn definition(wanted: &NewNetworkArgs) -> Result<Value> {
    let given = match (wanted.vlan, wanted.trunk.as_slice()) {
        (Some(_), _) => Some(NetworkTypeArg::Vlan),
        (None, [_, ..]) => Some(NetworkTypeArg::Trunk),
        (None, []) => None,
    };
    let kind = match (wanted.r#type, given) {
        (Some(kind), Some(given)) if kind != given => {
            let (flag, right) = match given {
                NetworkTypeArg::Vlan => ("--vlan", "vlan"),
                NetworkTypeArg::Trunk | NetworkTypeArg::Untagged => ("--trunk", "trunk"),
            };
            bail!("{flag} is for networks of --type {right}");
        }
        (None, None) => bail!("add --vlan ID, --trunk IDS, or --type untagged"),
        (Some(NetworkTypeArg::Vlan), None) => bail!("--type vlan needs --vlan ID"),
        (Some(NetworkTypeArg::Trunk), None) => bail!("--type trunk needs --trunk IDS"),
        (Some(kind), _) | (None, Some(kind)) => kind,
    };
    let mut config = json!({
        "cniVersion": "0.3.1", "name": wanted.name, "type": "bridge",
        "bridge": bridge_of(&wanted.cluster_network), "promiscMode": true, "ipam": {},
    });
    match kind {
        NetworkTypeArg::Vlan => config["vlan"] = json!(wanted.vlan),
        NetworkTypeArg::Untagged => config["vlan"] = json!(0),
        NetworkTypeArg::Trunk => {
            let ranges = wanted.trunk.iter().map(|range| {
                if range.start() == range.end() {
                    json!({"id": range.start()})
                } else {
                    json!({"minID": range.start(), "maxID": range.end()})
                }
            });
            config["vlanTrunk"] = ranges.collect();
        }
    }
    Ok(json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": wanted.name, "namespace": wanted.place.namespace},
        "spec": {"config": config.to_string()},
    }))
}

#[cfg(test)]
mod tests;
