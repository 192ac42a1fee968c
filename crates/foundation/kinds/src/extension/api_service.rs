//! APIServices: groups of kinds served by another server.

use jiff::Timestamp;
use schema::FieldError;
use serde_json::{Value, json};

use crate::check::{self, METADATA, SPEC, STATUS};
use crate::resource::{Column, NameRule, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax, webhook};

pub(crate) const RESOURCE: Resource = Resource {
    categories: &["api-extensions"],
    table: "apiregistration.k8s.io/apiservices",
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        name: NameRule::PathSegment,
        default: |object| {
            if let Some(service) = object.pointer_mut("/spec/service") {
                webhook::default_port(service);
            }
        },
        prepare_create,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        validate_status,
        unconditional_update: false,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Service", "What serves the group"),
            Column::text("Available", "Whether it answers"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::cluster("apiregistration.k8s.io", "v1", "apiservices", "apiservice", "APIService")
};

/// A group that this server serves itself is available from the start.
fn prepare_create(object: &mut Value) {
    let local = !json::has(object, "/spec/service");
    let conditions = match local {
        true => json!([{
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        }]),
        false => json!([]),
    };
    json::set(object, "status", json!({"conditions": conditions}));
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let (group, version) = (json::text(object, "/spec/group"), json::text(object, "/spec/version"));
    let (name, wanted) = (json::text(object, "/metadata/name"), format!("{version}.{group}"));
    if name != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.push(FieldError::invalid(METADATA.field("name"), name, detail));
    }
    if !group.is_empty() {
        check::each(syntax::subdomain(group), group, &SPEC.field("group"), errors);
    } else if version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(SPEC.field("group"), detail));
    }
    check::each(syntax::label_1035(version), version, &SPEC.field("version"), errors);
    for (key, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = json::int(object, &format!("/spec/{key}"));
        if !(1..=most).contains(&priority) {
            let detail = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(SPEC.field(key), priority, detail));
        }
    }
    validate_service(object, errors);
}

fn validate_service(object: &Value, errors: &mut Vec<FieldError>) {
    let bundle = json::text(object, "/spec/caBundle");
    let insecure = json::flag(object, "/spec/insecureSkipTLSVerify");
    let skip = SPEC.field("insecureSkipTLSVerify");
    let Some(service) = json::at(object, "/spec/service") else {
        if !bundle.is_empty() {
            let size = format!("{} bytes", bundle.trim_end_matches('=').len() * 3 / 4);
            let detail = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(SPEC.field("caBundle"), size, detail));
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(skip, true, detail));
        }
        return;
    };
    let path = SPEC.field("service");
    check::required(service, "namespace", &path, errors);
    check::required(service, "name", &path, errors);
    let port = json::int(service, "/port");
    let problems = syntax::port(port);
    if !problems.is_empty() {
        let detail = format!("port is not valid: {}", problems.join(", "));
        errors.push(FieldError::invalid(path.field("port"), port, detail));
    }
    if insecure && !bundle.is_empty() {
        errors.push(FieldError::invalid(skip, true, "may not be true if caBundle is present"));
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    let list = STATUS.field("conditions");
    for (index, condition) in json::list(new, "/status/conditions").iter().enumerate() {
        let valid = &["True", "False", "Unknown"];
        let status = json::text(condition, "/status");
        if !valid.contains(&status) {
            let at = list.index(index);
            errors.push(FieldError::not_supported(at.field("status"), status, valid));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = json::at(object, "/spec/service").map_or("Local".to_owned(), |service| {
        format!("{}/{}", json::text(service, "/namespace"), json::text(service, "/name"))
    });
    let available = json::list(object, "/status/conditions")
        .iter()
        .find(|condition| json::text(condition, "/type") == "Available")
        .map_or("Unknown".to_owned(), |condition| {
            match (json::text(condition, "/status"), json::text(condition, "/reason")) {
                (status, reason) if status != "True" && !reason.is_empty() => {
                    format!("{status} ({reason})")
                }
                (status, _) => status.to_owned(),
            }
        });
    vec![print::name(object), service.into(), available.into(), print::age(object, now)]
}
