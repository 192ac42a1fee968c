//! The controller of images on this node: watches backing images and carries out the plan. One task
//! owns the state, and each image has a task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, clock};
use futures_util::StreamExt as _;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::check;
use super::files::Folder;
use super::import::Job;
use super::plan::{self, ImageAction, ImagePlacement, ImageWorld, plan};
use super::remove::{RemoveError, remove};
use super::{ImageRequest, PendingUpload, SUMS, TURNS, UploadError};
use crate::backing_image::{self, Image, ImageSource, ImageState};
use crate::config::Config;
use crate::egress::Egress;
use crate::object_cache::{ObjectCache, steady};
use crate::retry::{Retries, sooner};
use crate::storage::{StorageHandle, longhorn};

/// How often the times of the last checks are checked.
const CHECKS: Duration = Duration::from_secs(3600);
/// Before something that did not work is tried again: the pause doubles until the image changes.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);

pub(super) struct ImageController {
    client: Client,
    node: String,
    storage: StorageHandle,
    egress: Egress,
    max_image_size: u64,
    images: ObjectCache<Image>,
    own: ObjectCache<BTreeMap<String, PathBuf>>,
    turns: Arc<Semaphore>,
    sums: Arc<Semaphore>,
    jobs: JoinSet<JobEnd>,
    under_way: BTreeMap<String, AbortHandle>,
    /// Uids of images that are being removed.
    removing: BTreeSet<String>,
    /// Work that failed, by uid, and the image as it was then.
    retries: Retries<String, Image>,
    /// Disks that nothing of an earlier time is left on.
    swept: BTreeSet<String>,
}

/// The result of a job.
#[derive(Default)]
struct JobEnd {
    /// The object of the image, if it was written.
    object: Option<Box<DynamicObject>>,
    /// The uid of the image, if the plan would start the same job again at once: it failed, or the
    /// watch has not reported its effect yet.
    held_back: Option<String>,
}

impl JobEnd {
    fn written(object: Option<DynamicObject>) -> Self {
        Self { object: object.map(Box::new), held_back: None }
    }
}

enum ImageEvent {
    Image(Event<DynamicObject>),
    Node(Event<DynamicObject>),
    Asked(ImageRequest),
    Ended(Result<JobEnd, JoinError>),
    Check,
    /// The pause of work that failed is over.
    Retry,
    Stop,
}

impl ImageController {
    pub(super) fn new(
        client: Client,
        config: &Config,
        storage: StorageHandle,
        egress: Egress,
    ) -> Self {
        Self {
            client,
            node: config.node_name.clone(),
            storage,
            egress,
            max_image_size: config.max_image_size,
            images: ObjectCache::default(),
            own: ObjectCache::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            sums: Arc::new(Semaphore::new(SUMS)),
            jobs: JoinSet::new(),
            under_way: BTreeMap::new(),
            removing: BTreeSet::new(),
            retries: Retries::new(FIRST_RETRY, LAST_RETRY),
            swept: BTreeSet::new(),
        }
    }

