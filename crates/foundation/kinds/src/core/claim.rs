//! PersistentVolumeClaims.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, METADATA, SPEC, STATUS};
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, labels, print, quantity, status, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pvc"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        prepare_create,
        prepare_update,
        validate: |object, errors| validate_spec(json::at(object, "/spec"), &SPEC, errors),
        validate_update,
        validate_status,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    fields: &[("name", |object| json::text(object, "/metadata/name").to_owned())],
    ..Resource::namespaced(
        "",
        "v1",
        "persistentvolumeclaims",
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
    )
};

/// How a volume may be mounted, sorted.
pub(crate) const ACCESS_MODES: &[&str] =
    &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// How a volume appears to its user, sorted.
pub(crate) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
/// The annotation that named the class before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn default(object: &mut Value) {
    if let Some(spec) = json::object(object, "spec") {
        default_spec(spec);
    }
    if let Some(status) = json::object(object, "status") {
        json::fill_zero(status, "phase", "Pending");
    }
}

/// Defaults of a claim's spec, also of those in a template.
pub(crate) fn default_spec(spec: &mut Value) {
    json::fill(spec, "volumeMode", "Filesystem");
}

fn prepare_create(object: &mut Value) {
    json::set(object, "status", json!({"phase": "Pending"}));
    if let Some(spec) = json::object(object, "spec") {
        drop_unknown_source(spec);
        mirror_sources(spec);
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    status::keep(new, old);
    let had_source = json::has(old, "/spec/dataSource") || json::has(old, "/spec/dataSourceRef");
    if let Some(spec) = json::object(new, "spec") {
        if !had_source {
            drop_unknown_source(spec);
        }
        // A client that does not know dataSourceRef must not lose it.
        if json::has(old, "/spec/dataSourceRef") && !json::has(spec, "/dataSourceRef") {
            mirror_sources(spec);
        }
    }
}

/// `dataSource` alone takes claims and snapshots; upstream silently drops anything else.
fn drop_unknown_source(spec: &mut Value) {
    if json::has(spec, "/dataSourceRef") {
        return;
    }
    let source = (json::text(spec, "/dataSource/apiGroup"), json::text(spec, "/dataSource/kind"));
    let known = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")];
    if !known.contains(&source) {
        json::remove(spec, "dataSource");
    }
}

/// Fills whichever of `dataSource` and `dataSourceRef` is absent from the other.
fn mirror_sources(spec: &mut Value) {
    let (source, reference) = (json::at(spec, "/dataSource"), json::at(spec, "/dataSourceRef"));
    let pair = match (source, reference) {
        (Some(source), None) => ("dataSourceRef", source),
        (None, Some(reference)) if json::text(reference, "/namespace").is_empty() => {
            ("dataSource", reference)
        }
        _ => return,
    };
    let (key, mut copy) = (pair.0, pair.1.clone());
    json::remove(&mut copy, "namespace");
    json::set(spec, key, copy);
}

/// Judges a claim's spec, also one in a template.
pub(crate) fn validate_spec(spec: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let spec = spec.unwrap_or(&Value::Null);
    if json::list(spec, "/accessModes").is_empty() {
        let detail = "at least 1 access mode is required";
        errors.push(FieldError::required(path.field("accessModes"), detail));
    }
    labels::validate_selector(json::at(spec, "/selector"), &path.field("selector"), errors);
    access_modes(spec, path, errors);
    let resources = path.field("resources");
    let storage = resources.key("storage");
    match json::at(spec, "/resources/requests/storage") {
        None => errors.push(FieldError::required(storage, "")),
        Some(amount) => quantity::positive(amount, &storage, errors),
    }
    for key in ["storageClassName", "volumeAttributesClassName"] {
        let class = json::text(spec, &format!("/{key}"));
        if !class.is_empty() {
            check::each(syntax::subdomain(class), class, &path.field(key), errors);
        }
    }
    check::one_of(spec, "volumeMode", VOLUME_MODES, path, errors);
    data_sources(spec, path, errors);
}

/// Judges access modes of claims and volumes.
pub(crate) fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let modes = json::texts(spec, "/accessModes");
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        let path = path.field("accessModes");
        errors.push(FieldError::not_supported(path, *mode, ACCESS_MODES));
    }
    let known = modes.iter().filter(|mode| ACCESS_MODES.contains(mode));
    let (single, shared): (Vec<&str>, Vec<&str>) =
        known.partition(|mode| **mode == "ReadWriteOncePod");
    if !single.is_empty() && !shared.is_empty() {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(path.field("accessModes"), detail));
    }
}

