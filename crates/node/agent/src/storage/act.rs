//! Carrying out what was planned, one piece of work at a time.

use std::collections::BTreeSet;
use std::path::PathBuf;

use base::clock;
use block::run::AdminRequest;
use block::storage::Request;
use client::Fault;
use futures_util::future::join_all;
use hci::longhorn::FINALIZER;
use hci::together::{QUIESCE_LABEL, Quiesce};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::info;

use super::group_snapshot::{GroupMember, GroupSnapshot};
use super::link::{LinkError, StorageLink};
use super::longhorn;
use super::plan::StorageAction;
use super::record::{EngineRecords, RecordError};
use crate::api::{MANAGER, is_conflict, merge, present};
use crate::event::{EventNote, Reporter};
use crate::machine::{HoldError, Machines, SaveError, SavedMemory};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    Memory(#[from] SaveError),
    #[error("volumes of the snapshot are not attached for machine {namespace}/{machine}")]
    ForeignMachine { namespace: String, machine: String },
    #[error("cannot read {kind} {name}")]
    Read { kind: &'static str, name: String, source: Fault },
    #[error("cannot write {kind} {name}")]
    Write { kind: &'static str, name: String, source: Fault },
}

impl ActError {
    /// Whether the failure is temporary and will be over in a moment.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Link(LinkError::Connect(_) | LinkError::Ended) => true,
            // The storage process answers so while it has to finish something first, and for a
            // volume that was detached since the last status.
            Self::Link(LinkError::Refused { message }) => {
                message.ends_with("; try again") || message.ends_with("is not attached")
            }
            _ => false,
        }
    }
}

/// An action that was planned before the last change was reported may be done already.
fn done_already(result: Result<(), ActError>, says: &str) -> Result<(), ActError> {
    match result {
        Err(ActError::Link(LinkError::Refused { message })) if message.contains(says) => Ok(()),
        result => result,
    }
}

/// The snapshots record how their guest was prepared: the object of a machine's snapshot is updated
/// from there, also after this process ends.
fn labelled(mut members: Vec<GroupMember>, quiesce: Quiesce) -> Vec<GroupMember> {
    for member in &mut members {
        member.labels.insert(QUIESCE_LABEL.into(), quiesce.as_str().into());
    }
    members
}

/// All at once: the guest is paused.
async fn take_all(link: StorageLink, members: Vec<GroupMember>) -> Result<(), ActError> {
    let created = u64::try_from(clock::now().as_second()).unwrap_or(0);
    let take = |member: GroupMember| {
        let (volume, link) = (member.volume, &link);
        let request =
            AdminRequest::Snapshot { name: member.snapshot, created, labels: member.labels };
        async move { link.ask_volume(volume, request).await }
    };
    for taken in join_all(members.into_iter().map(take)).await {
        taken?;
    }
    Ok(())
}

/// A volume and its engines.
pub(super) struct VolumeObjects {
    pub(super) volume: Box<DynamicObject>,
    pub(super) engines: Vec<DynamicObject>,
}

/// A kind whose objects this node writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WrittenKind {
    Replica,
    Engine,
    Snapshot,
    Node,
}

impl WrittenKind {
    pub(super) fn api(self, client: &Client) -> Api<DynamicObject> {
        match self {
            Self::Replica => longhorn(client, "Replica", "replicas"),
            Self::Engine => longhorn(client, "Engine", "engines"),
            Self::Snapshot => longhorn(client, "Snapshot", "snapshots"),
            Self::Node => longhorn(client, "Node", "nodes"),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Replica => "replica",
            Self::Engine => "engine",
            Self::Snapshot => "snapshot",
            Self::Node => "node",
        }
    }
}

/// Shared state of storage actions.
#[derive(Clone)]
pub(super) struct ActionContext {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) link: StorageLink,
    pub(super) records: EngineRecords,
    pub(super) machines: Machines,
    pub(super) reporter: Reporter,
    pub(super) agent_dir: PathBuf,
}

