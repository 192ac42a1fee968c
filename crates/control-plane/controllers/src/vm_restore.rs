//! Machines go back to a snapshot, or begin as one: each captured disk becomes a new claim, and
//! then the machine becomes what it was, with those.
//!
//! The machine that is replaced must be stopped. Its former claims stay, as with KubeVirt;
//! data volumes that were made for it go.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use kube::Client;
use serde_json::{Value, json};
use tracing::info;

use self::plan::{Restored, TargetReadiness};
use crate::event::{self, EventType, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::longhorn::volume_snapshot::VOLUME_SNAPSHOTS;
use crate::object::{self, is_deleting, is_merged, is_true, text};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{
    CLAIMS, DATA_VOLUMES, Objects, Resource, VM_CONTENTS, VM_RESTORES, VM_SNAPSHOTS, VMIS, VMS,
    is_refused,
};

const ACTIONS: Resource = Resource::new("subresources.kubevirt.io", "v1", "virtualmachines");
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);
const SOURCE: &str = "restore-controller";
/// Reasons of events.
const ERROR: &str = "VirtualMachineRestoreError";
const NOT_READY: &str = "RestoreTargetNotReady";
const COMPLETE: &str = "VirtualMachineRestoreComplete";

/// Restores, and the claims that they wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct VmRestoreMapper(pub(crate) Dependents);

impl EventMapper for VmRestoreMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        let key = ObjectKey { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        if VM_RESTORES.is(kind) && *state == ObjectState::Live {
            vec![key]
        } else if CLAIMS.is(kind) || VM_SNAPSHOTS.is(kind) || VMIS.is(kind) {
            self.0.of(&key)
        } else {
            Vec::new()
        }
    }
}

pub(crate) struct VmRestoreReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for VmRestoreReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(VM_RESTORES, &key.namespace, &key.name).await;
        let restore = found.doing("get the restore")?;
        let Some(restore) = restore.filter(|own| !is_deleting(own) && !plan::is_over(own)) else {
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let snapshot = text(&restore, "/spec/virtualMachineSnapshotName");
        let target = text(&restore, "/spec/target/name");
        let mut needs: BTreeSet<ObjectKey> =
            [snapshot, target].map(|name| ObjectKey::new(&key.namespace, name)).into();
        self.waiting.set(key, needs.clone());
        let snapshot = self.objects.get(VM_SNAPSHOTS, &key.namespace, snapshot).await;
        let snapshot = snapshot.doing("get the snapshot")?;
        let Some(snapshot) = snapshot.filter(|own| is_true(own, "/status/readyToUse")) else {
            return self.stall(&restore, ERROR, "VMSnapshot does not exist or is not ready").await;
        };
        let content = text(&snapshot, "/status/virtualMachineSnapshotContentName");
        let content = self.objects.get(VM_CONTENTS, &key.namespace, content).await;
        let Some(content) = content.doing("get the content of a snapshot")? else {
            return self.stall(&restore, ERROR, "VMSnapshotContent does not exist").await;
        };
        let disks = plan::disks(&restore, &content);
        needs.extend(disks.iter().map(|own| ObjectKey::new(&key.namespace, &own.claim)));
        self.waiting.set(key, needs);
        let vm = self.objects.get(VMS, &key.namespace, target).await.doing("get the machine")?;
        if let Some(vm) = &vm {
            if plan::is_foreign(vm, &snapshot, &restore) {
                return self.stall(&restore, ERROR, plan::FOREIGN).await;
            }
            self.adopt(&restore, vm).await?;
        }
        if let Some(next) = self.await_target(&restore, vm.as_ref()).await? {
            return Ok(next);
        }
        self.update_status(&restore, &plan::begun(&restore, &disks, clock::now())).await?;
        if !self.make_claims(&restore, &content, &disks).await? {
            return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
        }
        self.replace(&restore, &content, vm.as_ref(), &disks).await
    }
}

