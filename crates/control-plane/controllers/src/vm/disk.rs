//! The disks of virtual machines: read, and made from their templates.

use std::collections::BTreeSet;

use client::Fault;
use serde_json::Value;
use virt::reason::MachineFailure;

use super::status::{CLASS, Disks};
use super::{VmObservation, VmReconciler, instance};
use crate::event::EventType;
use crate::object::{self, list, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::resource::{CLAIMS, CLASSES, DATA_VOLUMES, Resource, is_refused};
use crate::vmi::any_claim_name;

const SNAPSHOT_CLASSES: Resource =
    Resource::new("snapshot.storage.k8s.io", "v1", "volumesnapshotclasses");

impl VmReconciler {
    /// Creates the data volumes that are missing, and adopts those without an owner.
    pub(super) async fn make_data_volumes(
        &self,
        vm: &Value,
        disks: &mut Disks,
        work: &mut VmObservation,
    ) -> Result<(), ReconcileError> {
        for template in list(vm, "/spec/dataVolumeTemplates") {
            let name = object::name(template);
            if let Some(own) = disks.data_volumes.iter().find(|own| object::name(own) == name) {
                self.adopt(vm, own).await?;
                continue;
            }
            let wanted = instance::data_volume(vm, template);
            match self.objects.create(DATA_VOLUMES, object::namespace(vm), &wanted).await {
                Ok(made) => {
                    let message = format!("Created DataVolume {name}");
                    self.update_status(
                        vm,
                        EventType::Normal,
                        "SuccessfulDataVolumeCreate",
                        message,
                    )
                    .await;
                    disks.data_volumes.push(made);
                }
                Err(failure @ kube::Error::Api(_)) if !is_refused(&failure, 409) => {
                    let cause = Fault(failure).to_string();
                    let message = format!("Error creating DataVolume {name}: {cause}");
                    self.warn_once(vm, "FailedDataVolumeCreate", message).await;
                    let message = "Error encountered while creating DataVolumes: \
                                   failed to create DataVolume";
                    work.refused(MachineFailure::Create, format!("{message}: {cause}"));
                }
                Err(failure) => return Err(failure).doing("create a data volume"),
            }
        }
        Ok(())
    }

    async fn adopt(&self, vm: &Value, own: &Value) -> Result<(), ReconcileError> {
        let Some(patch) = instance::adoption(vm, own) else { return Ok(()) };
        let namespace = object::namespace(vm);
        match self.objects.merge(DATA_VOLUMES, namespace, object::name(own), &patch).await {
            Err(failure) if is_refused(&failure, 404) || is_refused(&failure, 409) => Ok(()),
            written => written.map(drop).doing("adopt a data volume"),
        }
    }

    /// Reads the objects behind the volumes.
    pub(super) async fn disks(&self, vm: &Value) -> Result<Disks, ReconcileError> {
        let namespace = object::namespace(vm);
        let mut disks = Disks::default();
        let volumes = list(vm, "/spec/template/spec/volumes");
        let templates = list(vm, "/spec/dataVolumeTemplates").iter().map(object::name);
        let named = volumes.iter().map(|volume| text(volume, "/dataVolume/name"));
        let names: BTreeSet<&str> = templates.chain(named).filter(|own| !own.is_empty()).collect();
        for name in names {
            let found = self.objects.get(DATA_VOLUMES, namespace, name).await;
            disks.data_volumes.extend(found.doing("get a data volume")?);
        }
        let names: BTreeSet<&str> = volumes.iter().filter_map(any_claim_name).collect();
        for name in names {
            let found = self.objects.get(CLAIMS, namespace, name).await;
            disks.claims.extend(found.doing("get a claim")?);
        }
        disks.snapshottable = self.snapshottable(&disks.claims).await?;
        Ok(disks)
    }

    /// The classes of `claims` whose driver there is a class of snapshots for.
    async fn snapshottable(&self, claims: &[Value]) -> Result<BTreeSet<String>, ReconcileError> {
        let mut classes: BTreeSet<String> =
            claims.iter().map(|claim| text(claim, CLASS).to_owned()).collect();
        classes.remove("");
        if classes.is_empty() {
            return Ok(classes);
        }
        let drivers = match self.objects.list(SNAPSHOT_CLASSES, "", "").await {
            // A cluster without snapshots does not know the kind.
            Err(unknown) if is_refused(&unknown, 404) => return Ok(BTreeSet::new()),
            found => found.doing("list snapshot classes")?,
        };
        let mut suitable = BTreeSet::new();
        for class in classes {
            let found = self.objects.get(CLASSES, "", &class).await;
            let found = found.doing("get a storage class")?.unwrap_or_default();
            let provisioner = text(&found, "/provisioner");
            if drivers.iter().any(|own| text(own, "/driver") == provisioner) {
                suitable.insert(class);
            }
        }
        Ok(suitable)
    }
}

/// Whether nothing of the machine's own disks is missing; one that waits for its consumer is
/// filled when the instance is there.
pub(super) fn are_filled(vm: &Value, disks: &Disks) -> bool {
    list(vm, "/spec/dataVolumeTemplates").iter().all(|template| {
        disks.data_volumes.iter().any(|own| {
            object::name(own) == object::name(template)
                && matches!(
                    text(own, "/status/phase"),
                    "Succeeded" | "WaitForFirstConsumer" | "PendingPopulation"
                )
        })
    })
}