impl ActionContext {
    pub(super) async fn act(&self, action: StorageAction) -> Result<(), ActError> {
        match action {
            StorageAction::MakeReplica { new, .. } => self.ask(Request::CreateReplica(new)).await,
            StorageAction::RemoveReplica { replica, id } => {
                self.ask(Request::RemoveReplica { replica: id }).await?;
                self.release(WrittenKind::Replica, &replica).await
            }
            StorageAction::Attach { engine, attachment, .. } if attachment.standby => {
                self.records.admit(&engine, &self.node).await?;
                self.ask(Request::Attach(attachment)).await
            }
            StorageAction::TakeOver { engine, volume } => {
                self.records.attach(&engine, &self.node, &BTreeSet::new(), false).await?;
                self.ask_volume(volume, AdminRequest::Switch).await
            }
            StorageAction::OwnRecord { engine } => {
                Ok(self.records.attach(&engine, &self.node, &BTreeSet::new(), false).await?)
            }
            StorageAction::Attach { engine, attachment, first, is_new, .. } => {
                self.records.attach(&engine, &self.node, &first, is_new).await?;
                self.ask(Request::Attach(attachment)).await
            }
            StorageAction::Detach { engine, volume } => {
                self.ask(Request::Detach { volume }).await?;
                match engine {
                    Some(engine) => Ok(self.records.detach(&engine, &self.node).await?),
                    None => Ok(()),
                }
            }
            StorageAction::Expand { volume, size, .. } => {
                self.ask_volume(volume, AdminRequest::Resize { size }).await
            }
            StorageAction::AddMember { volume, replica, .. } => {
                let request = AdminRequest::AddReplica {
                    replica: replica.id,
                    at: replica.at,
                    node: replica.node,
                };
                self.ask_volume(volume, request).await
            }
            StorageAction::DropMember { volume, replica, .. } => {
                self.ask_volume(volume, AdminRequest::DropReplica { replica }).await
            }
            StorageAction::Reconnect { volume, replica, .. } => {
                self.ask_volume(volume, AdminRequest::Reconnect { replica }).await
            }
            StorageAction::ListenAlso { addresses } => {
                self.ask(Request::ListenAlso { addresses }).await
            }
            StorageAction::ReleaseEngine { engine } => {
                self.release(WrittenKind::Engine, &engine).await
            }
            StorageAction::TakeSnapshot { snapshot, volume, labels } => {
                let created = u64::try_from(clock::now().as_second()).unwrap_or(0);
                let request = AdminRequest::Snapshot { name: snapshot, created, labels };
                done_already(self.ask_volume(volume, request).await, "there is a snapshot")
            }
            StorageAction::GrantReplicas { grants } => {
                self.ask(Request::GrantReplicas { grants }).await
            }
            StorageAction::TakeTogether { instant } => self.take_together(&instant).await,
            StorageAction::DeleteSnapshot { snapshot, volume } => {
                let request = AdminRequest::DeleteSnapshot { name: snapshot.clone() };
                let deleted = self.ask_volume(volume, request).await;
                done_already(deleted, "there is no snapshot")?;
                self.release(WrittenKind::Snapshot, &snapshot).await
            }
            StorageAction::ReleaseSnapshot { snapshot } => {
                self.release(WrittenKind::Snapshot, &snapshot).await
            }
        }
    }

    /// The known status may be older than our last action, so the storage process is asked first.
    async fn take_together(&self, instant: &GroupSnapshot) -> Result<(), ActError> {
        let Some(torn) = instant.torn(&self.link.status().await?) else { return Ok(()) };
        for member in torn {
            let request = AdminRequest::DeleteSnapshot { name: member.snapshot.clone() };
            self.ask_volume(member.volume, request).await?;
        }
        let (namespace, name) = (&instant.together.namespace, &instant.together.machine);
        let (link, members) = (self.link.clone(), instant.members.clone());
        let Some((live, vmi)) = self.machines.running_object(namespace, name) else {
            // It has just ended, or not quite begun: there are no writes.
            return take_all(link, members).await;
        };
        let together = &instant.together;
        // The name is of an annotation, but what runs for the volumes is the guest that may stop.
        if !instant.is_of(&vmi.uid) {
            let (namespace, machine) = (namespace.clone(), name.clone());
            return Err(ActError::ForeignMachine { namespace, machine });
        }
        let memory = match together.memory {
            true => Some(SavedMemory::new(&self.agent_dir, &together.instant, &vmi)?),
            false => None,
        };
        let taking = |quiesce| take_all(link, labelled(members, quiesce));
        let (held, taken) = live.hold(memory, taking).await?;
        taken?;
        let millis = held.pause.as_millis();
        let count = instant.members.len();
        info!(namespace, name, count, millis, quiesce = held.quiesce.as_str(), "guest captured");
        let files = match held.quiesce {
            Quiesce::Frozen => ", its file systems were frozen",
            Quiesce::Failed => ", its agent could not freeze its file systems",
            Quiesce::NoAgent | Quiesce::Skipped => "",
        };
        let message = format!(
            "{count} disks were captured at one instant: the guest was paused for {millis} ms\
             {files}"
        );
        self.report(namespace, name, EventNote::normal("SnapshotTaken", message)).await;
        Ok(())
    }

