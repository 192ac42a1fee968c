//! Admission of images: sources, immutable fields, and refusal to delete images in use.

mod clone;

use serde_json::{Map, Value, json};

use super::reference::{authorize_class, authorize_disks, authorize_secrets};
use super::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, split_id, text};

const DISPLAY_NAME: &str = "harvesterhci.io/imageDisplayName";
const CLASS: &str = "harvesterhci.io/storageClassName";
const CLASS_POINTER: &str = "/metadata/annotations/harvesterhci.io~1storageClassName";
const TARGET_POINTER: &str = "/spec/targetStorageClassName";
const TARGET_FIELD: &str = "spec.targetStorageClassName";

/// Parameters of the image's own storage class unless the requested class sets them.
const PARAMETERS: [(&str, &str); 3] =
    [("numberOfReplicas", "3"), ("staleReplicaTimeout", "30"), ("migratable", "true")];

/// Parameters that are copied from the requested class.
const TAKEN: [&str; 14] = [
    "numberOfReplicas",
    "staleReplicaTimeout",
    "migratable",
    "diskSelector",
    "nodeSelector",
    "dataLocality",
    "encrypted",
    "csi.storage.k8s.io/provisioner-secret-name",
    "csi.storage.k8s.io/provisioner-secret-namespace",
    "csi.storage.k8s.io/node-publish-secret-name",
    "csi.storage.k8s.io/node-publish-secret-namespace",
    "csi.storage.k8s.io/node-stage-secret-name",
    "csi.storage.k8s.io/node-stage-secret-namespace",
    "dataEngine",
];

pub(super) fn complete(write: &Write<'_>, object: &mut Value) -> Result<(), Refusal> {
    if !object["spec"].is_object() {
        return Ok(());
    }
    let display = text(object, "/spec/displayName").to_owned();
    if kinds::syntax::label_value(&display).is_empty() {
        object["metadata"]["labels"][DISPLAY_NAME] = display.into();
    }
    if write.old.is_some() {
        return Ok(());
    }
    validate_class_names(object)?;
    let class = wished_class(write, object)?;
    if object["spec"]["storageClassParameters"].as_object().is_none_or(Map::is_empty) {
        object["spec"]["storageClassParameters"] = parameters(&class);
    }
    clone::complete(object, &class);
    let name = text(&class, "/metadata/name");
    if !name.is_empty() {
        object["metadata"]["annotations"][CLASS] = name.into();
        object["spec"]["targetStorageClassName"] = name.into();
    }
    Ok(())
}

/// The annotation and the field name the same class, if both name one.
fn validate_class_names(object: &Value) -> AdmissionResult {
    let (field, annotation) = (text(object, CLASS_POINTER), text(object, TARGET_POINTER));
    if field.is_empty() || annotation.is_empty() || field == annotation {
        return Ok(());
    }
    let message = "storageClassName should keep the consistency";
    Err(Refusal::invalid(TARGET_FIELD, message))
}

/// The class that the image's data and volumes should be like: as asked for, or the default.
fn wished_class(write: &Write<'_>, object: &Value) -> Result<Value, Refusal> {
    let asked = [text(object, TARGET_POINTER), text(object, CLASS_POINTER)];
    if let Some(name) = asked.into_iter().find(|name| !name.is_empty()) {
        return write.objects.get(STORAGE, "storageclasses", "", name).ok_or_else(|| {
            Refusal::new(
                500,
                TARGET_FIELD,
                format!("storageclasses.storage.k8s.io \"{name}\" not found"),
            )
        });
    }
    let all = write.objects.list(STORAGE, "storageclasses", "");
    Ok(all.into_iter().find(super::storage_class::is_default).unwrap_or(Value::Null))
}

fn parameters(class: &Value) -> Value {
    let mut all: Map<String, Value> =
        PARAMETERS.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    for key in TAKEN {
        if let Some(value) = class["parameters"].get(key) {
            all.insert(key.to_owned(), value.clone());
        }
    }
    all.into()
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (None, Some(old)) => validate_deletion(write, old),
        (Some(object), Some(old)) => validate_change(write, object, old),
        (Some(object), None) => validate_creation(write, object),
        (None, None) => Ok(()),
    }
}

fn validate_creation(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let display = text(object, "/spec/displayName");
    if display.is_empty() {
        return Err(Refusal::invalid("spec.displayName", "displayName is required"));
    }
    if let problems @ [_, ..] = kinds::syntax::label_value(display).as_slice() {
        let problems = problems.join("; ");
        return Err(Refusal::invalid(
            "spec.displayName",
            format!("displayName is not a valid Kubernetes label value: {problems}"),
        ));
    }
    let images = write.objects.list(HARVESTER, "virtualmachineimages", write.namespace);
    let is_taken = |other: &Value| {
        text(other, "/spec/displayName") == display && text(other, "/metadata/name") != write.name
    };
    if images.iter().any(is_taken) {
        return Err(Refusal::new(409, "spec.displayName", "A resource with the same name exists"));
    }
    validate_class(write, object)?;
    validate_source(write, object)
}

/// The class that the image's volumes are to be like, and the secrets of their parameters.
fn validate_class(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let wished = text(object, "/spec/targetStorageClassName");
    authorize_class(write, "spec.targetStorageClassName", wished)?;
    let class = write.objects.get(STORAGE, "storageclasses", "", wished).unwrap_or_default();
    let parameters = &object["spec"]["storageClassParameters"];
    let field = "spec.storageClassParameters";
    authorize_secrets(write, field, parameters, &class["parameters"])
}

