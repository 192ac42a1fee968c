//! The provisioning of a claim of this driver, and the later changes of its volume: pure.

use std::collections::BTreeMap;

use hci::longhorn::{FINALIZER, NAMESPACE, VOLUME_LABEL};
use serde_json::{Map, Value, json};
use types::Quantity;

use super::origin::Content;
use super::parameter::{self, ParameterError};
use crate::longhorn::API;
use crate::longhorn::object::{bytes, volume_bytes};
use crate::longhorn::record::{EngineFields, VolumeFields};
use crate::object::{annotation, is_deleting, name, namespace, read, uid};
use crate::record::claim::{
    ClaimFields, ClaimSpec, PersistentVolumeFields, StorageClassFields, volume_mode_or_default,
};
use crate::record::fields;
use crate::record::quantity::WrittenQuantity;

pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Holds a persistent volume until what is behind it is gone.
pub(super) const HELD: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// The claim that a volume was made for: namespace/name/uid. Identifies an unused volume
/// when the claim went before there was a persistent volume.
pub(super) const MADE_FOR: &str = "sheaf.io/made-for";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Set by the controller that binds claims, once no existing volume fits.
pub(super) const ANNOUNCED: &str = "volume.kubernetes.io/storage-provisioner";
const IMMEDIATE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";

fields! {
    /// A storage class by its parameters, which `parameter` reads.
    struct ParameterizedClass {
        parameters: Value,
    }
}

/// Why a claim gets no volume; it is tried again when something changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProvisionError {
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error(
        "spec.resources.requests.storage \"{asked}\" is invalid: it must be above 0 and below 8Ei"
    )]
    Size { asked: String },
    #[error(
        "cannot make a volume from {what}: only a VolumeSnapshot or a PersistentVolumeClaim of \
         the same namespace will do"
    )]
    Origin { what: String },
    #[error(
        "copying {from} of another namespace was not authorized when the DataVolume was created"
    )]
    Unauthorized { from: String },
    #[error("{kind} {name} is not found")]
    Missing { kind: &'static str, name: String },
    #[error("{kind} {name} is not ready to be copied")]
    NotReady { kind: &'static str, name: String },
    #[error("{kind} {name} does not belong to driver {}", hci::DRIVER)]
    Foreign { kind: &'static str, name: String },
    #[error("requested volume size {asked} is less than the size {size} for the source {name}")]
    Small { asked: i64, size: i64, name: String },
    #[error("cannot copy the source; see the events of volume {volume}")]
    NotCopied { volume: String },
    #[error("the volume is refused: {why}")]
    Refused { why: String },
}

/// The current request of a claim to this driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProvisionRequest {
    /// It is another driver's, has its volume, or is being deleted.
    Nothing,
    /// Nothing before a consumer uses it.
    Consumer,
    Volume,
}

pub(super) fn want(claim: &Value, class: &Value) -> ProvisionRequest {
    let spec = read::<ClaimFields<'_>>(claim).spec;
    let class: StorageClassFields<'_> = read(class);
    let settled = !spec.volume_name.is_empty() || is_deleting(claim);
    if class.provisioner != hci::DRIVER || settled {
        return ProvisionRequest::Nothing;
    }
    // Before that, the claim may still be bound to a volume that exists.
    if annotation(claim, ANNOUNCED) != Some(hci::DRIVER) {
        return ProvisionRequest::Nothing;
    }
    // A claim with a selector needs a volume that is there.
    if spec.selector.is_some() {
        return ProvisionRequest::Nothing;
    }
    let later = class.waits_for_consumer();
    let chosen = annotation(claim, SELECTED_NODE).is_some_and(|node| !node.is_empty());
    if later && !chosen && annotation(claim, IMMEDIATE).is_none() {
        return ProvisionRequest::Consumer;
    }
    ProvisionRequest::Volume
}

/// The name of a claim's volume, in Kubernetes and in Longhorn.
pub(super) fn volume_name(claim: &Value) -> String {
    format!("pvc-{}", uid(claim))
}

/// Longhorn's volume for a claim.
pub(super) fn backing(
    claim: &Value,
    class: &Value,
    content: Option<&Content>,
) -> Result<Value, ProvisionError> {
    let parameters = read::<ParameterizedClass>(class).parameters;
    let mut spec = parameter::spec(&parameters)?;
    let mut labels = parameter::job_labels(&parameters)?;
    let name = volume_name(claim);
    labels.insert(VOLUME_LABEL.to_owned(), json!(name));
    let wanted = read::<ClaimFields<'_>>(claim).spec;
    let asked = wanted.storage();
    let size = volume_bytes(asked)
        .ok_or_else(|| ProvisionError::Size { asked: asked.text().to_owned() })?;
    if let Some(content) = content {
        if size < content.size {
            let (size, name) = (content.size, content.name.clone());
            let asked = asked.amount().map_or(0, |own| own.units());
            return Err(ProvisionError::Small { asked, size, name });
        }
        match &content.backup_url {
            Some(url) => {
                // A backup holds all of the volume, what came from an image included.
                spec.remove("backingImage");
                spec.insert("fromBackup".into(), json!(url));
            }
            None => drop(spec.insert("dataSource".into(), json!(content.source))),
        }
    }
    let access = access_mode(&wanted);
    if access != "rwx" {
        // Only what two nodes may have at a time can move between them.
        spec.insert("migratable".into(), json!(false));
    }
    spec.insert("accessMode".into(), json!(access));
    spec.insert("size".into(), json!(size.to_string()));
    spec.insert("frontend".into(), json!("blockdev"));
    Ok(json!({
        "apiVersion": API, "kind": "Volume",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": labels,
            "finalizers": [FINALIZER],
            "annotations": {MADE_FOR: made_for(claim)},
        },
        "spec": spec,
    }))
}

