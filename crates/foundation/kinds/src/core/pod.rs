//! Pods.

mod cells;

use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::apps::no_runtime;
use crate::check::SPEC;
use crate::resource::{Printer, Resource, Strategy, Subresource};
use crate::{json, podspec, quantity, status, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        stream("attach", "PodAttachOptions"),
        Subresource { name: "binding", kind: Some(("", "v1", "Binding")), verbs: &["create"] },
        Subresource { name: "ephemeralcontainers", ..Subresource::STATUS },
        Subresource {
            name: "eviction",
            kind: Some(("policy", "v1", "Eviction")),
            verbs: &["create"],
        },
        stream("exec", "PodExecOptions"),
        Subresource { name: "log", kind: None, verbs: &["get"] },
        stream("portforward", "PodPortForwardOptions"),
        Subresource::proxy("PodProxyOptions"),
        Subresource { name: "resize", ..Subresource::STATUS },
        Subresource::STATUS,
    ],
    strategy: Strategy {
        default,
        prepare_create,
        prepare_update: status::keep,
        validate,
        validate_update,
        warnings: no_runtime,
        generation: true,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: cells::COLUMNS, cells: cells::cells },
    fields: &[
        ("spec.host", |object| json::text(object, "/spec/nodeName").to_owned()),
        ("spec.hostNetwork", |object| json::flag(object, "/spec/hostNetwork").to_string()),
        ("spec.nodeName", |object| json::text(object, "/spec/nodeName").to_owned()),
        ("spec.restartPolicy", |object| json::text(object, "/spec/restartPolicy").to_owned()),
        ("spec.schedulerName", |object| json::text(object, "/spec/schedulerName").to_owned()),
        ("spec.serviceAccountName", |object| {
            json::text(object, "/spec/serviceAccountName").to_owned()
        }),
        ("status.nominatedNodeName", |object| {
            json::text(object, "/status/nominatedNodeName").to_owned()
        }),
        ("status.phase", |object| json::text(object, "/status/phase").to_owned()),
        ("status.podIP", first_address),
        ("status.podIPs", first_address),
    ],
    ..Resource::namespaced("", "v1", "pods", "pod", "Pod")
};

/// A stream into the pod, which clients open with either method.
const fn stream(name: &'static str, options: &'static str) -> Subresource {
    Subresource { name, kind: Some(("", "v1", options)), verbs: &["create", "get"] }
}

fn first_address(object: &Value) -> String {
    json::text(object, "/status/podIPs/0/ip").to_owned()
}

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    podspec::default_spec(spec);
    json::fill(spec, "enableServiceLinks", true);
    if json::int(spec, "/terminationGracePeriodSeconds") < 0 {
        json::set(spec, "terminationGracePeriodSeconds", 1);
    }
    for key in ["containers", "initContainers"] {
        for container in json::items_mut(spec, key) {
            request_limits(container);
        }
    }
    default_addresses(object);
}

/// A resource with a limit and without a request gets a request equal to the limit.
fn request_limits(container: &mut Value) {
    let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
    let Some(limits) = limits.filter(|limits| !limits.is_empty()) else { return };
    if let Some(resources) = json::object(container, "resources")
        && let Some(requests) = json::object(resources, "requests")
    {
        for (name, amount) in limits {
            json::fill(requests, &name, amount);
        }
    }
}

/// `podIP` and the first of `podIPs` are the same thing.
fn default_addresses(object: &mut Value) {
    let Some(status) = object.get_mut("status") else { return };
    let (one, first) =
        (json::text(status, "/podIP").to_owned(), json::text(status, "/podIPs/0/ip").to_owned());
    if one.is_empty() && !first.is_empty() {
        json::set(status, "podIP", first);
    } else if one != first {
        json::set(status, "podIPs", json!([{"ip": one}]));
    }
}

fn prepare_create(object: &mut Value) {
    let class = quality(object);
    json::set(object, "status", json!({"phase": "Pending", "qosClass": class}));
}

/// How well the pod is cared for when memory runs out.
fn quality(object: &Value) -> &'static str {
    let containers = || {
        json::list(object, "/spec/containers")
            .iter()
            .chain(json::list(object, "/spec/initContainers"))
    };
    let amount = |container: &Value, kind: &str, name: &str| {
        quantity::or_zero(json::at(container, &format!("/resources/{kind}/{name}")))
    };
    let each =
        || containers().flat_map(|container| ["cpu", "memory"].map(|name| (container, name)));
    let asks = |(container, name): (&Value, &str)| {
        amount(container, "requests", name) != 0 || amount(container, "limits", name) != 0
    };
    let certain = |(container, name): (&Value, &str)| {
        let limit = amount(container, "limits", name);
        limit != 0 && limit == amount(container, "requests", name)
    };
    if !each().any(asks) {
        "BestEffort"
    } else if each().all(certain) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    podspec::validate_spec(spec, &SPEC, errors);
    if json::count(spec, "/ephemeralContainers") > 0 {
        let path = SPEC.field("ephemeralContainers");
        errors.push(FieldError::forbidden(path, "cannot be set on create"));
    }
    if !json::text(spec, "/nodeName").is_empty() && json::count(spec, "/schedulingGates") > 0 {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(SPEC.field("nodeName"), detail));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let (spec, before) =
        (json::at(new, "/spec").unwrap_or(&null), json::at(old, "/spec").unwrap_or(&null));
    podspec::validate_spec(spec, &SPEC, errors);
    for key in ["containers", "initContainers"] {
        let pointer = format!("/{key}");
        if json::count(spec, &pointer) != json::count(before, &pointer) {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(SPEC.field(key), detail));
            return;
        }
    }
    validate_deadline(spec, before, errors);
    let kept = |before: &Value| json::list(spec, "/tolerations").iter().any(|it| it == before);
    if !json::list(before, "/tolerations").iter().all(kept) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(SPEC.field("tolerations"), detail));
    }
    if frozen(spec, before) != frozen(before, before) {
        errors.push(FieldError::forbidden(
            SPEC,
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
             additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to \
             be set to 1 if it was previously negative)",
        ));
    }
}

fn validate_deadline(spec: &Value, before: &Value, errors: &mut Vec<FieldError>) {
    let path: Path<'_> = SPEC.field("activeDeadlineSeconds");
    let old = json::int_at(before, "/activeDeadlineSeconds");
    match json::int_at(spec, "/activeDeadlineSeconds") {
        Some(new) => {
            for problem in syntax::in_range(new, 0, i64::from(i32::MAX)) {
                errors.push(FieldError::invalid(path, new, problem));
            }
            if old.is_some_and(|old| old < new) {
                let detail = "must be less than or equal to previous value";
                errors.push(FieldError::invalid(path, new, detail));
            }
        }
        None if old.is_some() => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(path, Value::Null, detail));
        }
        None => {}
    }
}

/// The spec without what may change; gated pods may still be steered.
fn frozen(spec: &Value, before: &Value) -> Value {
    let mut spec = spec.clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        json::remove(&mut spec, key);
    }
    if json::int(before, "/terminationGracePeriodSeconds") < 0 {
        json::remove(&mut spec, "terminationGracePeriodSeconds");
    }
    if json::count(before, "/schedulingGates") > 0 {
        json::remove(&mut spec, "nodeSelector");
        json::remove(&mut spec, "affinity");
    }
    for key in ["containers", "initContainers"] {
        for container in json::items_mut(&mut spec, key) {
            json::remove(container, "image");
        }
    }
    spec
}
