//! Ingresses: validation and columns. Stored for clients that expect the kind; no controller acts on
//! them.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC, STATUS};
use crate::core::service::rules::load_balancer;
use crate::networking::ingress_class::validate_reference;
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ing"],
    table: "ingress",
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        validate: |object, errors| {
            validate(object, errors);
            annotated_class(object, errors);
        },
        validate_update: |new, _, errors| validate(new, errors),
        validate_status: |new, _, errors| {
            let balancer = STATUS.field("loadBalancer");
            let ingress = json::list(new, "/status/loadBalancer/ingress");
            load_balancer(ingress, &balancer.field("ingress"), errors);
        },
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Class", "What serves it"),
            Column::text("Hosts", "The names it answers to"),
            Column::text("Address", "Where it is reached"),
            Column::text("Ports", "The ports it answers on"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::namespaced("networking.k8s.io", "v1", "ingresses", "ingress", "Ingress")
};

const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    let rules = json::list(spec, "/rules");
    if rules.is_empty() && !json::has(spec, "/defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(SPEC, Value::Null, detail));
    }
    if let Some(backend) = json::at(spec, "/defaultBackend") {
        validate_backend(backend, &SPEC.field("defaultBackend"), errors);
    }
    let list = SPEC.field("rules");
    for (index, rule) in rules.iter().enumerate() {
        validate_rule(rule, &list.index(index), errors);
    }
    let list = SPEC.field("tls");
    for (index, tls) in json::list(spec, "/tls").iter().enumerate() {
        let path = list.index(index);
        let hosts = path.field("hosts");
        for (index, host) in json::texts(tls, "/hosts").iter().enumerate() {
            check::each(host_problems(host), host, &hosts.index(index), errors);
        }
        let secret = json::text(tls, "/secretName");
        if !secret.is_empty() {
            check::each(syntax::subdomain(secret), secret, &path.field("secretName"), errors);
        }
    }
    if let Some(class) = json::text_at(spec, "/ingressClassName") {
        check::each(syntax::subdomain(class), class, &SPEC.field("ingressClassName"), errors);
    }
}

fn annotated_class(object: &Value, errors: &mut Vec<FieldError>) {
    let annotated = json::text_at(object, "/metadata/annotations/kubernetes.io~1ingress.class");
    let class = json::text_at(object, "/spec/ingressClassName");
    if let (Some(annotated), Some(class)) = (annotated, class)
        && annotated != class
    {
        let detail = "must match `ingressClassName` when both are specified";
        let path = "annotations.kubernetes.io/ingress.class";
        errors.push(FieldError::invalid(path, annotated, detail));
    }
}

fn host_problems(host: &str) -> Vec<String> {
    if host.contains('*') { syntax::wildcard_subdomain(host) } else { syntax::subdomain(host) }
}

fn validate_rule(rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let host = json::text(rule, "/host");
    if !host.is_empty() {
        if syntax::ip(host).is_empty() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(path.field("host"), host, detail));
        }
        check::each(host_problems(host), host, &path.field("host"), errors);
    }
    if !json::has(rule, "/http") {
        return;
    }
    let http = path.field("http");
    let list = http.field("paths");
    let paths = json::list(rule, "/http/paths");
    if paths.is_empty() {
        errors.push(FieldError::required(list, ""));
    }
    for (index, path) in paths.iter().enumerate() {
        validate_path(path, &list.index(index), errors);
    }
}

fn validate_path(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(kind) = json::text_at(value, "/pathType") else {
        errors.push(FieldError::required(path.field("pathType"), "pathType must be specified"));
        return;
    };
    let text = json::text(value, "/path");
    let at = path.field("path");
    let mut refuse = |detail: String| errors.push(FieldError::invalid(at, text, detail));
    match kind {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                refuse("must be an absolute path".to_owned());
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(part) {
                    refuse(format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if text.ends_with(end) {
                    refuse(format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                refuse("must be an absolute path".to_owned());
            }
        }
        _ => check::one_of(value, "pathType", PATH_TYPES, path, errors),
    }
    let null = Value::Null;
    validate_backend(value.get("backend").unwrap_or(&null), &path.field("backend"), errors);
}

fn validate_backend(backend: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match (json::at(backend, "/service"), json::at(backend, "/resource")) {
        (Some(_), Some(_)) => {
            let detail = "cannot set both resource and service backends";
            errors.push(FieldError::invalid(path, "", detail));
        }
        (None, Some(resource)) => validate_reference(resource, &path.field("resource"), errors),
        (Some(service), None) => validate_service(service, path, errors),
        (None, None) => {
            let detail = "resource or service backend is required";
            errors.push(FieldError::invalid(path, "", detail));
        }
    }
}

fn validate_service(service: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.field("service");
    if let Some(name) = check::required(service, "name", &at, errors) {
        check::each(syntax::label(name), name, &at.field("name"), errors);
    }
    let port = at.field("port");
    match (json::text(service, "/port/name"), json::int(service, "/port/number")) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", number) => {
            for problem in syntax::port(number) {
                errors.push(FieldError::invalid(port.field("number"), number, problem));
            }
        }
        (name, 0) => check::each(syntax::port_name(name), name, &port.field("name"), errors),
        _ => {
            let detail = "cannot set both port name & port number";
            errors.push(FieldError::invalid(path, "", detail));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports = if json::count(object, "/spec/tls") > 0 { "80, 443" } else { "80" };
    vec![
        print::name(object),
        print::text_or(object, "/spec/ingressClassName", "<none>"),
        hosts(object).into(),
        print::load_balancer(object).into(),
        ports.into(),
        print::age(object, now),
    ]
}

fn hosts(object: &Value) -> String {
    const SHOWN: usize = 3;
    let rules = json::list(object, "/spec/rules");
    let named: Vec<&str> = rules
        .iter()
        .map(|rule| json::text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .collect();
    match named.len() {
        0 => "*".to_owned(),
        // Upstream counts rules, not names, once there are too many.
        _ if named.len() > SHOWN => {
            format!("{} + {} more...", named[..SHOWN].join(","), rules.len() - SHOWN)
        }
        _ => named.join(","),
    }
}
