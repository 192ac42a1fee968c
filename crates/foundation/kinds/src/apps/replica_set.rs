//! ReplicaSets.

use schema::FieldError;
use serde_json::Value;

use super::{
    REPLICA_COLUMNS, default_replicated, keeps_selector, no_runtime, replica_cells,
    validate_counts, validate_workload,
};
use crate::resource::{Printer, Resource, Strategy, Subresource};
use crate::{json, labels};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[Subresource::SCALE, Subresource::STATUS],
    strategy: Strategy {
        default: default_replicated,
        validate,
        validate_update: |new, old, errors| {
            validate(new, errors);
            keeps_selector(new, old, errors);
        },
        warnings: no_runtime,
        generation: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: REPLICA_COLUMNS,
        cells: |object, now| {
            let selector = labels::show_selector(json::at(object, "/spec/selector"));
            replica_cells(object, selector, now)
        },
    },
    fields: &[("status.replicas", |object| json::int(object, "/status/replicas").to_string())],
    ..Resource::namespaced("apps", "v1", "replicasets", "replicaset", "ReplicaSet")
};

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    validate_counts(spec, errors);
    // Upstream says "deployment" here too, and clients may search for it.
    validate_workload(spec, "deployment", "ReplicaSet", errors);
}
