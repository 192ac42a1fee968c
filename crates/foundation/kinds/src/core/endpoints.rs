//! Endpoints: the addresses behind a service, in their old form.

use std::net::IpAddr;

use schema::{FieldError, Path};
use serde_json::Value;

use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ep"],
    table: "services/endpoints",
    strategy: Strategy {
        default,
        validate,
        validate_update: |new, old, errors| {
            // Values that were accepted under older rules may stay.
            if !check::same(new.get("subsets"), old.get("subsets")) {
                validate(new, errors);
            }
        },
        create_on_update: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Endpoints", "Where the service is answered"),
            Column::AGE,
        ],
        cells: |object, now| {
            vec![print::name(object), addresses(object).into(), print::age(object, now)]
        },
    },
    ..Resource::namespaced("", "v1", "endpoints", "endpoints", "Endpoints")
};

/// The protocols of a port, sorted.
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

fn default(object: &mut Value) {
    for subset in json::items_mut(object, "subsets") {
        for port in json::items_mut(subset, "ports") {
            json::fill_zero(port, "protocol", "TCP");
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let list = root.field("subsets");
    for (index, subset) in json::list(object, "/subsets").iter().enumerate() {
        let path = list.index(index);
        if json::count(subset, "/addresses") + json::count(subset, "/notReadyAddresses") == 0 {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(FieldError::required(path, detail));
        }
        for key in ["addresses", "notReadyAddresses"] {
            let list = path.field(key);
            for (index, address) in json::list(subset, &format!("/{key}")).iter().enumerate() {
                validate_address(address, &list.index(index), errors);
            }
        }
        let ports = json::list(subset, "/ports");
        let list = path.field("ports");
        for (index, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &list.index(index), errors);
        }
    }
}

fn validate_address(address: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    validate_ip(json::text(address, "/ip"), &path.field("ip"), errors);
    let host = json::text(address, "/hostname");
    if !host.is_empty() {
        check::each(syntax::label(host), host, &path.field("hostname"), errors);
    }
    if let Some(node) = json::text_at(address, "/nodeName") {
        check::each(syntax::subdomain(node), node, &path.field("nodeName"), errors);
    }
}

/// An address that other hosts can reach.
pub(crate) fn validate_ip(text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Ok(address) = text.parse::<IpAddr>() else {
        check::each(syntax::ip(text), text, path, errors);
        return;
    };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let detail = if address.is_unspecified() {
        format!("may not be unspecified ({text})")
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, text, detail));
}

fn validate_port(port: &Value, named: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let name = json::text(port, "/name");
    if !name.is_empty() {
        check::each(syntax::label(name), name, &path.field("name"), errors);
    } else if named {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    let number = json::int(port, "/port");
    for problem in syntax::port(number) {
        errors.push(FieldError::invalid(path.field("port"), number, problem));
    }
    check::required_one_of(port, "protocol", PROTOCOLS, path, errors);
    if let Some(protocol) = json::text_at(port, "/appProtocol") {
        check::each(syntax::qualified_name(protocol), protocol, &path.field("appProtocol"), errors);
    }
}

fn addresses(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in json::list(object, "/subsets") {
        let hosts = || json::list(subset, "/addresses").iter().map(|host| json::text(host, "/ip"));
        match json::list(subset, "/ports") {
            [] => all.extend(hosts().map(str::to_owned)),
            ports => {
                for port in ports {
                    let port = json::int(port, "/port");
                    all.extend(hosts().map(|host| match host.contains(':') {
                        true => format!("[{host}]:{port}"),
                        false => format!("{host}:{port}"),
                    }));
                }
            }
        }
    }
    match json::list(object, "/subsets") {
        [] => "<none>".to_owned(),
        _ => print::first(&all, 3, ""),
    }
}
