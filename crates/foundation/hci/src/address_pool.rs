//! Addresses of load balancers: the ranges of an IPPool, which pool is for whom, and which address
//! of a pool is the next.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::harvester::load_balancer::{AddressRange, IpPool, IpPoolSpec, PoolScope};

pub const GROUP: &str = "loadbalancer.harvesterhci.io";
/// In place of a name: all of them.
pub const ANY: &str = "*";

/// A range of a pool, with what was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRange {
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
    pub subnet: Ipv4Net,
    /// Belongs to a router and is not given out.
    pub gateway: Option<Ipv4Addr>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    #[error("invalid CIDR address: {0}, a valid example is 192.168.1.0/24")]
    Subnet(String),
    #[error("invalid {part} {address}: {fault}")]
    Address { part: &'static str, address: String, fault: AddressFault },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    #[error("invalid IP")]
    Syntax,
    #[error("IP {0} is out of subnet {1}")]
    Outside(Ipv4Addr, Ipv4Net),
    #[error("IP {0} is the network address")]
    Network(Ipv4Addr),
    #[error("IP {0} is the broadcast address")]
    Broadcast(Ipv4Addr),
}

impl PoolRange {
    pub fn parse(range: &AddressRange) -> Result<Self, RangeError> {
        let subnet: Ipv4Net =
            range.subnet.parse().map_err(|_| RangeError::Subnet(range.subnet.clone()))?;
        let subnet = subnet.trunc();
        let given = |part, text: &Option<String>| match text.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => host(subnet, text).map(Some).map_err(|fault| RangeError::Address {
                part,
                address: text.to_owned(),
                fault,
            }),
        };
        let start = given("range start", &range.range_start)?;
        let end = given("range end", &range.range_end)?;
        let gateway = given("gateway", &range.gateway)?;
        let mut hosts = subnet.hosts();
        let (lowest, highest) = match (hosts.next(), hosts.next_back()) {
            (Some(lowest), Some(highest)) => (lowest, highest),
            _ => (subnet.addr(), subnet.addr()),
        };
        let (start, end) = (start.unwrap_or(lowest), end.unwrap_or(highest));
        let gateway = gateway.or_else(|| (subnet.prefix_len() < 31).then_some(lowest));
        Ok(Self { first: start.min(end), last: start.max(end), subnet, gateway })
    }

    /// The addresses that can be given out.
    pub fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        let all = u32::from(self.first)..=u32::from(self.last);
        all.map(Ipv4Addr::from).filter(move |address| Some(*address) != self.gateway)
    }

    fn len(self) -> i64 {
        let all = i64::from(u32::from(self.last)) - i64::from(u32::from(self.first)) + 1;
        let gateway = self.gateway.is_some_and(|gateway| self.contains(gateway));
        all - i64::from(gateway)
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl std::fmt::Display for PoolRange {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.first, self.last)
    }
}

fn host(subnet: Ipv4Net, text: &str) -> Result<Ipv4Addr, AddressFault> {
    let address: Ipv4Addr = text.parse().map_err(|_| AddressFault::Syntax)?;
    if !subnet.contains(&address) {
        return Err(AddressFault::Outside(address, subnet));
    }
    if subnet.prefix_len() < 31 && address == subnet.network() {
        return Err(AddressFault::Network(address));
    }
    if subnet.prefix_len() < 31 && address == subnet.broadcast() {
        return Err(AddressFault::Broadcast(address));
    }
    Ok(address)
}

/// The ranges of a pool.
pub fn ranges(pool: &IpPoolSpec) -> Result<Vec<PoolRange>, RangeError> {
    pool.ranges.iter().map(PoolRange::parse).collect()
}

/// How many addresses the ranges have.
pub fn total(ranges: &[PoolRange]) -> i64 {
    ranges.iter().map(|range| range.len()).sum()
}

/// Owner of an address request, as selectors of pools describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolRequirement {
    pub network: String,
    pub project: String,
    pub namespace: String,
    pub cluster: String,
}

impl std::fmt::Display for PoolRequirement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { network, project, namespace, cluster } = self;
        write!(
            out,
            "&{{Network:{network} Project:{project} Namespace:{namespace} Cluster:{cluster}}}"
        )
    }
}

/// Whether the pool is for all load balancers: its only scope is `*` in all fields.
pub fn is_global(spec: &IpPoolSpec) -> bool {
    let any = |name: &Option<String>| name.as_deref() == Some(ANY);
    match spec.selector.as_ref().map(|selector| selector.scope.as_slice()) {
        Some([only]) => any(&only.project) && any(&only.namespace) && any(&only.guest_cluster),
        _ => false,
    }
}

/// Whether load balancers of this namespace, in this project, may name the pool: one of its scopes
/// is for both, or it has none.
pub fn may_name(spec: &IpPoolSpec, namespace: &str, project: &str) -> bool {
    let scopes = spec.selector.as_ref().map(|selector| selector.scope.as_slice());
    let scopes = scopes.unwrap_or_default();
    let is_for = |scope: &PoolScope| {
        let own = scope.project.as_deref().unwrap_or_default();
        scope.namespace.as_deref().is_some_and(|own| own == namespace || own == ANY)
            && (own.is_empty() || own == ANY || own == project)
    };
    scopes.is_empty() || scopes.iter().any(is_for)
}

