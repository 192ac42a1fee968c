//! Whether the claims of an instance are there, filled and bound: pure.

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::placement::VolumeReach;
use crate::condition::{self, Condition};
use crate::object::{annotation, is_true, list, name, text};

/// Names the node that a claim shall be made on.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A claim that an instance needs before it can start.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Need {
    pub(crate) claim_name: String,
    pub(crate) data_volume: Option<Value>,
    pub(crate) claim: Option<Value>,
    /// The volume it is bound to.
    pub(crate) volume: Option<Value>,
    /// Whether its class makes it only on the node that is to use it.
    pub(crate) waits_for_consumer: bool,
}

/// The state of all claims of an instance together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ClaimsSummary {
    /// From where they can be reached.
    pub(crate) reach: Vec<VolumeReach>,
    /// Claims that wait for a node to be assigned.
    pub(crate) unassigned: Vec<String>,
    pub(crate) wait: Option<Wait>,
    /// A data volume that will never be filled.
    pub(crate) failed: Option<String>,
}

/// The first thing that the instance has to wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A claim that does not exist.
    Missing(String),
    /// A data volume that is being filled.
    Filling,
    /// A claim that is being made.
    Binding,
}

/// The name of the claim behind a volume of a machine. Those that may be plugged in later
/// delay no machine.
pub(crate) fn claim_name(volume: &Value) -> Option<&str> {
    let hot = ["/dataVolume/hotpluggable", "/persistentVolumeClaim/hotpluggable"];
    let dump = volume.get("memoryDump").is_some();
    if dump || hot.iter().any(|pointer| is_true(volume, pointer)) {
        return None;
    }
    any_claim_name(volume)
}

/// The same for all volumes.
pub(crate) fn any_claim_name(volume: &Value) -> Option<&str> {
    let sources = [
        "/persistentVolumeClaim/claimName",
        "/dataVolume/name",
        "/ephemeral/persistentVolumeClaim/claimName",
        "/memoryDump/claimName",
    ];
    sources.iter().map(|pointer| text(volume, pointer)).find(|name| !name.is_empty())
}

/// The claims that the machine described by `spec` cannot start without.
pub(crate) fn claim_names(spec: &Value) -> Vec<&str> {
    list(spec, "/volumes").iter().filter_map(claim_name).collect()
}

/// The claims that hold data of a running machine, those that were plugged in included.
pub(crate) fn need_names(spec: &Value) -> Vec<&str> {
    let volumes = list(spec, "/volumes").iter();
    volumes.filter(|own| own.get("memoryDump").is_none()).filter_map(any_claim_name).collect()
}

/// The claims that get a disk while an instance runs: of volumes that are plugged in, and of those
/// that others move to.
pub(crate) fn pluggable_names(vmi: &Value) -> Vec<&str> {
    let volumes = list(vmi, "/spec/volumes").iter();
    let plugged = volumes.filter(|own| claim_name(own).is_none()).filter_map(any_claim_name);
    let moves = list(vmi, "/status/migratedVolumes").iter();
    let targets = moves.map(|it| text(it, "/destinationPVCInfo/claimName"));
    plugged.chain(targets.filter(|name| !name.is_empty())).collect()
}

pub(crate) fn check_claims(needs: &[Need]) -> ClaimsSummary {
    let mut storage = ClaimsSummary::default();
    for need in needs {
        check_claim(need, &mut storage);
    }
    storage
}

fn check_claim(need: &Need, storage: &mut ClaimsSummary) {
    let phase = need.data_volume.as_ref().map(|own| text(own, "/status/phase"));
    if let (Some("Failed"), Some(failed)) = (phase, &need.data_volume) {
        storage.failed.get_or_insert_with(|| name(failed).to_owned());
        return;
    }
    let Some(claim) = &need.claim else {
        // A data volume makes its claim itself.
        let missing = phase.is_none().then(|| Wait::Missing(need.claim_name.clone()));
        storage.wait.get_or_insert(missing.unwrap_or(Wait::Filling));
        return;
    };
    let selected = annotation(claim, SELECTED_NODE).filter(|node| !node.is_empty());
    let bound = text(claim, "/status/phase") == "Bound";
    if bound && let Some(volume) = &need.volume {
        let nodes = volume["spec"]["nodeAffinity"].get("required");
        storage.reach.extend(nodes.map(|nodes| VolumeReach::Nodes(nodes.clone())));
    } else if let Some(node) = selected {
        storage.reach.push(VolumeReach::Node(node.to_owned()));
    }
    let wants_node = matches!(phase, None | Some("WaitForFirstConsumer" | "PendingPopulation"));
    if !bound && selected.is_none() && need.waits_for_consumer && wants_node {
        storage.unassigned.push(need.claim_name.clone());
    }
    let wait = match phase {
        None | Some("Succeeded") if bound => return,
        None | Some("Succeeded") => Wait::Binding,
        Some(_) => Wait::Filling,
    };
    storage.wait.get_or_insert(wait);
}

/// The condition that sums up the data volumes, if there are any.
pub(crate) fn data_volumes_ready(needs: &[Need]) -> Option<Condition> {
    let statuses: Vec<&str> = needs
        .iter()
        .filter_map(|need| need.data_volume.as_ref())
        .map(|own| {
            let ready = condition::find(list(own, "/status/conditions"), "Ready");
            ready.map_or("Unknown", |own| text(own, "/status"))
        })
        .collect();
    let kind = "DataVolumesReady";
    if statuses.is_empty() {
        return None;
    }
    Some(if statuses.iter().all(|status| *status == "True") {
        Condition::new(kind, "True")
            .because("AllDVsReady", "All of the VMI's DVs are bound and ready")
    } else {
        let status = if statuses.contains(&"False") { "False" } else { "Unknown" };
        Condition::new(kind, status).because("NotAllDVsReady", "Not all of the VMI's DVs are ready")
    })
}

