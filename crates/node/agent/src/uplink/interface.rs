//! Interfaces that HostNetworkConfigs request of this node, and what it reports of them. Pure.

use std::collections::BTreeMap;

use hci::harvester::Condition;
use hci::harvester::network::{HostNetworkConfig, HostNetworkNodeStatus};
use hci::host_network::{APPLIED, ChangePolicy};
use hci::network::{bridge_of, host_interface_of, selects_host};
use ipnet::IpNet;
use net::{
    AddressOrigin, DhcpInterface, HostInterface, HostLeases, HostRecord, LinkName, ObservedLinks,
    PingTarget, VlanId,
};
use serde_json::{Value, json};

use super::invalid::HostNetworkRequestError;

/// No more nodes than this are pinged on an interface.
const MOST_PEERS: usize = 16;

/// The interface that a HostNetworkConfig requests of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedInterface {
    pub(super) config: String,
    pub(super) cluster_network: String,
    pub(super) vlan: i32,
    pub(super) mode: String,
    pub(super) generation: i64,
    pub(super) revision: String,
    pub(super) policy: ChangePolicy,
    /// The interface, or why there cannot be one.
    pub(super) interface: Result<HostInterface, HostNetworkRequestError>,
    /// Other nodes that have an address in the same subnet.
    pub(super) peers: Vec<PingTarget>,
    /// A node that rolled this generation back.
    pub(super) rolled_back_on: Option<String>,
}

impl WantedInterface {
    pub(super) fn bridge(&self) -> Option<LinkName> {
        bridge_of(&self.cluster_network).parse().ok()
    }
}

/// Addresses that DHCP servers have given this node.
pub(super) struct Leased<'a> {
    pub(super) leases: &'a HostLeases,
    pub(super) record: &'a HostRecord,
}

impl Leased<'_> {
    /// Those of an interface: until its client knows more, the ones that are recorded.
    fn of(&self, bridge: &LinkName, link: &LinkName) -> Vec<IpNet> {
        if let Some(lease) = self.leases.get(link) {
            return lease.iter().map(|lease| IpNet::V4(lease.address)).collect();
        }
        let units = self.record.active();
        let interfaces = units.get(bridge).map(|unit| unit.interfaces.as_slice());
        let mut known = interfaces.unwrap_or_default().iter();
        let own = known.find(|own| own.link == *link && own.origin == AddressOrigin::Dhcp);
        own.map(|own| own.addresses.clone()).unwrap_or_default()
    }
}

/// Interfaces that are to ask DHCP servers: those that exist.
pub(super) fn dhcp_interfaces(
    record: &HostRecord,
    links: &ObservedLinks,
) -> BTreeMap<LinkName, DhcpInterface> {
    let units = record.active();
    let all = units.values().flat_map(|unit| &unit.interfaces);
    let asking = all.filter(|own| own.origin == AddressOrigin::Dhcp);
    asking
        .filter_map(|own| {
            let mac = links.get(&own.link)?.mac?;
            let earlier = own.addresses.iter().find_map(|address| match address {
                IpNet::V4(address) => Some(address.addr()),
                IpNet::V6(_) => None,
            });
            Some((own.link.clone(), DhcpInterface { mac, earlier }))
        })
        .collect()
}

