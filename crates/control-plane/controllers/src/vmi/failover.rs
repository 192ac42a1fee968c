//! Whether the instance of a node that was declared lost may be started elsewhere: pure.
//!
//! It is not certain that the old guest is dead. It may be started again only if its disks
//! fence it: each is a replicated volume of which another node has an up-to-date copy, so that the
//! new engine takes the next generation and the old one can write nothing any more.

use std::collections::BTreeSet;

use hci::failover::RESTART_ELSEWHERE;
use hci::longhorn::{OLD_RECORD, RECORD, block_id, in_sync_replicas};
use serde_json::Value;
use virt::reason::NotRestarted;

use crate::object::{annotation, is_true, list, text, uid};

/// The condition that says why an instance stays with its lost node.
pub(crate) const CONDITION: &str = "RestartElsewhere";

/// A disk of the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DiskCopies {
    /// A replicated volume, and the nodes with up-to-date copies.
    Replicated { name: String, nodes: BTreeSet<String> },
    /// Its data exists on one node.
    Local { name: String },
}

/// The decision about an instance of a lost node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FailoverDecision {
    Restart,
    /// It stays with its node, and runs on if that comes back.
    Stay(NotRestarted, String),
}

/// All that decides.
#[derive(Debug)]
pub(crate) struct FailoverInput<'a> {
    pub(crate) vmi: &'a Value,
    /// The machine that it belongs to.
    pub(crate) machine: Option<&'a Value>,
    pub(crate) disks: &'a [DiskCopies],
    /// Nodes that are alive.
    pub(crate) alive: &'a BTreeSet<String>,
    /// The lost node.
    pub(crate) node: &'a str,
}

pub(crate) fn decide(seen: &FailoverInput<'_>) -> FailoverDecision {
    let stay = |reason, message: String| FailoverDecision::Stay(reason, message);
    let node = seen.node;
    let is_off = |object: &Value| annotation(object, RESTART_ELSEWHERE) == Some("false");
    if is_off(seen.vmi) || seen.machine.is_some_and(is_off) {
        let message = format!("the annotation {RESTART_ELSEWHERE} of the machine is false");
        return stay(NotRestarted::Disabled, message);
    }
    if let Some(state) = local_state(seen.vmi) {
        let message = format!("the {state} of the guest is a file of node {node}, which is lost");
        return stay(NotRestarted::LocalState, message);
    }
    for disk in seen.disks {
        match disk {
            DiskCopies::Local { name } => {
                let message = format!(
                    "disk {name} exists on node {node} only, which is lost; bring the node back, \
                     or restore the machine from a backup"
                );
                return stay(NotRestarted::LocalDisk, message);
            }
            DiskCopies::Replicated { name, nodes } => {
                let mut others = nodes.iter().filter(|own| *own != node);
                if !others.any(|own| seen.alive.contains(own)) {
                    let message = format!(
                        "the only up-to-date copy of disk {name} is on node {node}, which is lost; \
                         bring the node back, or start from an older copy with `sheaf volume salvage`"
                    );
                    return stay(NotRestarted::LastCopy, message);
                }
            }
        }
    }
    if seen.disks.is_empty() {
        let message = format!(
            "the machine has no replicated disk, so that nothing would stop a guest that still runs \
             on node {node}"
        );
        return stay(NotRestarted::NoReplicatedDisk, message);
    }
    FailoverDecision::Restart
}

/// State that outlives a run and is kept in files of the node.
fn local_state(vmi: &Value) -> Option<&'static str> {
    if is_true(vmi, "/spec/domain/devices/tpm/persistent") {
        return Some("TPM state");
    }
    is_true(vmi, "/spec/domain/firmware/bootloader/efi/persistent").then_some("EFI state")
}

/// The nodes whose replicas have every acknowledged write of a volume, by the record of its engine.
pub(crate) fn nodes_in_sync<'a>(
    engine: Option<&Value>,
    replicas: impl IntoIterator<Item = &'a Value>,
) -> BTreeSet<String> {
    let record =
        engine.and_then(|own| annotation(own, RECORD).or_else(|| annotation(own, OLD_RECORD)));
    let in_sync = in_sync_replicas(record.unwrap_or_default());
    let has_all = |own: &&Value| block_id(uid(own)).is_some_and(|id| in_sync.contains(&id));
    let replicas = replicas.into_iter().filter(has_all);
    replicas.map(|own| text(own, "/spec/nodeID").to_owned()).collect()
}

/// Volumes of an instance that are directories or files of its node.
pub(crate) fn host_disks(vmi: &Value) -> impl Iterator<Item = &str> {
    let volumes = list(vmi, "/spec/volumes").iter();
    volumes.filter(|volume| volume.get("hostDisk").is_some()).map(|volume| text(volume, "/name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replicated(nodes: &[&str]) -> DiskCopies {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        DiskCopies::Replicated { name: "root".into(), nodes }
    }

    fn judge(vmi: &Value, machine: Option<&Value>, disks: &[DiskCopies]) -> Option<NotRestarted> {
        let alive = ["n1", "n3"].map(str::to_owned).into();
        let seen = FailoverInput { vmi, machine, disks, alive: &alive, node: "n2" };
        match decide(&seen) {
            FailoverDecision::Restart => None,
            FailoverDecision::Stay(reason, message) => {
                assert!(!message.is_empty());
                Some(reason)
            }
        }
    }

    #[test]
    fn only_a_guest_that_its_disks_fence_is_started_elsewhere() {
        let local = DiskCopies::Local { name: "data".into() };
        for (disks, expected) in [
            (vec![replicated(&["n1", "n2"])], None),
            (vec![replicated(&["n3"]), replicated(&["n1"])], None),
            (vec![replicated(&["n2"])], Some(NotRestarted::LastCopy)),
            (vec![replicated(&["n2", "n4"])], Some(NotRestarted::LastCopy)),
            (vec![replicated(&[])], Some(NotRestarted::LastCopy)),
            (vec![replicated(&["n1"]), replicated(&["n2"])], Some(NotRestarted::LastCopy)),
            (vec![replicated(&["n1"]), local], Some(NotRestarted::LocalDisk)),
            (vec![], Some(NotRestarted::NoReplicatedDisk)),
        ] {
            assert_eq!(judge(&json!({}), None, &disks), expected, "{disks:?}");
        }
    }

    #[test]
    fn it_can_be_switched_off_and_local_state_forbids_it() {
        let disks = [replicated(&["n1", "n2"])];
        let off = json!({"metadata": {"annotations": {RESTART_ELSEWHERE: "false"}}});
        let on = json!({"metadata": {"annotations": {RESTART_ELSEWHERE: "true"}}});
        assert_eq!(judge(&off, None, &disks), Some(NotRestarted::Disabled));
        assert_eq!(judge(&json!({}), Some(&off), &disks), Some(NotRestarted::Disabled));
        assert_eq!(judge(&on, Some(&on), &disks), None);
        let tpm = json!({"spec": {"domain": {"devices": {"tpm": {"persistent": true}}}}});
        assert_eq!(judge(&tpm, None, &disks), Some(NotRestarted::LocalState));
    }

    #[test]
    fn disks_of_the_host_are_found() {
        let vmi = json!({"spec": {"volumes": [
            {"name": "a", "hostDisk": {"path": "/a"}}, {"name": "b", "containerDisk": {}},
        ]}});
        assert_eq!(host_disks(&vmi).collect::<Vec<_>>(), ["a"]);
    }
}
