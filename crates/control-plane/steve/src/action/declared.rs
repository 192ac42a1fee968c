//! The actions of each type as its schema declares them, with the types of their parameters. Pure.

use client::CatalogKind;
use serde_json::{Map, Value, json};

use super::{collection_names, possible};

/// The parameters of an action, which are a type of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActionInput {
    pub(crate) id: &'static str,
    /// Names and types of its fields.
    fields: &'static [(&'static str, &'static str)],
}

const TEXT: &str = "string";
const FLAG: &str = "boolean";
const NUMBER: &str = "int";

const fn input(id: &'static str, fields: &'static [(&'static str, &'static str)]) -> ActionInput {
    ActionInput { id, fields }
}

const BACKUP: ActionInput = input("backupInput", &[("name", TEXT), ("fsFreezeDeadline", TEXT)]);
const CLONE: ActionInput = input("cloneInput", &[("targetVm", TEXT), ("runStrategy", TEXT)]);
const QUOTA: ActionInput = input("updateResourceQuotaInput", &[("totalSnapshotSizeQuota", TEXT)]);
const KEY: ActionInput = input("keyGenInput", &[("name", TEXT), ("namespace", TEXT)]);

/// All types of parameters.
pub(crate) const INPUTS: [ActionInput; 22] = [
    BACKUP,
    CLONE,
    QUOTA,
    KEY,
    input("addNicInput", &[("interfaceName", TEXT), ("networkName", TEXT), ("macAddress", TEXT)]),
    input("addVolumeInput", &[("diskName", TEXT), ("volumeSourceName", TEXT), ("shareable", FLAG)]),
    input("cloneVolumeInput", &[("name", TEXT)]),
    input("cpuAndMemoryHotplugInput", &[("sockets", NUMBER), ("memory", TEXT)]),
    input("createTemplateInput", &[("name", TEXT), ("description", TEXT), ("withData", FLAG)]),
    input("dataMigrationInput", &[("targetVolumeName", TEXT), ("targetStorageClassName", TEXT)]),
    input("ejectCdRomVolumeActionInput", &[("deviceName", TEXT)]),
    input(
        "exportVolumeInput",
        &[("displayName", TEXT), ("namespace", TEXT), ("storageClassName", TEXT)],
    ),
    input("insertCdRomVolumeActionInput", &[("DeviceName", TEXT), ("imageName", TEXT)]),
    input("maintenanceModeInput", &[("force", TEXT)]),
    input("migrateInput", &[("nodeName", TEXT)]),
    input("powerActionInput", &[("operation", TEXT)]),
    input("removeNicInput", &[("interfaceName", TEXT)]),
    input("removeVolumeInput", &[("diskName", TEXT)]),
    input(
        "restoreInput",
        &[
            ("name", TEXT),
            ("backupName", TEXT),
            ("keepMacAddress", FLAG),
            ("haltAfterRestore", FLAG),
        ],
    ),
    input("restoreSnapshotInput", &[("name", TEXT), ("storageClassName", TEXT)]),
    input("snapshotVolumeInput", &[("name", TEXT)]),
    input("storageMigrationInput", &[("sourceVolume", TEXT), ("targetVolume", TEXT)]),
];

impl ActionInput {
    /// The fields as a schema has them.
    pub(crate) fn fields(&self) -> Value {
        let field = |kind: &str| json!({"type": kind, "create": true, "update": true});
        self.fields.iter().map(|(name, kind)| ((*name).to_owned(), field(kind))).collect()
    }
}

/// The actions of the resources of a type.
pub(crate) fn of_resources(kind: &CatalogKind) -> Value {
    if kind.is("harvesterhci.io", "upgradelogs") {
        return json!({"generate": {}});
    }
    declare(kind, possible::shown(kind))
}

/// The actions of the collection of a type.
pub(crate) fn of_collection(kind: &CatalogKind) -> Value {
    declare(kind, collection_names(kind))
}

fn declare(kind: &CatalogKind, actions: &[&str]) -> Value {
    let declared = actions.iter().map(|action| {
        let input = input_of(kind, action);
        let value = input.map_or_else(|| json!({}), |id| json!({"input": id}));
        ((*action).to_owned(), value)
    });
    Value::Object(declared.collect::<Map<_, _>>())
}

fn input_of(kind: &CatalogKind, action: &str) -> Option<&'static str> {
    Some(match (&*kind.plural, action) {
        ("persistentvolumeclaims", "clone") => "cloneVolumeInput",
        ("persistentvolumeclaims", "snapshot") => "snapshotVolumeInput",
        ("volumesnapshots", "restore") => "restoreSnapshotInput",
        (_, "addNic") => "addNicInput",
        (_, "addVolume") => "addVolumeInput",
        (_, "backup") => BACKUP.id,
        (_, "clone") => CLONE.id,
        (_, "cpuAndMemoryHotplug") => "cpuAndMemoryHotplugInput",
        (_, "createTemplate") => "createTemplateInput",
        (_, "dataMigration") => "dataMigrationInput",
        (_, "ejectCdRomVolume") => "ejectCdRomVolumeActionInput",
        (_, "enableMaintenanceMode") => "maintenanceModeInput",
        (_, "export") => "exportVolumeInput",
        (_, "insertCdRomVolume") => "insertCdRomVolumeActionInput",
        (_, "keygen") => KEY.id,
        (_, "migrate") => "migrateInput",
        (_, "powerAction") => "powerActionInput",
        (_, "removeNic") => "removeNicInput",
        (_, "removeVolume") => "removeVolumeInput",
        (_, "restore") => "restoreInput",
        (_, "storageMigration") => "storageMigrationInput",
        (_, "updateResourceQuota") => QUOTA.id,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_name::{find, tests::catalog};

    #[test]
    fn actions_name_the_types_of_their_parameters() {
        let catalog = catalog();
        let of = |name: &str| of_resources(find(&catalog, name).unwrap());
        let machine = of("kubevirt.io.virtualmachines");
        assert_eq!(machine.as_object().unwrap().len(), 28);
        assert_eq!(machine["start"], json!({}));
        assert_eq!(machine["clone"], json!({"input": "cloneInput"}));
        assert_eq!(of("persistentvolumeclaims")["clone"], json!({"input": "cloneVolumeInput"}));
        assert_eq!(of("harvesterhci.io.virtualmachineimages"), json!({"upload": {}}));
        assert_eq!(of("pods"), json!({}));
        let keys = find(&catalog, "harvesterhci.io.keypairs").unwrap();
        assert_eq!(of_collection(keys), json!({"keygen": {"input": "keyGenInput"}}));
        for name in ["kubevirt.io.virtualmachines", "persistentvolumeclaims", "nodes"] {
            let actions = of(name);
            let inputs = actions.as_object().unwrap().values().filter_map(|own| own.get("input"));
            for own in inputs {
                assert!(INPUTS.iter().any(|input| own == input.id), "{own} is no type");
            }
        }
    }

    #[test]
    fn parameters_have_fields() {
        let expected = json!({"nodeName": {"type": "string", "create": true, "update": true}});
        let migrate = INPUTS.iter().find(|input| input.id == "migrateInput").unwrap();
        assert_eq!(migrate.fields(), expected);
    }
}
