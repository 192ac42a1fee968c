//! Pools and configurations of addresses.

use std::collections::BTreeMap;

use hci::harvester::dhcp::Ipv4Config;
use serde_json::Value;

use crate::object::read;
use crate::record::fields;

fields! {
    pub(super) struct PoolFields<'a> {
        spec: PoolSpec<'a>,
        status: PoolStatus<'a>,
    }

    pub(super) struct PoolSpec<'a> {
        network_name: &'a str,
        paused: bool,
        ipv4_config: Ipv4Config,
    }

    pub(super) struct PoolStatus<'a> {
        ipv4: PoolRecord<'a>,
    }

    pub(super) struct PoolRecord<'a> {
        /// Addresses, with a MAC address or a mark.
        allocated: BTreeMap<&'a str, &'a str>,
    }

    pub(super) struct ConfigFields<'a> {
        spec: ConfigSpec<'a>,
        status: ConfigStatus<'a>,
    }

    pub(super) struct ConfigSpec<'a> {
        vm_name: &'a str,
        paused: bool,
        network_configs: Vec<ConfigEntry<'a>>,
    }

    /// An interface of a configuration.
    pub(super) struct ConfigEntry<'a> {
        network_name: &'a str,
        mac_address: &'a str,
        ip_address: Option<&'a str>,
    }

    pub(super) struct ConfigStatus<'a> {
        network_configs: Vec<EntryStatus<'a>>,
    }

    pub(super) struct EntryStatus<'a> {
        network_name: &'a str,
        mac_address: &'a str,
        allocated_ip_address as "allocatedIPAddress": &'a str,
    }
}

impl ConfigEntry<'_> {
    pub(super) fn mac(&self) -> String {
        hci::dhcp::mac_of(self.mac_address)
    }
}

impl ConfigStatus<'_> {
    /// The address of an interface.
    pub(super) fn address<T: std::str::FromStr>(&self, network: &str, mac: &str) -> Option<T> {
        let own = self.network_configs.iter().find(|own| {
            hci::dhcp::mac_of(own.mac_address) == mac
                && hci::dhcp::is_same_network(own.network_name, network)
        });
        own.and_then(|own| own.allocated_ip_address.parse().ok())
    }
}

pub(super) fn pool_spec(pool: &Value) -> PoolSpec<'_> {
    read::<PoolFields<'_>>(pool).spec
}

pub(super) fn config_spec(config: &Value) -> ConfigSpec<'_> {
    read::<ConfigFields<'_>>(config).spec
}
