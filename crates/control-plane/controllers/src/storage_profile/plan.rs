//! The properties of claims of a storage class, in CDI's form: pure.

use serde_json::{Value, json};
use virt::api::cdi::StorageProfileSpec;

use crate::longhorn::volume_snapshot::record::SnapshotClassFields;
use crate::object::{annotation, name, read};
use crate::record::claim::StorageClassFields;

/// An access mode and a volume mode that go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) access_modes: Vec<String>,
    pub(crate) volume_mode: String,
}

/// The sets of a class, the best first: its user's, or those of its provisioner.
pub(crate) fn sets(class: &Value, spec: &StorageProfileSpec) -> Vec<Set> {
    if !spec.claim_property_sets.is_empty() {
        let own = spec.claim_property_sets.iter();
        return own
            .map(|set| Set {
                access_modes: set.access_modes.clone(),
                volume_mode: set.volume_mode.clone(),
            })
            .collect();
    }
    let class: StorageClassFields<'_> = read(class);
    let known: &[(&str, &str)] = match class.provisioner {
        hci::DRIVER if class.parameter("migratable") == "true" => {
            &[("ReadWriteMany", "Block"), ("ReadWriteOnce", "Block")]
        }
        hci::DRIVER if !class.parameter("fsType").is_empty() => &[("ReadWriteOnce", "Filesystem")],
        hci::DRIVER => &[("ReadWriteOnce", "Block")],
        "sheaf.io/local" => &[("ReadWriteOnce", "Filesystem"), ("ReadWriteOnce", "Block")],
        _ => &[],
    };
    known
        .iter()
        .map(|(access, mode)| Set {
            access_modes: vec![(*access).to_owned()],
            volume_mode: (*mode).to_owned(),
        })
        .collect()
}

/// The status of the profile of a class.
pub(super) fn status(
    class: &Value,
    spec: &StorageProfileSpec,
    snapshot_classes: &[Value],
) -> Value {
    let sets: Vec<Value> = sets(class, spec)
        .into_iter()
        .map(|set| json!({"accessModes": set.access_modes, "volumeMode": set.volume_mode}))
        .collect();
    let provisioner = provisioner(class);
    let snapshot_class = spec
        .snapshot_class
        .clone()
        .or_else(|| snapshot_class(provisioner, snapshot_classes).map(str::to_owned));
    let strategy = spec.clone_strategy.as_deref().unwrap_or_else(|| clone_strategy(class));
    let format = spec.data_import_cron_source_format.as_deref().unwrap_or("pvc");
    json!({
        "storageClass": name(class),
        "provisioner": provisioner,
        "claimPropertySets": sets,
        "cloneStrategy": strategy,
        "dataImportCronSourceFormat": format,
        "snapshotClass": snapshot_class,
    })
}

fn provisioner(class: &Value) -> &str {
    read::<StorageClassFields<'_>>(class).provisioner
}

/// The method used here: the driver makes linked copies, and other volumes are copied as a whole.
fn clone_strategy(class: &Value) -> &'static str {
    match annotation(class, "cdi.kubevirt.io/clone-strategy") {
        Some("copy") => "copy",
        Some("snapshot") => "snapshot",
        Some("csi-clone") => "csi-clone",
        _ if provisioner(class) == hci::DRIVER => "csi-clone",
        _ => "copy",
    }
}

/// The default class of a driver, or its first by name.
fn snapshot_class<'a>(driver: &str, classes: &'a [Value]) -> Option<&'a str> {
    const DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";
    let own =
        classes.iter().filter(|class| read::<SnapshotClassFields<'_>>(class).driver == driver);
    own.min_by_key(|class| (annotation(class, DEFAULT) != Some("true"), name(class))).map(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_follows_from_its_class() {
        let class = |provisioner: &str, parameters: Value| {
            json!({"metadata": {"name": "c"}, "provisioner": provisioner,
                "parameters": parameters})
        };
        let spec = StorageProfileSpec::default();
        let claim_sets = |class: &Value| -> Vec<String> {
            let all = sets(class, &spec).into_iter();
            all.map(|set| format!("{} {}", set.access_modes.join(","), set.volume_mode)).collect()
        };
        let migratable = class(hci::DRIVER, json!({"migratable": "true"}));
        assert_eq!(claim_sets(&migratable), ["ReadWriteMany Block", "ReadWriteOnce Block"]);
        assert_eq!(claim_sets(&class(hci::DRIVER, json!({}))), ["ReadWriteOnce Block"]);
        let files = class(hci::DRIVER, json!({"fsType": "ext4"}));
        assert_eq!(claim_sets(&files), ["ReadWriteOnce Filesystem"]);
        assert!(claim_sets(&class("driver.example.org", json!({}))).is_empty());
        let snapshots = [
            json!({"metadata": {"name": "a"}, "driver": "other"}),
            json!({"metadata": {"name": "s"}, "driver": hci::DRIVER}),
        ];
        let full = status(&migratable, &spec, &snapshots);
        assert_eq!(full["cloneStrategy"], "csi-clone");
        assert_eq!(full["snapshotClass"], "s");
        assert_eq!(full["dataImportCronSourceFormat"], "pvc");
        let local = status(&class("sheaf.io/local", json!({})), &spec, &snapshots);
        assert_eq!(
            (&local["cloneStrategy"], &local["snapshotClass"]),
            (&json!("copy"), &json!(null))
        );
        let own = StorageProfileSpec {
            clone_strategy: Some("copy".into()),
            snapshot_class: Some("mine".into()),
            ..StorageProfileSpec::default()
        };
        let full = status(&migratable, &own, &snapshots);
        assert_eq!(
            (&full["cloneStrategy"], &full["snapshotClass"]),
            (&json!("copy"), &json!("mine"))
        );
    }
}
