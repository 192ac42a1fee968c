//! Cluster networks: names and keys that clients compute, what a NetworkAttachmentDefinition says,
//! and which VlanConfig a node follows. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::harvester::network::{HostNetworkConfig, VlanConfig};

pub const GROUP: &str = "network.harvesterhci.io";
pub const VERSION: &str = "v1beta1";
/// The network that every node is managed by, and that no VlanConfig of a person is for.
pub const MANAGEMENT: &str = "mgmt";

pub const CLUSTER_NETWORK_KEY: &str = "network.harvesterhci.io/clusternetwork";
pub const VLAN_CONFIG_KEY: &str = "network.harvesterhci.io/vlanconfig";
pub const NODE_KEY: &str = "network.harvesterhci.io/node";
pub const TYPE_KEY: &str = "network.harvesterhci.io/type";
pub const VLAN_KEY: &str = "network.harvesterhci.io/vlan-id";
pub const READY_KEY: &str = "network.harvesterhci.io/ready";
pub const MATCHED_NODES_KEY: &str = "network.harvesterhci.io/matched-nodes";
pub const UPLINK_MTU_KEY: &str = "network.harvesterhci.io/uplink-mtu";
const WITNESS_KEY: &str = "node-role.harvesterhci.io/witness";

/// Default MTU of a cluster network.
pub const DEFAULT_MTU: u16 = 1500;
/// The longest name of a cluster network, so that its bridge has a name of 15 characters.
pub const NAME_LIMIT: usize = 12;
const BRIDGE_SUFFIX: &str = "-br";

/// Namespaces whose networks are for all: Multus calls the first a global namespace, and
/// Harvester shares from the second.
pub const SHARED: [&str; 2] = ["default", "harvester-public"];

/// Whether machines of a namespace may use networks of `owner`.
pub fn may_use(namespace: &str, owner: &str) -> bool {
    namespace == owner || SHARED.contains(&owner)
}

/// The bridge of a cluster network on its nodes.
pub fn bridge_of(cluster_network: &str) -> String {
    format!("{cluster_network}{BRIDGE_SUFFIX}")
}

/// The bond of a cluster network on its nodes.
pub fn bond_of(cluster_network: &str) -> String {
    format!("{cluster_network}-bo")
}

/// The interface of a host in a VLAN of a cluster network.
pub fn host_interface_of(cluster_network: &str, vlan: i32) -> String {
    format!("{cluster_network}{BRIDGE_SUFFIX}.{vlan}")
}

/// Whether a HostNetworkConfig is for a node with these labels.
pub fn selects_host(config: &HostNetworkConfig, labels: &BTreeMap<String, String>) -> bool {
    let selector = config.spec.node_selector.as_ref();
    !labels.contains_key(WITNESS_KEY)
        && selector.is_none_or(|own| kinds::labels::matches(&json!(own), &json!(labels)))
}

/// The cluster network that a bridge belongs to.
pub fn network_of(bridge: &str) -> Option<&str> {
    bridge.strip_suffix(BRIDGE_SUFFIX).filter(|name| !name.is_empty())
}

/// The label of nodes that have a cluster network.
pub fn node_label(cluster_network: &str) -> String {
    format!("{GROUP}/{cluster_network}")
}

/// The name of the VlanStatus of a node: cut to fit, and with a checksum so that it stays unique.
pub fn status_name(cluster_network: &str, node: &str) -> String {
    let base = format!("{cluster_network}-{node}");
    let sum = crc32(base.as_bytes());
    let cut: String = base.chars().take(54).collect();
    format!("{cut}-{sum:08x}")
}

/// The checksum of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// Whether a VlanConfig is for a node with these labels.
pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    !labels.contains_key(WITNESS_KEY) && selector.iter().all(has)
}

/// The VlanConfigs that a node follows, one for each cluster network: of several, the oldest.
pub fn followed<'a>(
    configs: impl IntoIterator<Item = &'a VlanConfig>,
    labels: &BTreeMap<String, String>,
) -> BTreeMap<&'a str, &'a VlanConfig> {
    let fits = |config: &&VlanConfig| {
        config.metadata.deletion_timestamp.is_none()
            && config.spec.cluster_network != MANAGEMENT
            && selects(&config.spec.node_selector, labels)
    };
    let mut chosen: BTreeMap<&str, &VlanConfig> = BTreeMap::new();
    let age = |config: &'a VlanConfig| {
        let made = config.metadata.creation_timestamp.as_ref().map(|time| time.0.as_str());
        (made, config.metadata.name.as_deref())
    };
    for config in configs.into_iter().filter(fits) {
        let current = chosen.entry(&config.spec.cluster_network).or_insert(config);
        if age(config) < age(current) {
            *current = config;
        }
    }
    chosen
}

