//! Virtual machines: they bring instances into being and end them as their run strategy and
//! the requests to them say, and report their status.
//!
//! The spec of a user is not changed, except that a start request makes a halted machine one that
//! is meant to run, as upstream's clients expect, and that the template records the PCI topology
//! of a guest (`topology`).

mod disk;
mod instance;
mod instancetype;
mod interest;
mod live;
mod run;
mod status;
mod topology;
mod volume_update;

use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::{Value, json};
use virt::printable_status::has_failed;
use virt::reason::MachineFailure;
use virt::run_strategy::{RunAction, RunSituation, decide};
use virt::{InstancePhase, RunStrategy};

use self::disk::are_filled;
pub(crate) use self::instance::RELEASED_BY;
pub(crate) use self::interest::VmMapper;
use self::interest::needs;
use self::status::{Disks, Findings};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_deleting, is_merged, list, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult, Reconciler};
use crate::resource::{Objects, REVISIONS, VMIS, VMS, is_refused};
use crate::vmi::VM_FINALIZER;

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
        if object::is_controlled_by(&vmi, vm) {
            return Ok(Some(vmi));
        }
        let free = object::controller(&vmi).is_none();
        if !free || is_deleting(&vmi) || is_deleting(vm) || is_over(&vmi) {
            return Ok(None);
        }
        let mut meta = object::version(&vmi);
        let mut owners = list(&vmi, "/metadata/ownerReferences").to_vec();
        owners.push(instance::owned_by(vm));
        meta.insert("ownerReferences".into(), json!(owners));
        let mut finalizers = object::finalizers_without(&vmi, &[VM_FINALIZER]);
        finalizers.push(json!(VM_FINALIZER));
        meta.insert("finalizers".into(), json!(finalizers));
        let patch = json!({"metadata": meta});
        let adopted = self.objects.merge(VMIS, namespace, name, &patch).await;
        adopted.map(Some).doing("adopt the instance")
    }

    /// Makes sure that the machine is not gone before its instance.
    async fn protect(&self, vm: Value) -> Result<Value, ReconcileError> {
        if object::has_finalizer(&vm, VM_FINALIZER) {
            return Ok(vm);
        }
        let mut meta = object::version(&vm);
        let mut finalizers = list(&vm, "/metadata/finalizers").to_vec();
        finalizers.push(json!(VM_FINALIZER));
        meta.insert("finalizers".into(), json!(finalizers));
        self.write(&vm, &json!({"metadata": meta})).await
    }

    /// A machine that is being deleted ends its instance first, or leaves it to itself.
    async fn end(&self, vm: &Value, vmi: Option<Value>) -> Result<ReconcileResult, ReconcileError> {
        match vmi {
            Some(vmi) if !object::has_finalizer(vm, "orphan") => {
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
                if object::has_finalizer(vm, VM_FINALIZER) {
                    let mut meta = object::version(vm);
                    let finalizers = object::finalizers_without(vm, &[VM_FINALIZER]);
                    meta.insert("finalizers".into(), json!(finalizers));
                    self.write(vm, &json!({"metadata": meta})).await?;
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
        let early = object::annotation(vm, "kubevirt.io/immediate-data-volume-creation");
        if early != Some("false") {
            self.make_data_volumes(vm, disks, work).await?;
        }
        let Some(situation) = RunSituation::of(vm, vmi.as_ref(), clock::now()) else {
            let message = format!("unknown runstrategy: {}", text(vm, "/spec/runStrategy"));
            work.findings.failure = Some((MachineFailure::Create, message));
            return Ok(vmi);
        };
        match (decide(situation), vmi) {
            (RunAction::Nothing | RunAction::BecomeWhatItWas, Some(vmi)) => {
                self.update(vm, &expanded, vmi, work).await.map(Some)
            }
            (RunAction::Start { paused }, _) => {
                if early == Some("false") {
                    self.make_data_volumes(vm, disks, work).await?;
                }
                if !are_filled(vm, disks) || work.findings.failure.is_some() {
                    return Ok(None);
                }
                self.start(vm, &expanded, paused, work).await
            }
            (RunAction::Wait { seconds }, vmi) => {
                work.next = ReconcileResult::Again(Duration::from_secs(seconds.unsigned_abs()));
                Ok(vmi)
            }
            (RunAction::Stop, Some(vmi)) => self.stop(vm, vmi, work).await,
            (RunAction::StopAndAskForStart, Some(vmi)) => self.replace(vm, vmi, work).await,
            (RunAction::Become(strategy), vmi) => {
                self.set_strategy(vm, strategy).await?;
                Ok(vmi)
            }
            (RunAction::Stray, vmi) => {
                let message = "VMI exists and is not a receiver VMI".to_owned();
                work.findings.failure = Some((MachineFailure::Create, message));
                Ok(vmi)
            }
            (_, None) => Ok(None),
        }
    }

    /// Ends an instance that has failed, to start another. The request for that is written
    /// before the instance goes: no crash in between leaves a machine that is never started.
    async fn replace(
        &self,
        vm: &Value,
        vmi: Value,
        work: &mut VmObservation,
    ) -> Result<Option<Value>, ReconcileError> {
        let mut asked = list(vm, "/status/stateChangeRequests").iter();
        if asked.any(|own| text(own, "/action") == "Start") {
            return self.stop(vm, vmi, work).await;
        }
        work.findings.asks_to_start = true;
        Ok(Some(vmi))
    }

    /// Writes whether the machine is meant to run, in the field that it uses.
    async fn set_strategy(&self, vm: &Value, strategy: RunStrategy) -> Result<(), ReconcileError> {
        let spec = match object::flag(vm, "/spec/running") {
            Some(_) => json!({"running": strategy == RunStrategy::Always}),
            None => json!({"runStrategy": strategy.as_str()}),
        };
        let patch = json!({"metadata": object::version(vm), "spec": spec});
        self.write(vm, &patch).await.map(drop)
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
        let printable = text(&patch, "/status/printableStatus").to_owned();
        patch["metadata"] = Value::Object(object::version(vm));
        let (namespace, name) = (object::namespace(vm), object::name(vm));
        match self.objects.merge_status(VMS, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => return Ok(()),
            written => drop(written.doing("write the virtual machine's status")?),
        }
        if printable == "DataVolumeError" && text(vm, "/status/printableStatus") != printable {
            for failed in disks.data_volumes.iter().filter(|own| has_failed(own)) {
                let message =
                    format!("DataVolume {} failed to import disk image", object::name(failed));
                self.update_status(vm, EventType::Warning, "FailedDataVolumeImport", message).await;
            }
        }
        Ok(())
    }

    /// How the instance ended is recorded: it is no longer needed.
    async fn conclude(&self, vm: &Value, vmi: &Value) -> Result<(), ReconcileError> {
        let namespace = object::namespace(vmi);
        let revision = text(vmi, "/status/virtualMachineRevisionName");
        if !revision.is_empty() && revision != instance::revision_name(vm) {
            let found = self.objects.get(REVISIONS, namespace, revision).await;
            if let Some(own) = found.doing("get an old revision")? {
                let deleted =
                    self.objects.delete(REVISIONS, namespace, revision, object::uid(&own)).await;
                deleted.doing("delete an old revision")?;
            }
        }
        if !object::has_finalizer(vmi, VM_FINALIZER) {
            return Ok(());
        }
        let mut meta = object::version(vmi);
        let finalizers = object::finalizers_without(vmi, &[VM_FINALIZER]);
        meta.insert("finalizers".into(), json!(finalizers));
        let patch = json!({"metadata": meta});
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

fn is_over(vmi: &Value) -> bool {
    InstancePhase::of(vmi).is_final()
}

#[cfg(test)]
mod tests;
