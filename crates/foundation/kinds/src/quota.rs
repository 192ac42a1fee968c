//! The amounts that one object counts towards a ResourceQuota.
//!
//! Pure, and the only such function: admission charges with it and the quota controller
//! recalculates with it, so that the two cannot disagree. It refuses nothing: a quantity
//! that cannot be read counts as absent.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use types::Quantity;

use crate::json::{entries, int, int_at, list, text, text_at};

/// Quota names and how much of each.
pub type Amounts = BTreeMap<String, Quantity>;

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The group and plural of the kind whose objects count towards the quota name `name`;
/// nothing for names that no kind knows.
pub fn counted(name: &str) -> Option<(&str, &str)> {
    if let Some(resource) = name.strip_prefix("count/") {
        return Some(match resource.split_once('.') {
            Some((plural, group)) => (group, plural),
            None => ("", resource),
        });
    }
    let by_class = name.split_once(STORAGE_CLASS).map(|(_, name)| name);
    Some(match by_class.unwrap_or(name) {
        name @ ("services"
        | "configmaps"
        | "secrets"
        | "resourcequotas"
        | "replicationcontrollers") => ("", name),
        "services.nodeports" | "services.loadbalancers" => ("", "services"),
        "persistentvolumeclaims" | "requests.storage" => ("", "persistentvolumeclaims"),
        "pods"
        | "cpu"
        | "memory"
        | "ephemeral-storage"
        | "requests.cpu"
        | "requests.memory"
        | "requests.ephemeral-storage"
        | "limits.cpu"
        | "limits.memory"
        | "limits.ephemeral-storage" => ("", "pods"),
        name if name.starts_with("hugepages-") || name.starts_with("requests.hugepages-") => {
            ("", "pods")
        }
        name if name.strip_prefix("requests.").is_some_and(is_extended) => ("", "pods"),
        _ => return None,
    })
}

/// The usage of one object of the kind `group`/`plural`.
pub fn usage(group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
    let one = Quantity::from_units(1);
    let mut amounts = match group {
        "" => Amounts::from([(format!("count/{plural}"), one.clone())]),
        _ => Amounts::from([(format!("count/{plural}.{group}"), one.clone())]),
    };
    match (group, plural) {
        ("", "pods") => pod(object, now, &mut amounts),
        ("", "services") => service(object, &mut amounts),
        ("", "persistentvolumeclaims") => claim(object, &mut amounts),
        ("", "configmaps" | "secrets" | "resourcequotas" | "replicationcontrollers") => {
            amounts.insert(plural.to_owned(), one);
        }
        _ => {}
    }
    amounts
}

/// Whether the quota's scopes let it count this object.
pub fn in_scope(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let scopes = list(quota, "/spec/scopes").iter().filter_map(Value::as_str);
    let plain = scopes.map(|scope| (scope, "Exists", Vec::new()));
    let selected = list(quota, "/spec/scopeSelector/matchExpressions").iter().map(|selector| {
        let values = list(selector, "/values").iter().filter_map(Value::as_str).collect();
        (text(selector, "/scopeName"), text(selector, "/operator"), values)
    });
    plain.chain(selected).all(|(scope, operator, values)| match (group, plural, scope) {
        ("", "pods", "PriorityClass") => {
            selects(text_at(object, "/spec/priorityClassName"), operator, &values)
        }
        ("", "pods", _) => pod_in_scope(object, scope),
        ("", "persistentvolumeclaims", "VolumeAttributesClass") => {
            let classes = [
                text_at(object, "/spec/volumeAttributesClassName"),
                text_at(object, "/status/currentVolumeAttributesClassName"),
            ];
            classes.iter().any(|class| selects(*class, operator, &values))
        }
        _ => false,
    })
}

