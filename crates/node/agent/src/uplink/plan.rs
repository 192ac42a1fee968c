//! Which uplinks a node has and what it reports of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use hci::harvester::network::VlanConfig;
use hci::host_network::{APPLIED, ChangePolicy, ROLLED_BACK};
use hci::network::{
    CLUSTER_NETWORK_KEY, GROUP, NODE_KEY, NetworkConfig, VERSION, VLAN_CONFIG_KEY, bond_of,
    bridge_of, followed, node_label, status_name, uplink_mtu,
};
use net::{LinkName, Mac, Uplink, UplinkReport, VlanId};
use serde_json::{Map, Value, json};

use super::invalid::HostNetworkRequestError;

/// Default interval of a bond's carrier checks, in milliseconds.
const MIIMON: u32 = 100;

/// The uplink that a VlanConfig requests of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedUplink {
    pub(super) cluster_network: String,
    pub(super) config: String,
    pub(super) config_uid: String,
    /// Names this version of the request.
    pub(super) revision: String,
    pub(super) policy: ChangePolicy,
    /// The uplink, or why there cannot be one.
    pub(super) uplink: Result<Uplink, HostNetworkRequestError>,
}

impl WantedUplink {
    pub(super) fn bridge(&self) -> Option<LinkName> {
        bridge_of(&self.cluster_network).parse().ok()
    }
}

/// Uplinks of a node with these labels; `networks` are those of machines.
pub(super) fn wanted<'a>(
    labels: &BTreeMap<String, String>,
    configs: impl IntoIterator<Item = &'a VlanConfig>,
    networks: &[&NetworkConfig],
) -> Vec<WantedUplink> {
    let followed = followed(configs, labels).into_iter();
    followed
        .map(|(network, config)| {
            let policy = ChangePolicy::read(&json!(config.metadata.annotations));
            let policy = policy.unwrap_or_default();
            let uid = config.metadata.uid.clone().unwrap_or_default();
            let generation = config.metadata.generation.unwrap_or_default();
            WantedUplink {
                cluster_network: network.to_owned(),
                config: config.metadata.name.clone().unwrap_or_default(),
                revision: format!("{uid}/{generation}/{}", policy.attempt),
                config_uid: uid,
                policy,
                uplink: uplink(network, config, networks),
            }
        })
        .collect()
}

fn uplink(
    cluster_network: &str,
    config: &VlanConfig,
    networks: &[&NetworkConfig],
) -> Result<Uplink, HostNetworkRequestError> {
    let link = |name: &str| name.parse::<LinkName>();
    let bridge = bridge_of(cluster_network);
    let own = networks.iter().filter(|network| network.bridge == bridge);
    // One that makes no sense has no machines either.
    let vlans: BTreeSet<u16> = own.filter_map(|network| network.vlans().ok()).flatten().collect();
    let vlan = |number: u16| VlanId::try_from(u64::from(number)).ok();
    let spec = &config.spec.uplink;
    let attributes = spec.link_attributes.as_ref();
    let options = spec.bond_options.clone().unwrap_or_default();
    let mode = options.mode.as_deref().filter(|mode| !mode.is_empty());
    let positive = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok());
    let mac = attributes.and_then(|own| own.hardware_addr.as_deref());
    Ok(Uplink {
        bridge: link(&bridge)?,
        bond: link(&bond_of(cluster_network))?,
        nics: spec.nics.iter().map(|nic| link(nic)).collect::<Result<_, _>>()?,
        mode: mode.unwrap_or("active-backup").parse()?,
        miimon: positive(options.miimon).unwrap_or(MIIMON),
        mtu: u16::try_from(uplink_mtu(config)).map_err(HostNetworkRequestError::Mtu)?,
        mac: mac.filter(|text| !text.is_empty()).map(read_mac).transpose()?,
        tx_queue_len: positive(attributes.and_then(|own| own.tx_q_len)),
        vlans: vlans.into_iter().filter_map(vlan).filter(|own| *own != VlanId::UNTAGGED).collect(),
    })
}