/// The pool for this requirement: the one with the highest priority whose network and scope fit,
/// else one with a scope that names no project, else the global one. A load balancer of a guest
/// cluster accepts scopes that name no cluster, too.
pub fn choose<'a>(
    pools: &'a [IpPool],
    wanted: &PoolRequirement,
    of_cluster: bool,
) -> Option<&'a IpPool> {
    let best = |open: OpenScope| {
        let fitting = pools.iter().filter(|pool| fits(&pool.spec, wanted, open));
        fitting.max_by_key(|pool| {
            pool.spec.selector.as_ref().and_then(|selector| selector.priority).unwrap_or(0)
        })
    };
    best(OpenScope { project: false, cluster: false })
        .or_else(|| best(OpenScope { project: true, cluster: of_cluster }))
        .or_else(|| pools.iter().find(|pool| is_global(&pool.spec)))
}

/// The fields of a scope that fit whatever is wanted if they are left out.
#[derive(Debug, Clone, Copy)]
struct OpenScope {
    project: bool,
    cluster: bool,
}

fn fits(spec: &IpPoolSpec, wanted: &PoolRequirement, open: OpenScope) -> bool {
    let Some(selector) = &spec.selector else { return false };
    let network = selector.network.as_deref().unwrap_or_default();
    network == wanted.network && selector.scope.iter().any(|scope| scope_fits(scope, wanted, open))
}

/// `*` is for administrators: a load balancer that claims it belongs to nothing.
fn scope_fits(scope: &PoolScope, wanted: &PoolRequirement, open: OpenScope) -> bool {
    let fits = |own: &Option<String>, wanted: &str, open: bool| {
        let own = own.as_deref().unwrap_or_default();
        own == ANY || own == wanted || open && own.is_empty()
    };
    fits(&scope.project, &wanted.project, open.project)
        && fits(&scope.namespace, &wanted.namespace, false)
        && fits(&scope.guest_cluster, &wanted.cluster, open.cluster)
}

