//! VolumeAttachments.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::Value;

use super::validate_driver_name;
use crate::check::{self, SPEC, STATUS};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            check::immutable(new, old, "spec", &Path::Root, errors);
        },
        validate_status: |new, _, errors| validate_status(new, errors),
        unconditional_update: false,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column { format: "name", ..Column::text("Attacher", "The driver that attaches") },
            Column::text("PV", "The volume"),
            Column::text("Node", "The node it is attached to"),
            Column::boolean("Attached", "Whether it is attached"),
            Column::AGE,
        ],
        cells,
    },
    ..Resource::cluster(
        "storage.k8s.io",
        "v1",
        "volumeattachments",
        "volumeattachment",
        "VolumeAttachment",
    )
};

const METADATA_MAX: usize = 256 * 1024;
const MESSAGE_MAX: usize = 1024;

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let attacher = json::text(object, "/spec/attacher");
    validate_driver_name(attacher, &SPEC.field("attacher"), errors);
    let path = SPEC.field("source");
    let volume = json::text_at(object, "/spec/source/persistentVolumeName");
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (volume, json::has(object, "/spec/source/inlineVolumeSpec")) {
        (None, false) => errors.push(FieldError::required(path, ONE)),
        (Some(_), true) => errors.push(FieldError::forbidden(path, ONE)),
        (Some(""), false) => errors.push(FieldError::required(
            path.field("persistentVolumeName"),
            "must specify non empty persistentVolumeName",
        )),
        (Some(name), false) => {
            check::each(syntax::subdomain(name), name, &path.field("persistentVolumeName"), errors);
        }
        (None, true) => {}
    }
    let node = json::text(object, "/spec/nodeName");
    check::each(syntax::subdomain(node), node, &SPEC.field("nodeName"), errors);
    validate_status(object, errors);
}

fn validate_status(object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = json::entries(object, "/status/attachmentMetadata");
    let size: usize =
        metadata.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > METADATA_MAX {
        errors.push(FieldError::too_long(STATUS.field("attachmentMetadata"), METADATA_MAX));
    }
    for key in ["attachError", "detachError"] {
        let path = STATUS.field(key);
        if json::text(object, &format!("/status/{key}/message")).len() > MESSAGE_MAX {
            errors.push(FieldError::too_long(path.field("message"), MESSAGE_MAX));
        }
        if let Some(code) = json::int_at(object, &format!("/status/{key}/errorCode")) {
            for problem in syntax::in_range(code, 0, i64::from(i32::MAX)) {
                errors.push(FieldError::invalid(path.field("errorCode"), code, problem));
            }
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        print::name(object),
        json::text(object, "/spec/attacher").into(),
        json::text(object, "/spec/source/persistentVolumeName").into(),
        json::text(object, "/spec/nodeName").into(),
        json::flag(object, "/status/attached").into(),
        print::age(object, now),
    ]
}