impl VmRestoreReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    /// Whether the machine is stopped; if not, what is done instead.
    async fn await_target(
        &self,
        restore: &Value,
        vm: Option<&Value>,
    ) -> Result<Option<ReconcileResult>, ReconcileError> {
        let namespace = object::namespace(restore);
        let name = text(restore, "/spec/target/name");
        let vmi = self.objects.get(VMIS, namespace, name).await.doing("get the instance")?;
        let runs = vm.is_some() && vmi.is_some();
        match plan::readiness(restore, runs, clock::now()) {
            TargetReadiness::Yes => Ok(None),
            TargetReadiness::Stop => {
                match self.objects.act(ACTIONS, namespace, name, "stop", &json!({})).await {
                    Err(kube::Error::Api(_)) | Ok(()) => {}
                    Err(failure) => return Err(failure).doing("stop the machine"),
                }
                Ok(Some(ReconcileResult::Again(RECHECK_INTERVAL)))
            }
            TargetReadiness::Wait => {
                let why = "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore";
                self.stall(restore, NOT_READY, why).await.map(Some)
            }
            TargetReadiness::Fail => {
                let why = "Restore target VMI still exists";
                self.record_event(restore, EventType::Warning, ERROR, why.to_owned()).await;
                self.update_status(restore, &plan::failed(restore, why, clock::now())).await?;
                Ok(Some(ReconcileResult::Done))
            }
        }
    }

    /// Whether all claims are there and bound.
    async fn make_claims(
        &self,
        restore: &Value,
        content: &Value,
        disks: &[Restored],
    ) -> Result<bool, ReconcileError> {
        let namespace = object::namespace(restore);
        let mut all = true;
        for disk in disks {
            let found = self.objects.get(CLAIMS, namespace, &disk.claim).await;
            let claim = match found.doing("get a claim")? {
                Some(claim) => claim,
                None => {
                    let taken = self.objects.get(VOLUME_SNAPSHOTS, namespace, &disk.snapshot).await;
                    let taken = taken.doing("get the snapshot of a disk")?;
                    let wanted = plan::claim(restore, content, disk, taken.as_ref());
                    match self.objects.create(CLAIMS, namespace, &wanted).await {
                        Err(failure) if is_refused(&failure, 409) => return Ok(false),
                        made => made.doing("create a claim")?,
                    }
                }
            };
            all &= plan::is_usable(&claim);
        }
        Ok(all)
    }

    /// The machine becomes what it was, and says so last.
    async fn replace(
        &self,
        restore: &Value,
        content: &Value,
        vm: Option<&Value>,
        disks: &[Restored],
    ) -> Result<ReconcileResult, ReconcileError> {
        let namespace = object::namespace(restore);
        let machine = match vm {
            Some(vm) if plan::is_restored(vm, restore) => vm.clone(),
            Some(vm) => {
                let patch = plan::machine_patch(restore, content, vm, disks);
                match self.objects.merge(VMS, namespace, object::name(vm), &patch).await {
                    // A webhook or a policy may allow it later.
                    Err(kube::Error::Api(refusal)) if refusal.code != 409 => {
                        return self.stall(restore, ERROR, &refusal.message).await;
                    }
                    written => written.doing("change the machine back")?,
                }
            }
            None => {
                let wanted = match plan::machine(restore, content, disks) {
                    Ok(wanted) => wanted,
                    Err(why) => {
                        let why = why.to_string();
                        return self
                            .update_status(restore, &plan::failed(restore, &why, clock::now()))
                            .await;
                    }
                };
                match self.objects.create(VMS, namespace, &wanted).await {
                    Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                        let why = format!("the machine is refused: {}", refusal.message);
                        return self
                            .update_status(restore, &plan::failed(restore, &why, clock::now()))
                            .await;
                    }
                    made => made.doing("create the machine")?,
                }
            }
        };
        self.adopt(restore, &machine).await?;
        for disk in disks {
            if let Some(patch) = plan::ownership(restore, &machine) {
                let written = self.objects.merge(CLAIMS, namespace, &disk.claim, &patch).await;
                written.doing("give a claim to the machine")?;
            }
        }
        let former = plan::former_data_volumes(vm, disks);
        for name in &former {
            let found = self.objects.get(DATA_VOLUMES, namespace, name).await;
            if let Some(own) = found.doing("get a data volume")? {
                let uid = object::uid(&own);
                let deleted = self.objects.delete(DATA_VOLUMES, namespace, name, uid).await;
                deleted.doing("delete a data volume")?;
            }
        }
        info!(namespace, machine = object::name(&machine), "machine restored");
        let done =
            format!("Successfully completed VirtualMachineRestore {}", object::name(restore));
        self.record_event(restore, EventType::Normal, COMPLETE, done).await;
        self.update_status(restore, &plan::complete(restore, &former, clock::now())).await
    }

    /// The restore goes with the machine that it is for, unless it has another owner.
    async fn adopt(&self, restore: &Value, vm: &Value) -> Result<(), ReconcileError> {
        let Some(patch) = plan::adoption(restore, vm) else { return Ok(()) };
        let (namespace, name) = (object::namespace(restore), object::name(restore));
        match self.objects.merge(VM_RESTORES, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("make the machine the owner of a restore"),
        }
    }

    /// Reports once why it cannot go on, and retries.
    async fn stall(
        &self,
        restore: &Value,
        reason: &str,
        why: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        let patch = plan::waiting(restore, why, clock::now());
        if !is_merged(restore, &patch) {
            let message = match reason {
                ERROR => format!("VirtualMachineRestore encountered error {why}"),
                _ => why.to_owned(),
            };
            self.record_event(restore, EventType::Warning, reason, message).await;
            self.update_status(restore, &patch).await?;
        }
        Ok(ReconcileResult::Again(RECHECK_INTERVAL))
    }

    async fn record_event(&self, restore: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "snapshot.kubevirt.io/v1beta1",
            kind: "VirtualMachineRestore",
            namespace: object::namespace(restore),
            name: object::name(restore),
            uid: object::uid(restore),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }

    async fn update_status(
        &self,
        restore: &Value,
        patch: &Value,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_merged(restore, patch) {
            return Ok(ReconcileResult::Done);
        }
        let (namespace, name) = (object::namespace(restore), object::name(restore));
        match self.objects.merge_status(VM_RESTORES, namespace, name, patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("say how a restore goes"),
        }
    }
}

#[cfg(test)]
mod tests;
