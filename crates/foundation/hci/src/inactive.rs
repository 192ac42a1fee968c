//! Kinds that are stored for clients that expect them, and on which nothing acts yet. Writing one is answered
//! with a warning, so that nobody waits for an effect.
//!
//! This table is the only list of them: a change that makes a kind work removes its row.

use serde_json::Value;

use crate::admit::{HARVESTER, LONGHORN};
use crate::cluster_setting::{SettingEffect, effect};

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
    "networking.k8s.io" => { "ingresses": "Ingress" },
    "resource.k8s.io" => {
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
    Row { group: HARVESTER, resource: "settings", subject: setting },
];

/// The part of a Service that has no data path.
fn service_part(service: &Value) -> Option<String> {
    let kind = service.pointer("/spec/type").and_then(Value::as_str)?;
    (kind == "LoadBalancer").then(|| "the load balancer of this Service".to_owned())
}

/// Settings that are stored without effect; one without a value asks for none.
fn setting(setting: &Value) -> Option<String> {
    let name = setting.pointer("/metadata/name").and_then(Value::as_str)?;
    let value = setting.get("value").and_then(Value::as_str)?;
    let inactive = !value.is_empty() && matches!(effect(name), SettingEffect::Stored(_));
    inactive.then(|| format!("setting {name:?}"))
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
        let rows = KINDS.iter().chain(IN_PART);
        for row in rows.filter(|row| [HARVESTER, LONGHORN].contains(&row.group)) {
            let known =
                ours.iter().any(|(group, plural)| group == row.group && plural == row.resource);
            assert!(known, "{}/{} does not exist", row.group, row.resource);
        }
    }
}
