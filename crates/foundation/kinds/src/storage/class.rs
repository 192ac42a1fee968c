//! StorageClasses.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["sc"],
    strategy: Strategy {
        default: |object| {
            json::fill(object, "reclaimPolicy", "Delete");
            json::fill(object, "volumeBindingMode", "Immediate");
        },
        validate,
        validate_update: |new, old, errors| {
            for key in ["parameters", "provisioner", "reclaimPolicy"] {
                if new.get(key) != old.get(key) {
                    let detail = format!("updates to {key} are forbidden.");
                    errors.push(FieldError::forbidden(Path::Root.field(key), detail));
                }
            }
            check::immutable(new, old, "volumeBindingMode", &Path::Root, errors);
            validate(new, errors);
        },
        returns_deleted: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Provisioner", "What makes its volumes"),
            Column::text("ReclaimPolicy", "What becomes of a volume without its claim"),
            Column::text("VolumeBindingMode", "When a volume is chosen"),
            Column::text("AllowVolumeExpansion", "Whether volumes may grow"),
            Column::AGE,
        ],
        cells: |object, now| {
            let mut name = json::text(object, "/metadata/name").to_owned();
            if is_default(object) {
                name.push_str(" (default)");
            }
            vec![
                name.into(),
                json::text(object, "/provisioner").into(),
                print::text_or(object, "/reclaimPolicy", "Delete"),
                print::text_or(object, "/volumeBindingMode", "Immediate"),
                json::flag(object, "/allowVolumeExpansion").into(),
                print::age(object, now),
            ]
        },
    },
    ..Resource::cluster("storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass")
};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_MAX_SIZE: usize = 256 * 1024;

fn is_default(object: &Value) -> bool {
    [
        "storageclass.kubernetes.io~1is-default-class",
        "storageclass.beta.kubernetes.io~1is-default-class",
    ]
    .iter()
    .any(|key| json::text(object, &format!("/metadata/annotations/{key}")) == "true")
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    if let Some(name) = check::required(object, "provisioner", &root, errors) {
        let lower = name.to_lowercase();
        check::each(syntax::qualified_name(&lower), &lower, &root.field("provisioner"), errors);
    }
    validate_parameters(object, errors);
    check::one_of(object, "reclaimPolicy", &["Delete", "Retain"], &root, errors);
    let modes = &["Immediate", "WaitForFirstConsumer"];
    check::required_one_of(object, "volumeBindingMode", modes, &root, errors);
    let list = root.field("allowedTopologies");
    for (index, term) in json::list(object, "/allowedTopologies").iter().enumerate() {
        let term_path = list.index(index);
        let expressions = term_path.field("matchLabelExpressions");
        for (index, term) in json::list(term, "/matchLabelExpressions").iter().enumerate() {
            let path = expressions.index(index);
            let key = json::text(term, "/key");
            check::each(syntax::qualified_name(key), key, &path.field("key"), errors);
            if json::count(term, "/values") == 0 {
                errors.push(FieldError::required(path.field("values"), ""));
            }
            check::distinct(term, "/values", &path.field("values"), errors);
        }
    }
}

/// Judges the free-form parameters of a class.
pub(super) fn validate_parameters(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let path = root.field("parameters");
    if json::count(object, "/parameters") > PARAMETERS_MAX {
        errors.push(FieldError::too_long(path, PARAMETERS_MAX));
        return;
    }
    let mut size = 0;
    for (key, value) in json::entries(object, "/parameters") {
        if key.is_empty() {
            errors.push(FieldError::invalid(path, key.as_str(), "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > PARAMETERS_MAX_SIZE {
        errors.push(FieldError::too_long(path, PARAMETERS_MAX_SIZE));
    }
}
