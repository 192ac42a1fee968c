//! Several nodes: management nodes and workers, in network namespaces of their own.

mod failover;
mod guest_network;
mod host_network;
mod join;
pub(crate) mod lab;
mod load_balancer;
mod management;
mod migrate;
mod migrate_devices;
mod migrate_disks;
mod migrate_local;
mod node_network;
mod reduce;
mod upgrade;
mod witness;
mod worker_keys;
