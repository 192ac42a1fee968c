//! PersistentVolumes.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::{Value, json};

use crate::check::{self, SPEC};
use crate::core::claim;
use crate::resource::{Column, Printer, Resource, Strategy, Subresource};
use crate::{json, print, quantity, storage, syntax};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["pv"],
    subresources: &[Subresource::STATUS],
    strategy: Strategy {
        default,
        prepare_create: |object| json::set(object, "status", json!({"phase": "Pending"})),
        validate,
        validate_update,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    fields: &[("name", |object| json::text(object, "/metadata/name").to_owned())],
    ..Resource::cluster("", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume")
};

/// The policies for a volume whose claim is gone, sorted.
pub(crate) const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];

/// Where a volume may come from: each is a field of the spec, at most one is set.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn default(object: &mut Value) {
    if let Some(status) = json::object(object, "status") {
        json::fill_zero(status, "phase", "Pending");
    }
    if let Some(spec) = json::object(object, "spec") {
        json::fill_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
        json::fill(spec, "volumeMode", "Filesystem");
        if let Some(path) = spec.get_mut("hostPath").filter(|path| path.is_object()) {
            json::fill(path, "type", "");
        }
    }
}

fn validate(object: &Value, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let spec = json::at(object, "/spec").unwrap_or(&null);
    if json::list(spec, "/accessModes").is_empty() {
        errors.push(FieldError::required(SPEC.field("accessModes"), ""));
    }
    claim::access_modes(spec, &SPEC, errors);
    capacity(spec, errors);
    check::one_of(spec, "persistentVolumeReclaimPolicy", RECLAIM_POLICIES, &SPEC, errors);
    sources(spec, errors);
    let class = json::text(spec, "/storageClassName");
    if !class.is_empty() {
        check::each(syntax::subdomain(class), class, &SPEC.field("storageClassName"), errors);
    }
    check::one_of(spec, "volumeMode", claim::VOLUME_MODES, &SPEC, errors);
    attributes_class(spec, errors);
}

fn capacity(spec: &Value, errors: &mut Vec<FieldError>) {
    let path = SPEC.field("capacity");
    let count = json::count(spec, "/capacity");
    if count == 0 {
        errors.push(FieldError::required(path, ""));
    }
    if count > 1 || !json::has(spec, "/capacity/storage") {
        let given = json::at(spec, "/capacity").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(path, given, &["storage"]));
    }
    for (name, amount) in json::entries(spec, "/capacity") {
        quantity::positive(amount, &path.key(name), errors);
    }
}

fn sources(spec: &Value, errors: &mut Vec<FieldError>) {
    let given: Vec<&str> = SOURCES
        .iter()
        .copied()
        .filter(|key| spec.get(key).is_some_and(|source| !source.is_null()))
        .collect();
    match given.first() {
        None => errors.push(FieldError::required(SPEC, "must specify a volume type")),
        Some(key) => source(spec, key, errors),
    }
    for key in given.iter().skip(1) {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(SPEC.field(key), detail));
    }
}

fn source(spec: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let source = spec.get(key).unwrap_or(&Value::Null);
    let path = SPEC.field(key);
    match key {
        "csi" => {
            let driver = json::text(source, "/driver");
            storage::validate_driver_name(driver, &path.field("driver"), errors);
            check::required(source, "volumeHandle", &path, errors);
            for secret in SECRETS {
                secret_reference(source, secret, &path, errors);
            }
        }
        "hostPath" => host_path(spec, source, &path, errors),
        "local" => {
            check::required(source, "path", &path, errors);
            if !json::has(spec, "/nodeAffinity/required") {
                let detail = "Local volume requires node affinity";
                errors.push(FieldError::required(SPEC.field("nodeAffinity"), detail));
            }
        }
        "nfs" => {
            check::required(source, "server", &path, errors);
            if let Some(target) = check::required(source, "path", &path, errors)
                && !target.starts_with('/')
            {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(path.field("path"), target, detail));
            }
        }
        _ => {}
    }
}

const SECRETS: &[&str] = &[
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
];

fn secret_reference(source: &Value, key: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(reference) = source.get(key).filter(|reference| !reference.is_null()) else { return };
    let path = path.field(key);
    for (key, problems) in
        [("name", syntax::subdomain as syntax::SyntaxRule), ("namespace", syntax::label)]
    {
        if let Some(text) = check::required(reference, key, &path, errors) {
            check::each(problems(text), text, &path.field(key), errors);
        }
    }
}

fn host_path(spec: &Value, source: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(target) = check::required(source, "path", path, errors) else { return };
    if target.split('/').any(|part| part == "..") {
        let detail = "must not contain '..'";
        errors.push(FieldError::invalid(path.field("path"), target, detail));
    }
    if target.trim_matches('/').is_empty()
        && json::text(spec, "/persistentVolumeReclaimPolicy") == "Recycle"
    {
        let path = SPEC.field("persistentVolumeReclaimPolicy");
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn attributes_class(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(class) = json::text_at(spec, "/volumeAttributesClassName") else { return };
    let path = SPEC.field("volumeAttributesClassName");
    match class {
        "" => errors.push(FieldError::required(path, "an empty string is disallowed")),
        _ => check::each(syntax::subdomain(class), class, &path, errors),
    }
    if !json::has(spec, "/csi") {
        let detail = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required(SPEC.field("csi"), detail));
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    validate(new, errors);
    let origin = |object: &Value| -> Vec<Option<Value>> {
        let mut spec = json::at(object, "/spec").cloned().unwrap_or_default();
        // May be added once, for volumes made before drivers could grow them.
        if !json::has(old, "/spec/csi/controllerExpandSecretRef")
            && let Some(csi) = spec.get_mut("csi")
        {
            json::remove(csi, "controllerExpandSecretRef");
        }
        SOURCES
            .iter()
            .map(|key| spec.get(key).filter(|source| !source.is_null()).cloned())
            .collect()
    };
    if origin(new) != origin(old) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden(SPEC.field("persistentvolumesource"), detail));
    }
    let null = Value::Null;
    let spec = |object| json::at(object, "/spec").unwrap_or(&null);
    check::immutable(spec(new), spec(old), "volumeMode", &Path::Root, errors);
    let class = "/spec/volumeAttributesClassName";
    if json::has(old, class) && !json::has(new, class) {
        let detail = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden(SPEC.field("volumeAttributesClassName"), detail));
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Capacity", "What the volume holds"),
    Column::text("Access Modes", "How the volume may be mounted"),
    Column::text("Reclaim Policy", "What becomes of it without its claim"),
    Column::text("Status", "Whether the volume is bound"),
    Column::text("Claim", "The claim it is bound to"),
    Column::text("StorageClass", "The class it belongs to"),
    Column::text("VolumeAttributesClass", "The class of its attributes"),
    Column::text("Reason", "Why it is in its state"),
    Column::AGE,
    Column::text("VolumeMode", "File system or raw block device").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = json::at(object, "/spec/claimRef").map_or(String::new(), |claim| {
        format!("{}/{}", json::text(claim, "/namespace"), json::text(claim, "/name"))
    });
    vec![
        print::name(object),
        print::quantity(json::at(object, "/spec/capacity/storage")).into(),
        print::access_modes(object, "/spec/accessModes").into(),
        json::text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        claim::phase(object).into(),
        claim.into(),
        claim::class(object).into(),
        print::text_or(object, "/spec/volumeAttributesClassName", "<unset>"),
        json::text(object, "/status/reason").into(),
        print::age(object, now),
        print::text_or(object, "/spec/volumeMode", "<unset>"),
    ]
}
