//! The controller of backups on this node: watches targets, backups and volumes, and carries out
//! the plan. One task owns the state, and each job has a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use futures_util::StreamExt as _;
use hci::longhorn::DEFAULT_BACKUP_TARGET;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{error, warn};

use super::object::{self, BackupObject, MachineBackup, RestoredVolume, TargetObject};
use super::plan::{self, BackupJob, BackupWorld};
use super::{BackupContext, description, restore, sync, upload};
use crate::object_cache::{ObjectCache, steady};
use crate::retry::{Retries, sooner};
use crate::storage::longhorn;

/// Before something that did not work is tried again: the pause doubles until the target or the
/// object of the job changes.
const FIRST_RETRY: Duration = Duration::from_secs(10);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// Backups and restores at a time; the rest waits for its turn.
const CONCURRENT_JOBS: usize = 2;

pub(super) struct BackupController {
    context: BackupContext,
    targets: ObjectCache<TargetObject>,
    backups: ObjectCache<BackupObject>,
    volumes: ObjectCache<RestoredVolume>,
    machines: ObjectCache<MachineBackup>,
    /// Volumes that are filled, and whose objects do not say so yet.
    filled: BTreeSet<String>,
    jobs: JoinSet<JobEnd>,
    under_way: BTreeMap<BackupJob, AbortHandle>,
    retries: Retries<BackupJob, JobInput>,
    /// The target that is being synchronized, as it was when that began.
    watched: Option<(TargetObject, AbortHandle)>,
    turns: Arc<Semaphore>,
}

/// The objects that a job works with.
#[derive(Debug, Clone, PartialEq)]
struct JobInput {
    target: TargetObject,
    object: JobObject,
}

#[derive(Debug, Clone, PartialEq)]
enum JobObject {
    Backup(BackupObject),
    Machine(MachineBackup),
    Volume(RestoredVolume),
}

enum JobEnd {
    Job(BackupJob),
    Failed(BackupJob, Box<JobInput>),
    Filled(String),
    Sync,
}

enum BackupEvent {
    Target(Event<DynamicObject>),
    Backup(Event<DynamicObject>),
    Volume(Event<DynamicObject>),
    Machine(Event<DynamicObject>),
    Ended(Result<JobEnd, JoinError>),
    /// Volumes of this node changed.
    Storage,
    /// The pause of a job that failed is over.
    Retry,
    Stop,
}

impl BackupController {
    pub(super) fn new(context: BackupContext) -> Self {
        Self {
            context,
            targets: ObjectCache::default(),
            backups: ObjectCache::default(),
            volumes: ObjectCache::default(),
            machines: ObjectCache::default(),
            filled: BTreeSet::new(),
            jobs: JoinSet::new(),
            under_way: BTreeMap::new(),
            retries: Retries::new(FIRST_RETRY, LAST_RETRY),
            watched: None,
            turns: Arc::new(Semaphore::new(CONCURRENT_JOBS)),
        }
    }

