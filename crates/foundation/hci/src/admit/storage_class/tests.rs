//! All rules of storage classes, with their texts.

use serde_json::{Value, json};

use super::*;
use crate::admit::SNAPSHOTS;
use crate::admit::tests::{Cluster, judged, named, refused};

const KIND: (&str, &str) = (STORAGE, "storageclasses");
const PREFIX: &str = "csi.storage.k8s.io/";

fn class(name: &str, annotations: Value, parameters: Value) -> Value {
    json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": DRIVER,
        "parameters": parameters})
}

fn cluster() -> Cluster {
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let image = |name: &str| {
        let image = named(name, &json!({"status": {"storageClassName": "lh-1"}}));
        (HARVESTER, "virtualmachineimages", image)
    };
    let key = named("key", &json!({"data": {"CRYPTO_KEY_VALUE": "eA=="}}));
    let bad = named("bad", &json!({"data": {"CRYPTO_KEY_VALUE": ""}}));
    Cluster(vec![
        (KIND.0, KIND.1, class("one", default, json!({}))),
        ("", "secrets", key),
        ("", "secrets", named("empty", &json!({"data": {}}))),
        ("", "secrets", bad),
        (SNAPSHOTS, "volumesnapshotclasses", json!({"metadata": {"name": "snap"}})),
        image("debian"),
        image("suse"),
    ])
}

/// A class that encrypts with a secret.
fn encrypted(secret: &str) -> Value {
    let mut parameters = json!({"encrypted": "true"});
    for kind in ["provisioner", "node-publish", "node-stage"] {
        parameters[format!("{PREFIX}{kind}-secret-name")] = secret.into();
        parameters[format!("{PREFIX}{kind}-secret-namespace")] = "default".into();
    }
    parameters
}

#[test]
fn a_class_that_cannot_be_used_is_refused() {
    let mut differs = encrypted("key");
    differs[format!("{PREFIX}node-stage-secret-name")] = "other".into();
    let mut partly = encrypted("key");
    partly[format!("{PREFIX}node-publish-secret-name")] = "".into();
    partly[format!("{PREFIX}node-publish-secret-namespace")] = "".into();
    let cdi = |key: &str, value: &str| json!({format!("cdi.harvesterhci.io/{key}"): value});
    let both = json!({"cdi.harvesterhci.io/storageProfileCloneStrategy": "snapshot",
        "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass": "snap"});
    let cluster = cluster();
    for (annotations, parameters, text) in [
        (json!({}), json!({"dataLocality": "best-effort"}), ""),
        (json!({}), encrypted("key"), ""),
        (both, json!({}), ""),
        (cdi("filesystemOverhead", "0.055"), json!({}), ""),
        (
            cdi("storageProfileVolumeModeAccessModes", r#"{"Block":["ReadWriteMany"]}"#),
            json!({}),
            "",
        ),
        (
            json!({"storageclass.kubernetes.io/is-default-class": "true"}),
            json!({}),
            "default storage class one already exists, please reset it first before set two as default",
        ),
        (
            json!({}),
            json!({"dataLocality": "strict-local"}),
            "storage class with strict-local data locality is not allowed",
        ),
        (
            json!({}),
            json!({"dataLocality": "x"}),
            "storage class with invalid data locality x, valid values: \"disabled\", \"best-effort\"",
        ),
        (json!({}), json!({"encrypted": "maybe"}), "invalid value for `encrypted`"),
        (
            json!({}),
            partly,
            "storage class must contain csi.storage.k8s.io/node-publish-secret-name, csi.storage.k8s.io/node-publish-secret-namespace",
        ),
        (
            json!({}),
            differs,
            "secret names and namespaces in csi.storage.k8s.io/node-stage-secret-name and csi.storage.k8s.io/node-stage-secret-namespace are different from others",
        ),
        (json!({}), encrypted("none"), "secret default/none not found"),
        (
            json!({}),
            encrypted("empty"),
            "secret default/empty is not a valid encryption secret, missing field: CRYPTO_KEY_VALUE",
        ),
        (
            json!({}),
            encrypted("bad"),
            "secret default/bad is not a valid encryption secret, invalid field: CRYPTO_KEY_VALUE",
        ),
        (
            cdi("filesystemOverhead", "1.5"),
            json!({}),
            "invalid filesystem overhead 1.5 in annotation cdi.harvesterhci.io/filesystemOverhead, must be in the range [0.00, 1.00] (up to 3 decimal places)",
        ),
        (
            cdi("filesystemOverhead", "0.1"),
            json!({"dataEngine": "v1"}),
            "longhorn v1 does not support CDI annotations",
        ),
        (
            cdi("storageProfileCloneStrategy", "magic"),
            json!({}),
            "invalid clone strategy magic in annotation cdi.harvesterhci.io/storageProfileCloneStrategy, valid values: copy, snapshot, csi-clone",
        ),
        (
            cdi("storageProfileCloneStrategy", "snapshot"),
            json!({}),
            "snapshot class must be set in annotation cdi.harvesterhci.io/storageProfileVolumeSnapshotClass when clone strategy is snapshot",
        ),
        (
            cdi("storageProfileVolumeSnapshotClass", ""),
            json!({}),
            "snapshot class cannot be empty in annotation cdi.harvesterhci.io/storageProfileVolumeSnapshotClass",
        ),
        (
            cdi("storageProfileVolumeSnapshotClass", "none"),
            json!({}),
            "snapshot class none in annotation cdi.harvesterhci.io/storageProfileVolumeSnapshotClass not found",
        ),
        (
            cdi("storageProfileVolumeModeAccessModes", r#"{"Tape":[]}"#),
            json!({}),
            r#"invalid volume mode access modes {"Tape":[]} in annotation cdi.harvesterhci.io/storageProfileVolumeModeAccessModes, error: invalid volume mode Tape"#,
        ),
    ] {
        let own = class("two", annotations, parameters);
        let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
        assert_eq!(judged(KIND, Some(&own), None, &cluster), expected, "{own}");
    }
}

#[test]
fn classes_that_are_reserved_or_used_stay() {
    let cluster = cluster();
    let reserved = json!({"harvesterhci.io/is-reserved-storageclass": "true"});
    for (old, text) in [
        (class("free", json!({}), json!({})), ""),
        (
            class("mine", reserved, json!({})),
            "storage class mine is reserved by Harvester and can't be deleted",
        ),
        (
            class("lh-1", json!({}), json!({})),
            "storage class lh-1 is used by virtual machine images: [debian suse]",
        ),
    ] {
        let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
        assert_eq!(judged(KIND, None, Some(&old), &cluster), expected, "{old}");
    }
}
