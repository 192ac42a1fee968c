//! The addresses that this node has on networks of their own for replicas and for migrations, as
//! the control plane says in the Node: see `hci::node_network`.

use std::net::IpAddr;

use hci::node_network::{NodeNetwork, address_of};
use k8s_openapi::api::core::v1::Node;

/// None for what uses the address by which the node is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnAddresses {
    pub(crate) storage: Option<IpAddr>,
    pub(crate) migration: Option<IpAddr>,
}

impl OwnAddresses {
    pub(crate) fn read(node: &Node) -> Self {
        let of =
            |network| node.metadata.annotations.as_ref().and_then(|all| address_of(all, network));
        Self { storage: of(NodeNetwork::Storage), migration: of(NodeNetwork::Migration) }
    }
}