    async fn report(&self, namespace: &str, name: &str, note: EventNote) {
        let Some(vmi) = self.machines.object(namespace, name) else { return };
        let about = ObjectReference {
            api_version: Some("kubevirt.io/v1".into()),
            kind: Some("VirtualMachineInstance".into()),
            name: Some(name.into()),
            namespace: Some(namespace.into()),
            uid: Some(vmi.uid.clone()),
            ..ObjectReference::default()
        };
        self.reporter.report(&about, note).await;
    }

    async fn ask(&self, request: Request) -> Result<(), ActError> {
        Ok(self.link.ask(&request).await.map(drop)?)
    }

    async fn ask_volume(
        &self,
        volume: block::ids::VolumeId,
        request: AdminRequest,
    ) -> Result<(), ActError> {
        Ok(self.link.ask_volume(volume, request).await.map(drop)?)
    }

    /// Takes our finalizer off an object; nothing here belongs to it any more.
    async fn release(&self, kind: WrittenKind, name: &str) -> Result<(), ActError> {
        let api = kind.api(&self.client);
        let fail = |source| ActError::Write {
            kind: kind.name(),
            name: name.into(),
            source: Fault(source),
        };
        loop {
            let Some(object) = present(api.get_metadata(name).await).map_err(fail)? else {
                return Ok(());
            };
            let finalizers = object.metadata.finalizers.unwrap_or_default();
            let rest: Vec<&String> = finalizers.iter().filter(|it| *it != FINALIZER).collect();
            if rest.len() == finalizers.len() {
                return Ok(());
            }
            let patch = json!({"metadata": {
                "resourceVersion": object.metadata.resource_version, "finalizers": rest,
            }});
            match present(merge(&api, name, &patch).await) {
                Ok(_) => return Ok(()),
                Err(failure) if is_conflict(&failure) => {}
                Err(failure) => return Err(fail(failure)),
            }
        }
    }

    /// A volume and its engines, as they are now.
    pub(super) async fn volume_objects(
        &self,
        volume: &str,
        engines: &[String],
    ) -> Result<VolumeObjects, ActError> {
        let fail = |kind: &'static str, name: &str| {
            let name = name.to_owned();
            move |source| ActError::Read { kind, name, source: Fault(source) }
        };
        let found = longhorn(&self.client, "Volume", "volumes").get(volume).await;
        let volume = Box::new(found.map_err(fail("volume", volume))?);
        let mut read = Vec::new();
        for name in engines {
            let found = WrittenKind::Engine.api(&self.client).get(name).await;
            read.push(found.map_err(fail("engine", name))?);
        }
        Ok(VolumeObjects { volume, engines: read })
    }

    /// Writes a part of an object's status.
    pub(super) async fn report_status(
        &self,
        kind: WrittenKind,
        name: &str,
        status: Value,
    ) -> Result<Option<DynamicObject>, ActError> {
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patch = kube::api::Patch::Merge(json!({"status": status}));
        let api = kind.api(&self.client);
        let written = present(api.patch_status(name, &params, &patch).await);
        written.map_err(|source| ActError::Write {
            kind: kind.name(),
            name: name.into(),
            source: Fault(source),
        })
    }
}
