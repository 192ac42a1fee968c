//! Load balancers in front of machines, and the pools that their addresses come from.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    LoadBalancer {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired listeners, backends and source of the address.
        spec: LoadBalancerSpec,
        /// Observed address and backends.
        status: Option<LoadBalancerStatus>,
    }

    LoadBalancerSpec {
        /// Free text about the load balancer.
        description: Option<String>,
        /// vm: connections go to virtual machines. cluster: the guest cluster forwards them itself.
        workload_type: Option<String> = {"enum": ["", "vm", "cluster"]},
        /// Source of the address: an IPPool, or a DHCP server.
        ipam: Option<String> = {"enum": ["", "pool", "dhcp"]},
        /// Name of the IPPool; by default it is chosen by its selector.
        ip_pool: Option<String>,
        /// Ports of the load balancer.
        listeners: Vec<Listener>,
        /// Labels of the machines: one of the values of every key.
        backend_server_selector: Map<Vec<String>>,
        /// Health check of the backends.
        health_check: Option<HealthCheck>,
    }

    Listener {
        /// Name of the listener, unique in its load balancer.
        name: Option<String>,
        /// Port of the load balancer.
        port: i32,
        /// TCP or UDP.
        protocol: Option<String>,
        /// Port of the machines.
        backend_port: i32,
    }

    HealthCheck {
        /// TCP port of the machines; 0 is no check.
        port: Option<i32>,
        /// Successes until a machine counts as healthy.
        success_threshold: Option<i32>,
        /// Failures until a machine counts as unhealthy.
        failure_threshold: Option<i32>,
        /// Seconds between two checks.
        period_seconds: Option<i32>,
        /// Seconds until a check fails.
        timeout_seconds: Option<i32>,
    }

    LoadBalancerStatus {
        /// Addresses of the machines.
        backend_servers: Vec<String>,
        /// Address that was taken from a pool.
        allocated_address: Option<AllocatedAddress>,
        /// Address that clients connect to.
        address: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    AllocatedAddress {
        /// Pool of the address.
        ip_pool: Option<String>,
        /// The address.
        ip: Option<String>,
        /// Mask of its subnet: 255.255.255.0.
        mask: Option<String>,
        /// Gateway of its subnet.
        gateway: Option<String>,
    }

    IpPool {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired addresses and their users.
        spec: IpPoolSpec,
        /// Observed use of the addresses.
        status: Option<IpPoolStatus>,
    }

    IpPoolSpec {
        /// Free text about the pool.
        description: Option<String>,
        /// Ranges of addresses.
        ranges: Vec<AddressRange>,
        /// Load balancers that the pool is for.
        selector: Option<PoolSelector>,
    }

    AddressRange {
        /// First address; by default the first of the subnet.
        range_start: Option<String>,
        /// Last address; by default the last of the subnet.
        range_end: Option<String>,
        /// Subnet: 192.168.1.0/24.
        subnet: String,
        /// Gateway, which is never given out; by default the first address of the subnet.
        gateway: Option<String>,
    }

    PoolSelector {
        /// The pool with the highest priority is chosen.
        priority: Option<i64>,
        /// NetworkAttachmentDefinition whose load balancers the pool is for: NAMESPACE/NAME.
        network: Option<String>,
        /// Users of the pool; any of them.
        scope: Vec<PoolScope>,
    }

    PoolScope {
        /// Project, or `*`.
        project: Option<String>,
        /// Namespace, or `*`.
        namespace: Option<String>,
        /// Guest cluster, or `*`.
        guest_cluster: Option<String>,
    }

    IpPoolStatus {
        /// Number of addresses.
        total: Option<i64>,
        /// Number of addresses that are free.
        available: Option<i64>,
        /// Address that was given out last.
        last_allocated: Option<String>,
        /// Load balancers by address: NAMESPACE/NAME.
        allocated: Map<String>,
        /// Load balancers that had an address before.
        allocated_history: Map<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }
}
