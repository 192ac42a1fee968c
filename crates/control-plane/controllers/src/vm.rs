//! Virtual machines: they bring instances into being and end them as their run strategy and
//! the requests to them say, and report their status.
//!
//! The spec of a user is not changed, except that a start request makes a halted machine one that
//! is meant to run, as upstream's clients expect, and that the template records the PCI topology
//! of a guest (`topology`).
//!
//! Decisions are in `plan`; the files of the instance and of its changes (`instance`, `live`,
//! `volume_update`, `status`) are pure too. `run` and `disk` carry out.

mod disk;
mod instance;
mod instancetype;
mod interest;
mod live;
mod plan;
mod record;
mod run;
mod status;
mod topology;
mod volume_update;

use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::Value;
use virt::reason::MachineFailure;

use self::disk::are_filled;
pub(crate) use self::instance::RELEASED_BY;
pub(crate) use self::interest::VmMapper;
use self::interest::needs;
use self::plan::{Ownership, VmStep, is_over};
use self::status::{Disks, Findings};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_deleting, is_merged, list, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult, Reconciler};
use crate::resource::{Objects, REVISIONS, VMIS, VMS, is_refused};

const SOURCE: &str = "virtualmachine-controller";

pub(crate) struct VmReconciler {
    objects: Objects,
    dependents: Dependents,
}

impl Reconciler for VmReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(VMS, &key.namespace, &key.name).await;
        let Some(vm) = found.doing("get the virtual machine")? else {
            self.dependents.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let vmi = self.own_instance(&vm).await?;
        if is_deleting(&vm) {
            return self.end(&vm, vmi).await;
        }
        let vm = self.protect(vm).await?;
        let vm = match vmi.as_ref().and_then(|vmi| topology::kept(&vm, vmi)) {
            Some(patch) => self.write(&vm, &patch).await?,
            None => vm,
        };
        self.dependents.set(key, needs(&vm));
        let mut disks = self.disks(&vm).await?;
        let mut work = VmObservation { findings: Findings::default(), next: ReconcileResult::Done };
        let vmi = self.act(&vm, vmi, &mut disks, &mut work).await?;
        self.report(&vm, vmi.as_ref(), &disks, &work.findings).await?;
        for revision in &work.findings.superseded {
            let (name, uid) = (object::name(revision), object::uid(revision));
            let deleted = self.objects.delete(REVISIONS, &key.namespace, name, uid).await;
            deleted.doing("delete the superseded revision of an instancetype")?;
        }
        if let Some(vmi) = vmi.filter(is_over) {
            self.conclude(&vm, &vmi).await?;
        }
        Ok(work.next)
    }
}

/// The objects that one reconciliation of a machine reads.
struct VmObservation {
    findings: Findings,
    next: ReconcileResult,
}

impl VmObservation {
    /// It did not work, and may later.
    fn refused(&mut self, reason: MachineFailure, message: String) {
        self.findings.failure = Some((reason, message));
        self.next = ReconcileResult::Retry;
    }
}

impl VmReconciler {
    pub(crate) fn new(client: Client, dependents: Dependents) -> Self {
        Self { objects: Objects(client), dependents }
    }

    /// The instance of its name, if that is its own. One without a controller is adopted.
    async fn own_instance(&self, vm: &Value) -> Result<Option<Value>, ReconcileError> {
        let (namespace, name) = (object::namespace(vm), object::name(vm));
        let found = self.objects.get(VMIS, namespace, name).await.doing("get the instance")?;
        let Some(vmi) = found else { return Ok(None) };
        match plan::ownership(vm, &vmi) {
            Ownership::Own => Ok(Some(vmi)),
            Ownership::Foreign => Ok(None),
            Ownership::Adopt { patch } => {
                let adopted = self.objects.merge(VMIS, namespace, name, &patch).await;
                adopted.map(Some).doing("adopt the instance")
            }
        }
    }

    /// Makes sure that the machine is not gone before its instance.
    async fn protect(&self, vm: Value) -> Result<Value, ReconcileError> {
        match plan::protection(&vm) {
            Some(patch) => self.write(&vm, &patch).await,
            None => Ok(vm),
        }
    }

    /// A machine that is being deleted ends its instance first, or leaves it to itself.
    async fn end(&self, vm: &Value, vmi: Option<Value>) -> Result<ReconcileResult, ReconcileError> {
        match vmi {
            Some(vmi) if plan::ends_instance(vm) => {
                let mut work =
                    VmObservation { findings: Findings::default(), next: ReconcileResult::Done };
                let vmi = self.stop(vm, vmi, &mut work).await?;
                let (disks, vmi) = (self.disks(vm).await?, vmi.as_ref());
                self.report(vm, vmi, &disks, &work.findings).await?;
                if let Some(vmi) = vmi.filter(|vmi| is_over(vmi)) {
                    self.conclude(vm, vmi).await?;
                }
                Ok(work.next)
            }
            _ => {
                if let Some(patch) = plan::release(vm) {
                    self.write(vm, &patch).await?;
                }
                self.dependents.forget(&ObjectKey::of(vm));
                Ok(ReconcileResult::Done)
            }
        }
    }

