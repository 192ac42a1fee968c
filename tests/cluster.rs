//! Several nodes: management nodes and workers, in network namespaces of their own.

mod failover;
mod guest_network;
mod host_network;
mod join;
mod lab;
mod load_balancer;
mod management;
mod migrate;
mod migrate_devices;
mod migrate_disks;
mod upgrade;
mod witness;
