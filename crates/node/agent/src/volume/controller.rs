//! The controller of local volumes: watches claims and volumes and carries out the plan. One task
//! owns the state, and each volume has a task.

mod jobs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::clone::Copy;
use super::disk::Disks;
use super::object::{self, Claim, LocalVolume};
use super::plan::{FoundVolume, LongAction, VolumeWorld, plan};
use super::provision::ProvisionError;
use super::readers::Readers;
use super::receive::PendingCopy;
use super::upload::PendingUpload;
use crate::change_notifier::ChangeNotifier;
use crate::egress::Egress;
use crate::event::Reporter;
use crate::object_cache::{ObjectCache, steady};
use crate::storage::StorageHandle;

/// After a failure of one volume.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Shared state of all volume jobs.
#[derive(Clone)]
pub(super) struct VolumeContext {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) disks: Disks,
    pub(super) reporter: Reporter,
    pub(super) readers: Readers,
    pub(super) storage: StorageHandle,
    /// The replicated volumes behind persistent ones, by the names of these.
    pub(super) handles: VolumeHandles,
    /// Rung when a disk has grown.
    pub(super) notifier: ChangeNotifier,
    pub(super) egress: Egress,
}

/// Clones know the same.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeHandles(Arc<Mutex<BTreeMap<String, String>>>);

impl VolumeHandles {
    pub(super) fn of(&self, volume: &str) -> Option<String> {
        self.0.lock().get(volume).cloned()
    }
}

impl VolumeContext {
    pub(super) fn clone_claim<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        volume: &'a str,
        size: u64,
    ) -> Copy<'a> {
        Copy { shared: self, namespace, name, volume, size }
    }
}

/// The object that a job has written: the watch delivers it later.
#[derive(Debug)]
enum WrittenObject {
    Nothing,
    Claim(Box<PersistentVolumeClaim>),
    Volume(Box<PersistentVolume>),
    /// The volume of this work exists no more.
    Gone,
}

impl WrittenObject {
    fn claim(claim: Option<PersistentVolumeClaim>) -> Self {
        claim.map_or(Self::Nothing, |claim| Self::Claim(Box::new(claim)))
    }
}

/// Some work on the volume has ended.
struct JobResult {
    volume: String,
    result: Result<WrittenObject, ProvisionError>,
}

/// The last error of a volume's job, and how long to wait.
struct JobFailure {
    complaint: String,
    pauses: Backoff,
}

/// The task that owns what is known.
pub(super) struct VolumeController {
    shared: VolumeContext,
    claims: ObjectCache<Claim>,
    volumes: ObjectCache<LocalVolume>,
    found: BTreeMap<String, FoundVolume>,
    jobs: JoinSet<JobResult>,
    under_way: BTreeMap<String, (LongAction, AbortHandle)>,
    troubles: BTreeMap<String, JobFailure>,
    /// Copies that wait for other work on their volume, by its name.
    waiting_copies: BTreeMap<String, PendingCopy>,
}

enum VolumeEvent {
    Claim(Box<Event<PersistentVolumeClaim>>),
    Volume(Box<Event<PersistentVolume>>),
    Upload(PendingUpload),
    Copy(PendingCopy),
    /// Something on this node has changed.
    Changed,
    /// The job of a volume has ended.
    Ended(Result<JobResult, tokio::task::JoinError>),
    Stop,
}

impl VolumeController {
    pub(super) fn new(shared: VolumeContext, found: Vec<(String, FoundVolume)>) -> Self {
        Self {
            shared,
            claims: ObjectCache::default(),
            volumes: ObjectCache::default(),
            found: found.into_iter().collect(),
            jobs: JoinSet::new(),
            under_way: BTreeMap::new(),
            troubles: BTreeMap::new(),
            waiting_copies: BTreeMap::new(),
        }
    }

