//! NetworkPolicies.

use std::net::IpAddr;

use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, labels, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["netpol"],
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        generation: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Pod-Selector", "The pods that it selects"),
            Column::AGE,
        ],
        cells: |object, now| {
            let selector = labels::show_selector(json::at(object, "/spec/podSelector"));
            vec![print::name(object), selector.into(), print::age(object, now)]
        },
    },
    ..Resource::namespaced(
        "networking.k8s.io",
        "v1",
        "networkpolicies",
        "networkpolicy",
        "NetworkPolicy",
    )
};

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    for direction in ["ingress", "egress"] {
        for rule in json::items_mut(spec, direction) {
            for port in json::items_mut(rule, "ports") {
                json::fill(port, "protocol", "TCP");
            }
        }
    }
    if json::count(spec, "/policyTypes") == 0 {
        let types = match json::count(spec, "/egress") {
            0 => json!(["Ingress"]),
            _ => json!(["Ingress", "Egress"]),
        };
        json::set(spec, "policyTypes", types);
    }
}

/// Judges a policy; also that of another kind that has the same `spec`.
pub fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let selector = json::at(object, "/spec/podSelector");
    labels::validate_selector(selector, &SPEC.field("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let list = SPEC.field(direction);
        for (index, rule) in json::list(object, &format!("/spec/{direction}")).iter().enumerate() {
            let path = list.index(index);
            let ports = path.field("ports");
            for (index, port) in json::list(rule, "/ports").iter().enumerate() {
                validate_port(port, &ports.index(index), errors);
            }
            let list = path.field(peers);
            for (index, peer) in json::list(rule, &format!("/{peers}")).iter().enumerate() {
                validate_peer(peer, &list.index(index), errors);
            }
        }
    }
    let types = json::texts(object, "/spec/policyTypes");
    let path = SPEC.field("policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(path, types, detail));
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        if !["Ingress", "Egress"].contains(kind) {
            let valid = &["Ingress", "Egress"];
            errors.push(FieldError::not_supported(path.index(index), *kind, valid));
        }
    }
}

fn validate_port(port: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    check::one_of(port, "protocol", &["TCP", "UDP", "SCTP"], path, errors);
    let end = json::int_at(port, "/endPort");
    let mut refuse_end = |detail: &str| {
        if let Some(end) = end {
            errors.push(FieldError::invalid(path.field("endPort"), end, detail));
        }
    };
    match json::at(port, "/port") {
        None => refuse_end("may not be specified when `port` is not specified"),
        Some(Value::String(name)) => {
            refuse_end("may not be specified when `port` is non-numeric");
            check::each(syntax::port_name(name), name, &path.field("port"), errors);
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or_default();
            if end.is_some_and(|end| end < number) {
                // As upstream, which shows the other of the two.
                let detail = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(path.field("endPort"), number, detail));
            }
            for (key, value) in [("port", Some(number)), ("endPort", end)] {
                let Some(value) = value else { continue };
                for problem in syntax::port(value) {
                    errors.push(FieldError::invalid(path.field(key), value, problem));
                }
            }
        }
    }
}

fn validate_peer(peer: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let selectors = ["podSelector", "namespaceSelector"];
    for key in selectors {
        labels::validate_selector(json::at(peer, &format!("/{key}")), &path.field(key), errors);
    }
    let selected = selectors.into_iter().any(|key| json::has(peer, &format!("/{key}")));
    match (json::at(peer, "/ipBlock"), selected) {
        (None, false) => errors.push(FieldError::required(path, "must specify a peer")),
        (None, true) => {}
        (Some(block), _) => validate_block(block, &path.field("ipBlock"), errors),
    }
    if selected && json::has(peer, "/ipBlock") {
        let detail = "may not specify both ipBlock and another peer";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn validate_block(block: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(network) = check::required(block, "cidr", path, errors) else { return };
    check::each(syntax::cidr(network), network, &path.field("cidr"), errors);
    let Some(outer) = parse(network) else { return };
    let list = path.field("except");
    for (index, except) in json::texts(block, "/except").iter().enumerate() {
        let at = list.index(index);
        check::each(syntax::cidr(except), except, &at, errors);
        if parse(except).is_some_and(|inner| !contains(outer, inner)) {
            let detail = "must be a strict subset of `cidr`";
            errors.push(FieldError::invalid(at, *except, detail));
        }
    }
}

/// A network as its address (left-aligned in 128 bits), prefix length and family.
fn parse(network: &str) -> Option<(u128, u32, bool)> {
    let (address, length) = network.split_once('/')?;
    let length = length.parse().ok().filter(|length| *length <= 128)?;
    match address.parse().ok()? {
        IpAddr::V4(v4) => Some((u128::from(v4.to_bits()) << 96, length, true)),
        IpAddr::V6(v6) => Some((v6.to_bits(), length, false)),
    }
}

/// Whether `inner` lies within `outer` and is smaller.
fn contains(outer: (u128, u32, bool), inner: (u128, u32, bool)) -> bool {
    let mask = u128::MAX.checked_shl(128 - outer.1).unwrap_or_default();
    outer.2 == inner.2 && outer.1 < inner.1 && outer.0 & mask == inner.0 & mask
}