/// An address as Go writes bytes.
fn read_mac(text: &str) -> Result<Mac, HostNetworkRequestError> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
    let mac = bytes.and_then(|bytes| Mac::try_from(bytes.as_slice()).ok());
    mac.ok_or_else(|| HostNetworkRequestError::Mac(text.to_owned()))
}

/// Problems of an uplink, as one text.
pub(super) fn problem(wanted: &WantedUplink, report: &UplinkReport) -> Option<String> {
    match &wanted.uplink {
        Err(why) => Some(why.to_string()),
        Ok(uplink) => report.problems.get(&uplink.bridge).map(|problems| problems.join("; ")),
    }
}

/// The VlanStatus of an uplink, without the times of its conditions. `applied` is the status, reason
/// and message of the condition that says what became of the last change.
pub(super) fn status(
    node: &str,
    wanted: &WantedUplink,
    problem: Option<&str>,
    applied: (&str, &str, &str),
) -> Value {
    let WantedUplink { cluster_network, config, config_uid, revision, .. } = wanted;
    let version = format!("{GROUP}/{VERSION}");
    // Other nodes do not try what failed here.
    let rolled_back = if applied.1 == "RolledBack" { revision.as_str() } else { "" };
    json!({
        "apiVersion": version,
        "kind": "VlanStatus",
        "metadata": {
            "name": status_name(cluster_network, node),
            "labels": {
                CLUSTER_NETWORK_KEY: cluster_network, VLAN_CONFIG_KEY: config, NODE_KEY: node,
            },
            "annotations": {ROLLED_BACK: rolled_back},
            "ownerReferences": [{
                "apiVersion": version, "kind": "VlanConfig", "name": config, "uid": config_uid,
            }],
        },
        "status": {
            "clusterNetwork": cluster_network,
            "vlanConfig": config,
            "linkMonitor": cluster_network,
            "node": node,
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
        },
    })
}

/// The labels of the node that say which cluster networks it has: those to set, and those of
/// networks that it does not have any more, to remove.
pub(super) fn labels(
    current: &BTreeMap<String, String>,
    wanted: &[WantedUplink],
    report: &UplinkReport,
) -> Map<String, Value> {
    // Machines can run where the bridge is, also while a card is missing.
    let has = |wanted: &&WantedUplink| {
        let uplink = wanted.uplink.as_ref();
        uplink.is_ok_and(|uplink| report.links.contains_key(&uplink.bridge))
    };
    let mut labels = BTreeMap::from([(node_label(hci::network::MANAGEMENT), "true".to_owned())]);
    for own in wanted.iter().filter(has) {
        labels.insert(node_label(&own.cluster_network), "true".to_owned());
        labels.insert(VLAN_CONFIG_KEY.to_owned(), own.config.clone());
    }
    let prefix = format!("{GROUP}/");
    let stale = current.keys().filter(|key| key.starts_with(&prefix) && !labels.contains_key(*key));
    let mut patch: Map<String, Value> = stale.map(|key| (key.clone(), Value::Null)).collect();
    let missing = labels.into_iter().filter(|(key, value)| current.get(key) != Some(value));
    patch.extend(missing.map(|(key, value)| (key, value.into())));
    patch
}

#[cfg(test)]
mod tests {
    use net::BondMode;

    use super::*;

    fn config(uplink: Value) -> VlanConfig {
        serde_json::from_value(json!({
            "metadata": {"name": "vc", "uid": "u"},
            "spec": {"clusterNetwork": "lan", "uplink": uplink},
        }))
        .unwrap()
    }

