//! The initial objects of a cluster for Harvester and Longhorn.

mod roles;
mod templates;

use serde_json::{Value, json};

use crate::admit::DRIVER;
use crate::cluster_setting::{CLUSTER_SETTINGS, ClusterSetting};
use crate::longhorn::NAMESPACE;
use crate::setting::SETTINGS;

/// Namespaces of the system, as clients of Harvester expect them.
const NAMESPACES: &[&str] = &[
    NAMESPACE,
    "harvester-system",
    "harvester-public",
    "cattle-local-user-passwords",
    "cattle-logging-system",
    "cattle-monitoring-system",
    "local",
];

/// The objects in the order of their creation. They are created if they are missing and then
/// belong to the administrator.
pub fn first_objects() -> Vec<Value> {
    let mut objects: Vec<Value> = NAMESPACES.iter().copied().map(namespace).collect();
    objects.extend(roles::objects());
    objects.extend(SETTINGS.iter().map(|setting| {
        json!({
            "apiVersion": "longhorn.io/v1beta2",
            "kind": "Setting",
            "metadata": {"name": setting.name, "namespace": NAMESPACE},
            "value": setting.default,
        })
    }));
    objects.extend(CLUSTER_SETTINGS.iter().map(cluster_setting));
    objects.push(json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "BackupTarget",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {"backupTargetURL": "", "credentialSecret": "", "pollInterval": "5m0s"},
    }));
    objects.extend(templates::objects());
    objects.push(management_network());
    objects.extend(crate::addon::DEFAULT_ADDONS.iter().map(crate::addon::object));
    objects
}

/// The network that nodes are managed by, which every node has.
fn management_network() -> Value {
    json!({
        "apiVersion": format!("{}/{}", crate::network::GROUP, crate::network::VERSION),
        "kind": "ClusterNetwork",
        "metadata": {"name": crate::network::MANAGEMENT},
        "status": {"conditions": [{"type": "ready", "status": "True"}]},
    })
}

fn cluster_setting(setting: &ClusterSetting) -> Value {
    let mut object = json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "Setting",
        "metadata": {"name": setting.name},
        "default": setting.default,
    });
    // Clients read the version from the value alone; others are absent while they are not set.
    if setting.name == "server-version" {
        object["value"] = setting.default.into();
    }
    object
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Name, number of replicas, whether machines on it can move, whether it stays for ever.
const CLASSES: &[(&str, &str, bool, bool)] = &[
    ("harvester-longhorn", "3", true, true),
    ("harvester-longhorn-ha", "3", true, false),
    ("harvester-longhorn-migratable", "3", true, false),
    ("longhorn", "3", false, false),
    ("longhorn-static", "3", false, true),
    ("vmstate-persistence", "3", true, true),
];

/// The class of claims that name none.
const DEFAULT: &str = "harvester-longhorn";

/// The storage classes and snapshot classes of the driver, for a cluster whose nodes serve it.
pub fn driver_objects() -> Vec<Value> {
    classes().chain(snapshot_classes()).collect()
}

fn classes() -> impl Iterator<Item = Value> {
    CLASSES.iter().map(|(name, replicas, migratable, reserved)| {
        let mut parameters = json!({"numberOfReplicas": replicas, "staleReplicaTimeout": "30"});
        if *migratable {
            parameters["migratable"] = "true".into();
        }
        let mut metadata = json!({"name": name, "annotations": {}});
        if *reserved {
            metadata["annotations"]["harvesterhci.io/is-reserved-storageclass"] = "true".into();
        }
        if *name == DEFAULT {
            metadata["annotations"]["storageclass.kubernetes.io/is-default-class"] = "true".into();
        }
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": metadata,
            "provisioner": DRIVER,
            "parameters": parameters,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": true,
        })
    })
}

fn snapshot_classes() -> impl Iterator<Item = Value> {
    [("longhorn-snapshot", "snap"), ("longhorn", "bak")].into_iter().map(|(name, kind)| {
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshotClass",
            "metadata": {"name": name},
            "driver": DRIVER,
            "deletionPolicy": "Delete",
            "parameters": {"type": kind},
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_has_a_value_from_the_start() {
        let with_value: Vec<Value> = CLUSTER_SETTINGS
            .iter()
            .map(cluster_setting)
            .filter(|setting| setting.get("value").is_some())
            .collect();
        assert_eq!(with_value.len(), 1);
        assert_eq!(with_value[0]["metadata"]["name"], "server-version");
        assert_eq!(with_value[0]["value"], "v1.8.1");
    }

    #[test]
    fn members_of_a_namespace_use_images_and_viewers_read_no_secrets() {
        let objects = first_objects();
        let role = |name: &str| {
            let found = objects.iter().find(|object| object["metadata"]["name"] == name);
            found.map(|role| (role["rules"].to_string(), role["metadata"]["labels"].to_string()))
        };
        let (rules, labels) = role("harvesterhci.io:edit").unwrap();
        assert!(rules.contains("virtualmachineimages") && rules.contains("\"*\""), "{rules}");
        assert!(labels.contains("aggregate-to-edit") && labels.contains("aggregate-to-admin"));
        let (rules, labels) = role("harvesterhci.io:view").unwrap();
        assert!(!rules.contains("secrets") && !rules.contains("\"*\""), "{rules}");
        assert_eq!(labels, r#"{"rbac.authorization.k8s.io/aggregate-to-view":"true"}"#);
    }
}
