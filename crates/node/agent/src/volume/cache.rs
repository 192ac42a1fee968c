//! Container disks of this node: `images/<digest>-<hash>/disk.img` in the data directory, raw, read
//! by any number of machines and written by none.
//!
//! Callers do not wait long for a pull: it goes on by itself, and callers get its progress
//! meanwhile. An image that no machine uses is removed after a day, or earlier when room gets
//! short.

mod entry;
mod keys;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop, Tasks, clock};
use kube::Client;
use kube::api::ListParams;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};
use virt::reason::NotSynchronized;

use self::entry::{CacheDir, Used};
use super::gauge::Gauge;
use super::image::{self, ConvertError, TemporaryFile};
use super::lookup::LookupError;
use super::registry::{Image, PullError};
use crate::api::vmis;
use crate::change_notifier::ChangeNotifier;
use crate::egress::Egress;

/// A pull that takes longer than this is asked for again by whoever wants it.
const PULL_WAIT: Duration = Duration::from_secs(3);
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(2);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);
const COLLECTION: Duration = Duration::from_secs(600);

/// When an image is fetched although there is one of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// The content type of a file in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// A disk in any format, kept as raw.
    Disk,
    /// Kept as it is: a kernel, an initial file system.
    Plain,
}

/// A container disk that a machine wants.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WantedContainerDisk {
    pub(crate) namespace: String,
    pub(crate) image: String,
    /// Which file of the image; the only one in `/disk` if none is named.
    pub(crate) path: Option<String>,
    pub(crate) content: Content,
    pub(crate) secret: Option<String>,
    pub(crate) policy: PullPolicy,
    /// The user of the disk: the same start of a machine does not ask a registry twice. Empty for
    /// users that accept the present version.
    pub(crate) user: String,
}

/// A container disk that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerDisk {
    pub(crate) path: PathBuf,
    /// The group that may read it, if machines have users of their own.
    pub(crate) group: Option<u32>,
}

/// Why a container disk is not here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingDisk {
    #[error("image {image:?} is being pulled{}", .percent.as_ref().map(|done| format!(" ({done})")).unwrap_or_default())]
    Pulling { image: String, percent: Option<String> },
    #[error("Failed to pull image {image:?}: {problem}")]
    Failed { image: String, problem: String },
    #[error("Back-off pulling image {image:?}: {problem}")]
    BackOff { image: String, problem: String },
    #[error("Container image {image:?} is not present with pull policy of Never")]
    Never { image: String },
}

