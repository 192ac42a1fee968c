//! Following Longhorn's objects and the storage process, and doing what the plan says: one task
//! owns what is known, and one task per object works on it.

mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Stop, clock};
use block::storage::StorageStatus;
use futures_util::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::act::{ActionContext, VolumeObjects, WrittenKind};
use super::attached::{self, AttachedEntry, AttachedVolumes, VolumeNumbers};
use super::object::{self, Engine, LonghornVolume, Replica, Snapshot};
use super::plan::{JobKey, StorageWorld, needs_process, plan};
use super::scrub::ScrubRuns;
use super::status::{self, ReplicaAddress};
use super::{grant, group_snapshot, longhorn};
use crate::backing_image::{self, ImageLocations};
use crate::change_notifier::ChangeNotifier;
use crate::event::Reporter;
use crate::machine::saved_memory;
use crate::object_cache::{ObjectCache, steady};
use crate::own_addresses::OwnAddresses;

const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(15);
/// A volume whose replica an engine waits for is read again so often at most.
const REREAD_PAUSE: Duration = Duration::from_secs(1);
const REREAD_TIMEOUT: Duration = Duration::from_secs(3);
/// How often disks are checked: no event reports a change of the free space.
const DISKS: Duration = Duration::from_secs(30);

/// The task that owns what is known.
pub(super) struct StorageController {
    pub(super) hands: ActionContext,
    pub(super) reporter: Reporter,
    /// The address by which the node is known.
    pub(super) address: String,
    pub(super) own_addresses: watch::Receiver<OwnAddresses>,
    pub(super) sockets: PathBuf,
    pub(super) default_disk: PathBuf,
    pub(super) wanted: watch::Sender<bool>,
    pub(super) reported: watch::Receiver<Option<Arc<StorageStatus>>>,
    pub(super) names: VolumeNumbers,
    pub(super) serving: AttachedEntry,
    pub(super) notifier: ChangeNotifier,
    pub(super) seen: ApiObjects,
    pub(super) work: RunningJobs,
    pub(super) scrubs: ScrubRuns,
}

/// The objects received from the API.
#[derive(Default)]
pub(super) struct ApiObjects {
    volumes: ObjectCache<LonghornVolume>,
    replicas: ObjectCache<Replica>,
    engines: ObjectCache<Engine>,
    snapshots: ObjectCache<Snapshot>,
    /// The tickets for which each volume is where they want it.
    attachments: ObjectCache<BTreeSet<String>>,
    images: ObjectCache<ImageLocations>,
    node: ObjectCache<DynamicObject>,
    settings: ObjectCache<String>,
}

impl ApiObjects {
    fn is_complete(&self) -> bool {
        self.volumes.is_complete()
            && self.replicas.is_complete()
            && self.engines.is_complete()
            && self.snapshots.is_complete()
            && self.attachments.is_complete()
            && self.images.is_complete()
            && self.node.is_complete()
            && self.settings.is_complete()
    }
}

