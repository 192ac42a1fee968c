//! References to objects of other namespaces. The user who writes one must be able to get the
//! object that it names: controllers, which may read all objects, use it later.

use kinds::DataPlace;
use serde_json::Value;

use super::claim::KEPT;
use super::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, split_id, text};
use crate::claim_template::{claim_templates, is_internal_key};

/// The image that a storage class makes volumes of, `NAMESPACE/NAME`.
const IMAGE_ID: &str = "/metadata/annotations/harvesterhci.io~1imageId";

/// The beginning of the name of an image's storage class; the uid of the image follows.
const IMAGE_CLASS: &str = "lh-";

/// An object that another one names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reference<'a> {
    pub(super) field: &'static str,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Reference<'_> {
    pub(super) fn authorize(&self, write: &Write<'_>) -> AdmissionResult {
        let Self { field, group, resource, namespace, name } = *self;
        if write.trusted
            || namespace == write.namespace
            || write.writer.may_get(group, resource, namespace, name)
        {
            return Ok(());
        }
        let user = write.writer.name();
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!(
            "{field} refers to {resource}{dot}{group} {namespace}/{name}, which user {user} \
             cannot get"
        );
        Err(Refusal::new(403, field, message))
    }
}

/// `NAMESPACE/NAME` of an object of Harvester's.
pub(super) fn authorize_id(
    write: &Write<'_>,
    field: &'static str,
    resource: &str,
    id: &str,
) -> AdmissionResult {
    let Some((namespace, name)) = split_id(id) else { return Ok(()) };
    Reference { field, group: HARVESTER, resource, namespace, name }.authorize(write)
}

/// Authorizes reading the disks of another namespace. `get persistentvolumeclaims` is not enough.
pub(super) fn authorize_disks(
    write: &Write<'_>,
    field: &'static str,
    namespace: &str,
    name: &str,
) -> AdmissionResult {
    let may =
        |group: &str, resource: &str| write.writer.may_create(group, resource, namespace, name);
    if write.trusted
        || namespace == write.namespace
        || kinds::may_read_data(DataPlace::Snapshot, may)
    {
        return Ok(());
    }
    let message = kinds::data_refusal(write.writer.name(), namespace);
    Err(Refusal::new(403, field, message))
}

/// A storage class of an image makes volumes with its data.
pub(super) fn authorize_class(
    write: &Write<'_>,
    field: &'static str,
    class: &str,
) -> AdmissionResult {
    if write.trusted || class.is_empty() {
        return Ok(());
    }
    match write.objects.get(STORAGE, "storageclasses", "", class) {
        Some(class) => authorize_id(write, field, "virtualmachineimages", text(&class, IMAGE_ID)),
        None => authorize_future_class(write, field, class),
    }
}

/// A class that does not exist yet may become that of an image, whose controller names it after the
/// uid of the image. Other names are the administrator's to give.
fn authorize_future_class(write: &Write<'_>, field: &'static str, class: &str) -> AdmissionResult {
    let Some(uid) = class.strip_prefix(IMAGE_CLASS) else { return Ok(()) };
    // A machine whose image was deleted can still be changed, stopped for instance.
    if write.old.is_some_and(|old| has_text(old, class)) {
        return Ok(());
    }
    let images = write.objects.list(HARVESTER, "virtualmachineimages", "");
    let Some(image) = images.iter().find(|image| text(image, "/metadata/uid") == uid) else {
        let message = format!("storage class {class:?} does not exist: there is no such image");
        return Err(Refusal::invalid(field, message));
    };
    let (namespace, name) = (text(image, "/metadata/namespace"), text(image, "/metadata/name"));
    let resource = "virtualmachineimages";
    Reference { field, group: HARVESTER, resource, namespace, name }.authorize(write)
}

/// Whether a text is one of the values of an object.
fn has_text(object: &Value, wanted: &str) -> bool {
    match object {
        Value::String(own) => own.contains(wanted),
        Value::Array(all) => all.iter().any(|own| has_text(own, wanted)),
        Value::Object(map) => map.values().any(|own| has_text(own, wanted)),
        _ => false,
    }
}

/// Secrets that the parameters of a class name, except those that `given`, the parameters of a
/// class of the administrator's, names as well.
pub(super) fn authorize_secrets(
    write: &Write<'_>,
    field: &'static str,
    parameters: &Value,
    given: &Value,
) -> AdmissionResult {
    for (key, value) in parameters.as_object().into_iter().flatten() {
        let Some(kind) = key.strip_suffix("-secret-namespace") else { continue };
        let name_key = format!("{kind}-secret-name");
        let (namespace, name) = (value.as_str().unwrap_or_default(), &parameters[&name_key]);
        let is_given = given[key.as_str()] == *value && given[&name_key] == *name;
        if is_given || namespace == "${pvc.namespace}" {
            continue;
        }
        if namespace.contains("${") {
            let message = format!("{key} must be a namespace or ${{pvc.namespace}}");
            return Err(Refusal::invalid(field, message));
        }
        // A name that the claim decides can be any.
        let name = name.as_str().filter(|name| !name.contains("${")).unwrap_or_default();
        Reference { field, group: "", resource: "secrets", namespace, name }.authorize(write)?;
    }
    Ok(())
}

