//! The machines behind a load balancer, and the service and the slice that lead to them.

use std::net::Ipv4Addr;

use hci::backend_health::{self, ActiveCheck, ReservedAddresses};
use hci::harvester::load_balancer::{AllocatedAddress, Listener, LoadBalancer};
use serde_json::{Value, json};

use super::address::Allocation;
use super::{BalancerChange, BalancerState, ManagedKind};
use crate::condition;
use crate::object::{
    controlled_by, is_controlled_by, is_merged, labels, name, namespace, read, uid,
};
use crate::record::condition::condition;
use crate::record::instance::InstanceFields;
use crate::record::service::ServiceFields;

const LABEL: &str = "loadbalancer.harvesterhci.io/servicelb";
const API_VERSION: &str = "loadbalancer.harvesterhci.io/v1beta1";

/// A machine behind a load balancer.
pub(super) struct Backend<'a> {
    instance: &'a Value,
    pub(super) address: &'a str,
    ready: bool,
    /// It answers the health check, or there is none.
    pub(super) healthy: bool,
}

/// The machines behind a load balancer.
pub(super) struct Backends<'a> {
    /// How many are selected and run.
    pub(super) running: usize,
    /// Those of them that have an address.
    pub(super) servers: Vec<Backend<'a>>,
}

impl Backends<'_> {
    /// Why connections go nowhere, in upstream's words.
    pub(super) fn problem(&self) -> Option<String> {
        if self.running == 0 {
            Some("no running backend servers".to_owned())
        } else if self.servers.is_empty() {
            Some("running backend servers have no IP".to_owned())
        } else if !self.servers.iter().any(|server| server.healthy) {
            let total = self.servers.len();
            let text = "running backend servers are not probed as healthy";
            Some(format!("{text} total:{total}, healthy:0"))
        } else {
            None
        }
    }
}

/// The address that the service of a load balancer shows, and why it shows none.
pub(super) struct ShownAddress<'a> {
    pub(super) address: &'a str,
    message: &'a str,
}

impl ShownAddress<'_> {
    /// The reason, to be appended to a message.
    pub(super) fn why(&self) -> String {
        if self.message.is_empty() { String::new() } else { format!(": {}", self.message) }
    }
}

pub(super) fn shown_address<'a>(state: &'a BalancerState, balancer: &Value) -> ShownAddress<'a> {
    let Some(service) = of(&state.services, balancer) else {
        return ShownAddress { address: "", message: "" };
    };
    let announced = condition(service, "Announced");
    ShownAddress {
        address: read::<ServiceFields<'_>>(service).status.address(),
        message: announced.map(|own| own.message).unwrap_or_default(),
    }
}

/// The object of the same name that a load balancer controls.
fn of<'a>(all: &'a [Value], balancer: &Value) -> Option<&'a Value> {
    let same = |own: &&Value| namespace(own) == namespace(balancer) && name(own) == name(balancer);
    all.iter().find(same).filter(|own| is_controlled_by(own, balancer))
}

/// Machines of the namespace that run and are selected. Connections to them do not go to a
/// `reserved` address that a guest reports.
pub(super) fn backends<'a>(
    balancer: &Value,
    typed: &LoadBalancer,
    instances: &'a [Value],
    reserved: &ReservedAddresses,
) -> Backends<'a> {
    let selected: Vec<&Value> = instances
        .iter()
        .filter(|instance| {
            namespace(instance) == namespace(balancer)
                && read::<InstanceFields<'_>>(instance).status.phase == "Running"
                && backend_health::selects(&typed.spec, labels(instance))
        })
        .collect();
    let check = ActiveCheck::of(typed);
    let answers = |instance: &Value| {
        check.is_none_or(|check| {
            let reported = backend_health::reported(instance);
            let own = reported.get(name(balancer));
            own.is_some_and(|own| own.healthy && own.port == check.port)
        })
    };
    let is_reserved = |address: Ipv4Addr| reserved.contains(address);
    let mut servers: Vec<Backend<'_>> = selected
        .iter()
        .filter_map(|instance| {
            let address = backend_health::address(instance, is_reserved)?;
            let ready = condition::is(instance, "Ready", "True");
            Some(Backend { instance, address, ready, healthy: answers(instance) })
        })
        .collect();
    servers.sort_by_key(|backend| name(backend.instance));
    Backends { running: selected.len(), servers }
}

