//! The reasons why a snapshot waits before its machine is captured, in KubeVirt's words. Pure.

use serde_json::Value;

use crate::object::{controller, is_controlled_by, is_deleting, name, namespace, text};

/// A claim that a machine names, with what was found of it.
#[derive(Debug, Clone, Default)]
pub(super) struct FoundClaim {
    pub(super) volume: String,
    pub(super) name: String,
    pub(super) claim: Option<Value>,
    /// The persistent volume behind it.
    pub(super) behind: Option<Value>,
    /// The DataVolume that fills it.
    pub(super) import: Option<Value>,
}

/// The DataVolume that fills a claim.
pub(super) fn import_name(claim: &Value) -> Option<&str> {
    let owner = controller(claim).filter(|owner| text(owner, "/kind") == "DataVolume")?;
    Some(text(owner, "/name"))
}

/// Why a machine cannot be captured yet. One whose disk has no data would be a snapshot without
/// it, which would not be noticed before a restore.
pub(super) fn obstacle(vm: &Value, claims: &[FoundClaim]) -> Option<String> {
    // Until the switch, the claims that it names lack data.
    if virt::condition::is_true(vm, "VolumesChange") {
        let (namespace, name) = (namespace(vm), name(vm));
        return Some(format!("Source not locked source {namespace}/{name} volumes are migrated"));
    }
    let (fault, claim) = claims.iter().find_map(|own| Some((fault(own)?, &own.name)))?;
    Some(format!("Source not locked source {}/{} {fault}: {claim}", namespace(vm), name(vm)))
}

/// Why a snapshot fails whose content was created by another party.
pub(super) const FOREIGN_CONTENT: &str =
    "VirtualMachineSnapshotContent exists but was not created for this snapshot";

/// Whether the content was created for the snapshot. One that outlives it has no controller.
pub(super) fn is_own_content(snapshot: &Value, content: &Value) -> bool {
    match controller(content) {
        Some(_) => is_controlled_by(content, snapshot),
        None => {
            text(snapshot, "/spec/deletionPolicy") == "Retain"
                && text(content, "/spec/virtualMachineSnapshotName") == name(snapshot)
        }
    }
}

fn fault(own: &FoundClaim) -> Option<&'static str> {
    let Some(claim) = &own.claim else { return Some("volume doesnt exist") };
    if is_deleting(claim) {
        return Some("volume is being deleted");
    }
    if text(claim, "/status/phase") != "Bound" {
        return Some("volume not bound");
    }
    let is_filled = |import: &Value| text(import, "/status/phase") == "Succeeded";
    (!own.import.as_ref().is_none_or(is_filled)).then_some("volume not populated")
}

/// Another snapshot of the same machine is being taken.
pub(super) fn is_busy(vm: &Value) -> String {
    let holder = text(vm, "/status/snapshotInProgress");
    format!("Source not locked snapshot {holder:?} in progress")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_waits_for_the_data_of_its_disks() {
        let vm = json!({"metadata": {"name": "m", "namespace": "n"}});
        let bound = json!({"status": {"phase": "Bound"}});
        let deleted = json!({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Bound"}});
        let import = |phase: &str| Some(json!({"status": {"phase": phase}}));
        for (claim, import, expected) in [
            (None, None, Some("volume doesnt exist")),
            (Some(json!({"status": {"phase": "Pending"}})), None, Some("volume not bound")),
            (Some(deleted), None, Some("volume is being deleted")),
            (Some(bound.clone()), import("ImportInProgress"), Some("volume not populated")),
            (Some(bound.clone()), import("Succeeded"), None),
            (Some(bound.clone()), None, None),
        ] {
            let own = FoundClaim { name: "c".into(), claim, import, ..FoundClaim::default() };
            let expected = expected.map(|why| format!("Source not locked source n/m {why}: c"));
            assert_eq!(obstacle(&vm, &[own]), expected);
        }
        let busy = json!({"status": {"snapshotInProgress": "s"}});
        assert_eq!(is_busy(&busy), "Source not locked snapshot \"s\" in progress");
    }

    #[test]
    fn a_claim_names_the_data_volume_that_fills_it() {
        let owned = |kind: &str| {
            let owner = json!({"kind": kind, "name": "d", "controller": true});
            json!({"metadata": {"ownerReferences": [owner]}})
        };
        assert_eq!(import_name(&owned("DataVolume")), Some("d"));
        assert_eq!(import_name(&owned("VirtualMachine")), None);
        assert_eq!(import_name(&json!({})), None);
    }
}
