//! EndpointSlices.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use crate::core::endpoints::{PROTOCOLS, validate_ip};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        default,
        validate: |object, errors| {
            validate_ports(object, errors);
            validate_endpoints(object, errors);
        },
        validate_update: |new, old, errors| {
            validate_ports(new, errors);
            // Values that were accepted under older rules may stay.
            if !check::same(new.get("endpoints"), old.get("endpoints")) {
                validate_endpoints(new, errors);
            }
            check::immutable(new, old, "addressType", &Path::Root, errors);
        },
        generation: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("AddressType", "What kind of addresses these are"),
            Column::text("Ports", "The ports answered on"),
            Column::text("Endpoints", "Where the service is answered"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::namespaced(
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        "endpointslice",
        "EndpointSlice",
    )
};

const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

fn default(object: &mut Value) {
    for port in json::items_mut(object, "ports") {
        json::fill(port, "name", "");
        json::fill(port, "protocol", "TCP");
    }
}

fn validate_ports(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    check::required_one_of(object, "addressType", ADDRESS_TYPES, &root, errors);
    let list = root.field("ports");
    let ports = json::list(object, "/ports");
    if ports.len() > PORTS_MAX {
        errors.push(FieldError::too_many(list, ports.len(), PORTS_MAX));
        return;
    }
    for (index, port) in ports.iter().enumerate() {
        let path = list.index(index);
        let name = json::text(port, "/name");
        if !name.is_empty() {
            check::each(syntax::label(name), name, &path.field("name"), errors);
        }
        if ports[..index].iter().any(|other| json::text(other, "/name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), name));
        }
        check::required_one_of(port, "protocol", PROTOCOLS, &path, errors);
        if let Some(name) = json::text_at(port, "/appProtocol") {
            check::each(syntax::qualified_name(name), name, &path.field("appProtocol"), errors);
        }
    }
}

fn validate_endpoints(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let list = root.field("endpoints");
    let endpoints = json::list(object, "/endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        errors.push(FieldError::too_many(list, endpoints.len(), ENDPOINTS_MAX));
        return;
    }
    let kind = json::text(object, "/addressType");
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = list.index(index);
        validate_addresses(endpoint, kind, &path.field("addresses"), errors);
        if let Some(node) = json::text_at(endpoint, "/nodeName") {
            check::each(syntax::subdomain(node), node, &path.field("nodeName"), errors);
        }
        if let Some(host) = json::text_at(endpoint, "/hostname") {
            check::each(syntax::label(host), host, &path.field("hostname"), errors);
        }
        let hints = path.field("hints");
        let rules: [(&str, syntax::SyntaxRule); 2] =
            [("forZones", syntax::label_value), ("forNodes", syntax::subdomain)];
        for (key, problems) in rules {
            validate_hints(endpoint, key, problems, &hints.field(key), errors);
        }
    }
}

fn validate_addresses(endpoint: &Value, kind: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let addresses = json::texts(endpoint, "/addresses");
    match addresses.len() {
        0 => errors.push(FieldError::required(path, "must contain at least 1 address")),
        count if count > ADDRESSES_MAX => {
            errors.push(FieldError::too_many(path, count, ADDRESSES_MAX));
        }
        _ => {}
    }
    for (index, address) in addresses.iter().enumerate() {
        let at = path.index(index);
        match kind {
            "FQDN" => validate_domain(address, &at, errors),
            "IPv4" | "IPv6" => {
                let readable = syntax::ip(address).is_empty();
                if readable && syntax::is_ipv4(address) != (kind == "IPv4") {
                    let detail = format!("must be an {kind} address");
                    errors.push(FieldError::invalid(path, *address, detail));
                }
                validate_ip(address, &at, errors);
            }
            _ => {}
        }
    }
}

fn validate_domain(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = syntax::subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn validate_hints(
    endpoint: &Value,
    key: &str,
    problems: syntax::SyntaxRule,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let hints = json::list(endpoint, &format!("/hints/{key}"));
    if hints.len() > HINTS_MAX {
        errors.push(FieldError::too_many(path, hints.len(), HINTS_MAX));
        return;
    }
    for (index, hint) in hints.iter().enumerate() {
        let at = path.index(index);
        let name = json::text(hint, "/name");
        if hints[..index].iter().any(|other| json::text(other, "/name") == name) {
            errors.push(FieldError::duplicate(at.field("name"), name));
        }
        check::each(problems(name), name, &at.field("name"), errors);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| match json::int_at(port, "/port") {
        Some(number) => number.to_string(),
        None => json::text_at(port, "/name").unwrap_or("*").to_owned(),
    };
    let ports: Vec<String> = json::list(object, "/ports").iter().map(port).collect();
    let addresses: Vec<String> = json::list(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| json::texts(endpoint, "/addresses"))
        .map(str::to_owned)
        .collect();
    vec![
        print::name(object),
        json::text(object, "/addressType").into(),
        print::first(&ports, 3, "<unset>").into(),
        print::first(&addresses, 3, "<unset>").into(),
        print::age(object, now),
    ]
}
