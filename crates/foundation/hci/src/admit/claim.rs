//! Claims: classes that are not for people, and volumes that somebody uses.

use serde_json::Value;

use super::reference::authorize_class;
use super::{AdmissionResult, HARVESTER, Refusal, Write, text};

/// Classes that the cluster keeps for itself.
const KEPT: [&str; 2] = ["longhorn-static", "vmstate-persistence"];

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(object), None) => {
            let class = text(object, "/spec/storageClassName");
            if KEPT.contains(&class) && !write.trusted {
                return Err(Refusal::invalid(
                    "spec.storageClassName",
                    format!("can not create volume with the reserved storage class {class}"),
                ));
            }
            authorize_class(write, "spec.storageClassName", class)
        }
        (None, Some(_)) => validate_deletion(write),
        _ => Ok(()),
    }
}

fn validate_deletion(write: &Write<'_>) -> AdmissionResult {
    if write.trusted {
        return Ok(());
    }
    let machines = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    let user = machines
        .iter()
        .filter(|machine| machine["metadata"]["deletionTimestamp"].is_null())
        .find(|machine| uses(machine, write.name));
    if let Some(machine) = user {
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
            "",
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
