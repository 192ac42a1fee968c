//! References to objects of other namespaces. The user who writes one must be able to get the
//! object that it names: controllers, which may read all objects, use it later.

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, Refusal, STORAGE, Write, split_id, text};
use crate::claim_template::claim_templates;

/// The image that a storage class makes volumes of, `NAMESPACE/NAME`.
const IMAGE_ID: &str = "/metadata/annotations/harvesterhci.io~1imageId";

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

/// A storage class of an image makes volumes with its data.
pub(super) fn authorize_class(
    write: &Write<'_>,
    field: &'static str,
    class: &str,
) -> AdmissionResult {
    if write.trusted || class.is_empty() {
        return Ok(());
    }
    let class = write.objects.get(STORAGE, "storageclasses", "", class).unwrap_or_default();
    authorize_id(write, field, "virtualmachineimages", text(&class, IMAGE_ID))
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
            authorize_machine(write, &template["metadata"], &template["spec"])
        }
        "virtualmachinesnapshotcontents" => {
            for backup in spec["volumeBackups"].as_array().into_iter().flatten() {
                let claim = &backup["persistentVolumeClaim"];
                authorize_claim(write, "spec.volumeBackups", claim)?;
            }
            let machine = &spec["source"]["virtualMachine"];
            authorize_machine(write, &machine["metadata"], &machine["spec"])
        }
        _ => Ok(()),
    }
}

