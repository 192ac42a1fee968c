//! Starting, stopping and changing the instance of a virtual machine.

use client::Fault;
use hci::together::RESUME;
use serde_json::{Value, json};
use virt::reason::MachineFailure;

use super::instance::Start;
use super::instancetype::Expanded;
use super::live::ChangeScope;
use super::status::Restart;
use super::{VmObservation, VmReconciler, instance, instancetype, is_over, live};
use crate::event::EventType;
use crate::object::{self, is_deleting, is_merged, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::resource::{REVISIONS, VMIS, VMS, is_refused};

impl VmReconciler {
    pub(super) async fn start(
        &self,
        vm: &Value,
        expanded: &Expanded,
        paused: bool,
        work: &mut VmObservation,
    ) -> Result<Option<Value>, ReconcileError> {
        let namespace = object::namespace(vm);
        let mut annotations = expanded.annotations.clone();
        if let Some(instant) = object::annotation(vm, RESUME) {
            // Once only: later its disks would not be those that the memory knows.
            let patch = json!({"metadata": {"annotations": {RESUME: null}}});
            let written = self.objects.merge(VMS, namespace, object::name(vm), &patch).await;
            written.doing("note that the machine goes on from a snapshot")?;
            annotations.insert(RESUME.into(), json!(instant));
        }
        let start = Start { annotations, paused };
        let vmi = instance::instance(vm, &expanded.spec, &start);
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
        let update = live::update(&expanded.spec["template"]["spec"], &vmi, scope);
        if let Some(reason) = update.restart {
            work.findings.restart = Restart::Needed(reason);
        }
        if let Some(update) = update.patch {
            patch["spec"] = update["spec"].clone();
        }
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
}
