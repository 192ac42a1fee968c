//! RuntimeClasses.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, labels, print, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        validate,
        validate_update: |new, old, errors| {
            check::immutable(new, old, "handler", &Path::Root, errors);
        },
        unconditional_update: false,
        create_on_update: true,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[Column::NAME, Column::text("Handler", "What runs its pods"), Column::AGE],
        cells: |object, now| {
            vec![
                print::name(object),
                json::text(object, "/handler").into(),
                print::age(object, now),
            ]
        },
    },
    ..Resource::cluster("node.k8s.io", "v1", "runtimeclasses", "runtimeclass", "RuntimeClass")
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    if let Some(handler) = check::required(object, "handler", &root, errors) {
        check::each(syntax::label(handler), handler, &root.field("handler"), errors);
    }
    let scheduling = root.field("scheduling");
    let selector = json::at(object, "/scheduling/nodeSelector");
    labels::validate(selector, &scheduling.field("nodeSelector"), errors);
    // As upstream, which judges an overhead as if it were a limit.
    let overhead = root.field("overhead");
    let limits = overhead.field("limits");
    for (resource, amount) in json::entries(object, "/overhead/podFixed") {
        let negative = types::Quantity::from_json(amount).is_ok_and(|it| it.signum() < 0);
        if negative {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(limits.key(resource), amount.clone(), detail));
        }
    }
}