/// The classes of a machine's disks.
pub(super) fn authorize_machine(
    write: &Write<'_>,
    metadata: &Value,
    spec: &Value,
) -> AdmissionResult {
    let templates = spec["dataVolumeTemplates"].as_array();
    for template in templates.into_iter().flatten() {
        authorize_data_volume(write, "spec.dataVolumeTemplates", template)?;
    }
    for template in claim_templates(metadata).unwrap_or_default() {
        let field = "metadata.annotations[harvesterhci.io/volumeClaimTemplates]";
        authorize_claim(write, field, &template.claim)?;
    }
    Ok(())
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::Tenant;
    use crate::admit::validate;
    use crd::lookup::Objects;

    /// An image of namespace `victim` with its class, and objects beside it.
    struct Cluster;

    impl Objects for Cluster {
        fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
            Some(match (plural, namespace, name) {
                ("storageclasses", "", "lh-1") => json!({
                    "metadata": {"annotations": {"harvesterhci.io/imageId": "victim/debian"}},
                }),
                ("keypairs", "victim", "k") => json!({}),
                ("virtualmachinetemplates", "n", "t") => json!({}),
                ("virtualmachinebackups", "victim", "b") => {
                    json!({"spec": {"type": "backup"}, "status": {"readyToUse": true}})
                }
                ("secrets", ..) => json!({"data": {"CRYPTO_KEY_VALUE": "a2V5"}}),
                _ => return None,
            })
        }

        fn list(&self, _: &str, _: &str, _: &str) -> Vec<Value> {
            Vec::new()
        }
    }

    fn refusal(group: &str, resource: &str, object: &Value) -> String {
        let write = Write {
            group,
            resource,
            namespace: "n",
            name: "x",
            object: Some(object),
            old: None,
            trusted: false,
            objects: &Cluster,
            writer: &Tenant,
            uuid: &super::super::tests::uuid,
        };
        validate(&write).map_or_else(|refusal| refusal.message, |()| "admitted".to_owned())
    }

    #[test]
    fn references_to_other_namespaces_need_the_right_to_get_the_object() {
        let class = || json!({"storageClassName": "lh-1"});
        let templates = json!([{"metadata": {"name": "c"}, "spec": class()}]).to_string();
        let annotated = json!({"harvesterhci.io/volumeClaimTemplates": templates});
        let machine = json!({"dataVolumeTemplates": [{"spec": {"storage": class()}}]});
        // No class has this name; it becomes that of the image when the claim is made.
        let by_name = |class: &str| {
            let annotations = json!({"harvesterhci.io/imageId": "victim/debian"});
            json!({"metadata": {"name": "c", "annotations": annotations},
                "spec": {"storageClassName": class, "pvc": {"storageClassName": class}}})
        };
        let secret = |namespace: &str| {
            let mut parameters = json!({"encrypted": "true"});
            for kind in ["provisioner", "node-publish", "node-stage"] {
                parameters[format!("csi.storage.k8s.io/{kind}-secret-name")] = "key".into();
                let key = format!("csi.storage.k8s.io/{kind}-secret-namespace");
                parameters[key] = namespace.into();
            }
            parameters
        };
        let (harvester, virt) = ("harvesterhci.io", "kubevirt.io");
        for (group, resource, object, expected) in [
            ("", "persistentvolumeclaims", json!({"spec": class()}), "victim/debian"),
            ("", "persistentvolumeclaims", by_name("longhorn-debian"), "victim/debian"),
            ("cdi.kubevirt.io", "datavolumes", by_name("longhorn-debian"), "victim/debian"),
            (
                virt,
                "virtualmachines",
                json!({"metadata": {"annotations": {"harvesterhci.io/volumeClaimTemplates":
                    json!([by_name("longhorn-debian")]).to_string()}}}),
                "victim/debian",
            ),
            (
                virt,
                "virtualmachines",
                json!({"spec": {"dataVolumeTemplates": [by_name("longhorn-debian")]}}),
                "victim/debian",
            ),
            (
                "instancetype.kubevirt.io",
                "virtualmachinepreferences",
                json!({"spec": {"volumes": {"preferredStorageClassName": "lh-1"}}}),
                "victim/debian",
            ),
            (
                "cdi.kubevirt.io",
                "datavolumes",
                json!({"spec": {"storage": class()}}),
                "victim/debian",
            ),
            ("cdi.kubevirt.io", "datavolumes", json!({"spec": {"pvc": class()}}), "victim/debian"),
            (
                "cdi.kubevirt.io",
                "dataimportcrons",
                json!({"spec": {"template": {"spec": {"storage": class()}}}}),
                "victim/debian",
            ),
            (
                "snapshot.kubevirt.io",
                "virtualmachinesnapshotcontents",
                json!({"spec": {"volumeBackups": [{"persistentVolumeClaim": {"spec": class()}}]}}),
                "victim/debian",
            ),
            (virt, "virtualmachines", json!({"spec": machine}), "victim/debian"),
            (
                virt,
                "virtualmachines",
                json!({"metadata": {"annotations": annotated}}),
                "victim/debian",
            ),
            (
                "pool.kubevirt.io",
                "virtualmachinepools",
                json!({"spec": {"virtualMachineTemplate": {"spec": machine}}}),
                "victim/debian",
            ),
            (
                harvester,
                "virtualmachinetemplateversions",
                json!({"spec": {"templateId": "n/t", "imageId": "victim/debian"}}),
                "virtualmachineimages.harvesterhci.io victim/debian",
            ),
            (
                harvester,
                "virtualmachinetemplateversions",
                json!({"spec": {"templateId": "n/t", "keyPairIds": ["victim/k"]}}),
                "keypairs.harvesterhci.io victim/k",
            ),
            (
                harvester,
                "virtualmachinerestores",
                json!({"spec": {"target": {"name": "vm"}, "newVM": true,
                    "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "victim"}}),
                "virtualmachinebackups.harvesterhci.io victim/b",
            ),
            (
                harvester,
                "virtualmachineimages",
                json!({"spec": {"displayName": "d", "sourceType": "upload",
                    "storageClassParameters": secret("victim")}}),
                "secrets victim/key",
            ),
            (
                harvester,
                "virtualmachineimages",
                json!({"spec": {"displayName": "d", "sourceType": "upload",
                    "targetStorageClassName": "lh-1"}}),
                "victim/debian",
            ),
            (
                "storage.k8s.io",
                "storageclasses",
                json!({"provisioner": "driver.longhorn.io", "parameters": secret("victim")}),
                "secrets victim/key",
            ),
        ] {
            let message = refusal(group, resource, &object);
            let who = "user mallory cannot get";
            assert!(message.contains(expected) && message.contains(who), "{resource}: {message}");
        }
        for parameters in [secret("shared"), secret("${pvc.namespace}")] {
            let class = json!({"provisioner": "driver.longhorn.io", "parameters": parameters});
            assert_eq!(refusal("storage.k8s.io", "storageclasses", &class), "admitted");
        }
        let chosen = secret("${pvc.annotations['namespace']}");
        let class = json!({"provisioner": "driver.longhorn.io", "parameters": chosen});
        let message = refusal("storage.k8s.io", "storageclasses", &class);
        assert!(message.contains("must be a namespace or ${pvc.namespace}"), "{message}");
    }
}