/// Interfaces of a node with these labels.
pub(super) fn wanted<'a>(
    node: &str,
    labels: &BTreeMap<String, String>,
    leased: &Leased<'_>,
    configs: impl IntoIterator<Item = &'a HostNetworkConfig>,
) -> Vec<WantedInterface> {
    let is_live = |config: &&HostNetworkConfig| config.metadata.deletion_timestamp.is_none();
    let own = configs.into_iter().filter(is_live).filter(|config| selects_host(config, labels));
    own.map(|config| {
        let spec = &config.spec;
        let annotations = json!(config.metadata.annotations);
        let policy = ChangePolicy::read(&annotations).unwrap_or_default();
        let uid = config.metadata.uid.clone().unwrap_or_default();
        let generation = config.metadata.generation.unwrap_or_default();
        let interface = interface(node, leased, config);
        let peers = interface.as_ref().map(|own| peers(node, config, own));
        WantedInterface {
            config: config.metadata.name.clone().unwrap_or_default(),
            cluster_network: spec.cluster_network.clone(),
            vlan: spec.vlan_id,
            mode: spec.mode.clone(),
            generation,
            revision: format!("{uid}/{generation}/{}", policy.attempt),
            policy,
            peers: peers.unwrap_or_default(),
            interface,
            rolled_back_on: rolled_back_on(node, config),
        }
    })
    .collect()
}

fn interface(
    node: &str,
    leased: &Leased<'_>,
    config: &HostNetworkConfig,
) -> Result<HostInterface, HostNetworkRequestError> {
    let spec = &config.spec;
    let number = u64::try_from(spec.vlan_id);
    let number = number.map_err(|_| HostNetworkRequestError::NegativeVlan(spec.vlan_id))?;
    let vlan = VlanId::try_from(number)?;
    let name = |text: &str| text.parse::<LinkName>();
    let link = name(&host_interface_of(&spec.cluster_network, spec.vlan_id))?;
    let bridge = name(&bridge_of(&spec.cluster_network))?;
    if spec.mode == "dhcp" {
        let (origin, addresses) = (AddressOrigin::Dhcp, leased.of(&bridge, &link));
        return Ok(HostInterface { link, bridge, vlan, origin, addresses });
    }
    let text =
        spec.ips.get(node).ok_or_else(|| HostNetworkRequestError::NoAddress(node.to_owned()))?;
    let address: IpNet =
        text.parse().map_err(|_| HostNetworkRequestError::Address(text.clone()))?;
    let (origin, addresses) = (AddressOrigin::Static, vec![address]);
    Ok(HostInterface { link, bridge, vlan, origin, addresses })
}

/// The condition of a type in an entry of the status.
fn condition<'a>(entry: &'a HostNetworkNodeStatus, kind: &str) -> Option<&'a Condition> {
    entry.conditions.iter().find(|own| own.r#type == kind)
}

/// Addresses that other nodes have now, in the subnet that this one is to have. Before a change of all
/// addresses reaches them, others are in the old subnet and cannot answer.
fn peers(node: &str, config: &HostNetworkConfig, own: &HostInterface) -> Vec<PingTarget> {
    let status = config.status.as_ref();
    let entries = status.into_iter().flat_map(|status| &status.node_status);
    let is_ready = |entry: &HostNetworkNodeStatus| {
        condition(entry, "ready").is_some_and(|ready| ready.status == "True")
    };
    let others = entries.filter(|(name, entry)| *name != node && is_ready(entry));
    let addresses = others.filter_map(|(_, entry)| entry.address.as_ref()?.parse::<IpNet>().ok());
    let is_near = |other: &IpNet| own.addresses.iter().any(|own| own.contains(&other.addr()));
    let target = |other: IpNet| PingTarget { address: other.addr(), link: Some(own.link.clone()) };
    addresses.filter(is_near).map(target).take(MOST_PEERS).collect()
}

/// Another node that tried the present generation and rolled it back.
fn rolled_back_on(node: &str, config: &HostNetworkConfig) -> Option<String> {
    let status = config.status.as_ref()?;
    let mut others = status.node_status.iter().filter(|(name, entry)| {
        *name != node && entry.observed_generation == config.metadata.generation
    });
    let found = others.find(|(_, entry)| {
        let applied = condition(entry, APPLIED).and_then(|own| own.reason.as_deref());
        applied == Some("RolledBack")
    });
    found.map(|(name, _)| name.clone())
}

