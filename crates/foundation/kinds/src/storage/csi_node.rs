//! CSINodes: which drivers each node has.

use schema::{FieldError, Path};
use serde_json::Value;

use super::validate_driver_name;
use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        validate,
        validate_update,
        unconditional_update: false,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::integer("Drivers", "How many drivers the node has"),
            Column::AGE,
        ],
        cells: |object, now| {
            let drivers = json::count(object, "/spec/drivers");
            vec![print::name(object), drivers.into(), print::age(object, now)]
        },
    },
    ..Resource::cluster("storage.k8s.io", "v1", "csinodes", "csinode", "CSINode")
};

const NODE_ID_MAX: usize = 256;

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let list = SPEC.field("drivers");
    let drivers = json::list(object, "/spec/drivers");
    for (index, driver) in drivers.iter().enumerate() {
        let path = list.index(index);
        let name = json::text(driver, "/name");
        validate_driver_name(name, &path.field("name"), errors);
        node_id(driver, &path, errors);
        let allocatable = driver.get("allocatable").unwrap_or(&Value::Null);
        check::not_negative(allocatable, "count", &path.field("allocatable"), errors);
        if drivers[..index].iter().any(|other| json::text(other, "/name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), name));
        }
        let keys = json::texts(driver, "/topologyKeys");
        for (index, key) in keys.iter().enumerate() {
            if key.is_empty() {
                errors.push(FieldError::required(path, ""));
            }
            if keys[..index].contains(key) {
                errors.push(FieldError::duplicate(path, *key));
            }
            check::each(syntax::qualified_name(key), key, &path, errors);
        }
    }
}

fn node_id(driver: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(id) = check::required(driver, "nodeID", path, errors)
        && id.len() > NODE_ID_MAX
    {
        let detail = format!("must be {NODE_ID_MAX} characters or less");
        errors.push(FieldError::invalid(path.field("nodeID"), id, detail));
    }
}

/// A driver may be added or removed; its description of the node may not change.
fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        json::remove(&mut driver, "allocatable");
        driver
    };
    for driver in json::list(new, "/spec/drivers") {
        let before = json::list(old, "/spec/drivers")
            .iter()
            .find(|before| json::text(before, "/name") == json::text(driver, "/name"));
        if before.is_some_and(|before| fixed(before) != fixed(driver)) {
            let path = SPEC.field("drivers");
            errors.push(FieldError::invalid(path, fixed(driver), check::IMMUTABLE));
        }
    }
}