pub(super) fn made_for(claim: &Value) -> String {
    format!("{}/{}/{}", namespace(claim), name(claim), uid(claim))
}

fn access_mode(claim: &ClaimSpec<'_>) -> &'static str {
    let has = |mode: &str| claim.access_modes.contains(&mode);
    if has("ReadWriteMany") {
        "rwx"
    } else if has("ReadWriteOncePod") {
        "rwop"
    } else {
        "rwo"
    }
}

/// Whether what the volume is to begin with is on its disks.
pub(super) fn is_filled(backing: &Value) -> bool {
    let VolumeFields { spec, status } = read(backing);
    if !spec.from_backup.is_empty() {
        return status.restore_required == Some(false);
    }
    spec.data_source.is_empty() || status.clone_status.state == "completed"
}

/// The persistent volume that represents Longhorn's.
pub(super) fn persistent(claim: &Value, class: &Value, backing: &Value) -> Value {
    let own = name(backing);
    let class: StorageClassFields<'_> = read(class);
    let spec = read::<ClaimFields<'_>>(claim).spec;
    let parameter = |key: &str| class.parameter(key);
    let reclaim = match class.reclaim_policy {
        "" => "Delete",
        policy => policy,
    };
    let mode = volume_mode_or_default(spec.volume_mode);
    let size = bytes(read::<VolumeFields<'_>>(backing).spec.size);
    let mut csi = json!({
        "driver": hci::DRIVER, "volumeHandle": own, "volumeAttributes": attributes(&class.parameters),
    });
    if mode == "Filesystem" {
        let kind = [parameter("csi.storage.k8s.io/fstype"), parameter("fsType"), "ext4"];
        csi["fsType"] = json!(kind.iter().find(|own| !own.is_empty()));
    }
    for (field, key) in [
        ("nodeStageSecretRef", "node-stage"),
        ("nodePublishSecretRef", "node-publish"),
        ("controllerExpandSecretRef", "controller-expand"),
    ] {
        let part = |end: &str| {
            let template = parameter(&format!("csi.storage.k8s.io/{key}-secret-{end}"));
            fill_in(template, claim, own)
        };
        let (secret, space) = (part("name"), part("namespace"));
        if !secret.is_empty() && !space.is_empty() {
            csi[field] = json!({"name": secret, "namespace": space});
        }
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": own,
            "annotations": {
                PROVISIONED_BY: hci::DRIVER,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
            "finalizers": [HELD],
        },
        "spec": {
            "capacity": {"storage": capacity(spec.storage(), size)},
            "accessModes": spec.access_modes,
            "volumeMode": mode,
            "storageClassName": spec.storage_class_name,
            "persistentVolumeReclaimPolicy": reclaim,
            "mountOptions": class.mount_options,
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": namespace(claim), "name": name(claim), "uid": uid(claim),
            },
            "csi": csi,
        },
    })
}

