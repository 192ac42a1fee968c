use serde_json::json;

use super::*;
use crate::admit::tests::{Cluster, judged, named, refused, uuid};

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
        crate::admit::complete(&write, &mut object).unwrap();
        assert_eq!(text(&object, "/spec/storageClassName"), expected, "{image} {asked}");
    }
}

const KIND: (&str, &str) = ("", "persistentvolumeclaims");

fn claim(name: &str, class: &str, size: &str) -> Value {
    let spec = json!({"storageClassName": class,
        "resources": {"requests": {"storage": size}}});
    named(name, &json!({"spec": spec}))
}

fn golden(name: &str, mark: &Value) -> Value {
    let mut claim = claim(name, "longhorn", "1Gi");
    claim["metadata"]["annotations"] = json!({"harvesterhci.io/goldenImage": mark});
    claim
}

/// A machine with a claim as a disk.
fn machine(
    name: &str,
    claim: &str,
    state: &str,
    is_hotplugged: bool,
) -> (&'static str, &'static str, Value) {
    let claim = json!({"claimName": claim, "hotpluggable": is_hotplugged});
    let volumes = json!([{"name": "d", "persistentVolumeClaim": claim}]);
    let object = json!({"spec": {"template": {"spec": {"volumes": volumes}}},
        "status": {"printableStatus": state}});
    ("kubevirt.io", "virtualmachines", named(name, &object))
}

fn cluster() -> Cluster {
    let class = |name: &str, driver: &str| {
        (STORAGE, "storageclasses", json!({"metadata": {"name": name}, "provisioner": driver}))
    };
    let image = |name: &str, spec: Value| {
        let mut image = named(name, &json!({"spec": spec}));
        image["metadata"]["uid"] = "7".into();
        (HARVESTER, "virtualmachineimages", image)
    };
    let export = json!({"sourceType": "export-from-volume", "pvcNamespace": "default",
        "pvcName": "exported"});
    Cluster(vec![
        class("longhorn", "driver.longhorn.io"),
        class("local", "sheaf.io/local"),
        class("foreign", "csi.example.com"),
        image("debian", json!({})),
        image("copy", export),
        machine("stopped", "idle", "Stopped", false),
        machine("runs", "busy", "Running", false),
        machine("hot", "plugged", "Running", true),
    ])
}

#[test]
fn a_claim_has_a_class_that_users_may_have() {
    let cluster = cluster();
    for (own, text) in [
        (claim("a", "longhorn", "1Gi"), ""),
        (claim("a", "", "1Gi"), ""),
        (claim("a", "lh-7", "1Gi"), ""),
        (claim("a", "none", "1Gi"), ""),
        (
            claim("a", "longhorn-static", "1Gi"),
            "can not create volume with the reserved storage class longhorn-static",
        ),
        (
            claim("a", "vmstate-persistence", "1Gi"),
            "can not create volume with the reserved storage class vmstate-persistence",
        ),
    ] {
        let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
        assert_eq!(judged(KIND, Some(&own), None, &cluster), expected, "{own}");
    }
}

#[test]
fn a_claim_grows_under_a_guest_only_where_its_driver_can() {
    let cluster = cluster();
    let in_file = |class: &str| {
        let mut file = claim("plugged", class, "2Gi");
        file["spec"]["volumeMode"] = "Filesystem".into();
        file
    };
    for (new, text) in [
        (claim("busy", "longhorn", "2Gi"), ""),
        (claim("busy", "local", "2Gi"), ""),
        (claim("busy", "foreign", "1Gi"), ""),
        (claim("idle", "foreign", "2Gi"), ""),
        (claim("plugged", "longhorn", "2Gi"), ""),
        (in_file("longhorn"), ""),
        (in_file("local"), ""),
        (
            in_file("foreign"),
            "PVC_EXPAND: Expansion of hotplugged PVC 'default/plugged' in filesystem mode is not supported",
        ),
        (
            claim("busy", "foreign", "2Gi"),
            "PVC_EXPAND: pvc default/busy is not online expandable with its provider",
        ),
    ] {
        let mut old = new.clone();
        old["spec"]["resources"]["requests"]["storage"] = "1Gi".into();
        let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
        assert_eq!(judged(KIND, Some(&new), Some(&old), &cluster), expected, "{new}");
    }
}

#[test]
fn claims_in_use_and_of_images_stay() {
    let cluster = cluster();
    let mut owned = claim("owned", "longhorn", "1Gi");
    owned["metadata"]["ownerReferences"] = json!([{"kind": "VirtualMachine", "name": "stopped"},
        {"kind": "VirtualMachine", "name": "gone"}]);
    for (old, verdict) in [
        (claim("free", "longhorn", "1Gi"), Ok(())),
        (golden("gone", &"true".into()), Ok(())),
        (golden("debian", &"true".into()), refused(422, "can not delete golden image PVC")),
        (
            claim("exported", "longhorn", "1Gi"),
            refused(
                422,
                "can not delete volume exported which is exporting for image default/copy",
            ),
        ),
        (
            claim("idle", "longhorn", "1Gi"),
            refused(
                409,
                "can not delete the volume idle which is currently attached to VM: default/stopped",
            ),
        ),
        (
            owned,
            refused(
                422,
                "can not delete the volume owned which is currently owned by these VMs: stopped",
            ),
        ),
    ] {
        assert_eq!(judged(KIND, None, Some(&old), &cluster), verdict, "{old}");
    }
    let old = golden("debian", &"true".into());
    for (new, verb) in [
        (claim("debian", "longhorn", "1Gi"), "remove"),
        (golden("debian", &"false".into()), "change"),
    ] {
        let text = format!("can not {verb} golden image annotation from PVC default/debian");
        assert_eq!(judged(KIND, Some(&new), Some(&old), &cluster), refused(422, &text));
    }
}
