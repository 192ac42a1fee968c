//! Networks of their own for replication and for migrations: the settings `storage-network` and
//! `vm-migration-network`, the addresses of nodes there, and how nodes know theirs. Pure.
//!
//! ```text
//!  Setting            {"clusterNetwork":"lan","vlan":100,"range":"10.9.0.0/24","exclude":["10.9.0.0/28"]}
//!  HostNetworkConfig  storage-network        an interface on nodes that have no address of the range
//!  Node               sheaf.io/storage-address, sheaf.io/migration-address
//!                                            the address to use, once all nodes have one
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use serde::Deserialize;

/// A network that nodes use among themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeNetwork {
    Storage,
    Migration,
}

impl NodeNetwork {
    pub const ALL: [Self; 2] = [Self::Storage, Self::Migration];

    /// The name of its setting, and of its HostNetworkConfig.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Storage => "storage-network",
            Self::Migration => "vm-migration-network",
        }
    }

    /// The network that a setting is for.
    pub fn of_setting(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|network| network.setting() == name)
    }

    /// The annotation of a Node with its address there.
    pub fn annotation(self) -> &'static str {
        match self {
            Self::Storage => "sheaf.io/storage-address",
            Self::Migration => "sheaf.io/migration-address",
        }
    }
}

/// The address of a node with these annotations.
pub fn address_of(annotations: &BTreeMap<String, String>, network: NodeNetwork) -> Option<IpAddr> {
    annotations.get(network.annotation())?.parse().ok()
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSetting {
    /// Where interfaces are created for nodes without an address; none if all have theirs.
    pub uplink: Option<NetworkUplink>,
    pub range: Ipv4Net,
    pub exclude: Vec<Ipv4Net>,
}

/// A VLAN of a cluster network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUplink {
    pub cluster_network: String,
    pub vlan: i32,
}

/// Why the value of a setting is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkSettingError {
    #[error("the network setting is not valid JSON: {0}")]
    Json(String),
    #[error("the valid value range for VLAN IDs is 0 to 4094")]
    Vlan,
    #[error("network with vlan id {0} not allowed on mgmt cluster")]
    UntaggedManagement(i64),
    #[error("vlan {0} needs the clusterNetwork that carries it")]
    VlanAlone(i64),
    #[error("range {0:?} has to be an IPv4 network in CIDR notation")]
    Range(String),
    #[error("IPv6 ranges are not supported for network settings")]
    Ipv6,
    #[error("range should be subnet CIDR {0}")]
    NoSubnet(Ipv4Net),
    #[error("min supported prefix length for network is 16, prefix length {0} is not allowed")]
    TooLarge(u8),
    #[error("exclude {0:?} has to be an IPv4 network in CIDR notation")]
    Exclude(String),
    #[error("exclude range {0} do not overlap include range {1}")]
    ExcludeOutside(Ipv4Net, Ipv4Net),
    #[error("exclude Range {0} includes include Range {1}, no allocatable ip addresses")]
    ExcludeAll(Ipv4Net, Ipv4Net),
    #[error("exclude ranges have overlapping subnets {0} {1}")]
    ExcludeTwice(Ipv4Net, Ipv4Net),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    cluster_network: String,
    #[serde(default)]
    vlan: i64,
    #[serde(default)]
    range: String,
    #[serde(default)]
    exclude: Vec<String>,
}

impl NetworkSetting {
    /// None for an empty value, which switches the network off.
    pub fn parse(value: &str) -> Result<Option<Self>, NetworkSettingError> {
        if matches!(value.trim(), "" | "{}") {
            return Ok(None);
        }
        let written: Written = serde_json::from_str(value)
            .map_err(|error| NetworkSettingError::Json(error.to_string()))?;
        let range = subnet(&written.range)?;
        Ok(Some(Self { uplink: uplink(&written)?, range, exclude: excluded(&written, range)? }))
    }

    /// Whether nodes may have this address.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let is_host = self.range.prefix_len() >= 31
            || address != self.range.network() && address != self.range.broadcast();
        is_host
            && self.range.contains(&address)
            && !self.exclude.iter().any(|own| own.contains(&address))
    }

    /// The addresses that nodes may have.
    pub fn hosts(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.range.hosts().filter(|address| self.contains(*address))
    }
}

fn uplink(written: &Written) -> Result<Option<NetworkUplink>, NetworkSettingError> {
    let (name, vlan) = (&written.cluster_network, written.vlan);
    if !(0..=4094).contains(&vlan) {
        return Err(NetworkSettingError::Vlan);
    }
    match name.as_str() {
        "" if vlan != 0 => Err(NetworkSettingError::VlanAlone(vlan)),
        "" => Ok(None),
        "mgmt" if vlan <= 1 => Err(NetworkSettingError::UntaggedManagement(vlan)),
        // As upstream: the untagged network of an uplink is its VLAN 1.
        _ => {
            let vlan = i32::try_from(vlan.max(1)).map_err(|_| NetworkSettingError::Vlan)?;
            Ok(Some(NetworkUplink { cluster_network: name.clone(), vlan }))
        }
    }
}

