//! The controller of images on this node: watches backing images and carries out the plan. One task
//! owns the state, and each image has a task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, clock};
use client::Fault;
use futures_util::StreamExt as _;
use hci::longhorn::FINALIZER;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tracing::{debug, info, warn};

use super::check;
use super::files::Folder;
use super::import::Job;
use super::object::{self, Image, ImageSource, ImageState};
use super::plan::{self, ImageAction, ImagePlacement, ImageWorld, plan};
use super::{ImageRequest, PendingUpload, SUMS, TURNS, UploadError};
use crate::api::{merge, present};
use crate::egress::Egress;
use crate::storage::{StorageHandle, longhorn};
use crate::volume::{ObjectCache, steady};

/// How often the times of the last checks are looked at.
const CHECKS: Duration = Duration::from_secs(3600);
/// Before something that did not work is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(2);

pub(super) struct ImageController {
    client: Client,
    node: String,
    storage: StorageHandle,
    egress: Egress,
    images: ObjectCache<Image>,
    own: ObjectCache<BTreeMap<String, PathBuf>>,
    turns: Arc<Semaphore>,
    sums: Arc<Semaphore>,
    jobs: JoinSet<Option<DynamicObject>>,
    under_way: BTreeMap<String, AbortHandle>,
    /// Disks that nothing of an earlier time is left on.
    swept: BTreeSet<String>,
}

enum ImageEvent {
    Image(Event<DynamicObject>),
    Node(Event<DynamicObject>),
    Asked(ImageRequest),
    Ended(Result<Option<DynamicObject>, JoinError>),
    Check,
    Stop,
}

/// Why an image is not removed.
#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error("replica {replica} begins with it")]
    Used { replica: String },
    #[error("cannot check image users or release the image")]
    Request(#[source] Fault),
    #[error("cannot remove {}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("its removal was interrupted")]
    Interrupted,
}

