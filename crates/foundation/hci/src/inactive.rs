//! Kinds that are stored for clients that expect them, and on which nothing acts yet. The answer to
//! a write has a warning, so that no client waits for an effect.
//!
//! This table is the only list of them: a change that makes a kind work removes its row. Built-in
//! kinds that need a pod runtime are not here: `kinds` warns of them.

use serde_json::Value;

use crate::admit::{HARVESTER, LONGHORN};
use crate::cluster_setting::{SettingEffect, effect};
use crate::setting;

/// One kind without effect.
struct Row {
    group: &'static str,
    resource: &'static str,
    /// The name in the warning; nothing for objects of the kind that do have an effect.
    subject: fn(&Value) -> Option<String>,
}

macro_rules! rows {
    ($($group:expr => { $($resource:literal: $kind:literal),+ $(,)? }),+ $(,)?) => {
        &[$($(Row {
            group: $group,
            resource: $resource,
            subject: |_| Some($kind.to_owned()),
        }),+),+]
    };
}

const KINDS: &[Row] = rows! {
    "certificates.k8s.io" => { "clustertrustbundles": "ClusterTrustBundle" },
    "networking.k8s.io" => {
        "ingressclasses": "IngressClass",
        "ingresses": "Ingress",
    },
    "storage.k8s.io" => {
        "csidrivers": "CSIDriver",
        "csinodes": "CSINode",
        "csistoragecapacities": "CSIStorageCapacity",
        "volumeattachments": "VolumeAttachment of storage.k8s.io",
        "volumeattributesclasses": "VolumeAttributesClass",
    },
    "resource.k8s.io" => {
        "deviceclasses": "DeviceClass",
        "resourceslices": "ResourceSlice",
        "resourceclaims": "ResourceClaim",
        "resourceclaimtemplates": "ResourceClaimTemplate",
    },
    "backup.kubevirt.io" => {
        "virtualmachinebackups": "VirtualMachineBackup of backup.kubevirt.io",
        "virtualmachinebackuptrackers": "VirtualMachineBackupTracker",
    },
    HARVESTER => {
        "blockdevices": "BlockDevice",
        "lvmvolumegroups": "LVMVolumeGroup",
        "upgradelogs": "UpgradeLog",
        "virtualmachineimagedownloaders": "VirtualMachineImageDownloader",
        "volumeremotebackups": "VolumeRemoteBackup",
        "volumeremoterestores": "VolumeRemoteRestore",
    },
    LONGHORN => {
        "backingimagedatasources": "BackingImageDataSource",
        "backupbackingimages": "BackupBackingImage",
        "engineimages": "EngineImage",
        "instancemanagers": "InstanceManager",
        "orphans": "Orphan",
        "sharemanagers": "ShareManager",
        "systembackups": "SystemBackup",
        "systemrestores": "SystemRestore",
    },
};

/// Kinds of which only some objects are without effect.
const IN_PART: &[Row] = &[
    Row { group: "", resource: "services", subject: service_part },
    Row { group: "networking.k8s.io", resource: "servicecidrs", subject: service_range },
    Row { group: HARVESTER, resource: "settings", subject: harvester_setting },
    Row { group: LONGHORN, resource: "settings", subject: longhorn_setting },
    Row { group: LONGHORN, resource: "recurringjobs", subject: recurring_task },
];

/// The part of a Service that has no data path.
fn service_part(service: &Value) -> Option<String> {
    let kind = service.pointer("/spec/type").and_then(Value::as_str)?;
    (kind == "LoadBalancer").then(|| "the load balancer of this Service".to_owned())
}

/// Settings that are stored without effect; one without a value asks for none.
fn harvester_setting(setting: &Value) -> Option<String> {
    let name = setting.pointer("/metadata/name").and_then(Value::as_str)?;
    let value = setting.get("value").and_then(Value::as_str)?;
    let inactive = !value.is_empty() && matches!(effect(name), SettingEffect::Stored(_));
    inactive.then(|| format!("setting {name:?}"))
}

/// The same for Longhorn's, which all have a value: their defaults ask for nothing.
fn longhorn_setting(object: &Value) -> Option<String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str)?;
    let reason = setting::unheeded(name, object.get("value").and_then(Value::as_str)?)?;
    Some(format!("setting {name:?} of Longhorn ({reason})"))
}

/// The range of the server itself is given by its flags; others add no addresses.
fn service_range(range: &Value) -> Option<String> {
    let is_own = range.pointer("/metadata/name").is_some_and(|name| name == "kubernetes");
    (!is_own).then(|| "ServiceCIDR".to_owned())
}

fn recurring_task(job: &Value) -> Option<String> {
    let task = job.pointer("/spec/task").and_then(Value::as_str)?;
    (task == "system-backup").then(|| format!("task {task:?} of this RecurringJob"))
}