    fn network(text: &str) -> NetworkConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_uplink_carries_the_vlans_of_its_networks() {
        let networks = [
            network(r#"{"bridge":"lan-br","vlan":10}"#),
            network(r#"{"bridge":"lan-br","vlanTrunk":[{"minID":1,"maxID":3}]}"#),
            network(r#"{"bridge":"lan-br"}"#),
            network(r#"{"bridge":"dmz-br","vlan":99}"#),
        ];
        let networks: Vec<_> = networks.iter().collect();
        let plain = config(json!({"nics": ["eth1"]}));
        let wanted = wanted(&BTreeMap::new(), [&plain], &networks);
        let [own] = wanted.as_slice() else { panic!("{wanted:?}") };
        let uplink = own.uplink.clone().unwrap();
        assert_eq!((own.cluster_network.as_str(), own.config.as_str()), ("lan", "vc"));
        assert_eq!((uplink.bridge.as_str(), uplink.bond.as_str()), ("lan-br", "lan-bo"));
        assert_eq!((uplink.mode, uplink.miimon, uplink.mtu), (BondMode::ActiveBackup, 100, 1500));
        let vlans: Vec<_> = uplink.vlans.iter().map(|vlan| vlan.number()).collect();
        assert_eq!(vlans, [2, 3, 10]);
    }

    #[test]
    fn options_are_read_as_clients_write_them() {
        let full = config(json!({
            "nics": ["eth1", "eth2"],
            "linkAttributes": {"mtu": 9000, "txQLen": 500, "hardwareAddr": "AgAAAAAB"},
            "bondOptions": {"mode": "802.3ad", "miimon": 50},
        }));
        let uplink = uplink("lan", &full, &[]).unwrap();
        assert_eq!((uplink.mode, uplink.miimon, uplink.mtu), (BondMode::Lacp, 50, 9000));
        assert_eq!(uplink.mac, Some(Mac::new([2, 0, 0, 0, 0, 1])));
        assert_eq!((uplink.tx_queue_len, uplink.nics.len()), (Some(500), 2));
        let wrong = config(json!({"nics": [], "linkAttributes": {"hardwareAddr": "02:00"}}));
        let refused = super::uplink("lan", &wrong, &[]).unwrap_err();
        assert!(matches!(refused, HostNetworkRequestError::Mac(_)), "{refused}");
    }

    #[test]
    fn a_node_reports_what_stands_in_the_way() {
        let wanted = wanted(&BTreeMap::new(), [&config(json!({"nics": ["eth9"]}))], &[]);
        let mut report = UplinkReport::default();
        assert_eq!(problem(&wanted[0], &report), None);
        let texts = vec!["get link eth9 failed, error: Link not found".to_owned()];
        report.problems.insert("lan-br".parse().unwrap(), texts);
        let problem = problem(&wanted[0], &report);
        let applied = ("False", "RolledBack", "no answer");
        let object = status("one", &wanted[0], problem.as_deref(), applied);
        assert_eq!(object["status"]["conditions"][1]["message"], "no answer");
        assert_eq!(object["metadata"]["annotations"]["sheaf.io/network-rolled-back"], "u/0/");
        let condition = &object["status"]["conditions"][0];
        assert_eq!(
            (condition["type"].as_str(), condition["status"].as_str()),
            (Some("ready"), Some("False"))
        );
        assert_eq!(condition["message"], "get link eth9 failed, error: Link not found");
        assert_eq!(object["metadata"]["labels"]["network.harvesterhci.io/node"], "one");
    }

    #[test]
    fn labels_follow_the_bridges_that_exist() {
        let wanted = wanted(&BTreeMap::new(), [&config(json!({"nics": []}))], &[]);
        let report = UplinkReport::default();
        let label = |key: &str, value: &str| (format!("{GROUP}/{key}"), value.to_owned());
        let current = BTreeMap::from([
            label("mgmt", "true"),
            label("old", "true"),
            label("vlanconfig", "gone"),
            ("rack".to_owned(), "a".to_owned()),
        ]);
        let patch = labels(&current, &wanted, &report);
        let gone = [label("old", "").0, label("vlanconfig", "").0];
        assert_eq!(patch.keys().collect::<Vec<_>>(), gone.iter().collect::<Vec<_>>());
        assert!(patch.values().all(Value::is_null));
    }
}
