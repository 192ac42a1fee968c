//! Containers of a pod.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::core::endpoints::PROTOCOLS;
use crate::core::resource;
use crate::core::service::rules::port_or_name;
use crate::{check, json, print, quantity, syntax};

pub(super) fn validate(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("containers");
    let containers = json::list(spec, "/containers");
    if containers.is_empty() {
        errors.push(FieldError::required(list, ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let at = list.index(index);
        validate_shared(container, spec, &at, errors);
        unique_name(container, &mut names, &at, errors);
        validate_hooks(container, &at, errors);
    }
    let list = path.field("initContainers");
    for (index, container) in json::list(spec, "/initContainers").iter().enumerate() {
        let at = list.index(index);
        validate_shared(container, spec, &at, errors);
        unique_name(container, &mut names, &at, errors);
        if json::text(container, "/restartPolicy") == "Always" {
            validate_hooks(container, &at, errors);
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.get(key).is_some_and(|value| !value.is_null()) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(at.field(key), detail));
            }
        }
    }
}

fn unique_name<'a>(
    container: &'a Value,
    names: &mut Vec<&'a str>,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let name = json::text(container, "/name");
    if names.contains(&name) {
        errors.push(FieldError::duplicate(path.field("name"), name));
    } else {
        names.push(name);
    }
}

fn validate_shared(container: &Value, spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(name) = check::required(container, "name", path, errors) {
        check::each(syntax::label(name), name, &path.field("name"), errors);
    }
    check::required(container, "image", path, errors);
    let policies = &["File", "FallbackToLogsOnError"];
    check::required_one_of(container, "terminationMessagePolicy", policies, path, errors);
    validate_ports(container, spec, &path.field("ports"), errors);
    let list = path.field("env");
    for (index, variable) in json::list(container, "/env").iter().enumerate() {
        validate_variable(variable, &list.index(index), errors);
    }
    validate_mounts(container, spec, &path.field("volumeMounts"), errors);
    let policies = &["Always", "IfNotPresent", "Never"];
    check::required_one_of(container, "imagePullPolicy", policies, path, errors);
    let null = Value::Null;
    let resources = container.get("resources").unwrap_or(&null);
    validate_resources(resources, &path.field("resources"), errors);
}

fn validate_ports(container: &Value, spec: &Value, list: &Path<'_>, errors: &mut Vec<FieldError>) {
    let ports = json::list(container, "/ports");
    for (index, port) in ports.iter().enumerate() {
        let at = list.index(index);
        let name = json::text(port, "/name");
        if !name.is_empty() {
            let problems = syntax::port_name(name);
            if problems.is_empty()
                && ports[..index].iter().any(|other| json::text(other, "/name") == name)
            {
                errors.push(FieldError::duplicate(at.field("name"), name));
            }
            check::each(problems, name, &at.field("name"), errors);
        }
        let (inner, host) = (json::int(port, "/containerPort"), json::int(port, "/hostPort"));
        if inner == 0 {
            errors.push(FieldError::required(at.field("containerPort"), ""));
        }
        for (key, number) in [("containerPort", inner), ("hostPort", host)] {
            if number != 0 {
                for problem in syntax::port(number) {
                    errors.push(FieldError::invalid(at.field(key), number, problem));
                }
            }
        }
        if json::flag(spec, "/hostNetwork") && host != inner {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(at.field("hostPort"), host, detail));
        }
        check::required_one_of(port, "protocol", PROTOCOLS, &at, errors);
    }
}

fn validate_variable(variable: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(name) = check::required(variable, "name", path, errors) {
        check::each(syntax::env_var(name), name, &path.field("name"), errors);
    }
    let Some(source) = json::at(variable, "/valueFrom") else { return };
    let at = path.field("valueFrom");
    let given = source
        .as_object()
        .map_or(0, |fields| fields.values().filter(|value| !value.is_null()).count());
    if given == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
                      `secretKeyRef` or `fileKeyRef`";
        errors.push(FieldError::invalid(at, "", detail));
    } else if given > 1 {
        errors.push(FieldError::invalid(
            at,
            "",
            "may not have more than one field specified at a time",
        ));
    }
    if !json::text(variable, "/value").is_empty() && given > 0 {
        errors.push(FieldError::invalid(at, "", "may not be specified when `value` is not empty"));
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = json::at(source, &format!("/{key}")) {
            let at = at.field(key);
            check::required(reference, "name", &at, errors);
            check::required(reference, "key", &at, errors);
        }
    }
}

