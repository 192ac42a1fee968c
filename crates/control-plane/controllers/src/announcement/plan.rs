//! Which node announces which address, and what services say of it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use base::clock;
use hci::announcement::{self, AnnouncementLease, HANDOVER};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::object::{annotation, is_deleting, is_merged, name, namespace, read, uid, version};
use crate::record::service::ServiceFields;
use crate::record::{self, fields};

/// The condition of a service that says whether its address is announced.
const ANNOUNCED: &str = "Announced";

#[derive(Debug, Default)]
pub(super) struct AnnouncementState {
    pub(super) pools: Vec<Value>,
    pub(super) balancers: Vec<Value>,
    /// Of load balancers.
    pub(super) services: Vec<Value>,
    pub(super) nodes: Vec<Value>,
    pub(super) leases: Vec<Value>,
    /// How long each lease has been unchanged, by name; those that have just vanished, too.
    pub(super) unchanged: BTreeMap<String, Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnnouncementChange {
    CreateLease(Value),
    PatchLease {
        name: String,
        patch: Value,
    },
    DeleteLease {
        name: String,
        uid: String,
    },
    /// The status of a service.
    Status {
        namespace: String,
        name: String,
        patch: Value,
    },
}

/// An address in use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UsedAddress {
    address: Ipv4Addr,
    /// The load balancer, and its service: NAMESPACE/NAME.
    user: String,
    /// Why no node announces it, if none does: routers lead to it.
    external: Option<ExternalRoute>,
}

/// Why routers have to lead to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExternalRoute {
    /// The pool says so.
    Declared,
    /// No node has an interface in its subnet, so that no host could be asked for it there.
    NoSubnet,
}

impl ExternalRoute {
    fn message(self, address: &str) -> String {
        match self {
            Self::Declared => "routers outside of the cluster lead to the address".to_owned(),
            Self::NoSubnet => format!(
                "no node has an interface in the subnet of {address}: routers have to lead to it"
            ),
        }
    }
}

fields! {
    struct BalancerFields<'a> {
        spec: BalancerSpec<'a>,
    }

    struct BalancerSpec<'a> {
        workload_type: &'a str,
    }

    struct PoolFields<'a> {
        status: PoolStatus<'a>,
    }

    struct PoolStatus<'a> {
        /// Addresses, with the load balancer that has each.
        allocated: BTreeMap<&'a str, &'a str>,
    }
}

/// Whether a load balancer is one of the cluster and not of machines.
fn is_of_cluster(balancer: &Value) -> bool {
    read::<BalancerFields<'_>>(balancer).spec.workload_type == "cluster"
}

/// Addresses that pools have given to load balancers of machines. Only administrators and this
/// platform write pools; the address in a Service is a request only.
fn used(state: &AnnouncementState) -> Vec<UsedAddress> {
    let users: BTreeSet<String> = state
        .balancers
        .iter()
        .filter(|own| !is_deleting(own) && !is_of_cluster(own))
        .map(|own| format!("{}/{}", namespace(own), name(own)))
        .collect();
    let mut all = Vec::new();
    for pool in &state.pools {
        let is_declared = annotation(pool, announcement::ANNOUNCEMENT) == Some("external");
        for (address, user) in read::<PoolFields<'_>>(pool).status.allocated {
            let user = user.to_owned();
            if let Ok(address) = address.parse()
                && users.contains(&user)
            {
                let external = match is_declared {
                    true => Some(ExternalRoute::Declared),
                    false => (!announcement::is_local(&state.nodes, address))
                        .then_some(ExternalRoute::NoSubnet),
                };
                all.push(UsedAddress { address, user, external });
            }
        }
    }
    all
}

/// Whether there is no address to manage.
pub(super) fn is_idle(state: &AnnouncementState) -> bool {
    state.leases.is_empty() && used(state).is_empty()
}

/// Whether an address is on its way to a node, or from one.
pub(super) fn is_waiting(state: &AnnouncementState) -> bool {
    let mut leases = state.leases.iter().filter_map(AnnouncementLease::read);
    leases.any(|lease| {
        let is_moving = lease.holder != lease.wanted;
        !lease.holder.is_empty() && (is_moving || lease.renewed.is_empty())
    })
}

pub(super) fn plan(state: &AnnouncementState, now: Timestamp) -> Vec<AnnouncementChange> {
    let used = used(state);
    let mut changes = Vec::new();
    let mut load: BTreeMap<&str, usize> =
        state.nodes.iter().map(|node| (name(node), 0_usize)).collect();
    for lease in &state.leases {
        *load.entry(record::lease::lease(lease).holder_identity).or_default() += 1;
    }
    let announced: Vec<&UsedAddress> = used.iter().filter(|own| own.external.is_none()).collect();
    for own in &announced {
        let (holder, change) = assign(state, own.address, find(state, own.address), &load, now);
        if change.is_some() {
            *load.entry(holder.unwrap_or_default()).or_default() += 1;
        }
        changes.extend(change);
    }
    for lease in &state.leases {
        let is_used =
            announced.iter().any(|own| announcement::lease_name(own.address) == name(lease));
        if !is_used {
            changes.extend(retire(state, lease));
        }
    }
    changes.extend(used.iter().filter_map(|own| service_status(state, own, now)));
    changes
}

