//! The claim behind a data volume, and what the claim's state means for it: pure.
//!
//! How far the filling of a claim has come is written on the claim by the agent that fills
//! it, in CDI's annotations; the data volume only repeats that.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::reason::FillFailure;

use super::record::{ClaimTemplate, ClaimTemplateSpec, DataVolumeFields};
use super::source::{CloneHold, DataVolumeSource};
use crate::condition::{self, Condition};
use crate::longhorn::volume_snapshot::record::VolumeSnapshotFields;
use crate::object::{self, annotation, copied_map, is_controlled_by, name, namespace, read};
use crate::populate::{CLONE_REQUEST, DRIVER_CLONE, IMMEDIATE, POD_PHASE, UPLOAD_TARGET};
use crate::record::claim::{ClaimFields, ClaimSpec};
use crate::storage_profile::Set;

const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
const PROGRESS: &str = "sheaf.io/import-progress";
const TROUBLE: &str = "cdi.kubevirt.io/storage.condition.running.message";
const TROUBLE_REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
const RESTARTS: &str = "cdi.kubevirt.io/storage.pod.restarts";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The description of a claim's content for the agent, as annotations of the claim.
pub(crate) fn annotations(content: &str, source: &DataVolumeSource) -> Map<String, Value> {
    let mut annotations = Map::new();
    let mut note = |key: &str, value: &str| {
        if !value.is_empty() {
            annotations.insert(format!("cdi.kubevirt.io/storage.{key}"), value.into());
        }
    };
    note("contentType", if content.is_empty() { "kubevirt" } else { content });
    match source {
        DataVolumeSource::Http { url, secret, certificates, checksum, headers, secret_headers } => {
            note("import.source", "http");
            note("import.endpoint", url);
            note("import.secretName", secret);
            note("import.certConfigMap", certificates);
            note("import.checksum", checksum);
            for (index, header) in headers.iter().enumerate() {
                note(&format!("import.extraHeaders.{index}"), header);
            }
            for (index, name) in secret_headers.iter().enumerate() {
                note(&format!("import.secretExtraHeaders.{index}"), name);
            }
        }
        DataVolumeSource::Registry { url, secret, certificates } => {
            note("import.source", "registry");
            note("import.endpoint", url);
            note("import.secretName", secret);
            note("import.certConfigMap", certificates);
        }
        DataVolumeSource::Clone { namespace, name } => {
            annotations.insert(CLONE_REQUEST.into(), format!("{namespace}/{name}").into());
        }
        DataVolumeSource::Upload => {
            annotations.insert(UPLOAD_TARGET.into(), "".into());
        }
        DataVolumeSource::Snapshot { .. } => {}
        DataVolumeSource::Blank
        | DataVolumeSource::Unresolved { .. }
        | DataVolumeSource::Unsupported(_) => {
            note("import.source", "none");
        }
    }
    annotations
}

/// The claim of a data volume, with what the agent has to know.
pub(super) fn claim(dv: &Value, source: &DataVolumeSource) -> Value {
    let mut annotations = copied_map(object::annotations(dv));
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.retain(|key, _| !hci::is_internal_key(key));
    annotations
        .extend(self::annotations(read::<DataVolumeFields<'_>>(dv).spec.content_type, source));
    let mut labels = copied_map(object::labels(dv));
    labels.insert("app".into(), "containerized-data-importer".into());
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name(dv), "namespace": namespace(dv),
            "labels": labels, "annotations": annotations,
            "ownerReferences": [
                object::controlled_by(dv, "cdi.kubevirt.io/v1beta1", "DataVolume"),
            ],
        },
        "spec": claim_spec(dv),
    })
}

/// The class that a claim will have: the one it names, or the default.
pub(super) fn class<'a>(claim: &Value, classes: &'a [Value]) -> Option<&'a Value> {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    match read::<ClaimFields<'_>>(claim).spec.storage_class_name {
        "" => classes.iter().find(|own| annotation(own, DEFAULT) == Some("true")),
        wanted => classes.iter().find(|own| name(own) == wanted),
    }
}