fn validate_mounts(container: &Value, spec: &Value, list: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mounts = json::list(container, "/volumeMounts");
    let volumes = json::list(spec, "/volumes");
    for (index, mount) in mounts.iter().enumerate() {
        let at = list.index(index);
        let name = json::text(mount, "/name");
        check::required(mount, "name", &at, errors);
        if !volumes.iter().any(|volume| json::text(volume, "/name") == name) {
            errors.push(FieldError::not_found(at.field("name"), name));
        }
        let Some(target) = check::required(mount, "mountPath", &at, errors) else { continue };
        if mounts[..index].iter().any(|other| json::text(other, "/mountPath") == target) {
            errors.push(FieldError::invalid(at.field("mountPath"), target, "must be unique"));
        }
    }
}

fn validate_resources(resources: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for key in ["limits", "requests"] {
        let list = path.field(key);
        for (name, amount) in json::entries(resources, &format!("/{key}")) {
            let at = list.key(name);
            resource::validate_for_container(name, &at, errors);
            quantity::for_resource(name, amount, &at, errors);
        }
    }
    let requests = path.field("requests");
    for (name, amount) in json::entries(resources, "/requests") {
        let limit = json::at(resources, "/limits").and_then(|limits| limits.get(name));
        if limit.is_some_and(|limit| quantity::parse(amount) > quantity::parse(limit)) {
            let limit = print::quantity(limit);
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            let amount = print::quantity(Some(amount));
            errors.push(FieldError::invalid(requests, amount, detail));
        }
    }
}

/// Probes and hooks around a container's life.
fn validate_hooks(container: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(key).filter(|probe| !probe.is_null()) else { continue };
        let at = path.field(key);
        validate_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], &at, errors);
        for key in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            check::not_negative(probe, key, &at, errors);
        }
        let threshold = json::int(probe, "/successThreshold");
        if key != "readinessProbe" && threshold != 1 {
            errors.push(FieldError::invalid(at.field("successThreshold"), threshold, "must be 1"));
        }
    }
    let lifecycle = path.field("lifecycle");
    for key in ["postStart", "preStop"] {
        if let Some(handler) = json::at(container, &format!("/lifecycle/{key}")) {
            let kinds = &["exec", "httpGet", "tcpSocket", "sleep"];
            validate_handler(handler, kinds, &lifecycle.field(key), errors);
        }
    }
}

fn validate_handler(
    handler: &Value,
    kinds: &[&str],
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let given: Vec<&str> = kinds
        .iter()
        .copied()
        .filter(|kind| handler.get(kind).is_some_and(|action| !action.is_null()))
        .collect();
    let Some(first) = given.first() else {
        errors.push(FieldError::required(path, "must specify a handler type"));
        return;
    };
    for kind in &given[1..] {
        let detail = "may not specify more than 1 handler type";
        errors.push(FieldError::forbidden(path.field(kind), detail));
    }
    let at = path.field(first);
    let action = handler.get(first).unwrap_or(&Value::Null);
    match *first {
        "exec" if json::count(action, "/command") == 0 => {
            errors.push(FieldError::required(at.field("command"), ""));
        }
        "httpGet" => {
            check::required(action, "path", &at, errors);
            port_or_name(action.get("port"), &at.field("port"), errors);
            check::one_of(action, "scheme", &["HTTP", "HTTPS"], &at, errors);
            for header in json::list(action, "/httpHeaders") {
                let name = json::text(header, "/name");
                check::each(syntax::http_header(name), name, &at.field("httpHeaders"), errors);
            }
        }
        "tcpSocket" | "grpc" => port_or_name(action.get("port"), &at.field("port"), errors),
        _ => {}
    }
}