/// Running jobs.
#[derive(Default)]
pub(super) struct RunningJobs {
    jobs: JoinSet<JobResult>,
    under_way: BTreeSet<JobKey>,
    reporting: BTreeSet<(WrittenKind, String)>,
    troubles: BTreeMap<JobKey, JobFailure>,
    /// Volumes that were read again for an engine that waits, a moment ago or now.
    reread: BTreeSet<String>,
    /// Disks are being checked, or must be.
    disks: Disks,
    /// Memory may be left of a snapshot that is gone.
    sweep: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Disks {
    #[default]
    Due,
    Scanning,
    Known,
}

/// The last error of a job, and how long to wait.
struct JobFailure {
    complaint: String,
    pauses: Backoff,
}

/// How the work on one object ended.
enum JobEnd {
    Done,
    /// It is to be done again, and there is nothing to report.
    Again,
    Failed {
        complaint: String,
    },
}

enum JobResult {
    Acted(JobKey, JobEnd),
    Reported(WrittenKind, String, Option<Box<DynamicObject>>),
    DisksScanned,
    ScrubBegun,
    /// A volume and its engines, as they are now.
    Reread(String, Option<VolumeObjects>),
    /// A volume may be read again.
    Rereadable(String),
}

enum StorageEvent {
    Volume(Event<DynamicObject>),
    Replica(Event<DynamicObject>),
    Engine(Event<DynamicObject>),
    Snapshot(Event<DynamicObject>),
    Attachment(Event<DynamicObject>),
    Image(Event<DynamicObject>),
    Node(Event<DynamicObject>),
    Setting(Event<DynamicObject>),
    Storage,
    Ended(Result<JobResult, tokio::task::JoinError>),
    CheckDisks,
    /// The node has another address for storage.
    Address,
    Nothing,
    Stop,
}

impl StorageController {
    /// Runs until `stop`; the storage process goes on.
    pub(super) async fn run(mut self, mut stop: Stop) {
        let client = self.hands.client.clone();
        let follow = |kind: &str, plural: &'static str| {
            let api = longhorn(&client, kind, plural);
            steady(watcher::watcher(api, watcher::Config::default()), plural)
        };
        let mut volumes = std::pin::pin!(follow("Volume", "volumes"));
        let mut replicas = std::pin::pin!(follow("Replica", "replicas"));
        let mut engines = std::pin::pin!(follow("Engine", "engines"));
        let mut snapshots = std::pin::pin!(follow("Snapshot", "snapshots"));
        let mut attachments = std::pin::pin!(follow("VolumeAttachment", "volumeattachments"));
        let mut images = std::pin::pin!(follow("BackingImage", "backingimages"));
        let mut nodes = std::pin::pin!(follow("Node", "nodes"));
        let mut settings = std::pin::pin!(follow("Setting", "settings"));
        let mut disks = tokio::time::interval(DISKS);
        let mut own_addresses = self.own_addresses.clone();
        let mut is_behind = false;
        loop {
            let news = tokio::select! {
                biased;
                () = stop.requested() => StorageEvent::Stop,
                Some(event) = volumes.next() => StorageEvent::Volume(event),
                Some(event) = replicas.next() => StorageEvent::Replica(event),
                Some(event) = engines.next() => StorageEvent::Engine(event),
                Some(event) = snapshots.next() => StorageEvent::Snapshot(event),
                Some(event) = attachments.next() => StorageEvent::Attachment(event),
                Some(event) = images.next() => StorageEvent::Image(event),
                Some(event) = nodes.next() => StorageEvent::Node(event),
                Some(event) = settings.next() => StorageEvent::Setting(event),
                Ok(()) = self.reported.changed() => StorageEvent::Storage,
                Some(ended) = self.work.jobs.join_next() => StorageEvent::Ended(ended),
                _ = disks.tick() => StorageEvent::CheckDisks,
                Ok(()) = own_addresses.changed() => StorageEvent::Address,
                // Events that arrive together are handled together.
                () = std::future::ready(()), if is_behind => StorageEvent::Nothing,
            };
            match news {
                StorageEvent::Stop => return,
                StorageEvent::Nothing => {
                    is_behind = false;
                    if self.seen.is_complete() {
                        self.act();
                    }
                }
                news => {
                    is_behind = true;
                    self.apply(news);
                }
            }
        }
    }

    fn apply(&mut self, news: StorageEvent) {
        let seen = &mut self.seen;
        match news {
            StorageEvent::Volume(event) => seen.volumes.apply(event, by_name(object::volume)),
            StorageEvent::Replica(event) => {
                seen.replicas.apply(event, by_name(object::replica));
                self.work.disks = Disks::Due;
            }
            StorageEvent::Engine(event) => seen.engines.apply(event, by_name(object::engine)),
            StorageEvent::Snapshot(event) => {
                self.work.sweep |= matches!(event, Event::Delete(_) | Event::InitDone);
                seen.snapshots.apply(event, by_name(object::snapshot));
            }
            StorageEvent::Attachment(event) => {
                seen.attachments.apply(event, by_name(|it| Some(object::satisfied(it))));
            }
            StorageEvent::Image(event) => seen.images.apply(event, by_name(ImageLocations::of)),
            StorageEvent::Node(event) => {
                let own = self.hands.node.clone();
                let of = |it: &DynamicObject| {
                    (it.metadata.name.as_ref() == Some(&own)).then(|| it.clone())
                };
                seen.node.apply(event, by_name(of));
                self.work.disks = Disks::Due;
            }
            StorageEvent::Setting(event) => {
                let value = |it: &DynamicObject| it.data["value"].as_str().map(str::to_owned);
                seen.settings.apply(event, by_name(value));
            }
            // The next plan reads it.
            StorageEvent::Address => {}
            StorageEvent::CheckDisks => self.work.disks = Disks::Due,
            StorageEvent::Ended(Ok(done)) => self.ended(done),
            StorageEvent::Ended(Err(failure)) => {
                tracing::error!(error = %failure, "work on volumes panicked");
                self.work.under_way.clear();
                self.work.reporting.clear();
            }
            StorageEvent::Storage | StorageEvent::Nothing | StorageEvent::Stop => {}
        }
    }

