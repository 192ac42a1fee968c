//! The volumes of this node: disks in files, made for claims, filled, grown and removed.
//!
//! A claim that our provisioner is to serve on this node gets a directory with a sparse raw disk
//! and a PersistentVolume that points at it; `controllers` bind the two. The claim says what is to
//! be on the disk, in CDI's annotations, and the progress of the filling is reported in the same
//! way. Decisions are in `plan`; `keep` carries them out. Container disks, which are no claims,
//! are kept in `cache`.
//!
//! Refuses to remove files that no volume of ours accounts for.

mod cache;
mod checksum;
mod clone;
mod controller;
mod disk;
mod export;
mod fetch;
mod fill;
mod gauge;
mod image;
mod import_cron;
mod lookup;
mod object;
mod plan;
mod provision;
mod readers;
mod receive;
mod registry;
mod replicated;
mod source;
mod status_writer;
mod upload;

use std::io;
use std::path::{Path, PathBuf};

use base::Tasks;
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;
use tokio::sync::{mpsc, oneshot};

use self::cache::Images;
use self::controller::{VolumeContext, VolumeController, VolumeHandles};
use self::disk::Disks;
use self::readers::Readers;
use self::receive::PendingCopy;
use self::upload::PendingUpload;
use crate::change_notifier::ChangeNotifier;
use crate::config::Config;
use crate::egress::Egress;
use crate::event::Reporter;
use crate::storage::StorageHandle;

pub(crate) use cache::{ContainerDisk, Content, MissingDisk, PullPolicy, WantedContainerDisk};
pub(crate) use checksum::hex;
pub(crate) use disk::{remove_slowly, sync};
pub(crate) use export::{Export, ExportError, ExportSelection as WantedExport};
pub(crate) use fetch::{Access, ContentMark, Download, FetchError};
pub(crate) use gauge::Gauge;
pub(crate) use image::{
    ConvertError, RESERVE, TemporaryFile, disk_of, hand_to_reader, shortage, tool,
};
pub(crate) use object::UnusableVolume;
pub(crate) use receive::{ReceiveError, ReceivedCopy};
pub(crate) use source::unfilled;
pub(crate) use upload::{UploadError, drain, pump};

/// Uploads, and exports, that wait for their turn to begin.
const WAITING: usize = 16;

/// Why there are no volumes on this node.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the directory of volumes {}", path.display())]
pub(crate) struct VolumesError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Requests of the rest of the agent about volumes; clones share the same controller.
#[derive(Clone)]
pub(crate) struct Volumes {
    client: Client,
    node: String,
    disks: Disks,
    readers: Readers,
    images: Images,
    copies: mpsc::Sender<PendingCopy>,
    uploads: mpsc::Sender<PendingUpload>,
    exports: mpsc::Sender<export::ExportRequest>,
}

impl Volumes {
    /// Begins to keep the volumes of this node; ends with `tasks`.
    ///
    /// `notifier` is notified when a disk has grown, is no longer copied, or has been pulled.
    pub(crate) fn start(
        client: Client,
        config: &Config,
        storage: StorageHandle,
        egress: &Egress,
        notifier: ChangeNotifier,
        tasks: &Tasks,
    ) -> Result<Self, VolumesError> {
        let path = config.data_dir.join("volumes");
        let failed = |source| VolumesError { path: path.clone(), source };
        let disks = Disks::open(path.clone()).map_err(failed)?;
        let found = disks.scan().map_err(failed)?;
        let root = config.data_dir.join("images");
        let node = config.node_name.clone();
        let (own, to) = (client.clone(), egress.clone());
        let images = Images::start(own, to, node, root.clone(), notifier.clone(), tasks)
            .map_err(|source| VolumesError { path: root, source })?;
        let readers = Readers::new(notifier.clone());
        let shared = VolumeContext {
            reporter: Reporter::new(client.clone(), &config.node_name),
            client,
            node: config.node_name.clone(),
            disks,
            readers: readers.clone(),
            storage,
            handles: VolumeHandles::default(),
            notifier,
            egress: egress.clone(),
        };
        let looker = import_cron::SourcePoller {
            client: shared.client.clone(),
            node: shared.node.clone(),
            reporter: shared.reporter.clone(),
            egress: egress.clone(),
        };
        tasks.spawn("import-crons", looker.run(tasks.stop_signal()));
        let (exports, requests) = mpsc::channel(WAITING);
        let exporter = export::run(shared.clone(), requests, tasks.stop_signal());
        tasks.spawn("volume-exports", exporter);
        let (uploads, arrivals) = mpsc::channel(WAITING);
        let (copies, received) = mpsc::channel(WAITING);
        let VolumeContext { client, node, disks, .. } = shared.clone();
        let keeper = VolumeController::new(shared, found);
        tasks.spawn("volumes", keeper.run(arrivals, received, tasks.stop_signal()));
        Ok(Self { client, node, disks, readers, images, uploads, exports, copies })
    }

    /// Takes in an image for a volume that waits for one; returns when it is in place.
    pub(crate) async fn upload(&self, volume: String, body: Incoming) -> Result<(), UploadError> {
        let (answer, answered) = oneshot::channel();
        let arrival = PendingUpload { volume, body, answer };
        self.uploads.send(arrival).await.map_err(|_| UploadError::Stopped)?;
        answered.await.map_err(|_| UploadError::Stopped)?
    }

    /// Begins to read a volume of this node, for a client to download.
    pub(crate) async fn export(&self, wanted: WantedExport) -> Result<Export, ExportError> {
        let (answer, answered) = oneshot::channel();
        let request = export::ExportRequest { wanted, answer };
        self.exports.send(request).await.map_err(|_| ExportError::Stopped)?;
        answered.await.map_err(|_| ExportError::Stopped)?
    }

    /// The disk of a container image, to be read by machines and written by none. It does not wait
    /// for a long pull: the caller asks again.
    pub(crate) async fn container_disk(
        &self,
        wanted: &WantedContainerDisk,
    ) -> Result<ContainerDisk, MissingDisk> {
        self.images.disk(wanted).await
    }

    /// The local volume whose disk a path is.
    pub(crate) fn volume_of(&self, path: &Path) -> Option<String> {
        self.disks.volume_of(path)
    }

    /// The disk of a volume that this provisioner has made, for the instance with this uid; nothing
    /// for volumes of others.
    pub(crate) fn disk_of(
        &self,
        volume: &PersistentVolume,
        uid: &str,
    ) -> Option<Result<PathBuf, UnusableVolume>> {
        let name = volume.metadata.name.as_deref().filter(|_| object::is_ours(volume))?;
        // Nodes keep volumes in directories of their own; that of its first node is in the object.
        Some(object::check_usable(volume, &self.node, uid).map(|()| self.disks.disk(name)))
    }

    /// Whether a disk is being copied and so must not be written to now.
    pub(crate) fn is_being_copied(&self, volume: &str) -> bool {
        self.readers.has(volume)
    }
}