/// The requests and limits that the containers of a pod lack although a quota limits them:
/// upstream's words, from `must specify` on. `None` for other kinds.
pub fn unstated(hard: &Amounts, group: &str, plural: &str, object: &Value) -> Option<String> {
    let levels = ["/spec/resources/requests", "/spec/resources/limits"];
    let for_the_pod = levels.iter().any(|level| entries(object, level).next().is_some());
    if (group, plural) != ("", "pods") || for_the_pod {
        return None;
    }
    let mut missing = BTreeMap::<&str, BTreeSet<&str>>::new();
    for container in
        ["/spec/containers", "/spec/initContainers"].iter().flat_map(|at| list(object, at))
    {
        for name in hard.keys() {
            let (part, resource) = name.split_once('.').unwrap_or(("requests", name));
            if !matches!((part, resource), ("requests" | "limits", "cpu" | "memory")) {
                continue;
            }
            if container.pointer(&format!("/resources/{part}/{resource}")).is_none() {
                missing.entry(name).or_default().insert(text(container, "/name"));
            }
        }
    }
    let part = |(name, containers): (&str, BTreeSet<&str>)| {
        format!("{name} for: {}", Vec::from_iter(containers).join(","))
    };
    let parts: Vec<String> = missing.into_iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// Reads a `hard` or `used` map.
pub fn amounts(value: Option<&Value>) -> Amounts {
    let Some(Value::Object(entries)) = value else { return Amounts::new() };
    let read = |(name, value): (&String, &Value)| {
        Quantity::from_json(value).ok().map(|quantity| (name.clone(), quantity))
    };
    entries.iter().filter_map(read).collect()
}

/// Adds `more` to `total`.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        match total.get_mut(name) {
            Some(own) => *own += quantity,
            None => {
                total.insert(name.clone(), quantity.clone());
            }
        }
    }
}

fn service(object: &Value, amounts: &mut Amounts) {
    let ports = list(object, "/spec/ports");
    let balanced = text(object, "/spec/type") == "LoadBalancer";
    let allocates = object.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&false.into());
    // Node ports may not be allocated yet when this is asked: the intent counts.
    let node_ports = match text(object, "/spec/type") {
        "NodePort" => ports.len(),
        "LoadBalancer" if allocates => ports.len(),
        "LoadBalancer" => ports.iter().filter(|port| int(port, "/nodePort") != 0).count(),
        _ => 0,
    };
    let count = |count: usize| Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX));
    amounts.insert("services".into(), count(1));
    amounts.insert("services.nodeports".into(), count(node_ports));
    amounts.insert("services.loadbalancers".into(), count(usize::from(balanced)));
}