fn validate_source(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let url = text(object, "/spec/url");
    match text(object, "/spec/sourceType") {
        "download" | "restore" if url.is_empty() => {
            Err(Refusal::invalid("spec.url", "url is required"))
        }
        "download" if !(url.starts_with("http://") || url.starts_with("https://")) => {
            Err(Refusal::invalid("spec.url", "url must start with http:// or https://"))
        }
        "upload" if !url.is_empty() => Err(Refusal::invalid(
            "spec.url",
            "url should be empty when image source type is \"upload\"",
        )),
        "clone" => clone::validate(write, object),
        _ if text(object, "/spec/storageClassParameters/encrypted") == "true" => {
            Err(Refusal::invalid(
                "spec.storageClassParameters",
                "an encrypted image is a clone: import it with a storage class that is not encrypted, then clone it with cryptoOperation \"encrypt\"",
            ))
        }
        "export-from-volume" => validate_claim(write, object),
        _ => Ok(()),
    }
}

fn validate_claim(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let (namespace, name) = (text(object, "/spec/pvcNamespace"), text(object, "/spec/pvcName"));
    if namespace.is_empty() {
        return Err(Refusal::invalid(
            "spec.pvcNamespace",
            "pvcNamespace is required when image source type is \"export-from-volume\"",
        ));
    }
    if name.is_empty() {
        return Err(Refusal::invalid(
            "spec.pvcName",
            "pvcName is required when image source type is \"export-from-volume\"",
        ));
    }
    if !write.writer.may_get("", "persistentvolumeclaims", namespace, name) {
        let message = format!("user has no permission to get the pvc resource {name}/{namespace}");
        return Err(Refusal::invalid("", message));
    }
    authorize_disks(write, "spec.pvcNamespace", namespace, name)?;
    match write.objects.get("", "persistentvolumeclaims", namespace, name) {
        Some(_) => Ok(()),
        None => Err(Refusal::invalid(
            "spec.pvcName",
            format!(
                "failed to get pvc {namespace}/{name}, error: persistentvolumeclaims \"{name}\" not found"
            ),
        )),
    }
}

/// Whether an image's data is all there.
pub(super) fn is_imported(image: &Value) -> bool {
    let conditions = image["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|own| own["type"] == "Imported" && own["status"] == "True")
}

/// Fields that say what the image is.
const FIXED: [(&str, &str, &str); 6] = [
    ("/spec/displayName", "spec.displayName", "displayName"),
    ("/spec/url", "spec.url", "url"),
    ("/spec/sourceType", "spec.sourceType", "sourceType"),
    ("/spec/pvcName", "spec.pvcName", "pvcName"),
    ("/spec/pvcNamespace", "spec.pvcNamespace", "pvcNamespace"),
    ("/spec/securityParameters", "spec.securityParameters", "securityParameters"),
];

fn validate_change(write: &Write<'_>, object: &Value, old: &Value) -> AdmissionResult {
    if write.trusted || !old["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    for (pointer, field, name) in FIXED {
        if object.pointer(pointer) != old.pointer(pointer) {
            return Err(Refusal::invalid(field, format!("{name} cannot be modified")));
        }
    }
    if object["spec"]["storageClassParameters"] != old["spec"]["storageClassParameters"] {
        return Err(Refusal::invalid(
            "spec.storageClassParameters",
            "storageClassParameters of the VM Image cannot be modified",
        ));
    }
    for (pointer, field) in [
        (CLASS_POINTER, "metadata.annotations[harvesterhci.io/storageClassName]"),
        (TARGET_POINTER, TARGET_FIELD),
    ] {
        let before = text(old, pointer);
        if !before.is_empty() && before != text(object, pointer) {
            return Err(Refusal::invalid(field, "storageClassName cannot be modified"));
        }
    }
    Ok(())
}

fn validate_deletion(write: &Write<'_>, old: &Value) -> AdmissionResult {
    let class = text(old, "/status/storageClassName");
    if class.is_empty() {
        return Ok(());
    }
    let id = format!("{}/{}", write.namespace, write.name);
    let shown = format!("{}/{}", write.namespace, text(old, "/spec/displayName"));
    let refuse = |user: String| {
        let message = format!("Cannot delete image {shown}: being used by {user}");
        Err(Refusal::invalid("", message))
    };
    let claims = write.objects.list("", "persistentvolumeclaims", "");
    if let Some(claim) = claims.iter().find(|claim| claim["spec"]["storageClassName"] == class) {
        return refuse(format!("volume {}", id_of(claim)));
    }
    let versions = write.objects.list(HARVESTER, "virtualmachinetemplateversions", "");
    if let Some(version) = versions.iter().find(|version| uses(version, &id)) {
        return refuse(format!("VMTemplateVersion {}", id_of(version)));
    }
    let backups = write.objects.list(HARVESTER, "virtualmachinebackups", "");
    let backups: Vec<String> = backups
        .iter()
        .filter(|backup| {
            let volumes = backup["status"]["volumeBackups"].as_array().into_iter().flatten();
            let claims = volumes.map(|volume| &volume["persistentVolumeClaim"]);
            claims.into_iter().any(|claim| claim["spec"]["storageClassName"] == class)
        })
        .map(id_of)
        .collect();
    match backups.is_empty() {
        true => Ok(()),
        false => refuse(format!("VMBackups {}", backups.join(","))),
    }
}

fn id_of(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// A template's version names images itself and in the claims that it makes.
fn uses(version: &Value, id: &str) -> bool {
    if text(version, "/spec/imageId") == id {
        return true;
    }
    let templates = crate::claim_templates(&version["spec"]["vm"]["metadata"]).unwrap_or_default();
    templates.iter().any(|template| {
        let own = text(&template.claim, "/metadata/annotations/harvesterhci.io~1imageId");
        split_id(own).is_some() && own == id
    })
}
