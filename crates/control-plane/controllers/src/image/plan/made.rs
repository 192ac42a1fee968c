//! The objects that an image gets: its BackingImage, the clone of an exported claim, and its
//! StorageClass. Pure.

use hci::longhorn::{FINALIZER, NAMESPACE, VOLUME_LABEL};
use serde_json::{Map, Value, json};

use super::{IMAGE_ID, ImageInput, backing_name, class_name, clone, copy_name};
use crate::image::record;
use crate::longhorn::API;
use crate::longhorn::record::VolumeFields;
use crate::object::{name, namespace, read};

/// Where the data is kept.
pub(super) fn backing(seen: ImageInput<'_>) -> Value {
    let image = seen.image;
    let spec = record::spec(image);
    let tags = |key: &str| -> Vec<String> {
        let all = spec.parameter(key).split(',').map(str::trim).filter(|tag| !tag.is_empty());
        all.map(str::to_owned).collect()
    };
    let source = match spec.source_type {
        "download" => json!({"url": spec.url}),
        "export-from-volume" => json!({"volume-name": copy_name(image), "export-type": "raw"}),
        "clone" => clone::parameters(image, seen.origin),
        _ => json!({}),
    };
    json!({
        "apiVersion": API, "kind": "BackingImage",
        "metadata": {
            "name": backing_name(image), "namespace": NAMESPACE, "finalizers": [FINALIZER],
            "annotations": {IMAGE_ID: format!("{}/{}", namespace(image), name(image))},
        },
        "spec": {
            "sourceType": spec.source_type, "sourceParameters": source,
            "checksum": spec.checksum,
            "minNumberOfCopies": spec.parameter("numberOfReplicas").parse::<i32>().unwrap_or(1),
            "diskSelector": tags("diskSelector"), "nodeSelector": tags("nodeSelector"),
            "dataEngine": "v1",
        },
    })
}

/// A copy of the volume as it is now, which shares its space.
pub(super) fn copy(image: &Value, source: &Value) -> Value {
    json!({
        "apiVersion": API, "kind": "Volume",
        "metadata": {
            "name": copy_name(image), "namespace": NAMESPACE, "finalizers": [FINALIZER],
            "labels": {VOLUME_LABEL: copy_name(image)},
            "annotations": {IMAGE_ID: format!("{}/{}", namespace(image), name(image))},
        },
        "spec": {
            "size": read::<VolumeFields<'_>>(source).spec.size, "numberOfReplicas": 1, "accessMode": "rwo",
            "frontend": "blockdev", "dataSource": format!("vol://{}", name(source)),
        },
    })
}

/// The class of volumes that begin as the image.
pub(super) fn class(image: &Value) -> Value {
    let own = record::spec(image).storage_class_parameters;
    let mut parameters: Map<String, Value> =
        own.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    parameters.insert("backingImage".into(), json!(backing_name(image)));
    if clone::is_encrypted(image) {
        parameters.insert("backingImageDataSourceType".into(), json!("clone"));
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": class_name(image),
            "annotations": {IMAGE_ID: format!("{}/{}", namespace(image), name(image))},
        },
        "provisioner": hci::DRIVER, "parameters": parameters, "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
    })
}
