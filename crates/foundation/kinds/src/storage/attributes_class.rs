//! VolumeAttributesClasses.

use schema::{FieldError, Path};
use serde_json::Value;

use super::{class, validate_driver_name};
use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, print};

/// Held until no volume has it any more.
const PROTECTION: &str = "kubernetes.io/vac-protection";

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["vac"],
    strategy: Strategy {
        prepare_create: |object| {
            let Some(metadata) = json::object(object, "metadata") else { return };
            let mut finalizers = json::list(metadata, "/finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer == PROTECTION) {
                finalizers.push(PROTECTION.into());
            }
            json::set(metadata, "finalizers", finalizers);
        },
        validate,
        validate_update: |new, old, errors| {
            for key in ["driverName", "parameters"] {
                if new.get(key) != old.get(key) {
                    let detail = format!("updates to {key} are forbidden.");
                    errors.push(FieldError::forbidden(Path::Root.field(key), detail));
                }
            }
        },
        returns_deleted: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("DriverName", "The driver whose volumes it changes"),
            Column::AGE,
        ],
        cells: |object, now| {
            vec![
                print::name(object),
                json::text(object, "/driverName").into(),
                print::age(object, now),
            ]
        },
    },
    ..Resource::cluster(
        "storage.k8s.io",
        "v1",
        "volumeattributesclasses",
        "volumeattributesclass",
        "VolumeAttributesClass",
    )
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let driver = json::text(object, "/driverName");
    validate_driver_name(driver, &root.field("driverName"), errors);
    class::validate_parameters(object, errors);
    if json::count(object, "/parameters") == 0 {
        let detail = "must contain at least one key/value pair";
        errors.push(FieldError::required(root.field("parameters"), detail));
    }
}
