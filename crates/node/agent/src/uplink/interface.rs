//! Interfaces that HostNetworkConfigs request of this node, and what it reports of them. Pure.

use std::collections::BTreeMap;

use hci::harvester::network::HostNetworkConfig;
use hci::host_network::ChangePolicy;
use hci::network::{bridge_of, host_interface_of, selects_host};
use ipnet::IpNet;
use net::{HostInterface, LinkName, PingTarget, VlanId};
use serde_json::{Value, json};

/// The interface that a HostNetworkConfig requests of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedInterface {
    pub(super) config: String,
    pub(super) cluster_network: String,
    pub(super) vlan: i32,
    pub(super) mode: String,
    pub(super) revision: String,
    pub(super) policy: ChangePolicy,
    /// The interface, or why there cannot be one.
    pub(super) interface: Result<HostInterface, String>,
    /// Other nodes that have theirs.
    pub(super) peers: Vec<PingTarget>,
}

impl WantedInterface {
    pub(super) fn bridge(&self) -> Option<LinkName> {
        bridge_of(&self.cluster_network).parse().ok()
    }
}

/// Interfaces of a node with these labels.
pub(super) fn wanted<'a>(
    node: &str,
    labels: &BTreeMap<String, String>,
    configs: impl IntoIterator<Item = &'a HostNetworkConfig>,
) -> Vec<WantedInterface> {
    let is_live = |config: &&HostNetworkConfig| config.metadata.deletion_timestamp.is_none();
    let own = configs.into_iter().filter(is_live).filter(|config| selects_host(config, labels));
    own.map(|config| {
        let spec = &config.spec;
        let annotations = json!(config.metadata.annotations);
        let policy = ChangePolicy::read(&annotations).unwrap_or_default();
        let uid = config.metadata.uid.clone().unwrap_or_default();
        let interface = interface(node, config);
        let peers = interface.as_ref().map(|own| peers(node, config, &own.link));
        WantedInterface {
            config: config.metadata.name.clone().unwrap_or_default(),
            cluster_network: spec.cluster_network.clone(),
            vlan: spec.vlan_id,
            mode: spec.mode.clone(),
            revision: format!(
                "{uid}/{}/{}",
                config.metadata.generation.unwrap_or_default(),
                policy.attempt
            ),
            policy,
            peers: peers.unwrap_or_default(),
            interface,
        }
    })
    .collect()
}

fn interface(node: &str, config: &HostNetworkConfig) -> Result<HostInterface, String> {
    let spec = &config.spec;
    if spec.mode != "static" {
        return Err("this node has no DHCP client for its own interfaces; use mode static".into());
    }
    let number = u64::try_from(spec.vlan_id).map_err(|why| why.to_string())?;
    let vlan = VlanId::try_from(number).map_err(|why| why.to_string())?;
    let name = |text: &str| text.parse::<LinkName>().map_err(|why| why.to_string());
    let address =
        spec.ips.get(node).ok_or_else(|| format!("static IP not found for node {node}"))?;
    let address: IpNet = address.parse().map_err(|why| format!("{address}: {why}"))?;
    Ok(HostInterface {
        link: name(&host_interface_of(&spec.cluster_network, spec.vlan_id))?,
        bridge: name(&bridge_of(&spec.cluster_network))?,
        vlan,
        addresses: vec![address],
    })
}

/// Other nodes that report theirs as ready, on the interface of this one.
fn peers(node: &str, config: &HostNetworkConfig, link: &LinkName) -> Vec<PingTarget> {
    let status = config.status.clone().unwrap_or_default().node_status;
    let is_ready = |name: &String| {
        let conditions = status.get(name).map(|own| own.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|own| own.r#type == "ready" && own.status == "True")
    };
    let others = config.spec.ips.iter().filter(|(name, _)| *name != node && is_ready(name));
    let target = |(_, address): (&String, &String)| match address.parse::<IpNet>().ok()? {
        IpNet::V4(address) => {
            Some(PingTarget { address: address.addr(), link: Some(link.clone()) })
        }
        IpNet::V6(_) => None,
    };
    others.filter_map(target).collect()
}

/// The entry of this node in the status, without the times of its conditions.
pub(super) fn status(
    wanted: &WantedInterface,
    problem: Option<&str>,
    applied: (&str, &str, &str),
) -> Value {
    let message = problem.map(|why| format!("setup l3 connectivity failed: {why}"));
    json!({
        "clusterNetwork": wanted.cluster_network,
        "vlanID": wanted.vlan,
        "mode": wanted.mode,
        "conditions": [
            {
                "type": "ready",
                "status": if problem.is_none() { "True" } else { "False" },
                "message": message.unwrap_or_default(),
            },
            {
                "type": hci::host_network::APPLIED,
                "status": applied.0, "reason": applied.1, "message": applied.2,
            },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(mode: &str, selector: Value) -> HostNetworkConfig {
        let ready = |status: &str| json!({"conditions": [{"type": "ready", "status": status}]});
        serde_json::from_value(json!({
            "metadata": {"name": "storage", "uid": "u", "generation": 3},
            "spec": {"clusterNetwork": "lan", "vlanID": 100, "mode": mode, "nodeSelector": selector,
                "ips": {"one": "198.51.100.1/24", "two": "198.51.100.2/24", "six": "198.51.100.6/24"}},
            "status": {"nodeStatus": {"two": ready("True"), "six": ready("False")}},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_gets_its_own_address_and_knows_those_that_are_ready() {
        let all = wanted("one", &BTreeMap::new(), [&config("static", Value::Null)]);
        let [own] = all.as_slice() else { panic!("{all:?}") };
        let interface = own.interface.clone().unwrap();
        assert_eq!((interface.link.as_str(), interface.bridge.as_str()), ("lan-br.100", "lan-br"));
        assert_eq!(interface.addresses, ["198.51.100.1/24".parse::<IpNet>().unwrap()]);
        let addresses: Vec<_> = own.peers.iter().map(|peer| peer.address.to_string()).collect();
        assert_eq!((addresses, own.revision.as_str()), (vec!["198.51.100.2".to_owned()], "u/3/"));
    }

    #[test]
    fn what_cannot_be_had_is_reported() {
        let labels = BTreeMap::from([("rack".to_owned(), "a".to_owned())]);
        let selector = json!({"matchLabels": {"rack": "b"}});
        assert_eq!(wanted("one", &labels, [&config("static", selector)]), []);
        let why = |node: &str, mode: &str| {
            let all = wanted(node, &labels, [&config(mode, Value::Null)]);
            all[0].interface.clone().unwrap_err()
        };
        assert_eq!(why("nine", "static"), "static IP not found for node nine");
        assert!(why("one", "dhcp").contains("no DHCP client"));
        let all = wanted("one", &labels, [&config("dhcp", Value::Null)]);
        let status = status(&all[0], Some("no"), ("False", "RolledBack", "x"));
        assert_eq!(status["conditions"][0]["message"], "setup l3 connectivity failed: no");
        assert_eq!(status["conditions"][1]["reason"], "RolledBack");
    }
}