/// The patch by which a claim is to be made on a node.
pub(crate) fn assignment(node: &str) -> Value {
    json!({"metadata": {"annotations": {SELECTED_NODE: node}}})
}

/// Appends to the times at which phases were entered.
pub(crate) fn entered(vmi: &Value, phase: &str, now: Timestamp) -> Vec<Value> {
    let mut times = list(vmi, "/status/phaseTransitionTimestamps").to_vec();
    if text(vmi, "/status/phase") != phase {
        times.push(json!({"phase": phase, "phaseTransitionTimestamp": clock::rfc3339(now)}));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(phase: &str, node: Option<&str>) -> Option<Value> {
        let mut claim = json!({"metadata": {"name": "c"}, "status": {"phase": phase}});
        if let Some(node) = node {
            claim["metadata"]["annotations"] = json!({SELECTED_NODE: node});
        }
        Some(claim)
    }

    fn data_volume(phase: &str) -> Option<Value> {
        Some(json!({"metadata": {"name": "d"}, "status": {"phase": phase}}))
    }

    fn need(data_volume: Option<Value>, claim: Option<Value>, waits: bool) -> Need {
        let affinity = json!({"nodeSelectorTerms": []});
        let bound = claim.as_ref().is_some_and(|own| text(own, "/status/phase") == "Bound");
        let volume = bound.then(|| json!({"spec": {"nodeAffinity": {"required": affinity}}}));
        Need { claim_name: "c".into(), data_volume, claim, volume, waits_for_consumer: waits }
    }

    /// Reach, unassigned claims, what is waited for, failed data volume.
    fn outcome(need: Need) -> (usize, usize, Option<Wait>, bool) {
        let storage = check_claims(&[need]);
        let failed = storage.failed.is_some();
        (storage.reach.len(), storage.unassigned.len(), storage.wait, failed)
    }

    #[test]
    fn a_plain_claim_must_exist_and_be_bound() {
        let missing = Some(Wait::Missing("c".into()));
        assert_eq!(outcome(need(None, None, false)), (0, 0, missing, false));
        assert_eq!(outcome(need(None, claim("Bound", None), false)), (1, 0, None, false));
        let binding = Some(Wait::Binding);
        assert_eq!(outcome(need(None, claim("Pending", None), false)), (0, 0, binding, false));
    }

    #[test]
    fn a_claim_that_waits_for_its_consumer_is_assigned_the_node_once() {
        let binding = Some(Wait::Binding);
        let waiting = need(None, claim("Pending", None), true);
        assert_eq!(outcome(waiting), (0, 1, binding.clone(), false));
        let assigned = need(None, claim("Pending", Some("one")), true);
        assert_eq!(outcome(assigned), (1, 0, binding, false));
    }

    #[test]
    fn a_data_volume_must_be_filled() {
        let filling = Some(Wait::Filling);
        let outcome = |phase: &str, claim| outcome(need(data_volume(phase), claim, true));
        assert_eq!(outcome("", None), (0, 0, filling.clone(), false));
        let pending = || claim("Pending", None);
        assert_eq!(outcome("Pending", pending()), (0, 0, filling.clone(), false));
        assert_eq!(outcome("WaitForFirstConsumer", pending()), (0, 1, filling.clone(), false));
        let bound = || claim("Bound", None);
        assert_eq!(outcome("ImportInProgress", bound()), (1, 0, filling, false));
        assert_eq!(outcome("Succeeded", bound()), (1, 0, None, false));
        assert_eq!(outcome("Failed", bound()), (0, 0, None, true));
    }

    #[test]
    fn readiness_of_data_volumes_is_summed_up() {
        let with = |status: &str| {
            let conditions = json!([{"type": "Ready", "status": status}]);
            let own = json!({"status": {"conditions": conditions}});
            Need { data_volume: Some(own), ..Need::default() }
        };
        let sum = |statuses: &[&str]| {
            let needs: Vec<Need> = statuses.iter().map(|status| with(status)).collect();
            data_volumes_ready(&needs).map(|own| own.status)
        };
        assert_eq!(sum(&[]), None);
        assert_eq!(sum(&["True", "True"]), Some("True"));
        assert_eq!(sum(&["True", "Unknown"]), Some("Unknown"));
        assert_eq!(sum(&["Unknown", "False"]), Some("False"));
    }

    #[test]
    fn volumes_that_can_be_plugged_in_delay_no_machine() {
        let spec = json!({"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "p"}},
            {"name": "b", "dataVolume": {"name": "d"}},
            {"name": "c", "dataVolume": {"name": "h", "hotpluggable": true}},
            {"name": "e", "ephemeral": {"persistentVolumeClaim": {"claimName": "q"}}},
            {"name": "f", "containerDisk": {"image": "x"}}]});
        assert_eq!(claim_names(&spec), ["p", "d", "q"]);
        let moves = json!([{"destinationPVCInfo": {"claimName": "m"}}]);
        let vmi = json!({"spec": spec, "status": {"migratedVolumes": moves}});
        assert_eq!(pluggable_names(&vmi), ["h", "m"]);
    }
}
