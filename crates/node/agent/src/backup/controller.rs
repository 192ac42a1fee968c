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
use tracing::{error, warn};

use super::object::{self, BackupObject, MachineBackup, RestoredVolume, TargetObject};
use super::plan::{self, BackupJob, BackupWorld};
use super::{BackupContext, description, restore, sync, upload};
use crate::storage::longhorn;
use crate::volume::{ObjectCache, steady};

/// Before something that did not work is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(10);
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
    /// The target that is being looked after, as it was when that began.
    watched: Option<(TargetObject, AbortHandle)>,
    turns: Arc<Semaphore>,
}

enum JobEnd {
    Job(BackupJob),
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
        let mut bell = self.context.storage.changes();
        loop {
            let news = tokio::select! {
                () = stop.requested() => BackupEvent::Stop,
                Some(event) = targets.next() => BackupEvent::Target(event),
                Some(event) = backups.next() => BackupEvent::Backup(event),
                Some(event) = volumes.next() => BackupEvent::Volume(event),
                Some(event) = machines.next() => BackupEvent::Machine(event),
                Some(ended) = self.jobs.join_next() => BackupEvent::Ended(ended),
                Ok(()) = bell.changed() => BackupEvent::Storage,
            };
            if matches!(news, BackupEvent::Stop) {
                return;
            }
            self.apply(news);
            if self.targets.is_complete()
                && self.backups.is_complete()
                && self.volumes.is_complete()
            {
                self.act();
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
            BackupEvent::Ended(Ok(JobEnd::Job(job))) => drop(self.under_way.remove(&job)),
            BackupEvent::Ended(Ok(JobEnd::Filled(volume))) => {
                if self.volumes.all().contains_key(&volume) {
                    self.filled.insert(volume.clone());
                }
                self.under_way.remove(&BackupJob::Restore { volume });
            }
            BackupEvent::Ended(Ok(JobEnd::Sync)) => {}
            BackupEvent::Ended(Err(failure)) => {
                if !failure.is_cancelled() {
                    error!(error = %failure, "work on a backup panicked");
                }
                self.under_way.retain(|_, handle| !handle.is_finished());
            }
            BackupEvent::Storage | BackupEvent::Stop => {}
        }
    }

    fn act(&mut self) {
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
        for job in jobs {
            self.start(job);
        }
        self.look_after(target);
    }

    /// Reads the target that this node looks after, now and again.
    fn look_after(&mut self, target: Option<TargetObject>) {
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

    fn start(&mut self, job: BackupJob) {
        // There is one target; objects for another are left unchanged.
        let Some(target) = self.targets.all().get(DEFAULT_BACKUP_TARGET).cloned() else { return };
        let (context, turns) = (self.context.clone(), Arc::clone(&self.turns));
        let done = job.clone();
        let handle = match &job {
            BackupJob::Upload { backup } | BackupJob::Delete { backup } => {
                let Some(backup) = self.backups.all().get(backup).cloned() else { return };
                let is_upload = matches!(job, BackupJob::Upload { .. });
                self.jobs.spawn(async move {
                    let _turn = turns.acquire().await;
                    let ended = match is_upload {
                        true => upload::upload(&context, &target, &backup).await,
                        false => upload::delete(&context, &target, &backup).await,
                    };
                    if let Err(failure) = ended {
                        let error = Chain(&failure).to_string();
                        warn!(backup = backup.name, error, "backup is held up");
                        upload::complain(&context, &backup.name, &failure).await;
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    JobEnd::Job(done)
                })
            }
            BackupJob::Describe { machine } => {
                let Some(own) = self.machines.all().get(machine).cloned() else { return };
                self.jobs.spawn(async move {
                    if let Err(failure) = description::carry_out(&context, &target, &own).await {
                        let error = Chain(&failure).to_string();
                        warn!(
                            namespace = own.namespace,
                            backup = own.name,
                            error,
                            "description of a backup is held up"
                        );
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    JobEnd::Job(done)
                })
            }
            BackupJob::Restore { volume } => {
                let Some(volume) = self.volumes.all().get(volume).cloned() else { return };
                self.jobs.spawn(async move {
                    let _turn = turns.acquire().await;
                    match restore::fill(&context, &target, &volume).await {
                        Ok(()) => JobEnd::Filled(volume.name),
                        Err(failure) => {
                            let error = Chain(&failure).to_string();
                            warn!(volume = volume.name, error, "restore is held up");
                            tokio::time::sleep(RETRY_DELAY).await;
                            JobEnd::Job(done)
                        }
                    }
                })
            }
        };
        self.under_way.insert(job, handle);
    }
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
