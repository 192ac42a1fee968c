//! IPAddresses: which service holds which address.

use schema::FieldError;
use serde_json::Value;

use crate::check::{self, METADATA, SPEC};
use crate::resource::{Column, NameRule, Printer, Resource, Strategy};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ip"],
    strategy: Strategy {
        name: NameRule::PathSegment,
        validate,
        validate_update: |new, old, errors| {
            let null = Value::Null;
            let spec = |object| json::at(object, "/spec").unwrap_or(&null);
            check::immutable(spec(new), spec(old), "parentRef", &SPEC, errors);
        },
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[Column::NAME, Column::text("ParentRef", "Who holds the address"), Column::AGE],
        cells: |object, now| {
            vec![print::name(object), parent(object).into(), print::age(object, now)]
        },
    },
    ..Resource::cluster("networking.k8s.io", "v1", "ipaddresses", "ipaddress", "IPAddress")
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let name = json::text(object, "/metadata/name");
    check::each(syntax::ip(name), name, &METADATA.field("name"), errors);
    let path = SPEC.field("parentRef");
    let Some(parent) = json::at(object, "/spec/parentRef") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let group = json::text(parent, "/group");
    if !group.is_empty() {
        check::each(syntax::subdomain(group), group, &path.field("group"), errors);
    }
    for key in ["resource", "name"] {
        if let Some(text) = check::required(parent, key, &path, errors) {
            check::each(syntax::path_segment(text), text, &path.field(key), errors);
        }
    }
}

fn parent(object: &Value) -> String {
    let Some(parent) = json::at(object, "/spec/parentRef") else { return "<none>".to_owned() };
    let mut text = json::text(parent, "/resource").to_lowercase();
    for (separator, key) in [(".", "/group"), ("/", "/namespace"), ("/", "/name")] {
        let part = json::text(parent, key);
        if !part.is_empty() {
            text.push_str(separator);
            text.push_str(part);
        }
    }
    text
}
