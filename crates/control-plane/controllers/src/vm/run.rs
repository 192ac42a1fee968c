//! Starting, stopping and changing the instance of a virtual machine.

use client::Fault;
use hci::together::RESUME;
use serde_json::{Value, json};
use virt::reason::MachineFailure;

use super::instance::Start;
use super::instancetype::Expanded;
use super::live::ChangeScope;
use super::status::Restart;
use super::volume_update::{self, VolumeUpdate, VolumeUpdateContext};
use super::{VmObservation, VmReconciler, instance, instancetype, is_over, live};
use crate::event::EventType;
use crate::object::{self, is_deleting, is_merged, list, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::resource::{CLAIMS, REVISIONS, VMIS, VMS, is_refused};

impl VmReconciler {
    pub(super) async fn start(
        &self,
        vm: &Value,
        expanded: &Expanded,
        paused: bool,
        work: &mut VmObservation,
    ) -> Result<Option<Value>, ReconcileError> {
        let namespace = object::namespace(vm);
        let resume = object::annotation(vm, RESUME).map(str::to_owned);
        if resume.is_some() {
            // Once only: later its disks would not be those that the memory knows.
            let patch = json!({"metadata": {"annotations": {RESUME: null}}});
            let written = self.objects.merge(VMS, namespace, object::name(vm), &patch).await;
            written.doing("note that the machine goes on from a snapshot")?;
        }
        let start = Start { annotations: expanded.annotations.clone(), resume, paused };
        let mut vmi = instance::instance(vm, &expanded.spec, &start);
        volume_update::begin_on_sources(vm, &mut vmi);
        match self.objects.create(REVISIONS, namespace, &instance::revision(vm)).await {
            // The machine was started from this generation before.
            Err(failure) if is_refused(&failure, 409) => {}
            made => drop(made.doing("record what the instance is started from")?),
        }
        work.findings.restart = Restart::NotNeeded;
        match self.objects.create(VMIS, namespace, &vmi).await {
            Ok(vmi) => {
                let name = object::name(&vmi);
                let message = format!(
                    "Started the virtual machine by creating the new virtual machine instance {name}"
                );
                self.update_status(vm, EventType::Normal, "SuccessfulCreate", message).await;
                Ok(Some(vmi))
            }
            Err(failure @ kube::Error::Api(_)) => {
                let cause = Fault(failure).to_string();
                let message = format!("Error creating virtual machine instance: {cause}");
                self.warn_once(vm, "FailedCreate", message).await;
                work.refused(
                    MachineFailure::Create,
                    format!("failure while starting VMI: {cause}"),
                );
                Ok(None)
            }
            Err(failure) => Err(failure).doing("create the instance"),
        }
    }

    pub(super) async fn stop(
        &self,
        vm: &Value,
        vmi: Value,
        work: &mut VmObservation,
    ) -> Result<Option<Value>, ReconcileError> {
        if is_deleting(&vmi) {
            return Ok(Some(vmi));
        }
        let (namespace, name, uid) =
            (object::namespace(&vmi), object::name(&vmi), object::uid(&vmi));
        match self.objects.delete(VMIS, namespace, name, uid).await {
            Err(failure @ kube::Error::Api(_)) if !is_refused(&failure, 409) => {
                let cause = Fault(failure).to_string();
                let message = format!("Error deleting virtual machine instance {name}: {cause}");
                self.warn_once(vm, "FailedDelete", message).await;
                work.refused(MachineFailure::Delete, format!("failure deleting VMI: {cause}"));
                return Ok(Some(vmi));
            }
            deleted => deleted.doing("delete the instance")?,
        }
        work.findings.restart = Restart::NotNeeded;
        let message =
            format!("Stopped the virtual machine by deleting the virtual machine instance {uid}");
        self.update_status(vm, EventType::Normal, "SuccessfulDelete", message).await;
        self.own_instance(vm).await
    }

    /// Brings what can change while the guest runs to the instance.
    pub(super) async fn update(
        &self,
        vm: &Value,
        expanded: &Expanded,
        vmi: Value,
        work: &mut VmObservation,
    ) -> Result<Value, ReconcileError> {
        if is_deleting(&vmi) || is_over(&vmi) {
            return Ok(vmi);
        }
        let mut patch = json!({});
        let generation = object::generation(vm).to_string();
        work.findings.restart = Restart::NotNeeded;
        if object::annotation(&vmi, instance::GENERATION) != Some(&generation) {
            let name = text(&vmi, "/status/virtualMachineRevisionName");
            let started = self.objects.get(REVISIONS, object::namespace(vm), name).await;
            let started = started.doing("get what the instance was started from")?;
            let started = started.as_ref().and_then(|own| own["data"].get("spec"));
            if started.is_some_and(|own| own["template"] == vm["spec"]["template"]) {
                patch["metadata"]["annotations"] = json!({instance::GENERATION: generation});
            } else if let Some(started) = started {
                work.findings.restart =
                    instancetype::restart(&self.objects, vm, expanded, started, &vmi).await?;
            }
        }
        let scope = match work.findings.restart {
            Restart::Needed(_) => ChangeScope::Devices,
            Restart::Unknown | Restart::NotNeeded => ChangeScope::Everything,
        };
        let template = &expanded.spec["template"]["spec"];
        let update = live::update(template, &vmi, scope, volume_update::migrates(vm));
        if let Some(reason) = update.restart {
            work.findings.restart = Restart::Needed(reason);
        }
        if let Some(update) = update.patch {
            patch["spec"] = update["spec"].clone();
        }
        self.update_volumes(vm, template, &vmi, &mut patch, work).await?;
        if is_merged(&vmi, &patch) {
            return Ok(vmi);
        }
        for (key, value) in object::version(&vmi) {
            patch["metadata"][key] = value;
        }
        let (namespace, name) = (object::namespace(&vmi), object::name(&vmi));
        match self.objects.merge(VMIS, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 422) || is_refused(&failure, 403) => {
                let cause = Fault(failure).to_string();
                work.refused(
                    MachineFailure::Update,
                    format!("failure while updating VMI: {cause}"),
                );
                Ok(vmi)
            }
            written => written.doing("update the instance"),
        }
    }

    /// Adds to `patch` what becomes of claims that were replaced.
    async fn update_volumes(
        &self,
        vm: &Value,
        template: &Value,
        vmi: &Value,
        patch: &mut Value,
        work: &mut VmObservation,
    ) -> Result<(), ReconcileError> {
        let names = volume_update::concerned_claims(template, vmi);
        if names.is_empty() {
            return Ok(());
        }
        let namespace = object::namespace(vm);
        let mut claims = Vec::new();
        for name in names {
            let found = self.objects.get(CLAIMS, namespace, name).await;
            claims.extend(found.doing("get a claim")?);
        }
        let instances = self.objects.list(VMIS, namespace, "").await.doing("list instances")?;
        let around = VolumeUpdateContext { claims: &claims, instances: &instances };
        match volume_update::update(vm, template, vmi, around) {
            VolumeUpdate::Nothing => {}
            VolumeUpdate::Restart(why) => work.findings.restart = Restart::Needed(why),
            VolumeUpdate::Refused(why) => {
                work.findings.failure = Some((MachineFailure::Update, why.to_owned()));
            }
            VolumeUpdate::Write { volumes, migrated } => {
                let planned = patch["spec"]["volumes"].as_array().cloned();
                let mut all = planned.unwrap_or_else(|| list(vmi, "/spec/volumes").to_vec());
                for own in &mut all {
                    let same = |new: &&Value| text(new, "/name") == text(own, "/name");
                    if let Some(new) = volumes.iter().find(same) {
                        *own = new.clone();
                    }
                }
                patch["spec"]["volumes"] = Value::Array(all);
                patch["status"]["migratedVolumes"] = Value::Array(migrated);
            }
        }
        Ok(())
    }
}