fn find(group: &str, resource: &str) -> Option<&'static Row> {
    let mut rows = KINDS.iter().chain(IN_PART);
    rows.find(|row| row.group == group && row.resource == resource)
}

/// Whether [`warning`] has something to say about objects of a kind.
pub fn concerns(group: &str, resource: &str) -> bool {
    find(group, resource).is_some()
}

/// The warning for a written object on which nothing acts.
pub fn warning(group: &str, resource: &str, object: &Value) -> Option<String> {
    let subject = (find(group, resource)?.subject)(object)?;
    Some(format!("{subject} is stored, but nothing acts on it yet in this version"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_without_effect_are_warned_of() {
        let balancer = json!({"spec": {"type": "LoadBalancer"}});
        let setting = json!({"metadata": {"name": "vip-pools"}, "value": "{}"});
        for (group, resource, object, expected) in [
            ("networking.k8s.io", "networkpolicies", json!({}), None),
            ("harvesterhci.io", "schedulevmbackups", json!({}), None),
            ("harvesterhci.io", "upgradelogs", json!({}), Some("UpgradeLog")),
            ("", "services", balancer, Some("the load balancer of this Service")),
            ("", "services", json!({"spec": {"type": "ClusterIP"}}), None),
            ("", "services", json!({"spec": {"type": "NodePort"}}), None),
            (
                "",
                "services",
                json!({"spec": {"type": "ClusterIP", "externalIPs": ["192.0.2.7"]}}),
                None,
            ),
            ("harvesterhci.io", "settings", setting, Some("setting \"vip-pools\"")),
            ("harvesterhci.io", "settings", json!({"metadata": {"name": "x"}}), None),
            ("kubevirt.io", "virtualmachines", json!({}), None),
            (
                "backup.kubevirt.io",
                "virtualmachinebackups",
                json!({}),
                Some("VirtualMachineBackup of backup.kubevirt.io"),
            ),
            ("template.kubevirt.io", "virtualmachinetemplaterequests", json!({}), None),
            ("export.kubevirt.io", "virtualmachineexports", json!({}), None),
            ("cdi.kubevirt.io", "dataimportcrons", json!({}), None),
            ("cdi.kubevirt.io", "volumeimportsources", json!({}), None),
            ("longhorn.io", "recurringjobs", json!({}), None),
            ("longhorn.io", "recurringjobs", json!({"spec": {"task": "snapshot"}}), None),
            (
                "longhorn.io",
                "recurringjobs",
                json!({"spec": {"task": "system-backup"}}),
                Some("task \"system-backup\" of this RecurringJob"),
            ),
            (
                "longhorn.io",
                "settings",
                json!({"metadata": {"name": "v2-data-engine"}, "value": "true"}),
                Some("setting \"v2-data-engine\" of Longhorn (there is one data engine)"),
            ),
            (
                "longhorn.io",
                "settings",
                json!({"metadata": {"name": "default-replica-count"}, "value": "1"}),
                None,
            ),
            (
                "networking.k8s.io",
                "servicecidrs",
                json!({"metadata": {"name": "more"}}),
                Some("ServiceCIDR"),
            ),
            (
                "networking.k8s.io",
                "servicecidrs",
                json!({"metadata": {"name": "kubernetes"}}),
                None,
            ),
            ("storage.k8s.io", "csidrivers", json!({}), Some("CSIDriver")),
        ] {
            let expected = expected.map(|subject| {
                format!("{subject} is stored, but nothing acts on it yet in this version")
            });
            assert_eq!(warning(group, resource, &object), expected, "{group}/{resource} {object}");
        }
    }

    #[test]
    fn rows_name_kinds_of_ours() {
        let ours: Vec<(String, String)> = crate::definitions()
            .map(|definition| {
                let text = |path: &str| {
                    definition.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                (text("/spec/group"), text("/spec/names/plural"))
            })
            .collect();
        let is_built_in = |row: &Row| {
            let mut known = kinds::builtin().iter();
            known.any(|own| (own.group, own.plural) == (row.group, row.resource))
        };
        let virt = "backup.kubevirt.io";
        for row in KINDS.iter().chain(IN_PART).filter(|row| row.group != virt) {
            let is_ours =
                ours.iter().any(|(group, plural)| group == row.group && plural == row.resource);
            assert!(is_ours || is_built_in(row), "{}/{} does not exist", row.group, row.resource);
        }
    }

    #[test]
    fn the_first_objects_of_a_cluster_are_written_without_a_warning() {
        let plural = |object: &Value| {
            let kind = object["kind"].as_str().unwrap_or_default().to_ascii_lowercase();
            if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") }
        };
        let mut warnings = Vec::new();
        for object in crate::first_objects().iter().chain(&crate::driver_objects()) {
            let version = object["apiVersion"].as_str().unwrap_or_default();
            let group = version.split_once('/').map_or("", |(group, _)| group);
            warnings.extend(warning(group, &plural(object), object));
        }
        assert_eq!(warnings, [""; 0]);
    }
}