    /// Runs until `stop`; the next process resumes unfinished jobs.
    pub(super) async fn run(mut self, mut stop: Stop) {
        let follow = |kind: &str, plural: &'static str| {
            let api = longhorn(&self.context.client, kind, plural);
            steady(watcher::watcher(api, watcher::Config::default()), plural)
        };
        let mut targets = std::pin::pin!(follow("BackupTarget", "backuptargets"));
        let mut backups = std::pin::pin!(follow("Backup", "backups"));
        let mut volumes = std::pin::pin!(follow("Volume", "volumes"));
        let machines = description::machine_backups(&self.context.client);
        let machines = watcher::watcher(machines, watcher::Config::default());
        let mut machines = std::pin::pin!(steady(machines, "virtualmachinebackups"));
        let mut changes = self.context.storage.changes();
        let mut wait = None;
        loop {
            let news = tokio::select! {
                () = stop.requested() => BackupEvent::Stop,
                Some(event) = targets.next() => BackupEvent::Target(event),
                Some(event) = backups.next() => BackupEvent::Backup(event),
                Some(event) = volumes.next() => BackupEvent::Volume(event),
                Some(event) = machines.next() => BackupEvent::Machine(event),
                Some(ended) = self.jobs.join_next() => BackupEvent::Ended(ended),
                Ok(()) = changes.changed() => BackupEvent::Storage,
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                    BackupEvent::Retry
                }
            };
            if matches!(news, BackupEvent::Stop) {
                return;
            }
            self.apply(news);
            if self.targets.is_complete()
                && self.backups.is_complete()
                && self.volumes.is_complete()
            {
                wait = self.act();
            }
        }
    }

    fn apply(&mut self, news: BackupEvent) {
        match news {
            BackupEvent::Target(event) => self.targets.apply(event, by_name(object::target)),
            BackupEvent::Backup(event) => self.backups.apply(event, by_name(object::backup)),
            BackupEvent::Volume(event) => {
                self.volumes.apply(event, by_name(object::volume));
                let incomplete = self.volumes.all();
                self.filled.retain(|volume| incomplete.contains_key(volume));
            }
            BackupEvent::Machine(event) => {
                self.machines.apply(event, by_full_name(object::machine_backup));
            }
            BackupEvent::Ended(Ok(JobEnd::Job(job))) => {
                self.retries.succeed(&job);
                self.under_way.remove(&job);
            }
            BackupEvent::Ended(Ok(JobEnd::Failed(job, input))) => {
                self.under_way.remove(&job);
                self.retries.fail(job, *input, Instant::now());
            }
            BackupEvent::Ended(Ok(JobEnd::Filled(volume))) => {
                if self.volumes.all().contains_key(&volume) {
                    self.filled.insert(volume.clone());
                }
                let job = BackupJob::Restore { volume };
                self.retries.succeed(&job);
                self.under_way.remove(&job);
            }
            BackupEvent::Ended(Ok(JobEnd::Sync)) => {}
            BackupEvent::Ended(Err(failure)) => {
                if !failure.is_cancelled() {
                    error!(error = %failure, "work on a backup panicked");
                }
                self.under_way.retain(|_, handle| !handle.is_finished());
            }
            BackupEvent::Storage | BackupEvent::Retry | BackupEvent::Stop => {}
        }
    }

    /// Starts what is to be done; returns when to try again what failed.
    fn act(&mut self) -> Option<Duration> {
        let filled_here = self.context.storage.filled_here();
        let under_way: BTreeSet<BackupJob> = self.under_way.keys().cloned().collect();
        let (jobs, unwanted, target) = {
            let world = BackupWorld {
                node: &self.context.node,
                targets: self.targets.all(),
                backups: self.backups.all(),
                volumes: self.volumes.all(),
                machines: self.machines.all(),
                filled_here: &filled_here,
                filled: &self.filled,
                under_way: &under_way,
            };
            (plan::plan(&world), plan::unwanted(&world), plan::own_target(&world).cloned())
        };
        for job in unwanted {
            if let Some(handle) = self.under_way.get(&job) {
                handle.abort();
            }
        }
        let mut wait = None;
        let mut waiting = BTreeSet::new();
        for job in jobs {
            let Some(input) = self.input(&job) else { continue };
            match self.retries.pause(&job, &input, Instant::now()) {
                Some(pause) => {
                    wait = sooner(wait, Some(pause));
                    waiting.insert(job);
                }
                None => self.start(job, input),
            }
        }
        let under_way = &self.under_way;
        self.retries.retain(|job| waiting.contains(job) || under_way.contains_key(job));
        self.follow_target(target);
        wait
    }

    /// Nothing if one of the objects is gone.
    fn input(&self, job: &BackupJob) -> Option<JobInput> {
        // There is one target; objects for another are left unchanged.
        let target = self.targets.all().get(DEFAULT_BACKUP_TARGET)?.clone();
        let object = match job {
            BackupJob::Upload { backup } | BackupJob::Delete { backup } => {
                JobObject::Backup(self.backups.all().get(backup)?.clone())
            }
            BackupJob::Describe { machine } => {
                JobObject::Machine(self.machines.all().get(machine)?.clone())
            }
            BackupJob::Restore { volume } => {
                JobObject::Volume(self.volumes.all().get(volume)?.clone())
            }
        };
        Some(JobInput { target, object })
    }

    /// Reads the target that this node manages periodically.
    fn follow_target(&mut self, target: Option<TargetObject>) {
        if self.watched.as_ref().map(|(known, _)| known) == target.as_ref() {
            return;
        }
        if let Some((_, handle)) = self.watched.take() {
            handle.abort();
        }
        let Some(target) = target else { return };
        let (context, own) = (self.context.clone(), target.clone());
        let handle = self.jobs.spawn(async move {
            loop {
                sync::synchronise(&context, &own).await;
                match own.poll_interval {
                    Some(interval) => tokio::time::sleep(interval).await,
                    None => return JobEnd::Sync,
                }
            }
        });
        self.watched = Some((target, handle));
    }

    fn start(&mut self, job: BackupJob, input: JobInput) {
        let (context, turns) = (self.context.clone(), Arc::clone(&self.turns));
        let own = job.clone();
        let handle = self.jobs.spawn(async move { carry_out(&context, &turns, own, input).await });
        self.under_way.insert(job, handle);
    }
}

async fn carry_out(
    context: &BackupContext,
    turns: &Semaphore,
    job: BackupJob,
    input: JobInput,
) -> JobEnd {
    let JobInput { target, object } = &input;
    let is_done = match object {
        JobObject::Backup(backup) => {
            let _turn = turns.acquire().await;
            let ended = match &job {
                BackupJob::Upload { .. } => upload::upload(context, target, backup).await,
                _ => upload::delete(context, target, backup).await,
            };
            if let Err(failure) = &ended {
                warn!(backup = backup.name, error = %Chain(failure), "backup is held up");
                upload::complain(context, &backup.name, failure).await;
            }
            ended.is_ok()
        }
        JobObject::Machine(own) => {
            let ended = description::carry_out(context, target, own).await;
            if let Err(failure) = &ended {
                let (namespace, backup, error) = (&own.namespace, &own.name, Chain(failure));
                warn!(namespace, backup, %error, "description of a backup is held up");
            }
            ended.is_ok()
        }
        JobObject::Volume(volume) => {
            let _turn = turns.acquire().await;
            match restore::fill(context, target, volume).await {
                Ok(()) => return JobEnd::Filled(volume.name.clone()),
                Err(failure) => {
                    warn!(volume = volume.name, error = %Chain(&failure), "restore is held up");
                    false
                }
            }
        }
    };
    if is_done { JobEnd::Job(job) } else { JobEnd::Failed(job, Box::new(input)) }
}

fn by_name<T>(
    read: impl Fn(&DynamicObject) -> Option<T>,
) -> impl Fn(&DynamicObject) -> Option<(String, Option<T>)> {
    move |object| Some((object.metadata.name.clone()?, read(object)))
}

fn by_full_name<T>(
    read: impl Fn(&DynamicObject) -> Option<T>,
) -> impl Fn(&DynamicObject) -> Option<(String, Option<T>)> {
    move |object| {
        let meta = &object.metadata;
        let key = format!("{}/{}", meta.namespace.as_deref()?, meta.name.as_deref()?);
        Some((key, read(object)))
    }
}