/// HostNetworkConfigs with an entry of this node that do not select it any more.
pub(super) fn stale<'a>(
    node: &str,
    wanted: &[WantedInterface],
    configs: impl IntoIterator<Item = &'a HostNetworkConfig>,
) -> Vec<String> {
    let has_entry = |config: &&HostNetworkConfig| {
        config.status.as_ref().is_some_and(|status| status.node_status.contains_key(node))
    };
    let names = configs.into_iter().filter(has_entry).filter_map(|own| own.metadata.name.clone());
    names.filter(|name| !wanted.iter().any(|own| own.config == *name)).collect()
}

/// The entry of this node in the status, without the times of its conditions. `links` are those that
/// there are: the address is what the interface has, not what it is to have.
pub(super) fn status(
    wanted: &WantedInterface,
    links: &ObservedLinks,
    problem: Option<&str>,
    applied: (&str, &str, &str),
) -> Value {
    let link = host_interface_of(&wanted.cluster_network, wanted.vlan).parse::<LinkName>();
    let found = link.ok().and_then(|link| links.get(&link));
    // Addresses of single hosts are those of load balancers.
    let is_own = |address: &&IpNet| address.prefix_len() < address.max_prefix_len();
    let address = found.and_then(|link| link.addresses.iter().find(is_own));
    json!({
        "clusterNetwork": wanted.cluster_network,
        "vlanID": wanted.vlan,
        "mode": wanted.mode,
        "address": address.map(ToString::to_string),
        "observedGeneration": wanted.generation,
        "conditions": [
            {
                "type": "ready",
                "status": if problem.is_none() { "True" } else { "False" },
                "message": problem.unwrap_or_default(),
            },
            {
                "type": APPLIED,
                "status": applied.0, "reason": applied.1, "message": applied.2,
            },
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interfaces of a node without leases.
    fn wanted<'a>(
        node: &str,
        labels: &BTreeMap<String, String>,
        configs: impl IntoIterator<Item = &'a HostNetworkConfig>,
    ) -> Vec<WantedInterface> {
        let (leases, record) = (HostLeases::new(), HostRecord::default());
        let leased = Leased { leases: &leases, record: &record };
        super::wanted(node, labels, &leased, configs)
    }

    fn config(mode: &str, selector: Value) -> HostNetworkConfig {
        let entry = |status: &str, address: &str| {
            json!({"address": address, "observedGeneration": 3, "conditions": [
                {"type": "ready", "status": status}]})
        };
        serde_json::from_value(json!({
            "metadata": {"name": "storage", "uid": "u", "generation": 3},
            "spec": {"clusterNetwork": "lan", "vlanID": 100, "mode": mode, "nodeSelector": selector,
                "ips": {"one": "198.51.100.1/24", "two": "198.51.100.2/24", "six": "198.51.100.6/24"}},
            "status": {"nodeStatus": {"two": entry("True", "198.51.100.2/24"),
                "six": entry("False", "198.51.100.6/24"), "old": entry("True", "192.0.2.7/24")}},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_gets_its_own_address_and_knows_those_in_its_subnet() {
        let all = wanted("one", &BTreeMap::new(), [&config("static", Value::Null)]);
        let [own] = all.as_slice() else { panic!("{all:?}") };
        let interface = own.interface.clone().unwrap();
        assert_eq!((interface.link.as_str(), interface.bridge.as_str()), ("lan-br.100", "lan-br"));
        assert_eq!(interface.addresses, ["198.51.100.1/24".parse::<IpNet>().unwrap()]);
        let addresses: Vec<_> = own.peers.iter().map(|peer| peer.address.to_string()).collect();
        assert_eq!((addresses, own.revision.as_str()), (vec!["198.51.100.2".to_owned()], "u/3/"));
        assert_eq!(own.rolled_back_on, None);
    }

    #[test]
    fn a_generation_that_another_node_rolled_back_is_known() {
        let on = |generation: i64, node: &str| {
            let mut object = json!(config("static", Value::Null));
            object["status"]["nodeStatus"]["six"] = json!({"observedGeneration": generation,
                "conditions": [{"type": APPLIED, "status": "False", "reason": "RolledBack"}]});
            let config: HostNetworkConfig = serde_json::from_value(object).unwrap();
            wanted(node, &BTreeMap::new(), [&config])[0].rolled_back_on.clone()
        };
        assert_eq!(on(3, "one").as_deref(), Some("six"));
        assert_eq!(on(3, "six"), None, "its own outcome is in its record");
        assert_eq!(on(2, "one"), None, "an earlier generation");
    }

    #[test]
    fn entries_of_configs_that_select_the_node_no_more_are_stale() {
        let other = config("static", json!({"matchLabels": {"rack": "b"}}));
        let all = wanted("two", &BTreeMap::new(), [&other]);
        assert_eq!(stale("two", &all, [&other]), ["storage"]);
        assert_eq!(stale("one", &all, [&other]), Vec::<String>::new());
        let own = config("static", Value::Null);
        assert!(stale("two", &wanted("two", &BTreeMap::new(), [&own]), [&own]).is_empty());
    }

    #[test]
    fn unavailable_addresses_are_reported() {
        let labels = BTreeMap::from([("rack".to_owned(), "a".to_owned())]);
        let selector = json!({"matchLabels": {"rack": "b"}});
        assert_eq!(wanted("one", &labels, [&config("static", selector)]), []);
        let why = |node: &str, mode: &str| {
            let all = wanted(node, &labels, [&config(mode, Value::Null)]);
            all[0].interface.clone().unwrap_err()
        };
        assert_eq!(why("nine", "static"), HostNetworkRequestError::NoAddress("nine".to_owned()));
        assert!(wanted("nine", &labels, [&config("dhcp", Value::Null)])[0].interface.is_ok());
        let all = wanted("one", &labels, [&config("dhcp", Value::Null)]);
        let none = ObservedLinks::new();
        let status = status(&all[0], &none, Some("no"), ("False", "RolledBack", "x"));
        assert_eq!(status["conditions"][0]["message"], "no");
        assert_eq!(status["conditions"][1]["reason"], "RolledBack");
        assert_eq!((&status["address"], &status["observedGeneration"]), (&Value::Null, &json!(3)));
    }

    #[test]
    fn addresses_of_dhcp_servers_are_those_of_the_lease_or_of_the_record() {
        let config = config("dhcp", Value::Null);
        let of = |leases: &HostLeases, record: &HostRecord| {
            let leased = Leased { leases, record };
            let all = super::wanted("one", &BTreeMap::new(), &leased, [&config]);
            let interface = all[0].interface.clone().unwrap();
            assert_eq!(interface.origin, AddressOrigin::Dhcp);
            (interface.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), interface)
        };
        let (none, mut interface) = of(&HostLeases::new(), &HostRecord::default());
        assert_eq!(none, Vec::<String>::new());
        interface.addresses = vec!["198.51.100.9/24".parse().unwrap()];
        let (link, bridge) = (interface.link.clone(), interface.bridge.clone());
        let unit = net::HostUnit { interfaces: vec![interface], ..Default::default() };
        let mut record = HostRecord::default();
        record.adopt(net::HostChange { bridge, unit: Some(unit) });
        assert_eq!(of(&HostLeases::new(), &record).0, ["198.51.100.9/24"]);
        assert_eq!(of(&HostLeases::from([(link.clone(), None)]), &record).0, none);
        let lease = net::HostLease {
            address: "198.51.100.7/24".parse().unwrap(),
            server: [198, 51, 100, 1].into(),
            seconds: 600,
        };
        let leases = HostLeases::from([(link, Some(lease))]);
        assert_eq!(of(&leases, &record).0, ["198.51.100.7/24"]);
        assert_eq!(dhcp_interfaces(&record, &ObservedLinks::new()), BTreeMap::new());
    }
}
