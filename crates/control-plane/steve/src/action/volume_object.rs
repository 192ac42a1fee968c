//! The objects that actions on volumes create. Pure.

use serde_json::{Value, json};

/// A claim with the data of another.
pub(super) fn clone(claim: &Value, name: &str) -> Value {
    let source = json!({"kind": "PersistentVolumeClaim", "name": claim["metadata"]["name"]});
    from_source(claim, name, &source, &claim["spec"]["resources"]["requests"]["storage"])
}

/// A claim with the data of a snapshot, in a class.
pub(super) fn restored(snapshot: &Value, name: &str, class: &str, image: Option<&str>) -> Value {
    let source = json!({
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
        "name": snapshot["metadata"]["name"],
    });
    let like = json!({
        "metadata": {"namespace": snapshot["metadata"]["namespace"]},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
        },
    });
    let mut claim = from_source(&like, name, &source, &snapshot["status"]["restoreSize"]);
    if let Some(image) = image.filter(|image| !image.is_empty()) {
        claim["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": image});
    }
    claim
}

fn from_source(like: &Value, name: &str, source: &Value, size: &Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": like["metadata"]["namespace"]});
    let image = &like["metadata"]["annotations"]["harvesterhci.io/imageId"];
    if image.is_string() {
        metadata["annotations"] = json!({"harvesterhci.io/imageId": image});
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": {
            "accessModes": like["spec"]["accessModes"], "volumeMode": like["spec"]["volumeMode"],
            "storageClassName": like["spec"]["storageClassName"],
            "resources": {"requests": {"storage": size}}, "dataSource": source,
        },
    })
}

/// A snapshot of a claim, which goes when the claim does.
pub(super) fn snapshot(claim: &Value, name: &str, class: &str) -> Value {
    let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
    let mut annotations = json!({});
    for (key, value) in [
        ("harvesterhci.io/storageClassName", &spec["storageClassName"]),
        (
            "harvesterhci.io/storageProvisioner",
            &metadata["annotations"]["volume.kubernetes.io/storage-provisioner"],
        ),
        ("harvesterhci.io/imageId", &metadata["annotations"]["harvesterhci.io/imageId"]),
    ] {
        if value.is_string() {
            annotations[key] = value.clone();
        }
    }
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {
            "name": name, "namespace": metadata["namespace"], "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": metadata["name"],
                "uid": metadata["uid"],
            }],
        },
        "spec": {
            "source": {"persistentVolumeClaimName": metadata["name"]},
            "volumeSnapshotClassName": class,
        },
    })
}

/// The class for snapshots of a provisioner, from the setting `csi-driver-config`.
pub(super) fn snapshot_class(setting: &Value, provisioner: &str) -> Option<String> {
    let value = ["value", "default"]
        .into_iter()
        .find_map(|field| setting[field].as_str().filter(|text| !text.is_empty()))?;
    let parsed: Value = serde_json::from_str(value).ok()?;
    parsed[provisioner]["volumeSnapshotClassName"].as_str().map(str::to_owned)
}

/// The patch that makes a claim ask for the size that it has; nothing if it does already.
pub(super) fn cancelled_expansion(claim: &Value) -> Option<Value> {
    let size = &claim["status"]["capacity"]["storage"];
    let asked = &claim["spec"]["resources"]["requests"]["storage"];
    let differs = size.is_string() && size != asked;
    differs.then(|| json!({"spec": {"resources": {"requests": {"storage": size}}}}))
}

/// An image with the data of a claim.
pub(super) fn image(claim: &Value, namespace: &str, display_name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {
            "generateName": "image-", "namespace": namespace,
            "annotations": {"harvesterhci.io/storageClassName": class},
        },
        "spec": {
            "displayName": display_name, "sourceType": "export-from-volume",
            "pvcName": claim["metadata"]["name"], "pvcNamespace": claim["metadata"]["namespace"],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_expansion_asks_for_the_size_that_is_there() {
        let claim = |asked: &str| {
            json!({
                "spec": {"resources": {"requests": {"storage": asked}}},
                "status": {"capacity": {"storage": "1Gi"}},
            })
        };
        assert_eq!(cancelled_expansion(&claim("1Gi")), None);
        let patch = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(cancelled_expansion(&claim("2Gi")), Some(patch));
    }

    fn claim() -> Value {
        json!({
            "metadata": {
                "name": "data", "namespace": "n", "uid": "7",
                "annotations": {
                    "harvesterhci.io/imageId": "n/i",
                    "volume.kubernetes.io/storage-provisioner": "driver.longhorn.io",
                },
            },
            "spec": {
                "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "c",
                "volumeName": "pv", "resources": {"requests": {"storage": "2Gi"}},
            },
        })
    }

    #[test]
    fn copies_name_their_source() {
        let copy = clone(&claim(), "copy");
        assert_eq!(copy["spec"]["dataSource"]["name"], "data");
        assert_eq!(copy["spec"]["resources"]["requests"]["storage"], "2Gi");
        assert_eq!(copy["spec"].get("volumeName"), None);
        assert_eq!(copy["metadata"]["annotations"]["harvesterhci.io/imageId"], "n/i");
        let taken = json!({
            "metadata": {"name": "s", "namespace": "n"}, "status": {"restoreSize": "3Gi"},
        });
        let back = restored(&taken, "back", "c", Some("n/i"));
        assert_eq!(back["spec"]["dataSource"]["kind"], "VolumeSnapshot");
        assert_eq!(back["spec"]["resources"]["requests"]["storage"], "3Gi");
        assert_eq!(back["metadata"]["annotations"]["harvesterhci.io/imageId"], "n/i");
    }

    #[test]
    fn a_snapshot_belongs_to_its_claim() {
        let taken = snapshot(&claim(), "s", "longhorn-snapshot");
        assert_eq!(taken["metadata"]["ownerReferences"][0]["uid"], "7");
        assert_eq!(taken["metadata"]["annotations"]["harvesterhci.io/storageClassName"], "c");
        assert_eq!(taken["spec"]["source"]["persistentVolumeClaimName"], "data");
    }

    #[test]
    fn the_class_of_snapshots_is_a_setting() {
        let of = |setting: &Value| snapshot_class(setting, "driver.longhorn.io");
        let text = r#"{"driver.longhorn.io":{"volumeSnapshotClassName":"a"}}"#;
        assert_eq!(of(&json!({"default": text})).as_deref(), Some("a"));
        assert_eq!(of(&json!({"default": text, "value": "{}"})), None);
        assert_eq!(of(&json!({})), None);
    }
}
