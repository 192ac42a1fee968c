//! Whether the volumes of a machine can be backed up: the setting `csi-driver-config` names a
//! snapshot class for their driver.

use serde_json::Value;

use super::SOURCE;
use crate::admit::{AdmissionResult, HARVESTER, LONGHORN, Refusal, STORAGE, Write, text};
use crate::cluster_setting::effective;
use crate::longhorn::NAMESPACE;

const CONFIG: &str = "csi-driver-config";
const PROVISIONER: &str = "/metadata/annotations/volume.kubernetes.io~1storage-provisioner";

/// `kind` is backup or snapshot.
pub(super) fn validate(write: &Write<'_>, machine: &Value, kind: &str) -> AdmissionResult {
    let setting = write.objects.get(HARVESTER, "settings", "", CONFIG);
    let config: Value =
        serde_json::from_str(&effective(CONFIG, setting.as_ref())).unwrap_or_default();
    let refuse = |message: String| Err(Refusal::invalid(SOURCE, message));
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let names = volumes.into_iter().flatten();
    for name in names.map(|own| text(own, "/persistentVolumeClaim/claimName")) {
        if name.is_empty() {
            continue;
        }
        let id = format!("{}/{name}", write.namespace);
        let claim = write.objects.get("", "persistentvolumeclaims", write.namespace, name);
        let Some(claim) = claim else {
            return refuse(format!(
                "failed to get PVC {id}: persistentvolumeclaims \"{name}\" not found"
            ));
        };
        if let Some(volume) = second_engine(write, &claim) {
            return refuse(format!(
                "vm {}/{} contains Longhorn v2 volume {volume} from PVC {id}, which does not support VM backup",
                write.namespace,
                text(machine, "/metadata/name")
            ));
        }
        let provisioner = provisioner(write, &claim);
        if config.get(&provisioner).is_none() {
            return refuse(format!(
                "provisioner {provisioner} is not configured in the {CONFIG} setting"
            ));
        }
        let field = if kind == "backup" {
            "backupVolumeSnapshotClassName"
        } else {
            "volumeSnapshotClassName"
        };
        if config[&provisioner][field].as_str().is_none_or(str::is_empty) {
            return refuse(format!(
                "{kind}'s snapshot class is not configured for provisioner {provisioner} in the {CONFIG} setting"
            ));
        }
    }
    Ok(())
}

/// The driver of a claim, by its annotation or its class.
pub(in crate::admit) fn provisioner(write: &Write<'_>, claim: &Value) -> String {
    match text(claim, PROVISIONER) {
        "" => {
            let class = text(claim, "/spec/storageClassName");
            let class = write.objects.get(STORAGE, "storageclasses", "", class);
            class.map(|own| text(&own, "/provisioner").to_owned()).unwrap_or_default()
        }
        own => own.to_owned(),
    }
}

/// The volume of a claim, if it is of Longhorn's second engine.
fn second_engine(write: &Write<'_>, claim: &Value) -> Option<String> {
    let name = text(claim, "/spec/volumeName");
    let volume = write.objects.get(LONGHORN, "volumes", NAMESPACE, name)?;
    (text(&volume, "/spec/dataEngine") == "v2").then(|| name.to_owned())
}