fn data_sources(spec: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let (source, reference) = (json::at(spec, "/dataSource"), json::at(spec, "/dataSourceRef"));
    for (key, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        let Some(source) = source else { continue };
        let path = path.field(key);
        check::required(source, "name", &path, errors);
        check::required(source, "kind", &path, errors);
        let (group, kind) = (json::text(source, "/apiGroup"), json::text(source, "/kind"));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(path, kind, detail));
        }
        if !group.is_empty() {
            check::each(syntax::subdomain(group), group, &path.field("apiGroup"), errors);
        }
        let namespace = json::text(source, "/namespace");
        if !namespace.is_empty() {
            check::each(syntax::label(namespace), namespace, &path.field("namespace"), errors);
        }
    }
    if let (Some(source), Some(reference)) = (source, reference) {
        let named = |key: &str| (source.get(key), reference.get(key));
        let differ = |key: &str| named(key).0 != named(key).1;
        let detail = match json::text(reference, "/namespace") {
            "" if !["apiGroup", "kind", "name"].into_iter().any(differ) => return,
            "" => "must match dataSourceRef",
            _ => "may not be specified when dataSourceRef.namespace is specified",
        };
        let value = path.field("dataSource").to_string();
        errors.push(FieldError::invalid(path, value, detail));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate_spec(json::at(new, "/spec"), &SPEC, errors);
    let annotation = |object: &Value| {
        let annotations = json::at(object, "/metadata/annotations");
        annotations.and_then(|all| all.get(CLASS_ANNOTATION)).cloned()
    };
    if annotation(new) != annotation(old) && !moves_class_to_field(new, old) {
        let annotations = METADATA.field("annotations");
        let value = annotation(new).unwrap_or_else(|| "".into());
        let path = annotations.key(CLASS_ANNOTATION);
        errors.push(FieldError::invalid(path, value, check::IMMUTABLE));
    }
    if frozen(new, new, old) != frozen(old, new, old) {
        errors.push(FieldError::forbidden(
            SPEC,
            "spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims",
        ));
    }
    size_update(new, old, errors);
    let empty = Value::Null;
    let spec = |object: &Value| json::at(object, "/spec").cloned().unwrap_or(empty.clone());
    check::immutable(&spec(new), &spec(old), "volumeMode", &Path::Root, errors);
    attributes_update(new, old, errors);
}

fn moves_class_to_field(new: &Value, old: &Value) -> bool {
    let annotated =
        json::at(old, "/metadata/annotations").and_then(|all| all.get(CLASS_ANNOTATION));
    annotated.is_some()
        && !json::has(old, "/spec/storageClassName")
        && json::at(new, "/spec/storageClassName") == annotated
}

/// The spec without what may change in this update.
fn frozen(object: &Value, new: &Value, old: &Value) -> Value {
    let mut spec = json::at(object, "/spec").cloned().unwrap_or_default();
    let mut ignore = |key: &str| json::remove(&mut spec, key);
    if json::text(old, "/spec/volumeName").is_empty() {
        ignore("volumeName");
    }
    if !json::has(old, "/spec/storageClassName") && json::has(new, "/spec/storageClassName") {
        ignore("storageClassName");
    }
    if json::text(new, "/status/phase") == "Bound" {
        ignore("volumeAttributesClassName");
        if let Some(requests) = spec.pointer_mut("/resources/requests") {
            json::remove(requests, "storage");
        }
    }
    spec
}

/// A claim may grow; it may shrink only back towards what its volume really has.
fn size_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let storage = "/spec/resources/requests/storage";
    let (size, before) =
        (quantity::or_zero(json::at(new, storage)), quantity::or_zero(json::at(old, storage)));
    let capacity = quantity::or_zero(json::at(old, "/status/capacity/storage"));
    if size < before && size <= capacity {
        let resources = SPEC.field("resources");
        let requests = resources.field("requests");
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(requests.field("storage"), detail));
    }
}

fn attributes_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let pointer = "/spec/volumeAttributesClassName";
    if json::at(new, pointer) == json::at(old, pointer)
        || !json::has(old, "/status/currentVolumeAttributesClassName")
    {
        return;
    }
    let to = match json::text_at(new, pointer) {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let detail = format!(
        "update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
    );
    errors.push(FieldError::forbidden(SPEC.field("volumeAttributesClassName"), detail));
}

fn validate_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    for list in ["capacity", "allocatedResources"] {
        let path = STATUS.field(list);
        for (name, amount) in json::entries(new, &format!("/status/{list}")) {
            if quantity::parse(amount).is_some_and(|amount| amount < 0) {
                let detail = "must be a valid resource quantity";
                errors.push(FieldError::invalid(path.key(name), amount.clone(), detail));
            }
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Status", "Whether a volume is bound to the claim"),
    Column::text("Volume", "The bound volume"),
    Column::text("Capacity", "What the bound volume holds"),
    Column::text("Access Modes", "How the bound volume may be mounted"),
    Column::text("StorageClass", "The class asked for"),
    Column::text("VolumeAttributesClass", "The class of attributes asked for"),
    Column::AGE,
    Column::text("VolumeMode", "File system or raw block device").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = json::text(object, "/spec/volumeName");
    let (capacity, modes) = match volume {
        "" => (String::new(), String::new()),
        _ => (
            print::quantity(json::at(object, "/status/capacity/storage")),
            print::access_modes(object, "/status/accessModes"),
        ),
    };
    vec![
        print::name(object),
        phase(object).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(object).into(),
        print::text_or(object, "/spec/volumeAttributesClassName", "<unset>"),
        print::age(object, now),
        print::text_or(object, "/spec/volumeMode", "<unset>"),
    ]
}

/// The phase of a claim or volume, as shown.
pub(crate) fn phase(object: &Value) -> &str {
    match json::has(object, "/metadata/deletionTimestamp") {
        true => "Terminating",
        false => json::text(object, "/status/phase"),
    }
}

/// The storage class of a claim or volume, wherever it is written.
pub(crate) fn class(object: &Value) -> &str {
    let annotated =
        json::text_at(object, "/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
    annotated.unwrap_or_else(|| json::text(object, "/spec/storageClassName"))
}
