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

    fn list(&self, _: &str, plural: &str, _: &str) -> Vec<Value> {
        let image = |namespace: &str, uid: &str| json!({"metadata": {"namespace": namespace, "name": "new", "uid": uid}});
        match plural {
            "virtualmachineimages" => vec![image("victim", "2"), image("n", "3")],
            _ => Vec::new(),
        }
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
fn a_class_that_an_image_will_have_is_as_one_that_it_has() {
    let machine = |class: &str| {
        let volume = json!({"spec": {"storage": {"storageClassName": class}}});
        json!({"spec": {"dataVolumeTemplates": [volume], "running": true}})
    };
    for (class, expected) in [
        ("lh-2", "victim/new"),
        ("lh-3", "admitted"),
        ("lh-4", "storage class \"lh-4\" does not exist"),
        ("fast", "admitted"),
    ] {
        let refused = refusal("kubevirt.io", "virtualmachines", &machine(class));
        assert!(refused.contains(expected), "{class}: {refused}");
    }
    let mut stopped = machine("lh-4");
    stopped["spec"]["running"] = false.into();
    let write = Write {
        group: "kubevirt.io",
        resource: "virtualmachines",
        namespace: "n",
        name: "x",
        object: Some(&stopped),
        old: Some(&machine("lh-4")),
        trusted: false,
        objects: &Cluster,
        writer: &Tenant,
        uuid: &super::super::tests::uuid,
    };
    assert!(validate(&write).is_ok(), "the image of a machine may have been deleted");
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
        ("cdi.kubevirt.io", "datavolumes", json!({"spec": {"storage": class()}}), "victim/debian"),
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
        (virt, "virtualmachines", json!({"metadata": {"annotations": annotated}}), "victim/debian"),
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
