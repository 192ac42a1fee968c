//! Load balancers in front of machines, and the pools that their addresses come from.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Address that leads to machines or to a guest cluster.
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
        /// Description of the load balancer for users.
        description: Option<String>,
        /// Type of the backends. With vm, connections are forwarded to virtual machines; with
        /// cluster, the guest cluster forwards them itself.
        workload_type: Option<String> = {"enum": ["", "vm", "cluster"]},
        /// Source of the address: pool for an IPPool, dhcp for a DHCP server.
        ipam: Option<String> = {"enum": ["", "pool", "dhcp"]},
        /// Name of the IPPool; by default the pool whose selector matches is used.
        ip_pool: Option<String>,
        /// Ports that the load balancer listens on.
        listeners: Vec<Listener>,
        /// Labels of the backend machines: a machine must have one of the values of every key.
        backend_server_selector: Map<Vec<String>>,
        /// Health check of the backends.
        health_check: Option<HealthCheck>,
    }

    Listener {
        /// Name of the listener, unique in its load balancer.
        name: Option<String>,
        /// Port of the load balancer.
        port: i32,
        /// Protocol of the listener: TCP or UDP.
        protocol: Option<String>,
        /// Port of the backend machines.
        backend_port: i32,
    }

    HealthCheck {
        /// TCP port of the machines that is checked; 0 disables the health check.
        port: Option<i32>,
        /// Number of consecutive successful checks after which a machine is healthy.
        success_threshold: Option<i32>,
        /// Number of consecutive failed checks after which a machine is unhealthy.
        failure_threshold: Option<i32>,
        /// Seconds between two checks.
        period_seconds: Option<i32>,
        /// Timeout of a check in seconds.
        timeout_seconds: Option<i32>,
    }

    LoadBalancerStatus {
        /// Addresses of the backend machines.
        backend_servers: Vec<String>,
        /// Address that is allocated from an IPPool.
        allocated_address: Option<AllocatedAddress>,
        /// Address that clients connect to.
        address: Option<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }

    AllocatedAddress {
        /// Name of the IPPool that the address is allocated from.
        ip_pool: Option<String>,
        /// Address that is allocated to the load balancer.
        ip: Option<String>,
        /// Subnet mask of the address, for example 255.255.255.0.
        mask: Option<String>,
        /// Gateway of the subnet.
        gateway: Option<String>,
    }

    /// Addresses that load balancers are given.
    IpPool {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired ranges of the pool and the load balancers that may use it.
        spec: IpPoolSpec,
        /// Observed allocation of the addresses.
        status: Option<IpPoolStatus>,
    }

    IpPoolSpec {
        /// Description of the pool for users.
        description: Option<String>,
        /// Ranges of addresses that the pool consists of.
        ranges: Vec<AddressRange>,
        /// Selector of the load balancers that may use the pool.
        selector: Option<PoolSelector>,
    }

    AddressRange {
        /// First address of the range; by default the first of the subnet.
        range_start: Option<String>,
        /// Last address of the range; by default the last of the subnet.
        range_end: Option<String>,
        /// Subnet of the range, for example 192.168.1.0/24.
        subnet: String,
        /// Gateway of the subnet, which is never allocated; by default the first address of the
        /// subnet.
        gateway: Option<String>,
    }

    PoolSelector {
        /// Priority of the pool; of all pools that match, the one with the highest priority is
        /// used.
        priority: Option<i64>,
        /// NetworkAttachmentDefinition of the load balancers that may use the pool:
        /// NAMESPACE/NAME.
        network: Option<String>,
        /// Projects, namespaces and guest clusters that may use the pool; one entry has to match.
        scope: Vec<PoolScope>,
    }

    PoolScope {
        /// Name of the project; `*` matches all.
        project: Option<String>,
        /// Name of the namespace; `*` matches all.
        namespace: Option<String>,
        /// Name of the guest cluster; `*` matches all.
        guest_cluster: Option<String>,
    }

    IpPoolStatus {
        /// Number of addresses in the pool.
        total: Option<i64>,
        /// Number of addresses that can still be allocated.
        available: Option<i64>,
        /// Address that was allocated last.
        last_allocated: Option<String>,
        /// Load balancer as NAMESPACE/NAME, by allocated address.
        allocated: Map<String>,
        /// Load balancer that an address was allocated to before, by address.
        allocated_history: Map<String>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition>,
    }
}