/// The service and the slice of a load balancer of machines.
pub(super) fn serve(
    state: &BalancerState,
    balancer: &Value,
    typed: &LoadBalancer,
    allocation: &Allocation,
    backends: &[Backend<'_>],
) -> Vec<BalancerChange> {
    let (service, slice) = (of(&state.services, balancer), of(&state.slices, balancer));
    let address = match allocation {
        Allocation::Address(AllocatedAddress { ip: Some(address), .. })
            if typed.spec.workload_type.as_deref() != Some("cluster") =>
        {
            address
        }
        _ => {
            let old = [(ManagedKind::Service, service), (ManagedKind::Slice, slice)];
            let old = old.into_iter().filter_map(|(kind, own)| Some((kind, own?)));
            return old.map(|(kind, own)| delete(kind, own)).collect();
        }
    };
    let spec = json!({
        "type": "LoadBalancer", "externalIPs": [address], "loadBalancerIP": address,
        "ports": typed.spec.listeners.iter().map(service_port).collect::<Vec<_>>(),
    });
    let mut changes = Vec::new();
    changes.extend(ensure(ManagedKind::Service, balancer, service, "Service", "v1", "spec", spec));
    changes.extend(ensure_slice(balancer, typed, slice, backends));
    changes
}

fn service_port(listener: &Listener) -> Value {
    json!({
        "name": listener.name.clone().unwrap_or_default(), "port": listener.port,
        "protocol": protocol(listener), "targetPort": listener.backend_port,
    })
}

fn protocol(listener: &Listener) -> String {
    let given = listener.protocol.as_deref().filter(|protocol| !protocol.is_empty());
    given.unwrap_or("TCP").to_uppercase()
}

fn ensure_slice(
    balancer: &Value,
    typed: &LoadBalancer,
    slice: Option<&Value>,
    backends: &[Backend<'_>],
) -> Option<BalancerChange> {
    let ports: Vec<Value> = typed
        .spec
        .listeners
        .iter()
        .map(|listener| {
            json!({"name": listener.name.clone().unwrap_or_default(),
                "port": listener.backend_port, "protocol": protocol(listener)})
        })
        .collect();
    let endpoints: Vec<Value> = backends
        .iter()
        .map(|backend| {
            let instance = backend.instance;
            json!({
                "addresses": [backend.address],
                "conditions": {"ready": backend.ready && backend.healthy},
                "nodeName": read::<InstanceFields<'_>>(instance).status.node_name,
                "targetRef": {
                    "kind": "VirtualMachineInstance", "namespace": namespace(instance),
                    "name": name(instance), "uid": uid(instance),
                },
            })
        })
        .collect();
    let patch = json!({"endpoints": endpoints, "ports": ports});
    match slice {
        None => {
            let mut object = made(balancer, "EndpointSlice", "discovery.k8s.io/v1");
            object["metadata"]["labels"]["kubernetes.io/service-name"] = name(balancer).into();
            object["addressType"] = "IPv4".into();
            object["endpoints"] = patch["endpoints"].clone();
            object["ports"] = patch["ports"].clone();
            let namespace = namespace(balancer).to_owned();
            Some(BalancerChange::Create { kind: ManagedKind::Slice, namespace, object })
        }
        Some(slice) if is_merged(slice, &patch) => None,
        Some(slice) => Some(patched(ManagedKind::Slice, slice, patch)),
    }
}

/// The object with a field that has to be so.
fn ensure(
    kind: ManagedKind,
    balancer: &Value,
    old: Option<&Value>,
    name: &str,
    api_version: &str,
    field: &str,
    wanted: Value,
) -> Option<BalancerChange> {
    let Some(old) = old else {
        let mut object = made(balancer, name, api_version);
        object[field] = wanted;
        let namespace = namespace(balancer).to_owned();
        return Some(BalancerChange::Create { kind, namespace, object });
    };
    (!has(&old[field], &wanted)).then(|| patched(kind, old, json!({field: wanted})))
}

/// Whether all wanted fields are set, whatever the server has added.
fn has(own: &Value, wanted: &Value) -> bool {
    match (own, wanted) {
        (Value::Object(own), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| own.get(key).is_some_and(|own| has(own, value)))
        }
        (Value::Array(own), Value::Array(wanted)) => {
            own.len() == wanted.len() && own.iter().zip(wanted).all(|(own, value)| has(own, value))
        }
        _ => own == wanted,
    }
}

fn made(balancer: &Value, kind: &str, api_version: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name(balancer), "namespace": namespace(balancer), "labels": {LABEL: "true"},
            "ownerReferences": [controlled_by(balancer, API_VERSION, "LoadBalancer")],
        },
    })
}

fn patched(kind: ManagedKind, object: &Value, patch: Value) -> BalancerChange {
    let (namespace, name) = (namespace(object).to_owned(), name(object).to_owned());
    BalancerChange::Patch { kind, namespace, name, patch }
}

fn delete(kind: ManagedKind, object: &Value) -> BalancerChange {
    BalancerChange::Delete {
        kind,
        namespace: namespace(object).to_owned(),
        name: name(object).to_owned(),
        uid: uid(object).to_owned(),
    }
}
