//! ServiceCIDRs: where the addresses of services come from.

use schema::FieldError;
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy { validate, validate_update, ..Strategy::WITH_STATUS },
    printer: Printer {
        columns: &[Column::NAME, Column::text("CIDRs", "The networks"), Column::AGE],
        cells: |object, now| {
            let networks = json::texts(object, "/spec/cidrs").join(",");
            vec![print::name(object), networks.into(), print::age(object, now)]
        },
    },
    ..Resource::cluster("networking.k8s.io", "v1", "servicecidrs", "servicecidr", "ServiceCIDR")
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("cidrs");
    let networks = json::texts(object, "/spec/cidrs");
    match networks.as_slice() {
        [] => errors.push(FieldError::required(path, "at least one CIDR required")),
        [_, _, _, ..] => {
            errors.push(FieldError::invalid(path, networks, "may only hold up to 2 values"));
        }
        _ => {
            for (index, network) in networks.iter().enumerate() {
                check::each(syntax::cidr(network), network, &path.index(index), errors);
            }
            if let [a, b] = networks.as_slice()
                && a.contains(':') == b.contains(':')
            {
                let detail = "may specify no more than one IP for each IP family, i.e \
                              192.168.0.0/24 and 2001:db8::/64";
                errors.push(FieldError::invalid(path, networks, detail));
            }
        }
    }
}

/// A second network may be added; nothing else changes.
fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("cidrs");
    let (networks, before) = (json::texts(new, "/spec/cidrs"), json::texts(old, "/spec/cidrs"));
    if networks.len() < before.len() || networks.len() > before.len() + 1 || before.is_empty() {
        if networks != before {
            errors.push(FieldError::invalid(path, networks, check::IMMUTABLE));
        }
        return;
    }
    for (index, (network, before)) in networks.iter().zip(&before).enumerate() {
        if network != before {
            errors.push(FieldError::invalid(path.index(index), *network, check::IMMUTABLE));
        }
    }
    if networks.len() > before.len() {
        validate(new, errors);
    }
}
