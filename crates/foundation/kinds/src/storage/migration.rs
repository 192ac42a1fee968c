//! StorageVersionMigrations: requests to store every object of a resource again.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::{self, SPEC};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print};

pub(crate) const RESOURCE: Resource = Resource {
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            check::immutable(new, old, "spec", &Path::Root, errors);
        },
        unconditional_update: false,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::text("Name", "Name of the object"),
            Column::text("Resource", "What is to be rewritten"),
            Column::text("Status", "How far it is"),
        ],
        cells: |object, _| {
            let resource = json::text(object, "/spec/resource/resource");
            let resource = match json::text(object, "/spec/resource/group") {
                "" => resource.to_owned(),
                group => format!("{resource}.{group}"),
            };
            let state = ["Running", "Failed", "Succeeded"]
                .into_iter()
                .rfind(|state| print::condition(object, state) == Some("True"));
            vec![print::name(object), resource.into(), state.unwrap_or("Unknown").into()]
        },
    },
    ..Resource::cluster(
        "storagemigration.k8s.io",
        "v1",
        "storageversionmigrations",
        "storageversionmigration",
        "StorageVersionMigration",
    )
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let resource = json::at(object, "/spec/resource").unwrap_or(&null);
    check::required(resource, "resource", &SPEC.field("resource"), errors);
}
