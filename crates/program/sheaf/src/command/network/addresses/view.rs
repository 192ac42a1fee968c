//! Addresses and their owners: machines as their instances report it, pools as they record it, and load
//! balancers. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hci::dhcp::{EXCLUDED, RESERVED, mac_of, network_of};
use hci::harvester::dhcp::{DhcpPool, MachineNetworkConfig};
use hci::harvester::load_balancer::LoadBalancer;
use virt::v1::VirtualMachineInstance;

/// The name of the guest network in the list; those of NetworkAttachmentDefinitions have a slash.
pub(super) const GUEST_NETWORK: &str = "guest";
const HEADER: [&str; 5] = ["NETWORK", "ADDRESS", "MAC", "USED BY", "STATE"];

/// The objects that addresses are recorded in, of all namespaces.
pub(super) struct Allocations {
    pub(super) instances: Vec<VirtualMachineInstance>,
    pub(super) pools: Vec<DhcpPool>,
    pub(super) configs: Vec<MachineNetworkConfig>,
    pub(super) load_balancers: Vec<LoadBalancer>,
}

/// The use of an address on one network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Machine {
        namespace: String,
        name: String,
    },
    LoadBalancer {
        namespace: String,
        name: String,
    },
    /// The DHCP server or the router, or an address that a pool excludes.
    Pool {
        namespace: String,
        reason: &'static str,
    },
    /// A MAC address that a pool has given an address, and no machine.
    Mac,
}

/// An address on a network.
pub(super) struct Entry {
    holders: BTreeSet<Holder>,
    macs: BTreeSet<String>,
    /// Whether the instance of a machine reports it.
    is_reported: bool,
}

pub(super) type Entries = BTreeMap<(String, IpAddr), Entry>;

impl Holder {
    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Machine { namespace, .. }
            | Self::LoadBalancer { namespace, .. }
            | Self::Pool { namespace, .. } => Some(namespace),
            Self::Mac => None,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Machine { namespace, name } => format!("{namespace}/{name}"),
            Self::LoadBalancer { namespace, name } => format!("load balancer {namespace}/{name}"),
            Self::Pool { .. } | Self::Mac => String::new(),
        }
    }
}

impl Allocations {
    pub(super) fn entries(&self) -> Entries {
        let mut entries = Entries::new();
        self.add_instances(&mut entries);
        self.add_configs(&mut entries);
        self.add_pools(&mut entries);
        self.add_load_balancers(&mut entries);
        entries
    }

    fn add_instances(&self, entries: &mut Entries) {
        for instance in &self.instances {
            let metadata = &instance.metadata;
            let namespace = metadata.namespace.clone().unwrap_or_default();
            let name = metadata.name.clone().unwrap_or_default();
            for reported in instance.status.iter().flat_map(|status| &status.interfaces) {
                // Without a network of the specification, only the guest knows the interface.
                let network = instance.spec.networks.iter();
                let network = network.clone().find(|own| Some(&own.name) == reported.name.as_ref());
                let Some(network) = network else { continue };
                let network = match &network.multus {
                    Some(multus) => qualified(&multus.network_name, &namespace),
                    None => GUEST_NETWORK.to_owned(),
                };
                let first = reported.ip_address.iter();
                for address in first.chain(&reported.ip_addresses) {
                    let Some(address) = routable(address) else { continue };
                    let entry = entry(entries, &network, address);
                    entry.is_reported = true;
                    entry.macs.extend(reported.mac.as_deref().map(mac_of));
                    entry.holders.insert(Holder::Machine {
                        namespace: namespace.clone(),
                        name: name.clone(),
                    });
                }
            }
        }
    }

    fn add_configs(&self, entries: &mut Entries) {
        for config in &self.configs {
            let holder = Holder::Machine {
                namespace: config.metadata.namespace.clone().unwrap_or_default(),
                name: config.spec.vm_name.clone(),
            };
            for allocated in config.status.iter().flat_map(|status| &status.network_configs) {
                let address = allocated.allocated_ip_address.as_deref().and_then(routable);
                let (Some(address), Some(network)) = (address, &allocated.network_name) else {
                    continue;
                };
                let entry = entry(entries, &qualified(network, "default"), address);
                entry.macs.extend(allocated.mac_address.as_deref().map(mac_of));
                entry.holders.insert(holder.clone());
            }
        }
    }

