//! ReplicationControllers.

use serde_json::Value;

use crate::apps::{
    REPLICA_COLUMNS, default_replicated, no_runtime, replica_cells, validate_controller,
};
use crate::resource::{DefaultPropagation, Printer, Resource, Strategy, Subresource};
use crate::{json, labels};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["rc"],
    categories: &["all"],
    table: "controllers",
    subresources: &[Subresource::SCALE, Subresource::STATUS],
    strategy: Strategy {
        default,
        validate: |object, errors| {
            validate_controller(object.get("spec").unwrap_or(&Value::Null), errors);
        },
        validate_update: |new, _, errors| {
            validate_controller(new.get("spec").unwrap_or(&Value::Null), errors);
        },
        warnings: no_runtime,
        generation: true,
        default_propagation: DefaultPropagation::Orphan(None),
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: REPLICA_COLUMNS,
        cells: |object, now| {
            let selector = labels::format_map(json::at(object, "/spec/selector"));
            replica_cells(object, selector, now)
        },
    },
    fields: &[("status.replicas", |object| json::int(object, "/status/replicas").to_string())],
    ..Resource::namespaced(
        "",
        "v1",
        "replicationcontrollers",
        "replicationcontroller",
        "ReplicationController",
    )
};

/// Selector and labels follow the template's labels where they are not given.
fn default(object: &mut Value) {
    if json::has(object, "/spec/template") {
        default_replicated(object);
    } else if let Some(spec) = json::object(object, "spec") {
        json::fill(spec, "replicas", 1);
    }
    let Some(carried) = json::at(object, "/spec/template/metadata/labels").cloned() else { return };
    if json::count(object, "/spec/selector") == 0
        && let Some(spec) = json::object(object, "spec")
    {
        json::set(spec, "selector", carried.clone());
    }
    if json::count(object, "/metadata/labels") == 0
        && let Some(metadata) = json::object(object, "metadata")
    {
        json::set(metadata, "labels", carried);
    }
}