impl ImageController {
    pub(super) fn new(
        client: Client,
        node: String,
        storage: StorageHandle,
        egress: Egress,
    ) -> Self {
        Self {
            client,
            node,
            storage,
            egress,
            images: ObjectCache::default(),
            own: ObjectCache::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            sums: Arc::new(Semaphore::new(SUMS)),
            jobs: JoinSet::new(),
            under_way: BTreeMap::new(),
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
        loop {
            let news = tokio::select! {
                Some(event) = images.next() => ImageEvent::Image(event),
                Some(event) = nodes.next() => ImageEvent::Node(event),
                Some(ask) = asked.recv() => ImageEvent::Asked(ask),
                Some(ended) = self.jobs.join_next() => ImageEvent::Ended(ended),
                _ = checks.tick() => ImageEvent::Check,
                () = stop.requested() => ImageEvent::Stop,
            };
            if matches!(news, ImageEvent::Stop) {
                return;
            }
            let is_check = matches!(news, ImageEvent::Check);
            self.apply(news);
            if self.images.is_complete() && self.own.is_complete() {
                self.act();
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
                    let disks = (name == *node).then(|| object::disks(it));
                    Some((name, disks))
                });
            }
            ImageEvent::Asked(ask) => self.answer(ask),
            ImageEvent::Ended(ended) => {
                self.under_way.retain(|_, handle| !handle.is_finished());
                match ended {
                    Ok(Some(object)) => self.images.answer(object, by_name),
                    Ok(None) => {}
                    Err(failure) if failure.is_cancelled() => {}
                    Err(failure) => tracing::error!(error = %failure, "work on an image panicked"),
                }
            }
            ImageEvent::Check | ImageEvent::Stop => {}
        }
    }

    fn world<T>(&self, ask: impl FnOnce(&ImageWorld<'_>) -> T) -> T {
        let disks = self.own.iter().flat_map(|(_, disks)| disks.clone()).collect();
        let under_way: BTreeSet<String> = self.under_way.keys().cloned().collect();
        ask(&ImageWorld { images: self.images.all(), disks: &disks, under_way: &under_way })
    }

    fn act(&mut self) {
        self.sweep();
        for action in self.world(plan) {
            self.start(action);
        }
    }

    fn start(&mut self, action: ImageAction) {
        match action {
            ImageAction::Import { image, at } => {
                if let Some(job) = self.job(&image, at) {
                    self.spawn(job.image.uid.clone(), job.import());
                }
            }
            ImageAction::Await { image, at, was_coming } => {
                if let Some(job) = self.job(&image, at) {
                    let message = if was_coming { "the upload was interrupted" } else { "" };
                    self.spawn(job.image.uid.clone(), job.wait(message));
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
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                    None
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
        Some(Job { client, node, image, at, origin, storage, egress, turns, sums })
    }

    fn spawn(
        &mut self,
        uid: String,
        work: impl Future<Output = Option<DynamicObject>> + Send + 'static,
    ) {
        let handle = self.jobs.spawn(work);
        self.under_way.insert(uid, handle);
    }

    /// Ends what was left to do with complete images, and removes folders of images that went
    /// while nobody was here to see it, once for each disk.
    fn sweep(&mut self) {
        let disks: Vec<(String, PathBuf)> =
            self.own.iter().flat_map(|(_, disks)| disks.clone()).collect();
        for (disk, path) in disks {
            if !self.swept.insert(disk) {
                continue;
            }
            // Read now: a folder that is made later belongs to an image that is not known yet.
            let found = object::folders(&path);
            for (image, at) in self.world(|world| plan::ready(world, &path)) {
                let folder = Folder(at.folder.clone());
                if !(folder.is_settled() && folder.has_sums())
                    && let Some(job) = self.job(&image, at)
                {
                    self.spawn(job.image.uid.clone(), async move { job.settle().await });
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
                    None
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
                    self.spawn(job.image.uid.clone(), job.check(copies));
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
            if is_ended { job.settle().await.or(object) } else { object }
        });
    }
}

/// Whether the object says that the disk has all of it.
fn is_ready(object: &DynamicObject, disk: &str) -> bool {
    object::image(object).is_some_and(|image| image.state(disk) == ImageState::Ready)
}

fn by_name(object: &DynamicObject) -> Option<(String, Option<Image>)> {
    Some((object.metadata.name.clone()?, object::image(object)))
}

/// Removes an image from this node's disks, unless a replica here needs it, and lets it go.
async fn remove(
    client: &Client,
    node: &str,
    name: &str,
    from: Vec<PathBuf>,
) -> Result<(), RemoveError> {
    let request = |failure| RemoveError::Request(Fault(failure));
    let replicas = longhorn(client, "Replica", "replicas");
    let replicas = replicas.list(&ListParams::default()).await.map_err(request)?;
    let uses = |it: &&DynamicObject| {
        it.data["spec"]["backingImage"] == name && it.data["spec"]["nodeID"] == node
    };
    if let Some(user) = replicas.items.iter().find(uses) {
        let replica = user.metadata.name.clone().unwrap_or_default();
        return Err(RemoveError::Used { replica });
    }
    for path in from {
        let folder = Folder(path.clone());
        let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
        let removed = removed.map_err(|_| RemoveError::Interrupted)?;
        removed.map_err(|source| RemoveError::File { path, source })?;
    }
    let api = longhorn(client, "BackingImage", "backingimages");
    let Some(found) = present(api.get_metadata(name).await).map_err(request)? else {
        return Ok(());
    };
    let finalizers = found.metadata.finalizers.unwrap_or_default();
    let rest: Vec<&String> = finalizers.iter().filter(|own| *own != FINALIZER).collect();
    let patch = json!({"metadata": {
        "resourceVersion": found.metadata.resource_version, "finalizers": rest,
    }});
    present(merge(&api, name, &patch).await).map_err(request)?;
    info!(image = name, "image is removed");
    Ok(())
}
