//! A node that a running instance can migrate to: any but its own that the scheduler would choose.

use hci::local_volume::{PROVISIONED_BY, PROVISIONER, node_of};
use kube::Client;
use serde_json::{Value, json};
use virt::api::atom::Map;

use super::ledger::CapacityLedger;
use super::placement::SchedulingError;
use super::storage::Need;
use super::{VmiReconciler, WaitingInstances, storage};
use crate::object::{self, annotation, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::record::vm_volume::has_disk_on;
use crate::resource::{NODES, VMIS};

/// Finds targets of migrations.
pub(crate) struct TargetFinder(VmiReconciler);

impl TargetFinder {
    pub(crate) fn new(client: Client) -> Self {
        Self(VmiReconciler::new(client, WaitingInstances::default()))
    }

    /// The best node.
    pub(crate) async fn find(
        &self,
        vmi: &Value,
        added_selector: &Map<String>,
    ) -> Result<Result<String, SchedulingError>, ReconcileError> {
        let objects = &self.0.objects;
        let names = storage::claim_names(&vmi["spec"]);
        let mut needs = self.0.needs(vmi, &names).await?;
        needs.retain(|need| !is_copied(vmi, need));
        let reach = storage::check_claims(&needs).reach;
        let ledger = CapacityLedger::default();
        ledger.fill(&objects.list(VMIS, "", "").await.doing("list instances")?);
        let mut nodes = objects.list(NODES, "", "").await.doing("list nodes")?;
        let source = text(vmi, "/status/nodeName");
        nodes.retain(|node| object::name(node) != source);
        Ok(ledger.choose(&narrowed(vmi, added_selector), &reach, &nodes))
    }
}

/// The instance with the labels that its new node must have besides its own.
fn narrowed(vmi: &Value, added: &Map<String>) -> Value {
    let mut vmi = vmi.clone();
    for (key, value) in added.iter() {
        vmi["spec"]["nodeSelector"][key] = json!(value);
    }
    vmi
}

/// Whether the volume of a claim is copied along with the instance: then it keeps it on no node.
fn is_copied(vmi: &Value, need: &Need) -> bool {
    let is_local = |volume: &Value| {
        annotation(volume, PROVISIONED_BY) == Some(PROVISIONER) && node_of(volume).is_some()
    };
    need.volume.as_ref().is_some_and(is_local) && has_disk_on(vmi, &need.claim_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_volumes_of_disks_keep_a_guest_on_no_node() {
        let one = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]});
        let volume = |provisioner: &str| {
            json!({"metadata": {"annotations": {PROVISIONED_BY: provisioner}},
                "spec": {"local": {"path": "/v"}, "nodeAffinity": {"required":
                    {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}}})
        };
        let vmi = |volume: Value| json!({"spec": {"volumes": [volume]}});
        let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
        for (vmi, volume, expected) in [
            (vmi(claim.clone()), Some(volume(PROVISIONER)), true),
            (vmi(json!({"dataVolume": {"name": "c"}})), Some(volume(PROVISIONER)), true),
            // Its claim stays, and is read at the source.
            (vmi(json!({"ephemeral": claim})), Some(volume(PROVISIONER)), false),
            (vmi(claim.clone()), Some(volume("rancher.io/local-path")), false),
            (vmi(claim), None, false),
        ] {
            let need = Need { claim_name: "c".into(), volume, ..Need::default() };
            assert_eq!(is_copied(&vmi, &need), expected, "{vmi} {need:?}");
        }
    }
}