    /// Runs until `stop`; the next process resumes unfinished jobs.
    pub(super) async fn run(mut self, mut asked: mpsc::Receiver<ImageRequest>, mut stop: Stop) {
        let follow = |kind: &str, plural: &'static str| {
            let api = longhorn(&self.client, kind, plural);
            steady(watcher::watcher(api, watcher::Config::default()), plural)
        };
        let mut images = std::pin::pin!(follow("BackingImage", "backingimages"));
        let mut nodes = std::pin::pin!(follow("Node", "nodes"));
        let mut checks = tokio::time::interval(CHECKS);
        let mut wait = None;
        loop {
            let news = tokio::select! {
                Some(event) = images.next() => ImageEvent::Image(event),
                Some(event) = nodes.next() => ImageEvent::Node(event),
                Some(ask) = asked.recv() => ImageEvent::Asked(ask),
                Some(ended) = self.jobs.join_next() => ImageEvent::Ended(ended),
                _ = checks.tick() => ImageEvent::Check,
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {
                    ImageEvent::Retry
                }
                () = stop.requested() => ImageEvent::Stop,
            };
            if matches!(news, ImageEvent::Stop) {
                return;
            }
            let is_check = matches!(news, ImageEvent::Check);
            self.apply(news);
            if self.images.is_complete() && self.own.is_complete() {
                wait = self.act();
                if is_check {
                    self.check();
                }
            }
        }
    }

    fn apply(&mut self, news: ImageEvent) {
        match news {
            ImageEvent::Image(event) => self.images.apply(event, by_name),
            ImageEvent::Node(event) => {
                let node = &self.node;
                self.own.apply(event, |it| {
                    let name = it.metadata.name.clone()?;
                    let disks = (name == *node).then(|| backing_image::disks(it));
                    Some((name, disks))
                });
            }
            ImageEvent::Asked(ask) => self.answer(ask),
            ImageEvent::Ended(ended) => {
                self.under_way.retain(|_, handle| !handle.is_finished());
                self.removing.retain(|uid| self.under_way.contains_key(uid));
                match ended {
                    Ok(end) => self.note(end),
                    Err(failure) if failure.is_cancelled() => {}
                    Err(failure) => tracing::error!(error = %failure, "work on an image panicked"),
                }
            }
            ImageEvent::Check | ImageEvent::Retry | ImageEvent::Stop => {}
        }
    }

    fn note(&mut self, end: JobEnd) {
        if let Some(object) = end.object {
            if let Some(uid) = &object.metadata.uid {
                self.retries.succeed(uid);
            }
            self.images.answer(*object, by_name);
        }
        let all = self.images.all();
        self.retries.retain(|uid| all.values().any(|image| image.uid == *uid));
        let held = end.held_back.and_then(|uid| all.values().find(|image| image.uid == uid));
        if let Some(image) = held {
            self.retries.fail(image.uid.clone(), wish(image), Instant::now());
        }
    }

    fn world<T>(&self, ask: impl FnOnce(&ImageWorld<'_>) -> T) -> T {
        let disks = self.own.iter().flat_map(|(_, disks)| disks.clone()).collect();
        let under_way: BTreeSet<String> = self.under_way.keys().cloned().collect();
        ask(&ImageWorld {
            images: self.images.all(),
            disks: &disks,
            under_way: &under_way,
            removing: &self.removing,
        })
    }

    /// Starts what is to be done; returns when to try again what failed.
    fn act(&mut self) -> Option<Duration> {
        self.sweep();
        let mut wait = None;
        for action in self.world(plan) {
            let pause = action.image().and_then(|name| {
                let image = self.images.all().get(name)?;
                self.retries.pause(&image.uid, &wish(image), Instant::now())
            });
            wait = sooner(wait, pause);
            if pause.is_none() {
                self.start(action);
            }
        }
        wait
    }

    fn start(&mut self, action: ImageAction) {
        match action {
            ImageAction::Import { image, at } => {
                if let Some(job) = self.job(&image, at) {
                    self.spawn_written(job.image.uid.clone(), job.import());
                }
            }
            ImageAction::Await { image, at, was_coming } => {
                if let Some(job) = self.job(&image, at) {
                    let message = if was_coming { "the upload was interrupted" } else { "" };
                    self.spawn_written(job.image.uid.clone(), job.wait(message));
                }
            }
            ImageAction::Cancel { uid } => {
                if let Some(handle) = self.under_way.get(&uid) {
                    handle.abort();
                }
            }
            ImageAction::Remove { image, from } => {
                let Some(known) = self.images.all().get(&image).cloned() else { return };
                let (client, node) = (self.client.clone(), self.node.clone());
                self.removing.insert(known.uid.clone());
                self.spawn(known.uid.clone(), async move {
                    if let Err(failure) = remove(&client, &node, &known.name, from).await {
                        let error = Chain(&failure).to_string();
                        match failure {
                            // A volume that is on its way out, mostly.
                            RemoveError::Used { .. } => {
                                debug!(image = known.name, error, "an image waits to go");
                            }
                            _ => warn!(image = known.name, error, "cannot delete image"),
                        }
                    }
                    JobEnd { object: None, held_back: Some(known.uid) }
                });
            }
        }
    }

    fn job(&self, image: &str, at: ImagePlacement) -> Option<Job> {
        let image = self.images.all().get(image)?.clone();
        let origin = match &image.source {
            ImageSource::Clone(wish) => self.world(|world| plan::file(world, &wish.image)),
            _ => None,
        };
        let (client, node) = (self.client.clone(), self.node.clone());
        let (turns, sums) = (Arc::clone(&self.turns), Arc::clone(&self.sums));
        let (storage, egress) = (self.storage.clone(), self.egress.clone());
        let most = self.max_image_size;
        Some(Job { client, node, image, at, origin, storage, egress, most, turns, sums })
    }

    /// Starts a job that the plan repeats unless the object says what came of it.
    fn spawn_written(
        &mut self,
        uid: String,
        work: impl Future<Output = Option<DynamicObject>> + Send + 'static,
    ) {
        let own = uid.clone();
        self.spawn(uid, async move {
            let end = JobEnd::written(work.await);
            let held_back = end.object.is_none().then_some(own);
            JobEnd { held_back, ..end }
        });
    }

    fn spawn(&mut self, uid: String, work: impl Future<Output = JobEnd> + Send + 'static) {
        let handle = self.jobs.spawn(work);
        self.under_way.insert(uid, handle);
    }

    /// Ends what was left to do with complete images, and removes folders of images that went
    /// while the agent was not running, once for each disk.
    fn sweep(&mut self) {
        let disks: Vec<(String, PathBuf)> =
            self.own.iter().flat_map(|(_, disks)| disks.clone()).collect();
        for (disk, path) in disks {
            if !self.swept.insert(disk) {
                continue;
            }
            // Read now: a folder that is made later belongs to an image that is not known yet.
            let found = backing_image::folders(&path);
            for (image, at) in self.world(|world| plan::ready(world, &path)) {
                let folder = Folder(at.folder.clone());
                if !(folder.is_settled() && folder.has_sums())
                    && let Some(job) = self.job(&image, at)
                {
                    self.spawn(job.image.uid.clone(), async move {
                        JobEnd::written(job.settle().await)
                    });
                }
            }
            let strays = self.world(|world| plan::strays(world, &path, found));
            for stray in strays {
                info!(folder = %stray.display(), "removing directory of deleted image");
                let key = stray.display().to_string();
                self.spawn(key, async move {
                    let folder = Folder(stray);
                    let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
                    if let Ok(Err(failure)) = removed {
                        warn!(error = %Chain(&failure), "cannot remove what is left of an image");
                    }
                    JobEnd::default()
                });
            }
        }
    }

    /// Compares complete images with their checksums, those whose time has come.
    fn check(&mut self) {
        let disks: Vec<PathBuf> =
            self.own.iter().flat_map(|(_, disks)| disks.values().cloned()).collect();
        let now = clock::now().as_second();
        for path in disks {
            for (image, at) in self.world(|world| plan::ready(world, &path)) {
                let is_due = check::is_due(Folder(at.folder.clone()).checked_at(), now);
                let copies = self.world(|world| plan::copies(world, &image));
                let job = self.job(&image, at).filter(|_| is_due);
                if let Some(job) = job.filter(|it| !self.under_way.contains_key(&it.image.uid)) {
                    let uid = job.image.uid.clone();
                    let work = job.check(copies);
                    self.spawn(uid, async move { JobEnd::written(work.await) });
                }
            }
        }
    }

    fn answer(&mut self, ask: ImageRequest) {
        match ask {
            ImageRequest::Upload(arrival) => self.receive(arrival),
            ImageRequest::Position { image, answer } => {
                let spot = self.world(|world| plan::upload(world, &image));
                // The caller may have given up.
                let _ = answer.send(spot.map(|at| Folder(at.folder).uploaded()));
            }
            ImageRequest::File { image, answer } => {
                let _ = answer.send(self.world(|world| plan::file(world, &image)));
            }
        }
    }

    /// An upload begins if its image waits for one.
    fn receive(&mut self, arrival: PendingUpload) {
        let PendingUpload { image, piece, body, answer } = arrival;
        let spot = self.world(|world| plan::upload(world, &image));
        let Some(job) = spot.and_then(|at| self.job(&image, at)) else {
            let _ = answer.send(Err(UploadError::NotExpected { image }));
            return;
        };
        self.spawn(job.image.uid.clone(), async move {
            let (result, object) = job.upload(body, piece).await;
            let is_ended = matches!(&object, Some(own) if is_ready(own, &job.at.disk));
            let _ = answer.send(result);
            JobEnd::written(if is_ended { job.settle().await.or(object) } else { object })
        });
    }
}

/// Whether the object says that the disk has all of it.
fn is_ready(object: &DynamicObject, disk: &str) -> bool {
    backing_image::image(object).is_some_and(|image| image.state(disk) == ImageState::Ready)
}

/// The image without its status, which jobs write: a change of the rest is a reason to try again.
fn wish(image: &Image) -> Image {
    Image { status: Value::Null, ..image.clone() }
}

fn by_name(object: &DynamicObject) -> Option<(String, Option<Image>)> {
    Some((object.metadata.name.clone()?, backing_image::image(object)))
}