/// Has the driver copy the source, so that no importer has to fill the claim.
pub(super) fn link(claim: &mut Value, source: &DataVolumeSource) {
    let Some((kind, there, name)) = source.copied() else { return };
    let is_here = there == namespace(claim);
    if let Some(annotations) = claim["metadata"]["annotations"].as_object_mut() {
        annotations.remove(CLONE_REQUEST);
        annotations.insert(POD_PHASE.into(), "Succeeded".into());
        if !is_here {
            annotations.insert(DRIVER_CLONE.into(), format!("{kind}/{there}/{name}").into());
        }
    }
    if is_here {
        claim["spec"]["dataSource"] = match kind {
            "pvc" => json!({"kind": "PersistentVolumeClaim", "name": name}),
            _ => json!({"apiGroup": hci::snapshot::GROUP, "kind": "VolumeSnapshot", "name": name}),
        };
    }
}

/// A copy that asks for no size gets that of its source.
pub(super) fn default_size(claim: &mut Value, source: &DataVolumeSource, copied: &Value) {
    let size = match source {
        DataVolumeSource::Clone { .. } => read::<ClaimFields<'_>>(copied).status.capacity.storage,
        DataVolumeSource::Snapshot { .. } => {
            read::<VolumeSnapshotFields<'_>>(copied).status.restore_size
        }
        _ => return,
    };
    let asks = !read::<ClaimFields<'_>>(claim).spec.storage().is_absent();
    if !asks && !size.is_absent() {
        claim["spec"]["resources"] = json!({"requests": {"storage": size.written()}});
    }
}

/// `spec.pvc` as it is, or `spec.storage`.
fn claim_spec(dv: &Value) -> Value {
    let ClaimTemplateSpec { pvc, storage } = read::<ClaimTemplate>(dv).spec;
    pvc.unwrap_or(storage).into()
}

/// Fills in the modes that `spec.storage` leaves out, by what claims of its class can be.
pub(super) fn default_modes(claim: &mut Value, dv: &Value, sets: &[Set]) {
    if read::<ClaimTemplate>(dv).spec.pvc.is_some() {
        return;
    }
    let ClaimSpec { access_modes, volume_mode, .. } = read::<ClaimFields<'_>>(claim).spec;
    let fitting = sets.iter().find(|set| {
        (volume_mode.is_empty() || set.volume_mode == volume_mode)
            && access_modes.iter().all(|own| set.access_modes.iter().any(|mode| mode == own))
    });
    let (lacks_access, lacks_mode) = (access_modes.is_empty(), volume_mode.is_empty());
    let spec = &mut claim["spec"];
    if lacks_access {
        spec["accessModes"] = match fitting {
            Some(set) => json!(set.access_modes),
            None => json!(["ReadWriteOnce"]),
        };
    }
    if let Some(set) = fitting.filter(|_| lacks_mode) {
        spec["volumeMode"] = json!(set.volume_mode);
    }
}

/// Everything that a data volume's status follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct DataVolumeInput<'a> {
    pub(super) dv: &'a Value,
    pub(super) source: &'a DataVolumeSource,
    pub(super) claim: Option<&'a Value>,
    /// Why there is no claim yet.
    pub(super) hold: Option<&'a CloneHold>,
    pub(super) waits_for_consumer: bool,
}

fn is_bound(claim: &Value) -> bool {
    read::<ClaimFields<'_>>(claim).status.phase == "Bound"
}

