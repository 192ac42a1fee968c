//! The addresses in objects that matter to networks of nodes. Pure.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;

use crate::object::read;
use crate::record::condition::ConditionFields;
use crate::record::fields;

fields! {
    pub(super) struct ConfigFields<'a> {
        spec: ConfigSpec<'a>,
        status: ConfigStatus<'a>,
    }

    pub(super) struct ConfigSpec<'a> {
        cluster_network: &'a str,
        vlan_id as "vlanID": i64,
        ips: BTreeMap<&'a str, &'a str>,
    }

    pub(super) struct ConfigStatus<'a> {
        node_status: BTreeMap<&'a str, NodeEntry<'a>>,
    }

    pub(super) struct NodeEntry<'a> {
        conditions: Vec<ConditionFields<'a>>,
    }

    struct ReplicaFields<'a> {
        status: ReplicaStatus<'a>,
    }

    struct ReplicaStatus<'a> {
        storage_ip as "storageIP": &'a str,
    }

    struct EngineFields<'a> {
        status: EngineStatus<'a>,
    }

    struct EngineStatus<'a> {
        current_replica_address_map: BTreeMap<&'a str, &'a str>,
    }

    struct MachineFields<'a> {
        status: MachineStatus<'a>,
    }

    struct MachineStatus<'a> {
        migration_state: Migration<'a>,
    }

    struct Migration<'a> {
        target_node_address: &'a str,
        completed: bool,
    }
}

pub(super) fn of_replicas(replicas: &[Value]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    replicas.iter().filter_map(|own| read::<ReplicaFields<'_>>(own).status.storage_ip.parse().ok())
}

pub(super) fn of_engines(engines: &[Value]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    engines.iter().flat_map(|own| {
        let connected = read::<EngineFields<'_>>(own).status.current_replica_address_map;
        let addresses = connected.into_values().filter_map(ipv4);
        addresses.collect::<Vec<_>>()
    })
}

fn ipv4(text: &str) -> Option<Ipv4Addr> {
    match text.parse().ok()? {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    }
}

pub(super) fn of_migrations(machines: &[Value]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    machines.iter().filter_map(|own| {
        let migration = read::<MachineFields<'_>>(own).status.migration_state;
        let address = migration.target_node_address.parse().ok()?;
        (!migration.completed).then_some(address)
    })
}