    /// Runs until `stop`; the next process resumes unfinished jobs.
    pub(super) async fn run(
        mut self,
        mut uploads: mpsc::Receiver<PendingUpload>,
        mut copies: mpsc::Receiver<PendingCopy>,
        mut stop: Stop,
    ) {
        let client = &self.shared.client;
        let claims = watcher::watcher(Api::all(client.clone()), watcher::Config::default());
        let volumes = watcher::watcher(Api::all(client.clone()), watcher::Config::default());
        let mut changes = self.shared.notifier.listen();
        let mut claims = std::pin::pin!(steady(claims, "claims"));
        let mut volumes = std::pin::pin!(steady(volumes, "volumes"));
        loop {
            let news = tokio::select! {
                Some(event) = claims.next() => VolumeEvent::Claim(Box::new(event)),
                Some(event) = volumes.next() => VolumeEvent::Volume(Box::new(event)),
                Some(arrival) = uploads.recv() => VolumeEvent::Upload(arrival),
                Some(copy) = copies.recv() => VolumeEvent::Copy(copy),
                Ok(()) = changes.changed() => VolumeEvent::Changed,
                Some(ended) = self.jobs.join_next() => VolumeEvent::Ended(ended),
                () = stop.requested() => VolumeEvent::Stop,
            };
            if matches!(news, VolumeEvent::Stop) {
                return;
            }
            self.apply(news);
            if self.claims.is_complete() && self.volumes.is_complete() {
                self.act();
            }
        }
    }

    fn apply(&mut self, news: VolumeEvent) {
        match news {
            VolumeEvent::Claim(event) => self.claim_event(*event),
            VolumeEvent::Volume(event) => self.volume_event(*event),
            VolumeEvent::Upload(arrival) => self.receive(arrival),
            VolumeEvent::Copy(copy) => self.receive_copy(copy),
            VolumeEvent::Ended(Ok(JobResult { volume, result })) => {
                self.under_way.remove(&volume);
                match result {
                    Ok(echo) => {
                        self.troubles.remove(&volume);
                        self.on_event(&volume, echo);
                    }
                    Err(failure) => {
                        self.trouble(&volume).complaint = Chain(&failure).to_string();
                    }
                }
                let waiting = self.waiting_copies.remove(&volume);
                self.inspect(volume);
                if let Some(copy) = waiting {
                    self.receive_copy(copy);
                }
            }
            VolumeEvent::Ended(Err(failure)) => {
                if failure.is_panic() {
                    tracing::error!(error = %failure, "work on a volume panicked");
                }
                let ended: Vec<String> = self
                    .under_way
                    .iter()
                    .filter(|(_, (_, handle))| handle.is_finished())
                    .map(|(volume, _)| volume.clone())
                    .collect();
                for volume in ended {
                    self.under_way.remove(&volume);
                    self.inspect(volume);
                }
            }
            VolumeEvent::Changed | VolumeEvent::Stop => {}
        }
    }

    fn claim_event(&mut self, event: Event<PersistentVolumeClaim>) {
        self.claims.apply(event, |claim| Some((claim.metadata.uid.clone()?, object::claim(claim))));
    }

    fn volume_event(&mut self, event: Event<PersistentVolume>) {
        let node = &self.shared.node;
        self.volumes.apply(event, |volume| {
            Some((volume.metadata.name.clone()?, object::volume(volume, node)))
        });
        let handles = self.volumes.iter();
        let handles = handles.filter_map(|(name, it)| Some((name.clone(), it.replicated.clone()?)));
        *self.shared.handles.0.lock() = handles.collect();
    }

    fn on_event(&mut self, volume: &str, echo: WrittenObject) {
        match echo {
            WrittenObject::Nothing => {}
            WrittenObject::Claim(claim) => self.claim_event(Event::Apply(*claim)),
            WrittenObject::Volume(volume) => self.volume_event(Event::Apply(*volume)),
            WrittenObject::Gone => self.volumes.remove(volume),
        }
    }

    fn inspect(&mut self, volume: String) {
        if self.shared.disks.exists(&volume) {
            let found = self.shared.disks.inspect(&volume);
            self.found.insert(volume, found);
        } else {
            self.found.remove(&volume);
        }
    }

    fn act(&mut self) {
        let world = VolumeWorld {
            node: &self.shared.node,
            filled_here: self.shared.storage.filled_here(),
            claims: self.claims.iter().map(|(uid, claim)| (uid.as_str(), claim)).collect(),
            volumes: self.volumes.iter().map(|(name, volume)| (name.as_str(), volume)).collect(),
            found: self.found.iter().map(|(name, found)| (name.as_str(), *found)).collect(),
            under_way: self
                .under_way
                .iter()
                .map(|(name, (doing, _))| (name.as_str(), *doing))
                .collect(),
        };
        for action in plan(&world) {
            self.start(action);
        }
    }
}
