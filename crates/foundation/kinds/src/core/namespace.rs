//! Namespaces.

use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, SPEC, STATUS};
use crate::resource::{Column, NameRule, Printer, Resource, Strategy, Subresource};
use crate::{json, print, status, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ns"],
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    subresources: &[
        Subresource { name: "finalize", kind: None, verbs: &["update"] },
        Subresource::STATUS,
    ],
    strategy: Strategy {
        name: NameRule::Label,
        default,
        prepare_create,
        prepare_update,
        validate,
        validate_update: |new, _, errors| validate(new, errors),
        validate_status,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer {
        columns: &[
            Column::NAME,
            Column::text("Status", "Whether the namespace is in use or going away"),
            Column::AGE,
        ],
        cells: |object, now| {
            vec![
                print::name(object),
                json::text(object, "/status/phase").into(),
                print::age(object, now),
            ]
        },
    },
    fields: &[
        ("name", |object| json::text(object, "/metadata/name").to_owned()),
        ("status.phase", |object| json::text(object, "/status/phase").to_owned()),
    ],
    ..Resource::cluster("", "v1", "namespaces", "namespace", "Namespace")
};

/// The finalizer the namespace controller removes when all content is gone.
const FINALIZER: &str = "kubernetes";

fn default(object: &mut Value) {
    label(object);
    if let Some(status) = json::object(object, "status") {
        json::fill_zero(status, "phase", "Active");
    }
}

/// A namespace can be selected by its name, whatever the client says.
fn label(object: &mut Value) {
    let name = json::text(object, "/metadata/name").to_owned();
    if !name.is_empty()
        && let Some(metadata) = json::object(object, "metadata")
        && let Some(labels) = json::object(metadata, "labels")
    {
        json::set(labels, "kubernetes.io/metadata.name", name);
    }
}

fn prepare_create(object: &mut Value) {
    label(object);
    json::set(object, "status", json!({"phase": "Active"}));
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill(spec, "finalizers", json!([]));
    if let Some(finalizers) = spec.get_mut("finalizers").and_then(Value::as_array_mut)
        && !finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    {
        finalizers.push(FINALIZER.into());
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    label(new);
    status::keep(new, old);
    if let Some(spec) = json::object(new, "spec") {
        json::restore(spec, old.get("spec").unwrap_or(&Value::Null), "finalizers");
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("finalizers");
    for finalizer in json::texts(object, "/spec/finalizers") {
        validate_finalizer(finalizer, &path, errors);
    }
}

fn validate_finalizer(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    check::each(syntax::qualified_name(name), name, path, errors);
    let standard = [FINALIZER, "orphan", "foregroundDeletion"];
    if !name.contains('/') && !standard.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    let phase = json::text(new, "/status/phase");
    let (want, detail) = match json::has(new, "/metadata/deletionTimestamp") {
        false => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        true => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase != want {
        errors.push(FieldError::invalid(STATUS.field("Phase"), phase, detail));
    }
}