    fn ended(&mut self, done: JobResult) {
        match done {
            JobResult::DisksScanned => {
                if self.work.disks == Disks::Scanning {
                    self.work.disks = Disks::Known;
                }
            }
            JobResult::ScrubBegun => {}
            JobResult::Rereadable(volume) => drop(self.work.reread.remove(&volume)),
            JobResult::Reread(name, found) => {
                if let Some(VolumeObjects { volume, engines }) = found {
                    self.seen.volumes.answer(*volume, by_name(object::volume));
                    for engine in engines {
                        self.seen.engines.answer(engine, by_name(object::engine));
                    }
                }
                self.work.jobs.spawn(async move {
                    tokio::time::sleep(REREAD_PAUSE).await;
                    JobResult::Rereadable(name)
                });
            }
            JobResult::Acted(key, result) => {
                self.work.under_way.remove(&key);
                match result {
                    JobEnd::Done => drop(self.work.troubles.remove(&key)),
                    JobEnd::Again => self.trouble(&key).complaint.clear(),
                    JobEnd::Failed { complaint } => self.trouble(&key).complaint = complaint,
                }
            }
            JobResult::Reported(kind, name, object) => {
                self.work.reporting.remove(&(kind, name));
                let Some(object) = object else { return };
                let seen = &mut self.seen;
                match kind {
                    WrittenKind::Replica => seen.replicas.answer(*object, by_name(object::replica)),
                    WrittenKind::Engine => seen.engines.answer(*object, by_name(object::engine)),
                    WrittenKind::Snapshot => {
                        seen.snapshots.answer(*object, by_name(object::snapshot))
                    }
                    WrittenKind::Node => {}
                }
            }
        }
    }

    fn act(&mut self) {
        let state = self.reported.borrow_and_update().clone();
        let disks =
            self.seen.node.iter().flat_map(|(_, node)| backing_image::disks(node)).collect();
        let own_addresses = *self.own_addresses.borrow();
        let (actions, news, needed, doubtful) = {
            let world = StorageWorld {
                node: &self.hands.node,
                volumes: self.seen.volumes.all(),
                replicas: self.seen.replicas.all(),
                engines: self.seen.engines.all(),
                snapshots: self.seen.snapshots.all(),
                tickets: self.seen.attachments.all(),
                images: self.seen.images.all(),
                disks: &disks,
                state: state.as_deref(),
                sockets: &self.sockets,
                address: own_addresses.storage,
                under_way: &self.work.under_way,
            };
            self.publish(&world);
            let doubtful = grant::doubtful(&world);
            (plan(&world), self.news(&world), needs_process(&world), doubtful)
        };
        self.wanted.send_if_modified(|wanted| std::mem::replace(wanted, needed) != needed);
        for action in actions {
            self.start(action);
        }
        for (kind, name, patch) in news {
            self.report_status(kind, name, patch);
        }
        for volume in doubtful {
            self.reread(volume);
        }
        if let Some(state) = &state {
            self.scrub(state);
        }
        if self.work.disks == Disks::Due {
            self.scan_disks();
        }
        if std::mem::take(&mut self.work.sweep) {
            let kept = group_snapshot::with_memory(self.seen.snapshots.all());
            saved_memory::sweep(&self.hands.agent_dir, &kept);
        }
    }

    /// Publishes the state for other parts of this node's agent.
    fn publish(&self, world: &StorageWorld<'_>) {
        *self.names.0.lock() = attached::names(world);
        let board = AttachedVolumes::of(world);
        let mut known = self.serving.0.lock();
        if *known != board {
            *known = board;
            drop(known);
            self.notifier.notify();
        }
    }

    /// The changes that objects do not have yet.
    fn news(&self, world: &StorageWorld<'_>) -> Vec<(WrittenKind, String, Value)> {
        // The reported status stays valid while the storage process is restarted.
        if world.state.is_none() {
            return Vec::new();
        }
        let address = status::replica_address(world, &self.address);
        let place = ReplicaAddress { address: &address, now: clock::now() };
        let trouble = |key: &JobKey| {
            let found = self.work.troubles.get(key).map(|it| it.complaint.as_str());
            found.filter(|complaint| !complaint.is_empty())
        };
        status::news(world, place, trouble)
    }
}

fn by_name<T>(
    read: impl Fn(&DynamicObject) -> Option<T>,
) -> impl Fn(&DynamicObject) -> Option<(String, Option<T>)> {
    move |object| Some((object.metadata.name.clone()?, read(object)))
}