fn find(state: &AnnouncementState, address: Ipv4Addr) -> Option<&Value> {
    let wanted = announcement::lease_name(address);
    state.leases.iter().find(|lease| name(lease) == wanted)
}

fn is_silent(state: &AnnouncementState, lease: &str) -> bool {
    state.unchanged.get(lease).is_some_and(|time| *time >= HANDOVER)
}

/// Assigns an address to a node, and the change of the lease that announces it.
fn assign<'a>(
    state: &'a AnnouncementState,
    address: Ipv4Addr,
    lease: Option<&Value>,
    load: &BTreeMap<&str, usize>,
    now: Timestamp,
) -> (Option<&'a str>, Option<AnnouncementChange>) {
    let candidates = announcement::candidates(&state.nodes, address);
    let time = clock::rfc3339_micro(now);
    let key = announcement::lease_name(address);
    let Some(lease) = lease else {
        // The former holder of a deleted lease may still announce the address.
        if state.unchanged.contains_key(&key) && !is_silent(state, &key) {
            return (None, None);
        }
        let chosen = announcement::choose(&candidates, "", None, load);
        let object = chosen.map(|node| AnnouncementLease::object(address, node, &time));
        return (chosen, object.map(AnnouncementChange::CreateLease));
    };
    let Some(known) = AnnouncementLease::read(lease) else { return (None, None) };
    let is_free = known.holder.is_empty();
    let is_expired = !is_free && is_silent(state, &key);
    if candidates.is_empty() && !is_free && !is_expired {
        // A node that still announces is better than none.
        return (None, None);
    }
    let failed = is_expired.then_some(known.holder.as_str());
    let chosen = announcement::choose(&candidates, &known.holder, failed, load);
    let mut patch = json!({"metadata": {"annotations": {
        announcement::ANNOUNCE_ON: chosen.unwrap_or_default(),
    }}});
    if let Some(chosen) = chosen.filter(|_| is_free || is_expired) {
        let transitions = record::lease::lease(lease).lease_transitions + 1;
        patch["spec"] = json!({
            "holderIdentity": chosen, "acquireTime": time, "renewTime": null,
            "leaseTransitions": transitions,
        });
    } else if is_expired {
        patch["spec"] = json!({"holderIdentity": null, "renewTime": null});
    }
    (chosen, patch_lease(lease, patch))
}

/// A write is refused if the lease has changed since it was read.
fn patch_lease(lease: &Value, mut patch: Value) -> Option<AnnouncementChange> {
    if is_merged(lease, &patch) {
        return None;
    }
    patch["metadata"]["resourceVersion"] =
        version(lease).get("resourceVersion").cloned().unwrap_or_default();
    Some(AnnouncementChange::PatchLease { name: name(lease).to_owned(), patch })
}

/// The lease of an unused address is deleted once no node announces it.
fn retire(state: &AnnouncementState, lease: &Value) -> Option<AnnouncementChange> {
    let is_held = !record::lease::lease(lease).holder_identity.is_empty();
    if is_held && !is_silent(state, name(lease)) {
        let patch = json!({"metadata": {"annotations": {announcement::ANNOUNCE_ON: ""}}});
        return patch_lease(lease, patch);
    }
    Some(AnnouncementChange::DeleteLease {
        name: name(lease).to_owned(),
        uid: uid(lease).to_owned(),
    })
}

/// A service shows its address when a node has announced it, and while another takes over.
fn service_status(
    state: &AnnouncementState,
    own: &UsedAddress,
    now: Timestamp,
) -> Option<AnnouncementChange> {
    let is_own = |service: &&Value| {
        format!("{}/{}", namespace(service), name(service)) == own.user
            && read::<ServiceFields<'_>>(service).spec.load_balancer_ip == own.address.to_string()
    };
    let service = state.services.iter().find(is_own)?;
    let address = own.address.to_string();
    let before = read::<ServiceFields<'_>>(service).status.address();
    let shown = before == address;
    let lease = find(state, own.address).and_then(AnnouncementLease::read);
    let holder = lease.as_ref().map(|lease| lease.holder.as_str()).unwrap_or_default();
    let is_renewed = lease.as_ref().is_some_and(|lease| !lease.renewed.is_empty());
    let condition = Condition::new(
        ANNOUNCED,
        if own.external.is_some() || is_renewed { "True" } else { "False" },
    );
    let condition = if let Some(external) = own.external {
        condition.because("External", external.message(&address))
    } else if is_renewed {
        condition.because("Announced", format!("node {holder} announces the address"))
    } else if holder.is_empty() {
        condition.because(
            "NoNode",
            format!("no node that is ready has an interface in the subnet of {address}"),
        )
    } else {
        condition.because("Assigned", format!("node {holder} has not announced the address yet"))
    };
    let is_taken_over = shown && !holder.is_empty();
    let mut conditions = condition::of(service);
    condition::set(&mut conditions, &condition, now);
    let mut patch = json!({"status": {"conditions": conditions}});
    if condition.status == "True" || is_taken_over {
        let ingress = json!([{"ip": address, "ipMode": "VIP"}]);
        patch["status"]["loadBalancer"] = json!({"ingress": ingress});
    } else if !before.is_empty() {
        patch["status"]["loadBalancer"] = json!({"ingress": null});
    }
    (!is_merged(service, &patch)).then(|| AnnouncementChange::Status {
        namespace: namespace(service).to_owned(),
        name: name(service).to_owned(),
        patch,
    })
}