fn claim(object: &Value, amounts: &mut Amounts) {
    let class = text_at(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class")
        .or_else(|| text_at(object, "/spec/storageClassName"))
        .filter(|class| !class.is_empty());
    let mut charge = |name: &str, quantity: Quantity| {
        if let Some(class) = class {
            amounts.insert(format!("{class}{STORAGE_CLASS}{name}"), quantity.clone());
        }
        amounts.insert(name.to_owned(), quantity);
    };
    charge("persistentvolumeclaims", Quantity::from_units(1));
    let at = |pointer: &str| Quantity::from_json(object.pointer(pointer)?).ok();
    if let Some(requested) = at("/spec/resources/requests/storage") {
        let allocated = at("/status/allocatedResources/storage");
        charge("requests.storage", whole(allocated.into_iter().fold(requested, Quantity::max)));
    }
}

/// Storage counts in whole bytes.
fn whole(quantity: Quantity) -> Quantity {
    if quantity.nanos() % 1_000_000_000 == 0 {
        return quantity;
    }
    Quantity::from_units(quantity.units())
}

fn pod(object: &Value, now: Timestamp, amounts: &mut Amounts) {
    // A pod that has ended, or should have, uses nothing but its place in the store.
    if matches!(text(object, "/status/phase"), "Failed" | "Succeeded") || is_overdue(object, now) {
        return;
    }
    amounts.insert("pods".into(), Quantity::from_units(1));
    let (requests, limits) = (total(object, "requests"), total(object, "limits"));
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            amounts.insert(name.to_owned(), request.clone());
            amounts.insert(format!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            amounts.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in &requests {
        if name.starts_with("hugepages-") {
            amounts.insert(name.clone(), request.clone());
        }
        if name.starts_with("hugepages-") || is_extended(name) {
            amounts.insert(format!("requests.{name}"), request.clone());
        }
    }
}

fn is_overdue(pod: &Value, now: Timestamp) -> bool {
    let deleted =
        text_at(pod, "/metadata/deletionTimestamp").and_then(|time| time.parse::<Timestamp>().ok());
    let grace = int_at(pod, "/metadata/deletionGracePeriodSeconds");
    let (Some(deleted), Some(grace)) = (deleted, grace) else { return false };
    now > deleted.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX)
}

/// The maximum that a pod needs at any one time: its containers run together, its init containers
/// one after another beside those that stay, and a value for the whole pod overrides their sum.
fn total(pod: &Value, which: &str) -> Amounts {
    let resources = |container: &Value| amounts(container.pointer(&format!("/resources/{which}")));
    let mut running = Amounts::new();
    let mut starting = Amounts::new();
    for container in list(pod, "/spec/initContainers") {
        let mut own = resources(container);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut running, &own);
            own = running.clone();
        } else {
            add(&mut own, &running);
        }
        raise(&mut starting, &own);
    }
    for container in list(pod, "/spec/containers") {
        add(&mut running, &resources(container));
    }
    raise(&mut running, &starting);
    for (name, quantity) in amounts(pod.pointer(&format!("/spec/resources/{which}"))) {
        running.insert(name, quantity);
    }
    for (name, quantity) in amounts(pod.pointer("/spec/overhead")) {
        // Overhead raises a limit, and makes none.
        if which == "requests" || running.contains_key(&name) {
            add(&mut running, &Amounts::from([(name, quantity)]));
        }
    }
    running
}

/// Takes the larger of each.
fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, quantity) in other {
        let most = total.get(name).map_or(quantity, |own| own.max(quantity)).clone();
        total.insert(name.clone(), most);
    }
}

fn pod_in_scope(pod: &Value, scope: &str) -> bool {
    match scope {
        "Terminating" => is_limited_in_time(pod),
        "NotTerminating" => !is_limited_in_time(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "CrossNamespacePodAffinity" => reaches_across_namespaces(pod),
        _ => false,
    }
}

fn is_limited_in_time(pod: &Value) -> bool {
    int_at(pod, "/spec/activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let asks = |container: &Value| {
        ["/resources/requests", "/resources/limits"].iter().any(|pointer| {
            entries(container, pointer).any(|(name, quantity)| {
                matches!(&**name, "cpu" | "memory")
                    && Quantity::from_json(quantity).is_ok_and(|own| own.signum() > 0)
            })
        })
    };
    let containers = list(pod, "/spec/containers").iter().chain(list(pod, "/spec/initContainers"));
    !containers.into_iter().any(asks) && !asks(&pod["spec"])
}

fn reaches_across_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !list(term, "/namespaces").is_empty()
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |which: &str| {
            list(
                pod,
                &format!("/spec/affinity/{kind}/{which}DuringSchedulingIgnoredDuringExecution"),
            )
        };
        terms("required").iter().any(crosses)
            || terms("preferred").iter().any(|own| crosses(&own["podAffinityTerm"]))
    })
}

/// A scope selector over one class name; an empty name counts as none.
fn selects(class: Option<&str>, operator: &str, values: &[&str]) -> bool {
    let class = class.filter(|class| !class.is_empty());
    match operator {
        "Exists" => class.is_some(),
        "DoesNotExist" => class.is_none(),
        "In" => class.is_some_and(|class| values.contains(&class)),
        "NotIn" => class.is_none_or(|class| !values.contains(&class)),
        _ => false,
    }
}

/// A resource of a device rather than of Kubernetes itself.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

#[cfg(test)]
mod tests;
