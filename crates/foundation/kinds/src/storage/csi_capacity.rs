//! CSIStorageCapacities.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::resource::{Column, Printer, Resource, Strategy};
use crate::{check, json, labels, print, quantity, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    strategy: Strategy {
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            for key in ["nodeTopology", "storageClassName"] {
                check::immutable(new, old, key, &Path::Root, errors);
            }
        },
        unconditional_update: false,
        ..Strategy::GENERIC
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("StorageClassName", "The class it speaks of"),
            Column::text("Capacity", "How much can still be had"),
        ],
        cells: |object, _| {
            let capacity = json::at(object, "/capacity");
            let capacity = capacity.map_or("<unset>".to_owned(), |it| print::quantity(Some(it)));
            vec![
                print::name(object),
                json::text(object, "/storageClassName").into(),
                capacity.into(),
            ]
        },
    },
    ..Resource::namespaced(
        "storage.k8s.io",
        "v1",
        "csistoragecapacities",
        "csistoragecapacity",
        "CSIStorageCapacity",
    )
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let root = Path::Root;
    let class = json::text(object, "/storageClassName");
    check::each(syntax::subdomain(class), class, &root.field("storageClassName"), errors);
    labels::validate_selector(
        json::at(object, "/nodeTopology"),
        &root.field("nodeTopology"),
        errors,
    );
    for key in ["capacity", "maximumVolumeSize"] {
        if let Some(amount) = object.get(key) {
            quantity::not_negative(amount, &root.field(key), errors);
        }
    }
}
