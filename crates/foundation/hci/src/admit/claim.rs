//! Admission of claims: internal storage classes are refused, and so is the deletion of claims in
//! use.

use serde_json::Value;

use super::reference::authorize_claim;
use super::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, split_id, text};

const IMAGE: &str = "/metadata/annotations/harvesterhci.io~1imageId";

const CLASS: &str = "/spec/storageClassName";

/// Classes that the cluster keeps for itself.
const KEPT: [&str; 2] = ["longhorn-static", "vmstate-persistence"];

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
    let Some(object) = write.object else { return validate_deletion(write) };
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
            "spec.storageClassName",
            format!("can not create volume with the reserved storage class {class}"),
        ));
    }
    authorize_claim(write, "spec.storageClassName", object)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{Cluster, uuid};
    use super::*;

    #[test]
    fn claims_get_the_class_of_their_image() {
        let class = |name: &str| (STORAGE, "storageclasses", json!({"metadata": {"name": name}}));
        let image = |name: &str, class: &str| {
            let metadata = json!({"namespace": "images", "name": name});
            let image = json!({"metadata": metadata, "status": {"storageClassName": class}});
            (HARVESTER, "virtualmachineimages", image)
        };
        let cluster = Cluster(vec![
            class("lh-1"),
            class("longhorn-old"),
            image("new", "lh-1"),
            image("old", "longhorn-old"),
            image("empty", ""),
        ]);
        for (image, asked, expected) in [
            ("images/new", "longhorn-new", "lh-1"),
            ("images/new", "longhorn", "longhorn"),
            ("images/old", "longhorn-old", "longhorn-old"),
            ("images/empty", "longhorn-empty", "longhorn-empty"),
            ("images/none", "longhorn-none", "longhorn-none"),
            ("", "longhorn-new", "longhorn-new"),
        ] {
            let given = json!({
                "metadata": {"name": "a", "annotations": {"harvesterhci.io/imageId": image}},
                "spec": {"storageClassName": asked},
            });
            let write = Write {
                group: "",
                resource: "persistentvolumeclaims",
                namespace: "default",
                name: "a",
                object: Some(&given),
                old: None,
                trusted: false,
                objects: &cluster,
                writer: &cluster,
                uuid: &uuid,
            };
            let mut object = given.clone();
            super::super::complete(&write, &mut object).unwrap();
            assert_eq!(text(&object, "/spec/storageClassName"), expected, "{image} {asked}");
        }
    }
}
