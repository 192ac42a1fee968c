//! Admission of claims: internal storage classes are refused, and so is the deletion of claims in
//! use.

mod expansion;

use serde_json::Value;

use super::reference::authorize_claim;
use super::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, split_id, text};

pub(super) use expansion::validate as validate_expansion;

const IMAGE: &str = "/metadata/annotations/harvesterhci.io~1imageId";

const CLASS: &str = "/spec/storageClassName";
const GOLDEN: &str = "/metadata/annotations/harvesterhci.io~1goldenImage";
const CLASS_FIELD: &str = "spec.storageClassName";

/// Classes that the cluster keeps for itself.
pub(super) const KEPT: [&str; 2] = ["longhorn-static", "vmstate-persistence"];

/// A new claim of an image's data that names the class `longhorn-IMAGE`, which images had in
/// earlier versions of Harvester, gets the class of the image: its Terraform provider still asks
/// for that name.
pub(super) fn complete(write: &Write<'_>, object: &mut Value) {
    if write.old.is_some() {
        return;
    }
    let Some((namespace, name)) = split_id(text(object, IMAGE)) else { return };
    let class = text(object, CLASS);
    if class.strip_prefix("longhorn-") != Some(name)
        || write.objects.get(STORAGE, "storageclasses", "", class).is_some()
    {
        return;
    }
    let image = write.objects.get(HARVESTER, "virtualmachineimages", namespace, name);
    let own = image.as_ref().map(|image| text(image, "/status/storageClassName"));
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        object["spec"]["storageClassName"] = own.into();
    }
}

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let object = match (write.object, write.old) {
        (Some(object), Some(old)) => {
            validate_change(write, object, old)?;
            object
        }
        (Some(object), None) => object,
        (None, old) => return validate_deletion(write, old.unwrap_or(&Value::Null)),
    };
    let class = text(object, CLASS);
    // A claim that was made without a class may still get one.
    let is_known = write
        .old
        .is_some_and(|old| text(old, CLASS) == class && text(old, IMAGE) == text(object, IMAGE));
    if is_known {
        return Ok(());
    }
    if KEPT.contains(&class) && !write.trusted {
        return Err(Refusal::invalid(
            CLASS_FIELD,
            format!("can not create volume with the reserved storage class {class}"),
        ));
    }
    // A class that does not exist is no error here, but an event of the claim: Kubernetes binds such
    // claims to volumes of the same class, which may come later.
    authorize_claim(write, CLASS_FIELD, object)
}

/// A template of claims whose class does not exist would make claims that wait for ever. The class of an
/// image that is being imported will exist.
pub(super) fn validate_class(
    write: &Write<'_>,
    field: &'static str,
    class: &str,
) -> AdmissionResult {
    let exists = || write.objects.get(STORAGE, "storageclasses", "", class).is_some();
    if write.trusted || class.is_empty() || is_of_image(write, class) || exists() {
        return Ok(());
    }
    let message = format!(
        "failed to get storage class {class}: storageclasses.{STORAGE} \"{class}\" not found"
    );
    Err(Refusal::invalid(field, message))
}

fn is_of_image(write: &Write<'_>, class: &str) -> bool {
    let Some(uid) = class.strip_prefix("lh-") else { return false };
    let images = write.objects.list(HARVESTER, "virtualmachineimages", "");
    images.iter().any(|image| text(image, "/metadata/uid") == uid)
}

fn validate_change(write: &Write<'_>, object: &Value, old: &Value) -> AdmissionResult {
    if write.trusted {
        return Ok(());
    }
    let id = format!("{}/{}", write.namespace, write.name);
    let refuse = |verb: &str| {
        let message = format!("can not {verb} golden image annotation from PVC {id}");
        Err(Refusal::invalid("", message))
    };
    match (old.pointer(GOLDEN), object.pointer(GOLDEN)) {
        (Some(_), None) => return refuse("remove"),
        (Some(before), Some(now)) if before != now => return refuse("change"),
        _ => {}
    }
    let size = |claim: &Value| crate::claim_template::requested(claim);
    if size(object) == size(old) { Ok(()) } else { validate_expansion(write, object) }
}

fn validate_deletion(write: &Write<'_>, old: &Value) -> AdmissionResult {
    if write.trusted {
        return Ok(());
    }
    validate_golden_image(write, old)?;
    validate_export(write)?;
    let machines = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    let live: Vec<&Value> = machines
        .iter()
        .filter(|machine| machine["metadata"]["deletionTimestamp"].is_null())
        .collect();
    if let Some(machine) = live.iter().find(|machine| uses(machine, write.name)) {
        return Err(Refusal::new(
            409,
            "",
            format!(
                "can not delete the volume {} which is currently attached to VM: {}/{}",
                write.name,
                write.namespace,
                text(machine, "/metadata/name")
            ),
        ));
    }
    let owners = old["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let owners = owners.filter(|own| own["kind"] == "VirtualMachine");
    let owners: Vec<&str> = owners
        .map(|own| text(own, "/name"))
        .filter(|name| live.iter().any(|machine| machine["metadata"]["name"] == **name))
        .collect();
    if owners.is_empty() {
        return Ok(());
    }
    let message = format!(
        "can not delete the volume {} which is currently owned by these VMs: {}",
        write.name,
        owners.join(",")
    );
    Err(Refusal::invalid("", message))
}

/// The data of an image stays as long as the image, unless it is lost.
fn validate_golden_image(write: &Write<'_>, old: &Value) -> AdmissionResult {
    if text(old, GOLDEN) != "true" || text(old, "/status/phase") == "Lost" {
        return Ok(());
    }
    let image = write.objects.get(HARVESTER, "virtualmachineimages", write.namespace, write.name);
    match image {
        Some(_) => Err(Refusal::invalid("", "can not delete golden image PVC")),
        None => Ok(()),
    }
}

fn validate_export(write: &Write<'_>) -> AdmissionResult {
    let images = write.objects.list(HARVESTER, "virtualmachineimages", "");
    let exporting = images.iter().find(|image| {
        text(image, "/spec/sourceType") == "export-from-volume"
            && text(image, "/spec/pvcName") == write.name
            && text(image, "/spec/pvcNamespace") == write.namespace
            && !super::image::is_imported(image)
    });
    match exporting {
        None => Ok(()),
        Some(image) => Err(Refusal::invalid(
            "value",
            format!(
                "can not delete volume {} which is exporting for image {}/{}",
                write.name,
                text(image, "/metadata/namespace"),
                text(image, "/metadata/name")
            ),
        )),
    }
}

/// Whether a machine has a claim as a disk.
fn uses(machine: &Value, claim: &str) -> bool {
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    volumes.into_iter().flatten().any(|volume| {
        text(volume, "/persistentVolumeClaim/claimName") == claim
            || text(volume, "/dataVolume/name") == claim
    })
}

#[cfg(test)]
mod tests;
