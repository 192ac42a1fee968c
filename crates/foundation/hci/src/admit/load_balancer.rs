//! Load balancers and the pools of their addresses. Upstream's texts; what upstream answers with
//! 500 is 422 here, so that clients do not repeat a request that cannot succeed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{AdmissionResult, Refusal, Write, split_id, text};
use crate::address_pool::{self, GROUP, PoolRange};
use crate::harvester::load_balancer::{HealthCheck, IpPool, IpPoolSpec, Listener, LoadBalancer};

const WEBHOOK: &str = "validator.harvester-system.harvester-load-balancer-webhook";
const NETWORKS: &str = "k8s.cni.cncf.io";
/// Whose address it is, for the choice of a pool.
const NAMESPACE: &str = "loadbalancer.harvesterhci.io/namespace";
const PROJECT: &str = "loadbalancer.harvesterhci.io/project";

fn refuse(field: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::by(WEBHOOK, 422, field, message)
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

/// Whether only metadata or the status changes.
fn is_same_spec(write: &Write<'_>) -> bool {
    write.object.zip(write.old).is_some_and(|(new, old)| new["spec"] == old["spec"])
}

/// Fills in the kind of workload, the source of the address and the figures of the health check.
pub(super) fn complete(write: &Write<'_>, object: &mut Value) {
    let spec = &mut object["spec"];
    for (field, default) in [("workloadType", "vm"), ("ipam", "pool")] {
        if spec[field].as_str().unwrap_or_default().is_empty() {
            spec[field] = default.into();
        }
    }
    if let Some(check) = spec.get_mut("healthCheck")
        && check["port"].as_i64().unwrap_or_default() != 0
    {
        for (field, default) in [
            ("successThreshold", 2),
            ("failureThreshold", 2),
            ("periodSeconds", 1),
            ("timeoutSeconds", 1),
        ] {
            if check[field].as_i64().unwrap_or_default() == 0 {
                check[field] = default.into();
            }
        }
    }
    let of_cluster = spec["workloadType"] == "cluster";
    let metadata = &mut object["metadata"];
    if metadata["annotations"].is_null() {
        metadata["annotations"] = json!({});
    }
    metadata["annotations"][NAMESPACE] = write.namespace.into();
    // Pools are chosen by the project, so it is that of the namespace, whatever the writer says.
    let namespace = write.objects.get("", "namespaces", "", write.namespace);
    let project = namespace.as_ref().map(|namespace| {
        text(namespace, "/metadata/annotations/field.cattle.io~1projectId").replace(':', "/")
    });
    let project = project.unwrap_or_default();
    if of_cluster || !project.is_empty() {
        metadata["annotations"][PROJECT] = project.into();
    } else if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.remove(PROJECT);
    }
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    if is_same_spec(write) {
        return Ok(());
    }
    let Some(new) = write.object.and_then(read::<LoadBalancer>) else { return Ok(()) };
    let old = write.old.and_then(read::<LoadBalancer>);
    let verb = if old.is_some() { "update" } else { "create" };
    let prefix = format!("{verb} loadbalancer {}/{} failed", write.namespace, write.name);
    let fail = |field, message: String| Err(refuse(field, format!("{prefix}: {message}")));
    if let Some(old) = &old {
        let (before, after) = (old.spec.ipam.as_deref(), new.spec.ipam.as_deref());
        if before != after {
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            return fail("spec.ipam", format!("can't change the IPAM from {before} to {after}"));
        }
        let (before, after) =
            (old.spec.workload_type.as_deref(), new.spec.workload_type.as_deref());
        if before != after {
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            let message = format!("can't change the WorkloadType from {before} to {after}");
            return fail("spec.workloadType", message);
        }
    }
    if let Err(message) = listeners(&new.spec.listeners, new.spec.workload_type.as_deref()) {
        return fail("spec.listeners", message);
    }
    match new.spec.health_check.as_ref().map(|check| health_check(check, &new.spec.listeners)) {
        Some(Err(message)) => {
            Err(refuse("spec.healthCheck", format!("{prefix} with healthyCheck: {message}")))
        }
        _ => Ok(()),
    }
}