/// The claim's own words where they say the same as the number.
fn capacity(asked: &WrittenQuantity, size: i64) -> Value {
    match asked.amount() {
        Some(own) if own.units() == size => asked.written().clone(),
        _ => json!(Quantity::from_bytes(size).to_string()),
    }
}

/// Parameters that are for the driver and not for its caller.
fn attributes(parameters: &BTreeMap<&str, &str>) -> Map<String, Value> {
    let mut all: Map<String, Value> = parameters
        .iter()
        .filter(|(key, _)| !key.starts_with("csi.storage.k8s.io/"))
        .map(|(&key, &value)| (key.to_owned(), value.into()))
        .collect();
    all.insert("storage.kubernetes.io/csiProvisionerIdentity".into(), json!(hci::DRIVER));
    all
}

/// Fills in `${pvc.name}` and its like in the name of a secret.
fn fill_in(template: &str, claim: &Value, volume: &str) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((variable, after)) = after.split_once('}') else { break };
        filled.push_str(before);
        filled.push_str(match variable {
            "pvc.name" => name(claim),
            "pvc.namespace" => namespace(claim),
            "pv.name" => volume,
            noted => {
                let key = noted.strip_prefix("pvc.annotations['");
                let key = key.and_then(|key| key.strip_suffix("']"));
                key.and_then(|key| annotation(claim, key)).unwrap_or_default()
            }
        });
        rest = after;
    }
    filled + rest
}

/// The next step for a persistent volume of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    /// Longhorn's volume is deleted first.
    DeleteBacking,
    /// Wait until that is gone.
    Wait,
    /// Nothing is behind it any more, or what is stays.
    Delete,
    Release,
}

pub(super) fn fate(volume: &Value, backing: Option<&Value>) -> Fate {
    let deleting = is_deleting(volume);
    let PersistentVolumeFields { spec, status } = read(volume);
    if spec.persistent_volume_reclaim_policy != "Delete" {
        return if deleting { Fate::Release } else { Fate::Keep };
    }
    let phase = status.phase;
    let unwanted = phase == "Released" || deleting && phase != "Bound";
    match backing {
        _ if !unwanted => Fate::Keep,
        Some(backing) if is_deleting(backing) => Fate::Wait,
        Some(_) => Fate::DeleteBacking,
        None if deleting => Fate::Release,
        None => Fate::Delete,
    }
}

/// How far a claim has come that asks for more than it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpansionStep {
    Nothing,
    /// Longhorn's volume has to be patched.
    Ask {
        size: i64,
    },
    /// It grows.
    Wait,
    /// It has grown; volume and claim have to be updated.
    Grown {
        capacity: Value,
    },
}

pub(super) fn growth(claim: &Value, backing: &Value, engine: Option<&Value>) -> ExpansionStep {
    let ClaimFields { spec, status } = read(claim);
    let wanted = spec.storage();
    let bound = status.phase == "Bound" && !is_deleting(claim);
    let short = wanted.amount() > status.capacity.storage.amount();
    let Some(asked) = volume_bytes(wanted).filter(|_| bound && short) else {
        return ExpansionStep::Nothing;
    };
    let size = bytes(read::<VolumeFields<'_>>(backing).spec.size);
    if asked > size {
        return ExpansionStep::Ask { size: asked };
    }
    let current = |engine: &Value| bytes(read::<EngineFields<'_>>(engine).status.current_size);
    let grown = engine.is_some_and(|engine| current(engine) >= size);
    if grown {
        ExpansionStep::Grown { capacity: capacity(wanted, size) }
    } else {
        ExpansionStep::Wait
    }
}

/// The status of Longhorn's volume about its claim.
pub(super) fn kubernetes_status(volume: &Value, claim: Option<&Value>) -> Value {
    let PersistentVolumeFields { spec, status } = read(volume);
    let mut status = json!({
        "pvName": name(volume),
        "pvStatus": status.phase,
        "namespace": spec.claim_ref.namespace,
        "pvcName": spec.claim_ref.name,
    });
    // The last claim stays in the status when it is gone, with the time of that.
    if claim.is_some() {
        status["lastPVCRefAt"] = json!("");
    }
    json!({"status": {"kubernetesStatus": status}})
}

#[cfg(test)]
mod tests;