    /// Does what the machine's state asks for, and answers its instance as it is then.
    async fn act(
        &self,
        vm: &Value,
        vmi: Option<Value>,
        disks: &mut Disks,
        work: &mut VmObservation,
    ) -> Result<Option<Value>, ReconcileError> {
        let expanded = match instancetype::expand(&self.objects, vm, &mut work.findings).await? {
            Some(expanded) => expanded,
            None => {
                // No event reports a revision that is removed.
                if matches!(work.findings.failure, Some((MachineFailure::Create, _))) {
                    work.next = ReconcileResult::Retry;
                }
                return Ok(vmi);
            }
        };
        let early = plan::makes_volumes_early(vm);
        if early {
            self.make_data_volumes(vm, disks, work).await?;
        }
        match (plan::next_step(vm, vmi.as_ref(), clock::now()), vmi) {
            (VmStep::Update, Some(vmi)) => self.update(vm, &expanded, vmi, work).await.map(Some),
            (VmStep::Stop, Some(vmi)) => self.stop(vm, vmi, work).await,
            (VmStep::Start { paused }, _) => {
                if !early {
                    self.make_data_volumes(vm, disks, work).await?;
                }
                if !are_filled(vm, disks) || work.findings.failure.is_some() {
                    return Ok(None);
                }
                self.start(vm, &expanded, paused, work).await
            }
            (VmStep::Wait { seconds }, vmi) => {
                work.next = ReconcileResult::Again(Duration::from_secs(seconds.unsigned_abs()));
                Ok(vmi)
            }
            (VmStep::RequestStart, vmi) => {
                work.findings.asks_to_start = true;
                Ok(vmi)
            }
            (VmStep::SetStrategy(strategy), vmi) => {
                self.write(vm, &plan::strategy_patch(vm, strategy)).await?;
                Ok(vmi)
            }
            (VmStep::Refuse { message }, vmi) => {
                work.findings.failure = Some((MachineFailure::Create, message));
                Ok(vmi)
            }
            (VmStep::Nothing | VmStep::Update | VmStep::Stop, vmi) => Ok(vmi),
        }
    }

    async fn report(
        &self,
        vm: &Value,
        vmi: Option<&Value>,
        disks: &Disks,
        findings: &Findings,
    ) -> Result<(), ReconcileError> {
        let mut patch = status::status(vm, vmi, disks, findings, clock::now());
        if is_merged(vm, &patch) {
            return Ok(());
        }
        let failed = plan::failed_imports(vm, &patch, &disks.data_volumes);
        patch["metadata"] = Value::Object(object::version(vm));
        let (namespace, name) = (object::namespace(vm), object::name(vm));
        match self.objects.merge_status(VMS, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => return Ok(()),
            written => drop(written.doing("write the virtual machine's status")?),
        }
        for name in failed {
            let message = format!("DataVolume {name} failed to import disk image");
            self.update_status(vm, EventType::Warning, "FailedDataVolumeImport", message).await;
        }
        Ok(())
    }

    /// How the instance ended is recorded: it is no longer needed.
    async fn conclude(&self, vm: &Value, vmi: &Value) -> Result<(), ReconcileError> {
        let namespace = object::namespace(vmi);
        if let Some(revision) = plan::outdated_revision(vm, vmi) {
            let found = self.objects.get(REVISIONS, namespace, revision).await;
            if let Some(own) = found.doing("get an old revision")? {
                let deleted =
                    self.objects.delete(REVISIONS, namespace, revision, object::uid(&own)).await;
                deleted.doing("delete an old revision")?;
            }
        }
        let Some(patch) = plan::release(vmi) else { return Ok(()) };
        match self.objects.merge(VMIS, namespace, object::name(vmi), &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("release the instance"),
        }
    }

    async fn write(&self, vm: &Value, patch: &Value) -> Result<Value, ReconcileError> {
        let (namespace, name) = (object::namespace(vm), object::name(vm));
        self.objects.merge(VMS, namespace, name, patch).await.doing("write the virtual machine")
    }

    /// Warns unless the machine says so already.
    async fn warn_once(&self, vm: &Value, reason: &str, message: String) {
        let failure = crate::condition::find(list(vm, "/status/conditions"), "Failure");
        if failure.is_none_or(|own| text(own, "/reason") != reason) {
            self.update_status(vm, EventType::Warning, reason, message).await;
        }
    }

    async fn update_status(&self, vm: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "kubevirt.io/v1",
            kind: "VirtualMachine",
            namespace: object::namespace(vm),
            name: object::name(vm),
            uid: object::uid(vm),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

#[cfg(test)]
mod tests;
