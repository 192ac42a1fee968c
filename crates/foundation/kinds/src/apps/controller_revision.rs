//! ControllerRevisions.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, print};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        validate: |object, errors| {
            check::not_negative(object, "revision", &Path::Root, errors);
            if !json::has(object, "/data") {
                errors.push(FieldError::required("data", "data is mandatory"));
            } else if !object.get("data").is_some_and(Value::is_object) {
                errors.push(FieldError::required("data", "data must be a valid JSON object"));
            }
        },
        validate_update: |new, old, errors| {
            check::not_negative(new, "revision", &Path::Root, errors);
            check::immutable(new, old, "data", &Path::Root, errors);
        },
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Controller", "Whose history it is"),
            Column::text("Revision", "Which state it is"),
            Column::AGE,
        ],
        cells: |object, now| {
            vec![
                print::name(object),
                controller(object).into(),
                json::int(object, "/revision").into(),
                print::age(object, now),
            ]
        },
    },
    ..Resource::namespaced(
        "apps",
        "v1",
        "controllerrevisions",
        "controllerrevision",
        "ControllerRevision",
    )
};

fn controller(object: &Value) -> String {
    let owners = json::list(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| json::flag(owner, "/controller")) else {
        return "<none>".to_owned();
    };
    let kind = json::text(owner, "/kind").to_lowercase();
    let name = json::text(owner, "/name");
    match json::text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
        None => format!("{kind}/{name}"),
    }
}