    fn add_pools(&self, entries: &mut Entries) {
        for pool in &self.pools {
            let network = qualified(&pool.spec.network_name, "default");
            let namespace = network_of(&network).0.to_owned();
            let status = pool.status.as_ref().and_then(|status| status.ipv4.as_ref());
            for (address, used_by) in status.iter().flat_map(|ipv4| ipv4.allocated.iter()) {
                let Some(address) = routable(address) else { continue };
                let entry = entry(entries, &network, address);
                let reason = match used_by.as_str() {
                    RESERVED => Some("reserved"),
                    EXCLUDED => Some("excluded"),
                    _ => None,
                };
                match reason {
                    Some(reason) => {
                        let namespace = namespace.clone();
                        entry.holders.insert(Holder::Pool { namespace, reason });
                    }
                    None => {
                        entry.macs.insert(mac_of(used_by));
                        if entry.holders.is_empty() {
                            entry.holders.insert(Holder::Mac);
                        }
                    }
                }
            }
        }
    }

    fn add_load_balancers(&self, entries: &mut Entries) {
        for balancer in &self.load_balancers {
            let allocated = balancer.status.as_ref().and_then(|own| own.allocated_address.as_ref());
            let Some(allocated) = allocated else { continue };
            let Some(address) = allocated.ip.as_deref().and_then(routable) else { continue };
            let network = format!("pool {}", allocated.ip_pool.as_deref().unwrap_or_default());
            entry(entries, &network, address).holders.insert(Holder::LoadBalancer {
                namespace: balancer.metadata.namespace.clone().unwrap_or_default(),
                name: balancer.metadata.name.clone().unwrap_or_default(),
            });
        }
    }
}

fn entry<'a>(entries: &'a mut Entries, network: &str, address: IpAddr) -> &'a mut Entry {
    let new = || Entry { holders: BTreeSet::new(), macs: BTreeSet::new(), is_reported: false };
    entries.entry((network.to_owned(), address)).or_insert_with(new)
}

/// The name of a network as NAMESPACE/NAME.
fn qualified(name: &str, namespace: &str) -> String {
    match name.split_once('/') {
        Some(_) => name.to_owned(),
        None => format!("{namespace}/{name}"),
    }
}

/// An address that others reach; every interface has link-local ones.
fn routable(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
    };
    (!is_local).then_some(address)
}

impl Entry {
    /// Two machines on one network of the outside; addresses of the guest network are allocated by
    /// the nodes, and those of user-mode networks are the same for all.
    fn is_conflict(&self, network: &str) -> bool {
        let uses = |own: &&Holder| !matches!(own, Holder::Mac);
        network != GUEST_NETWORK && self.holders.iter().filter(uses).count() > 1
    }

    fn state(&self, network: &str) -> &'static str {
        let pool = self.holders.iter().find_map(|own| match own {
            Holder::Pool { reason, .. } => Some(*reason),
            _ => None,
        });
        match (self.is_conflict(network), pool) {
            (true, _) => "CONFLICT",
            (false, Some(reason)) => reason,
            (false, None) if self.is_reported => "in use",
            (false, None) => "allocated",
        }
    }

    fn is_in(&self, namespace: &str, network: &str) -> bool {
        let own = |holder: &Holder| match holder.namespace() {
            Some(of) => of == namespace,
            None => network.split('/').next() == Some(namespace),
        };
        self.holders.iter().any(own)
    }
}

/// The table, with a header.
pub(super) fn rows(
    entries: &Entries,
    namespace: Option<&str>,
    only: Option<&str>,
) -> Vec<Vec<String>> {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    for ((network, address), entry) in entries {
        let is_wanted = only.is_none_or(|only| only == network)
            && namespace.is_none_or(|namespace| entry.is_in(namespace, network));
        if !is_wanted {
            continue;
        }
        let holders: Vec<String> =
            entry.holders.iter().map(Holder::shown).filter(|own| !own.is_empty()).collect();
        rows.push(vec![
            network.clone(),
            address.to_string(),
            entry.macs.iter().cloned().collect::<Vec<_>>().join(", "),
            holders.join(", "),
            entry.state(network).to_owned(),
        ]);
    }
    rows
}

#[cfg(test)]
mod tests;