fn subnet(text: &str) -> Result<Ipv4Net, NetworkSettingError> {
    if text.contains(':') {
        return Err(NetworkSettingError::Ipv6);
    }
    let range: Ipv4Net = text.parse().map_err(|_| NetworkSettingError::Range(text.to_owned()))?;
    if range.addr() != range.network() {
        return Err(NetworkSettingError::NoSubnet(range.trunc()));
    }
    if range.prefix_len() < 16 {
        return Err(NetworkSettingError::TooLarge(range.prefix_len()));
    }
    Ok(range)
}

fn excluded(written: &Written, range: Ipv4Net) -> Result<Vec<Ipv4Net>, NetworkSettingError> {
    let mut all: Vec<Ipv4Net> = Vec::new();
    for text in &written.exclude {
        let own: Ipv4Net = text.parse().map_err(|_| NetworkSettingError::Exclude(text.clone()))?;
        let own = own.trunc();
        if own.contains(&range) {
            return Err(NetworkSettingError::ExcludeAll(own, range));
        }
        if !range.contains(&own) {
            return Err(NetworkSettingError::ExcludeOutside(own, range));
        }
        if let Some(other) = all.iter().find(|other| other.contains(&own) || own.contains(*other)) {
            return Err(NetworkSettingError::ExcludeTwice(*other, own));
        }
        all.push(own);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(value: &str) -> String {
        NetworkSetting::parse(value).unwrap_err().to_string()
    }

    #[test]
    fn a_value_names_a_range_and_where_it_is() {
        for off in ["", "{}", "  "] {
            assert_eq!(NetworkSetting::parse(off), Ok(None), "{off:?}");
        }
        let value = r#"{"clusterNetwork":"lan","vlan":0,"range":"10.9.0.0/29","exclude":["10.9.0.1/32","10.9.0.4/31"]}"#;
        let setting = NetworkSetting::parse(value).unwrap().unwrap();
        let uplink = NetworkUplink { cluster_network: "lan".into(), vlan: 1 };
        assert_eq!(setting.uplink, Some(uplink), "untagged");
        let hosts: Vec<_> = setting.hosts().map(|address| address.to_string()).collect();
        assert_eq!(hosts, ["10.9.0.2", "10.9.0.3", "10.9.0.6"]);
        let own = NetworkSetting::parse(r#"{"range":"10.9.0.0/24"}"#).unwrap().unwrap();
        assert_eq!(own.uplink, None, "nodes have their addresses already");
        assert!(!own.contains("10.9.0.255".parse().unwrap()));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (value, expected) in [
            ("{", "not valid JSON"),
            (r#"{"range":"10.9.0.0/24","vlan":4095}"#, "0 to 4094"),
            (r#"{"range":"10.9.0.0/24","vlan":5}"#, "needs the clusterNetwork"),
            (
                r#"{"range":"10.9.0.0/24","vlan":1,"clusterNetwork":"mgmt"}"#,
                "network with vlan id 1 not allowed on mgmt cluster",
            ),
            (r#"{"clusterNetwork":"lan"}"#, "CIDR notation"),
            (r#"{"range":"fd00::/64"}"#, "IPv6 ranges are not supported"),
            (r#"{"range":"10.9.0.1/24"}"#, "range should be subnet CIDR 10.9.0.0/24"),
            (r#"{"range":"10.0.0.0/8"}"#, "min supported prefix length for network is 16"),
            (r#"{"range":"10.9.0.0/24","exclude":["x"]}"#, "exclude \"x\" has to be"),
            (r#"{"range":"10.9.0.0/24","exclude":["10.8.0.0/24"]}"#, "do not overlap include"),
            (r#"{"range":"10.9.0.0/24","exclude":["10.9.0.0/16"]}"#, "no allocatable ip"),
            (
                r#"{"range":"10.9.0.0/24","exclude":["10.9.0.0/28","10.9.0.1/32"]}"#,
                "overlapping subnets 10.9.0.0/28 10.9.0.1/32",
            ),
        ] {
            let found = error(value);
            assert!(found.contains(expected), "{value}: {found}");
        }
    }

    #[test]
    fn settings_and_annotations_belong_together() {
        for network in NodeNetwork::ALL {
            assert_eq!(NodeNetwork::of_setting(network.setting()), Some(network));
        }
        assert_eq!(NodeNetwork::of_setting("rwx-network"), None);
        let key = NodeNetwork::Storage.annotation().to_owned();
        let annotations = BTreeMap::from([(key, "10.9.0.2".to_owned())]);
        let address = "10.9.0.2".parse().ok();
        assert_eq!(address_of(&annotations, NodeNetwork::Storage), address);
        assert_eq!(address_of(&annotations, NodeNetwork::Migration), None);
    }
}