fn listeners(listeners: &[Listener], workload: Option<&str>) -> Result<(), String> {
    if listeners.is_empty() && workload != Some("cluster") {
        return Err("the loadbalancer needs to have at least one listener".into());
    }
    for (index, listener) in listeners.iter().enumerate() {
        let name = listener.name.as_deref().unwrap_or_default();
        for (what, port) in [("port", listener.port), ("backend port", listener.backend_port)] {
            if port > 65535 {
                return Err(format!("listener {what} {port} must <= 65535"));
            }
            if port < 1 {
                return Err(format!("listener {what} {port} must >= 1"));
            }
        }
        if !PROTOCOLS.contains(&protocol(listener)) {
            let protocol = protocol(listener);
            return Err(format!(
                "listener {name} has protocol {protocol:?}: it has to be one of {}",
                PROTOCOLS.join(", ")
            ));
        }
        for other in &listeners[..index] {
            let former = other.name.as_deref().unwrap_or_default();
            if name == former {
                return Err(format!("listener has duplicate name {name}"));
            }
            let protocol = protocol(listener);
            if protocol != self::protocol(other) {
                continue;
            }
            if listener.port == other.port {
                let port = listener.port;
                return Err(format!(
                    "listener {name} has duplicate port {protocol}:{port} with listener {former}"
                ));
            }
            if listener.backend_port == other.backend_port {
                let port = listener.backend_port;
                return Err(format!(
                    "listener {name} has duplicate backend port {protocol}:{port} with listener {former}"
                ));
            }
        }
    }
    Ok(())
}

/// Those of a Service.
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

fn protocol(listener: &Listener) -> &str {
    listener.protocol.as_deref().filter(|protocol| !protocol.is_empty()).unwrap_or("TCP")
}

fn health_check(check: &HealthCheck, listeners: &[Listener]) -> Result<(), String> {
    let port = check.port.unwrap_or_default();
    if port == 0 {
        return Ok(());
    }
    let mut own = listeners.iter().filter(|listener| listener.backend_port == port).peekable();
    if own.peek().is_none() {
        return Err(format!("healthcheck port {port} is not in listener backend port list"));
    }
    if !own.any(|listener| protocol(listener) == "TCP") {
        return Err(format!("healthcheck port {port} can only be a TCP backend port"));
    }
    for (name, figure) in [
        ("SuccessThreshold", check.success_threshold),
        ("FailureThreshold", check.failure_threshold),
        ("PeriodSeconds", check.period_seconds),
        ("TimeoutSeconds", check.timeout_seconds),
    ] {
        if figure.is_some_and(|figure| figure < 1) {
            return Err(format!("healthcheck {name} should > 0"));
        }
    }
    Ok(())
}

pub(super) fn validate_pool(write: &Write<'_>) -> AdmissionResult {
    if is_same_spec(write) {
        return Ok(());
    }
    let Some(new) = write.object.and_then(read::<IpPool>) else { return validate_release(write) };
    let verb = if write.old.is_some() { "update" } else { "create" };
    let fail = |field, message: String| {
        Err(refuse(field, format!("can't {verb} IP pool {} because {message}", write.name)))
    };
    let others = write.objects.list(GROUP, "ippools", "");
    let others: Vec<IpPool> = others.iter().filter_map(read).collect();
    let others: Vec<&IpPool> =
        others.iter().filter(|pool| pool.metadata.name.as_deref() != Some(write.name)).collect();
    if let Err(message) = ranges(&new, &others) {
        return fail("spec.ranges", message);
    }
    if let Err(message) = selector(write, &new.spec, &others) {
        return fail("spec.selector", message);
    }
    Ok(())
}