pub(super) fn phase(seen: DataVolumeInput<'_>) -> &'static str {
    if matches!(seen.source, DataVolumeSource::Unsupported(_)) {
        return "Failed";
    }
    let Some(claim) = seen.claim else { return "Pending" };
    if !is_controlled_by(claim, seen.dv) {
        return "Pending";
    }
    if !is_bound(claim) {
        let placed = annotation(claim, IMMEDIATE).is_some()
            || annotation(claim, SELECTED_NODE).is_some_and(|node| !node.is_empty());
        return if seen.waits_for_consumer && !placed { "WaitForFirstConsumer" } else { "Pending" };
    }
    let (scheduled, running) = match seen.source {
        DataVolumeSource::Clone { .. } | DataVolumeSource::Snapshot { .. } => {
            ("CloneScheduled", "CloneInProgress")
        }
        DataVolumeSource::Upload if annotation(claim, POD_READY) == Some("true") => {
            ("UploadReady", "UploadReady")
        }
        DataVolumeSource::Upload => ("UploadScheduled", "UploadScheduled"),
        _ => ("ImportScheduled", "ImportInProgress"),
    };
    match annotation(claim, POD_PHASE) {
        Some("Succeeded") => "Succeeded",
        Some("Failed") => "Failed",
        Some("Running") => running,
        _ => scheduled,
    }
}

/// The status that a data volume should have.
pub(super) fn status(seen: DataVolumeInput<'_>, now: Timestamp) -> Value {
    let phase = phase(seen);
    let note = |key: &str| seen.claim.and_then(|claim| annotation(claim, key)).unwrap_or("");
    let progress = match (phase, note(PROGRESS)) {
        ("Succeeded", _) => "100.0%",
        (_, "") => "N/A",
        (_, progress) => progress,
    };
    let mut conditions = condition::of(seen.dv);
    for wanted in conditions_for(seen, phase, note(TROUBLE), note(TROUBLE_REASON)) {
        condition::set(&mut conditions, &wanted, now);
    }
    let mut status = json!({"phase": phase, "progress": progress, "conditions": conditions});
    if seen.claim.is_some() {
        status["claimName"] = name(seen.dv).into();
    }
    if let Ok(restarts) = note(RESTARTS).parse::<u64>() {
        status["restartCount"] = restarts.into();
    }
    json!({"status": status})
}

fn conditions_for(
    seen: DataVolumeInput<'_>,
    phase: &str,
    trouble: &str,
    reason: &str,
) -> [Condition; 3] {
    let own = name(seen.dv);
    let bound = match seen.claim {
        Some(claim) if !is_controlled_by(claim, seen.dv) => Condition::new("Bound", "False")
            .because(
                FillFailure::Claim.as_str(),
                format!("claim {own} exists and belongs to another object"),
            ),
        Some(claim) if is_bound(claim) => {
            Condition::new("Bound", "True").because("Bound", format!("PVC {own} Bound"))
        }
        Some(_) => {
            Condition::new("Bound", "False").because("Pending", format!("PVC {own} Pending"))
        }
        None => Condition::new("Bound", "Unknown").because("NotFound", "No PVC found"),
    };
    let held = seen
        .hold
        .map(|hold| Condition::new("Running", "False").because(hold.reason(), hold.to_string()));
    let running = held.unwrap_or_else(|| match (phase, seen.source) {
        (_, DataVolumeSource::Unsupported(kind)) => Condition::new("Running", "False").because(
            FillFailure::Error.as_str(),
            format!("cannot fill a volume from source: {kind}"),
        ),
        ("ImportInProgress" | "CloneInProgress" | "UploadReady", _) if trouble.is_empty() => {
            Condition::new("Running", "True").because("Pod is running", "")
        }
        ("Succeeded", _) => Condition::new("Running", "False").because("Completed", ""),
        _ => Condition::new("Running", "False").because(reason, trouble),
    });
    let ready = match phase {
        "Succeeded" => Condition::new("Ready", "True"),
        "Failed" => Condition::new("Ready", "False").because(FillFailure::Error.as_str(), trouble),
        _ => Condition::new("Ready", "False"),
    };
    [ready, bound, running]
}

#[cfg(test)]
mod tests;