/// Kinds that only say what controllers make claims of.
pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let spec = &object["spec"];
    let image = text(object, IMAGE_ID);
    if write.old.is_some_and(|old| old["spec"] == *spec && text(old, IMAGE_ID) == image) {
        return Ok(());
    }
    match write.resource {
        "datavolumes" => authorize_data_volume(write, "spec", object),
        "dataimportcrons" => authorize_data_volume(write, "spec.template", &spec["template"]),
        // Machines of pools and sets are written by controllers with the class of the preference.
        "virtualmachinepreferences" => {
            let class = text(spec, "/volumes/preferredStorageClassName");
            authorize_class(write, "spec.volumes.preferredStorageClassName", class)
        }
        "virtualmachinepools" => {
            let template = &spec["virtualMachineTemplate"];
            authorize_machine(write, &template["metadata"], &template["spec"], |_| true)
        }
        "virtualmachinesnapshotcontents" => {
            for backup in spec["volumeBackups"].as_array().into_iter().flatten() {
                let claim = &backup["persistentVolumeClaim"];
                authorize_claim(write, "spec.volumeBackups", claim)?;
            }
            let machine = &spec["source"]["virtualMachine"];
            authorize_machine(write, &machine["metadata"], &machine["spec"], |_| true)
        }
        _ => Ok(()),
    }
}

/// The classes of a machine's disks, as far as they are created.
pub(super) fn authorize_machine(
    write: &Write<'_>,
    metadata: &Value,
    spec: &Value,
    is_created: impl Fn(&str) -> bool,
) -> AdmissionResult {
    let templates = spec["dataVolumeTemplates"].as_array();
    let is_new = |template: &&Value| is_created(text(template, "/metadata/name"));
    for template in templates.into_iter().flatten().filter(is_new) {
        authorize_data_volume(write, "spec.dataVolumeTemplates", template)?;
    }
    let templates = claim_templates(metadata).unwrap_or_default();
    for template in templates.iter().filter(|template| is_created(&template.name)) {
        let field = "metadata.annotations[harvesterhci.io/volumeClaimTemplates]";
        authorize_claim(write, field, &template.claim)?;
        check_template(write, field, &template.claim)?;
    }
    Ok(())
}

/// A controller creates the claim of a template: what its author may not create is refused here.
fn check_template(write: &Write<'_>, field: &'static str, claim: &Value) -> AdmissionResult {
    let is_known = |text: &str| write.old.is_some_and(|old| has_text(old, text));
    let class = text(claim, "/spec/storageClassName");
    if write.trusted {
        return Ok(());
    }
    if KEPT.contains(&class) && !is_known(class) {
        let message = format!("can not create volume with the reserved storage class {class}");
        return Err(Refusal::invalid(field, message));
    }
    let annotations = claim["metadata"]["annotations"].as_object();
    let mut keys = annotations.into_iter().flatten().map(|(key, _)| key);
    match keys.find(|key| is_internal_key(key) && !is_known(key)) {
        None => Ok(()),
        Some(key) => {
            let message = format!(
                "{field}: annotation {key} of a claim may only be set by the controllers of the \
                 cluster"
            );
            Err(Refusal::new(403, field, message))
        }
    }
}

/// The class of a claim, and the image that it names: a claim with the class that images had in
/// earlier versions gets the class of that image.
pub(super) fn authorize_claim(
    write: &Write<'_>,
    field: &'static str,
    claim: &Value,
) -> AdmissionResult {
    authorize_class(write, field, text(claim, "/spec/storageClassName"))?;
    authorize_id(write, field, "virtualmachineimages", text(claim, IMAGE_ID))
}

/// The class of a DataVolume's claim, which gets the annotations of the DataVolume.
pub(super) fn authorize_data_volume(
    write: &Write<'_>,
    field: &'static str,
    volume: &Value,
) -> AdmissionResult {
    for class in ["/spec/storage/storageClassName", "/spec/pvc/storageClassName"] {
        authorize_class(write, field, text(volume, class))?;
    }
    authorize_id(write, field, "virtualmachineimages", text(volume, IMAGE_ID))
}

#[cfg(test)]
mod tests;