/// A pool can go when no load balancer that exists has an address of it.
fn validate_release(write: &Write<'_>) -> AdmissionResult {
    let status = write.old.and_then(read::<IpPool>).and_then(|pool| pool.status);
    let exists = |user: &String| {
        split_id(user).is_some_and(|(namespace, name)| {
            write.objects.get(GROUP, "loadbalancers", namespace, name).is_some()
        })
    };
    let used = status.is_some_and(|status| status.allocated.values().any(exists));
    if used {
        let message = "can't delete pool before releasing all the allocated IP";
        return Err(refuse("status.allocated", message));
    }
    Ok(())
}

fn ranges(pool: &IpPool, others: &[&IpPool]) -> Result<(), String> {
    if pool.spec.ranges.is_empty() {
        return Err("range can't be empty".into());
    }
    let own = address_pool::ranges(&pool.spec).map_err(|error| error.to_string())?;
    for (index, range) in own.iter().enumerate() {
        if let Some(other) = own[..index].iter().find(|other| other.overlaps(*range)) {
            return Err(format!("there are overlaps between range {other} and {range}"));
        }
    }
    let network = |pool: &IpPool| {
        pool.spec
            .selector
            .as_ref()
            .and_then(|selector| selector.network.clone())
            .unwrap_or_default()
    };
    let near = others.iter().filter(|other| network(other) == network(pool));
    let foreign: Vec<PoolRange> =
        near.flat_map(|other| address_pool::ranges(&other.spec).unwrap_or_default()).collect();
    if own.iter().any(|range| foreign.iter().any(|other| other.overlaps(*range))) {
        let all: Vec<String> = own.iter().map(ToString::to_string).collect();
        return Err(format!("the ranges {} overlap with other pools", all.join(", ")));
    }
    let allocated = pool.status.iter().flat_map(|status| status.allocated.keys());
    for address in allocated {
        let kept =
            address.parse().is_ok_and(|address| own.iter().any(|range| range.contains(address)));
        if !kept {
            return Err(format!("allocated IP {address} is excluded"));
        }
    }
    Ok(())
}

fn selector(write: &Write<'_>, spec: &IpPoolSpec, others: &[&IpPool]) -> Result<(), String> {
    let Some(selector) = &spec.selector else { return Ok(()) };
    let network = selector.network.as_deref().unwrap_or_default();
    if !network.is_empty() {
        let found = split_id(network).and_then(|(namespace, name)| {
            write.objects.get(NETWORKS, "network-attachment-definitions", namespace, name)
        });
        if found.is_none() {
            return Err(format!("invalid network {network}"));
        }
    }
    let mut seen = BTreeSet::new();
    for scope in &selector.scope {
        if !seen.insert((&scope.project, &scope.namespace, &scope.guest_cluster)) {
            return Err(format!("selector {} is invalid: scope overlaps", json!(selector.scope)));
        }
    }
    let name = |pool: &IpPool| pool.metadata.name.clone().unwrap_or_default();
    if address_pool::is_global(spec)
        && let Some(other) = others.iter().find(|other| address_pool::is_global(&other.spec))
    {
        return Err(format!("there is already a global IP pool: {}", name(other)));
    }
    for other in others {
        let Some(theirs) = &other.spec.selector else { continue };
        let priority = selector.priority.unwrap_or_default();
        if theirs.network.as_deref().unwrap_or_default() != network
            || theirs.priority.unwrap_or_default() != priority
        {
            continue;
        }
        let shared = selector.scope.iter().find(|scope| theirs.scope.contains(scope));
        match shared {
            Some(_) if priority != 0 => {
                return Err(format!("the priority can't be the same as the pool {}", name(other)));
            }
            Some(scope) => {
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                return Err(format!(
                    "scope selector is same as the pool {} with priority 0 Project {} Namespace {} GuestCluster {}, set a different priority or scope",
                    name(other),
                    text(&scope.project),
                    text(&scope.namespace),
                    text(&scope.guest_cluster),
                ));
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
