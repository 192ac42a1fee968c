//! PodTemplates.

use schema::Path;
use serde_json::Value;

use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{json, labels, podspec, print};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        default: |object| {
            if let Some(template) = json::object(object, "template") {
                podspec::default_template(template);
            }
        },
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        generation: true,
        returns_deleted: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Containers", "Names of its containers"),
            Column::text("Images", "Images of its containers"),
            Column::text("Pod Labels", "Labels of its pods"),
        ],
        cells: |object, _| {
            let (names, images) = print::containers(object, "/template/spec");
            let labels = labels::format_map(json::at(object, "/template/metadata/labels"));
            vec![print::name(object), names, images, labels.into()]
        },
    },
    ..Resource::namespaced("", "v1", "podtemplates", "podtemplate", "PodTemplate")
};

fn validate(object: &Value, errors: &mut Vec<schema::FieldError>) {
    let root = Path::Root;
    let template = object.get("template").unwrap_or(&Value::Null);
    podspec::validate_template(template, &root.field("template"), errors);
}