/// The next address for `holder`: the one that it had before, else the first free one after that
/// which was given out last.
pub fn next_address(ranges: &[PoolRange], pool: &IpPool, holder: &str) -> Option<Ipv4Addr> {
    let status = pool.status.clone().unwrap_or_default();
    let taken: BTreeSet<Ipv4Addr> =
        status.allocated.keys().filter_map(|address| address.parse().ok()).collect();
    let is_free = |address: &Ipv4Addr| {
        !taken.contains(address) && ranges.iter().any(|range| range.contains(*address))
    };
    let former = status.allocated_history.iter().find(|(_, own)| *own == holder);
    if let Some(former) = former.and_then(|(address, _)| address.parse().ok()).filter(is_free) {
        return Some(former);
    }
    let last: Option<Ipv4Addr> =
        status.last_allocated.as_deref().and_then(|last| last.parse().ok());
    let all = || ranges.iter().flat_map(|range| range.addresses());
    let after = last.and_then(|last| all().skip_while(|own| *own != last).skip(1).find(is_free));
    after.or_else(|| all().find(is_free))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn range(start: &str, end: &str, subnet: &str, gateway: &str) -> Result<PoolRange, RangeError> {
        let value =
            json!({"rangeStart": start, "rangeEnd": end, "subnet": subnet, "gateway": gateway});
        PoolRange::parse(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn ranges_are_completed_from_their_subnet() {
        for (given, expected, count) in [
            (("", "", "192.168.1.0/24", ""), "192.168.1.1-192.168.1.254", 253),
            (("", "", "192.168.1.1/24", ""), "192.168.1.1-192.168.1.254", 253),
            (("10.0.0.10", "10.0.0.19", "10.0.0.0/24", ""), "10.0.0.10-10.0.0.19", 10),
            (("10.0.0.19", "10.0.0.10", "10.0.0.0/24", "10.0.0.12"), "10.0.0.10-10.0.0.19", 9),
            (("", "", "10.0.0.7/32", ""), "10.0.0.7-10.0.0.7", 1),
        ] {
            let (start, end, subnet, gateway) = given;
            let range = range(start, end, subnet, gateway).unwrap();
            assert_eq!(
                (range.to_string().as_str(), total(&[range])),
                (expected, count),
                "{given:?}"
            );
            assert_eq!(i64::try_from(range.addresses().count()), Ok(count), "{given:?}");
        }
    }

    #[test]
    fn wrong_ranges_are_named() {
        for (given, message) in [
            (("", "", "x", ""), "invalid CIDR address: x, a valid example is 192.168.1.0/24"),
            (
                ("10.0.1.1", "", "10.0.0.0/24", ""),
                "invalid range start 10.0.1.1: IP 10.0.1.1 is out of subnet 10.0.0.0/24",
            ),
            (
                ("", "10.0.0.255", "10.0.0.0/24", ""),
                "invalid range end 10.0.0.255: IP 10.0.0.255 is the broadcast address",
            ),
            (
                ("", "", "10.0.0.0/24", "10.0.0.0"),
                "invalid gateway 10.0.0.0: IP 10.0.0.0 is the network address",
            ),
            (("", "", "10.0.0.0/24", "ten"), "invalid gateway ten: invalid IP"),
        ] {
            let (start, end, subnet, gateway) = given;
            assert_eq!(range(start, end, subnet, gateway).unwrap_err().to_string(), message);
        }
    }

    fn pool(name: &str, selector: Value) -> IpPool {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"ranges": [{"subnet": "10.0.0.0/24"}], "selector": selector},
        }))
        .unwrap()
    }

    #[test]
    fn the_best_pool_is_chosen() {
        let scope = |project: &str, namespace: &str, cluster: &str| json!({"project": project, "namespace": namespace, "guestCluster": cluster});
        let pools = [
            pool("low", json!({"priority": 1, "scope": [scope("", "default", "")]})),
            pool("high", json!({"priority": 9, "scope": [scope("*", "default", "*")]})),
            pool("vlan", json!({"network": "default/vlan1", "scope": [scope("", "default", "")]})),
            pool("global", json!({"scope": [scope("*", "*", "*")]})),
            pool("none", json!({})),
        ];
        let wanted = |network: &str, namespace: &str, cluster: &str| PoolRequirement {
            network: network.into(),
            project: String::new(),
            namespace: namespace.into(),
            cluster: cluster.into(),
        };
        for (wanted, of_cluster, expected) in [
            (wanted("", "default", ""), false, "high"),
            (wanted("", "other", ""), false, "global"),
            (wanted("default/vlan1", "default", ""), false, "vlan"),
            (wanted("default/vlan1", "default", "prod"), true, "vlan"),
            (wanted("default/vlan1", "default", "prod"), false, "global"),
        ] {
            let chosen = choose(&pools, &wanted, of_cluster).unwrap();
            assert_eq!(chosen.metadata.name.as_deref(), Some(expected), "{wanted}");
        }
        assert!(choose(&pools[..3], &wanted("", "other", ""), false).is_none());
        let named =
            |namespace: &str| pools.each_ref().map(|pool| may_name(&pool.spec, namespace, ""));
        assert_eq!(named("default"), [true; 5]);
        assert_eq!(named("other"), [false, false, false, true, true]);
    }

    #[test]
    fn a_pool_of_a_project_is_for_its_namespaces_only() {
        let scope = |project: &str, namespace: &str| json!({"scope": [{"project": project, "namespace": namespace, "guestCluster": "*"}]});
        let pools = [
            pool("project", scope("local/p-1", "*")),
            pool("namespace", scope("", "team")),
            pool("both", scope("local/p-1", "team")),
        ];
        for (project, namespace, cluster, chosen, named) in [
            ("local/p-1", "web", "", Some("project"), [true, false, false]),
            ("local/p-1", "team", "", Some("both"), [true, true, true]),
            ("local/p-2", "web", "", None, [false, false, false]),
            ("local/p-2", "team", "", Some("namespace"), [false, true, false]),
            ("", "team", "", Some("namespace"), [false, true, false]),
            ("*", "web", "*", None, [false, false, false]),
        ] {
            let wanted = PoolRequirement {
                network: String::new(),
                project: project.into(),
                namespace: namespace.into(),
                cluster: cluster.into(),
            };
            for of_cluster in [false, true] {
                let found = choose(&pools, &wanted, of_cluster);
                let found = found.and_then(|pool| pool.metadata.name.as_deref());
                assert_eq!(found, chosen, "{wanted}");
            }
            let all = pools.each_ref().map(|pool| may_name(&pool.spec, namespace, project));
            assert_eq!(all, named, "{wanted}");
        }
    }

    #[test]
    fn addresses_go_round_and_come_back_to_those_who_had_them() {
        let ranges = [range("10.0.0.10", "10.0.0.12", "10.0.0.0/24", "").unwrap()];
        for (status, holder, expected) in [
            (json!({}), "a/b", Some("10.0.0.10")),
            (json!({"lastAllocated": "10.0.0.10"}), "a/b", Some("10.0.0.11")),
            (json!({"lastAllocated": "10.0.0.12"}), "a/b", Some("10.0.0.10")),
            (
                json!({"lastAllocated": "10.0.0.10", "allocated": {"10.0.0.11": "a/x"}}),
                "a/b",
                Some("10.0.0.12"),
            ),
            (
                json!({"lastAllocated": "10.0.0.10", "allocatedHistory": {"10.0.0.12": "a/b"}}),
                "a/b",
                Some("10.0.0.12"),
            ),
            (
                json!({"allocated": {"10.0.0.10": "x", "10.0.0.11": "y", "10.0.0.12": "z"}}),
                "a/b",
                None,
            ),
        ] {
            let mut pool = pool("p", json!({}));
            pool.status = serde_json::from_value(status.clone()).unwrap();
            let next = next_address(&ranges, &pool, holder).map(|address| address.to_string());
            assert_eq!(next.as_deref(), expected, "{status}");
        }
    }
}