impl MissingDisk {
    /// Kubernetes' word for it.
    pub(crate) fn reason(&self) -> NotSynchronized {
        match self {
            Self::Pulling { .. } => NotSynchronized::Pulling,
            Self::Failed { .. } => NotSynchronized::ImagePull,
            Self::BackOff { .. } => NotSynchronized::ImagePullBackOff,
            Self::Never { .. } => NotSynchronized::ImageNeverPull,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error(transparent)]
    Keys(#[from] keys::KeysError),
    #[error("cannot keep the image")]
    File(#[source] std::io::Error),
}

/// All container disks; clones share them.
#[derive(Clone)]
pub(crate) struct Images(Arc<CacheInner>);

struct CacheInner {
    client: Client,
    egress: Egress,
    node: String,
    shelf: CacheDir,
    tasks: Tasks,
    notifier: ChangeNotifier,
    pulls: Mutex<BTreeMap<WantedContainerDisk, Pull>>,
}

enum Pull {
    Running { gauge: Gauge, ended: watch::Receiver<()> },
    Done(ContainerDisk),
    Failed { problem: String, again: Instant, pauses: Backoff },
}

impl std::fmt::Debug for Images {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Images").field("shelf", &self.0.shelf).finish_non_exhaustive()
    }
}

impl Images {
    pub(super) fn start(
        client: Client,
        egress: Egress,
        node: String,
        root: PathBuf,
        notifier: ChangeNotifier,
        tasks: &Tasks,
    ) -> std::io::Result<Self> {
        let shelf = CacheDir::open(root)?;
        let pulls = Mutex::new(BTreeMap::new());
        let inner =
            CacheInner { client, egress, node, shelf, tasks: tasks.clone(), notifier, pulls };
        let images = Self(Arc::new(inner));
        tasks.spawn("images", images.clone().collect(tasks.stop_signal()));
        Ok(images)
    }

    /// The disk, if it is here or comes soon.
    pub(crate) async fn disk(
        &self,
        wanted: &WantedContainerDisk,
    ) -> Result<ContainerDisk, MissingDisk> {
        if wanted.policy != PullPolicy::Always
            && let Some(disk) =
                self.0.shelf.find(&wanted.namespace, &wanted.image, wanted.path.as_deref())
        {
            return Ok(disk);
        }
        let image = wanted.image.clone();
        if wanted.policy == PullPolicy::Never {
            return Err(MissingDisk::Never { image });
        }
        let (gauge, mut ended) = match self.ask(wanted) {
            PullRequest::Here(disk) => return Ok(disk),
            PullRequest::Later(problem) => return Err(MissingDisk::BackOff { image, problem }),
            PullRequest::Running(gauge, ended) => (gauge, ended),
        };
        let _ = tokio::time::timeout(PULL_WAIT, ended.changed()).await;
        match self.0.pulls.lock().get(wanted) {
            Some(Pull::Done(disk)) => Ok(disk.clone()),
            Some(Pull::Failed { problem, .. }) => {
                Err(MissingDisk::Failed { image, problem: problem.clone() })
            }
            _ => Err(MissingDisk::Pulling { image, percent: gauge.percent() }),
        }
    }

    /// The state of a pull; begins one if there is none.
    fn ask(&self, wanted: &WantedContainerDisk) -> PullRequest {
        let mut pulls = self.0.pulls.lock();
        let pauses = match pulls.get(wanted) {
            Some(Pull::Running { gauge, ended }) => {
                return PullRequest::Running(gauge.clone(), ended.clone());
            }
            Some(Pull::Done(disk)) if disk.path.exists() => return PullRequest::Here(disk.clone()),
            Some(Pull::Failed { problem, again, .. }) if Instant::now() < *again => {
                return PullRequest::Later(problem.clone());
            }
            Some(Pull::Failed { pauses, .. }) => pauses.clone(),
            _ => Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY),
        };
        let (end, ended) = watch::channel(());
        let gauge = Gauge::default();
        let running = Pull::Running { gauge: gauge.clone(), ended: ended.clone() };
        pulls.insert(wanted.clone(), running);
        let (images, wanted, own) = (self.clone(), wanted.clone(), gauge.clone());
        self.0.tasks.spawn("pull", async move {
            images.pull(wanted, own, pauses).await;
            drop(end);
        });
        PullRequest::Running(gauge, ended)
    }

    async fn pull(&self, wanted: WantedContainerDisk, gauge: Gauge, mut pauses: Backoff) {
        let mut stop = self.0.tasks.stop_signal();
        let stored = tokio::select! {
            stored = self.store(&wanted, &gauge) => stored,
            () = stop.requested() => return,
        };
        let pull = match stored {
            Ok(disk) => {
                info!(image = wanted.image, path = %disk.path.display(), "image pulled");
                Pull::Done(disk)
            }
            Err(failure) => {
                let problem = Chain(&failure).to_string();
                warn!(image = wanted.image, error = problem, "image cannot be pulled");
                let again = Instant::now() + pauses.delay();
                Pull::Failed { problem, again, pauses }
            }
        };
        self.0.pulls.lock().insert(wanted, pull);
        self.0.notifier.notify();
    }

    async fn store(
        &self,
        wanted: &WantedContainerDisk,
        gauge: &Gauge,
    ) -> Result<ContainerDisk, StoreError> {
        let CacheInner { client, egress, shelf, .. } = &*self.0;
        let secret = wanted.secret.as_deref();
        let access = keys::access(client, egress, &wanted.namespace, secret, &wanted.image).await?;
        let image = Image::new(&wanted.image, &access)?;
        let manifest = image.manifest().await?;
        let path = wanted.path.as_deref();
        let key = entry::key(&image.repository(), &manifest.digest, path);
        let named = shelf.name(&key, &wanted.namespace, &wanted.image, path);
        if let Some(disk) = named.map_err(StoreError::File)? {
            return Ok(disk);
        }
        let folder = shelf.begin().map_err(StoreError::File)?;
        let pulled = TemporaryFile(folder.path().join("image"));
        image.extract(&manifest, path, &pulled.0, gauge).await?;
        let disk = match wanted.content {
            Content::Disk => {
                image::to_disk(&pulled.0, &folder.path().join("raw"), None, gauge).await?
            }
            Content::Plain => pulled.0.clone(),
        };
        let (shelf, key, wanted) = (shelf.clone(), key, wanted.clone());
        let kept = tokio::task::spawn_blocking(move || {
            let WantedContainerDisk { namespace, image, path, .. } = &wanted;
            shelf.keep(&key, &folder, &disk, (namespace, image, path.as_deref()))
        });
        kept.await.map_err(std::io::Error::other).flatten().map_err(StoreError::File)
    }

    /// Removes unused images periodically.
    async fn collect(self, mut stop: Stop) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(COLLECTION) => {}
                () = stop.requested() => return,
            }
            let label = format!("kubevirt.io/nodeName={}", self.0.node);
            let list = vmis(&self.0.client).list(&ListParams::default().labels(&label)).await;
            let Ok(list) = list else { continue };
            let used = Used::of(list.items.iter().map(|vmi| &vmi.data));
            self.0.pulls.lock().retain(|_, pull| matches!(pull, Pull::Running { .. }));
            let shelf = self.0.shelf.clone();
            let removed = tokio::task::spawn_blocking(move || shelf.collect(&used, clock::now()));
            match removed.await.map_err(std::io::Error::other).flatten() {
                Ok(removed) if removed.is_empty() => debug!("all images are in use or young"),
                Ok(removed) => info!(images = removed.len(), "unused images removed"),
                Err(failure) => warn!(error = %Chain(&failure), "cannot remove unused images"),
            }
        }
    }
}

enum PullRequest {
    Here(ContainerDisk),
    Running(Gauge, watch::Receiver<()>),
    Later(String),
}