/// The MTU that an uplink has.
pub fn uplink_mtu(config: &VlanConfig) -> i32 {
    let mtu = config.spec.uplink.link_attributes.as_ref().and_then(|own| own.mtu).unwrap_or(0);
    if mtu == 0 { i32::from(DEFAULT_MTU) } else { mtu }
}

/// The bridge configuration in `spec.config` of a NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkConfig {
    pub r#type: String,
    pub bridge: String,
    pub vlan: i64,
    pub vlan_trunk: Vec<TrunkRange>,
    pub mtu: i64,
}

/// A part of a trunk: one VLAN or a range.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct TrunkRange {
    #[serde(rename = "minID")]
    pub min_id: Option<i64>,
    #[serde(rename = "maxID")]
    pub max_id: Option<i64>,
    pub id: Option<i64>,
}

/// Type of a network, as in Harvester's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkType {
    Vlan,
    Trunk,
    Untagged,
    Overlay,
}

impl NetworkType {
    pub fn label(self) -> &'static str {
        match self {
            Self::Vlan => "L2VlanNetwork",
            Self::Trunk => "L2VlanTrunkNetwork",
            Self::Untagged => "UntaggedNetwork",
            Self::Overlay => "OverlayNetwork",
        }
    }
}

/// Why VLANs of a network make no sense, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VlanError {
    #[error("vlan {0} is out of range [0 .. 4094]")]
    Range(i64),
    #[error("vlan can only be 0 when vlanTrunk is set")]
    Both,
    #[error("incorrect trunk {field} parameter {value}")]
    Trunk { field: &'static str, value: i64 },
    #[error("minID {min} is greater than maxID {max} in trunk parameter")]
    Order { min: i64, max: i64 },
    #[error("minID and maxID should be configured simultaneously, {0} is missing")]
    Half(&'static str),
    #[error("all fields in this VlanTrunk are empty")]
    Empty,
}

impl NetworkConfig {
    /// The configuration of a NetworkAttachmentDefinition.
    pub fn read(definition: &Value) -> Result<Self, serde_json::Error> {
        let text = definition["spec"]["config"].as_str().unwrap_or_default();
        serde_json::from_str(text)
    }

    /// None for sorts of networks that are not ours to judge.
    pub fn network_type(&self) -> Option<NetworkType> {
        match (self.r#type.as_str(), self.vlan, self.vlan_trunk.as_slice()) {
            ("kube-ovn", ..) => Some(NetworkType::Overlay),
            ("bridge" | "", 0, []) => Some(NetworkType::Untagged),
            ("bridge" | "", 0, _) => Some(NetworkType::Trunk),
            ("bridge" | "", ..) => Some(NetworkType::Vlan),
            _ => None,
        }
    }

    /// The VLANs that guests are in, beside the untagged network: one, or those of a trunk.
    pub fn vlans(&self) -> Result<BTreeSet<u16>, VlanError> {
        let vlan = u16::try_from(self.vlan).ok().filter(|vlan| *vlan <= 4094);
        let vlan = vlan.ok_or(VlanError::Range(self.vlan))?;
        if vlan != 0 && !self.vlan_trunk.is_empty() {
            return Err(VlanError::Both);
        }
        let mut vlans: BTreeSet<u16> = (vlan != 0).then_some(vlan).into_iter().collect();
        for part in &self.vlan_trunk {
            vlans.extend(part.vlans()?);
        }
        Ok(vlans)
    }
}

impl TrunkRange {
    fn vlans(&self) -> Result<BTreeSet<u16>, VlanError> {
        let check = |field: &'static str, value: Option<i64>| {
            let Some(value) = value else { return Ok(None) };
            let vlan = u16::try_from(value).ok().filter(|vlan| (1..=4094).contains(vlan));
            vlan.map(Some).ok_or(VlanError::Trunk { field, value })
        };
        let range = (check("minID", self.min_id)?, check("maxID", self.max_id)?);
        let mut vlans: BTreeSet<u16> = check("id", self.id)?.into_iter().collect();
        match range {
            (Some(min), Some(max)) if min > max => {
                let (min, max) = (i64::from(min), i64::from(max));
                return Err(VlanError::Order { min, max });
            }
            (Some(min), Some(max)) => vlans.extend(min..=max),
            (Some(_), None) => return Err(VlanError::Half("maxID")),
            (None, Some(_)) => return Err(VlanError::Half("minID")),
            (None, None) if vlans.is_empty() => return Err(VlanError::Empty),
            (None, None) => {}
        }
        Ok(vlans)
    }
}

#[cfg(test)]
mod tests;
