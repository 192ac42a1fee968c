//! The steps from a download to a complete image: receive, verify, decompress, convert to a raw
//! disk, move into place; and the steps that follow while it is in use already.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Chain;
use kube::Client;
use kube::api::DynamicObject;
use qemu::image::receive::{Compression, receive};
use qemu::image::{ImageKind, ReceiveError, check_header};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::cancel::CancelGuard;
use super::error::ImportError;
use super::files::{Fetched, Folder, ImageFacts};
use super::intake::ImageForm;
use super::plan::ImagePlacement;
use super::status_writer::ImageStatusWriter;
use crate::backing_image::{Image, ImageSource};
use crate::egress::Egress;
use crate::storage::StorageHandle;
use crate::volume::{
    Access, ConvertError, Download, FetchError, Gauge, RESERVE, TemporaryFile, disk_of,
};

/// Connections in a row that bring nothing, once a download has begun.
const MAX_EMPTY_CONNECTIONS: u32 = 5;

/// Work on one image on one disk. Dropping it stops it; the next attempt goes on or removes
/// what is left behind.
pub(super) struct Job {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) image: Image,
    pub(super) at: ImagePlacement,
    /// The complete image that it is made of, if it is and this node has it.
    pub(super) origin: Option<PathBuf>,
    pub(super) storage: StorageHandle,
    pub(super) egress: Egress,
    /// Bytes that a downloaded or uploaded image may have, as it comes and as a disk.
    pub(super) most: u64,
    /// How many may work at a time, and how many may sum what is complete.
    pub(super) turns: Arc<Semaphore>,
    pub(super) sums: Arc<Semaphore>,
}

impl Job {
    pub(super) fn status_writer(&self) -> ImageStatusWriter {
        ImageStatusWriter::new(self.client.clone(), &self.node, &self.image, &self.at.disk)
    }

    pub(super) fn folder(&self) -> Folder {
        Folder(self.at.folder.clone())
    }

    /// Works until the image is complete or cannot be; answers its object.
    pub(super) async fn import(self) -> Option<DynamicObject> {
        let turn = self.turns.acquire().await;
        let mut writer = self.status_writer();
        let gauge = Gauge::default();
        match self.persist(&gauge, &mut writer).await {
            Ok(facts) => {
                info!(image = self.image.name, bytes = facts.virtual_size, "image is complete");
                writer.ready(&facts).await;
                drop(turn);
                return self.settle().await.or(writer.last);
            }
            Err(failure) => {
                let message = Chain(&failure).to_string();
                warn!(image = self.image.name, error = message, "image cannot be imported");
                // Its room goes back before the failure is reported.
                self.clear().await;
                writer.failed(gauge.whole_percent().unwrap_or(0), &message).await;
            }
        }
        writer.last
    }

    async fn persist(
        &self,
        gauge: &Gauge,
        writer: &mut ImageStatusWriter,
    ) -> Result<ImageFacts, ImportError> {
        if let Some(facts) = self.prepare().await? {
            return Ok(facts);
        }
        let url = match &self.image.source {
            ImageSource::Download { url } => url.clone(),
            ImageSource::Export { volume } => {
                writer.coming(1, None).await;
                let work = std::pin::pin!(self.export(volume, gauge));
                return writer.follow(gauge, work).await;
            }
            ImageSource::Clone(wish) => {
                writer.coming(1, None).await;
                let work = std::pin::pin!(self.clone_image(wish, gauge));
                return writer.follow(gauge, work).await;
            }
            ImageSource::Upload => return Err(ImportError::Interrupted),
            ImageSource::Unsupported { what } => {
                return Err(ImportError::Unsupported { what: what.clone() });
            }
        };
        self.check_wish()?;
        writer.coming(0, None).await;
        let (mut download, at) = self.begin(&url).await?;
        writer.coming(1, download.length()).await;
        let work = std::pin::pin!(async {
            let fetched = self.fetch(&mut download, at, gauge).await?;
            self.make(&fetched, gauge).await
        });
        writer.follow(gauge, work).await
    }

    /// Finishes a complete image that is in use already: computes its sum, if none was given, and
    /// removes its source. Returns its object if that has changed.
    pub(super) async fn settle(&self) -> Option<DynamicObject> {
        let _turn = self.sums.acquire().await;
        let halt = CancelGuard::default();
        let (goes_on, goes_on_summing) = (halt.asked(), halt.asked());
        let sum = move |folder: Folder| folder.sum(goes_on);
        let mut writer = self.status_writer();
        let settled = async {
            let facts = self.blocking(sum, "sum the image").await?;
            if let Some(facts) = facts.filter(|facts| !facts.checksum.is_empty()) {
                writer.ready(&facts).await;
            }
            let rest = "remove what the image was made of";
            self.blocking(|folder| folder.start_over(), rest).await?;
            let sums = move |folder: Folder| match folder.has_sums() {
                true => Ok(()),
                false => folder.record_sums(goes_on_summing),
            };
            self.blocking(sums, "record checksums of the image").await
        };
        if let Err(failure) = settled.await {
            warn!(image = self.image.name, error = %Chain(&failure), "cannot compute image checksum");
        }
        writer.last
    }

    pub(super) async fn prepare(&self) -> Result<Option<ImageFacts>, ImportError> {
        let open = |folder: Folder| folder.open().map(|()| folder.facts());
        self.blocking(open, "make the folder of the image").await
    }

    pub(super) fn check_wish(&self) -> Result<(), ImportError> {
        let text = &self.image.checksum;
        let is_sum = text.len() == 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if text.is_empty() || is_sum {
            return Ok(());
        }
        Err(ImportError::BadChecksum { text: text.clone() })
    }

    /// Whether it matters what the sum is before the image may be used.
    pub(super) fn is_summed(&self) -> bool {
        !self.image.checksum.is_empty()
    }

    pub(super) fn check_limit(&self, size: u64) -> Result<(), ImportError> {
        if size > self.most { Err(ImportError::OverLimit { most: self.most }) } else { Ok(()) }
    }

    /// The bytes that are read of a stream that goes on at `at`: one more than it may have.
    pub(super) fn readable(&self, at: u64) -> u64 {
        self.most.saturating_add(1).saturating_sub(at)
    }

    pub(super) async fn check_room(&self, needed: u64) -> Result<(), ImportError> {
        let free = self.blocking(|folder| folder.room(), "check the free space").await?;
        let free = free.saturating_sub(RESERVE);
        if needed > free { Err(ImportError::NoRoom { needed, free }) } else { Ok(()) }
    }

    fn access(&self) -> Access {
        Access { egress: self.egress.clone(), ..Access::default() }
    }

    /// Asks the server, for the rest if a part is there.
    async fn begin(&self, url: &str) -> Result<(Download, u64), ImportError> {
        let fail = |failure| match failure {
            FetchError::Status { code } => {
                ImportError::Status { code: code.as_u16(), url: url.to_owned() }
            }
            failure => ImportError::Fetch(failure),
        };
        let new = || Download::new(url, self.access(), None).map_err(fail);
        let partial = self.blocking(|folder| Ok(folder.partial()), "check for a part").await?;
        if let Some((at, mark)) = partial {
            let mut download = new()?;
            download.resume(at, &mark);
            match download.prepare().await {
                Ok(()) => {
                    info!(image = self.image.name, at, "download resumed");
                    download.limit_fruitless_connections(MAX_EMPTY_CONNECTIONS);
                    return Ok((download, at));
                }
                Err(FetchError::Changed) => {}
                Err(failure) => return Err(fail(failure)),
            }
        }
        self.blocking(|folder| folder.start_over(), "start over").await?;
        let mut download = new()?;
        download.prepare().await.map_err(fail)?;
        if let Some(length) = download.length() {
            self.check_limit(length)?;
            self.check_room(length).await?;
        }
        let mark = download.mark();
        self.blocking(move |folder| folder.note(mark.as_ref()), "note a download").await?;
        download.limit_fruitless_connections(MAX_EMPTY_CONNECTIONS);
        Ok((download, 0))
    }

    async fn fetch(
        &self,
        download: &mut Download,
        at: u64,
        gauge: &Gauge,
    ) -> Result<Fetched, ImportError> {
        let (sender, feed) = qemu::image::feed();
        let (sums, feed) = (self.is_summed(), feed.take(self.readable(at)));
        let storing = self.blocking(move |folder| folder.store(feed, at, sums), "store the image");
        let fetching = async {
            let ended = download.run(Some(&sender), gauge).await;
            if ended.is_err() {
                let _ = sender.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
            }
            drop(sender);
            ended
        };
        let (ended, fetched) = tokio::join!(fetching, storing);
        // First: the connection breaks when no more of an image is read that is too long.
        if let Ok(fetched) = &fetched {
            self.check_limit(fetched.size)?;
        }
        ended.map_err(ImportError::Fetch)?;
        fetched
    }

    /// From what was fetched to what volumes begin as.
    pub(super) async fn make(
        &self,
        fetched: &Fetched,
        gauge: &Gauge,
    ) -> Result<ImageFacts, ImportError> {
        let expected = self.image.checksum.to_ascii_lowercase();
        if !expected.is_empty() && expected != fetched.checksum {
            gauge.set(1.0);
            let found = fetched.checksum.clone();
            return Err(ImportError::Mismatch { expected, found });
        }
        if fetched.size == 0 {
            return Err(ReceiveError::Empty.into());
        }
        let kind = check_header(&self.folder().download()).map_err(ConvertError::from)?;
        let disk = match fetched.form {
            ImageForm::Disk => {
                self.check_sectors(kind, fetched.size)?;
                TemporaryFile(self.folder().disk())
            }
            ImageForm::Parts => {
                let size = fetched.size;
                self.blocking(move |folder| folder.restore(size), "put the image together").await?;
                self.convert(kind, fetched.size, gauge).await?
            }
            ImageForm::Whole => self.convert(kind, fetched.size, gauge).await?,
        };
        let path = disk.0.clone();
        let length = self.blocking(move |_| Ok(path.metadata()?.len()), "find the disk").await?;
        self.check_limit(length)?;
        let fetched = Fetched { checksum: fetched.checksum.clone(), ..*fetched };
        let publish = move |folder: Folder| {
            let disk = disk;
            folder.publish(&disk.0, &fetched)
        };
        self.blocking(publish, "put the image into its place").await
    }

    /// From an image in one piece to a raw disk.
    async fn convert(
        &self,
        kind: ImageKind,
        size: u64,
        gauge: &Gauge,
    ) -> Result<TemporaryFile, ImportError> {
        let folder = self.folder();
        let at = folder.work();
        if kind != ImageKind::Raw {
            return Ok(TemporaryFile(self.disk_of(&folder.download(), &at, gauge).await?));
        }
        // It is compressed: its content is written with holes, and may be no raw disk either.
        let unpacked = self.unpack(size).await?;
        let disk = self.disk_of(&unpacked.0, &at, gauge).await?;
        Ok(if disk == unpacked.0 { unpacked } else { TemporaryFile(disk) })
    }

    async fn disk_of(&self, from: &Path, at: &Path, gauge: &Gauge) -> Result<PathBuf, ImportError> {
        disk_of(from, at, Some(self.most), gauge).await.map_err(|failure| match failure {
            ConvertError::TooLarge { .. } => ImportError::OverLimit { most: self.most },
            failure => failure.into(),
        })
    }

    /// An uploaded disk has whole sectors, or it was cut off.
    fn check_sectors(&self, kind: ImageKind, size: u64) -> Result<(), ImportError> {
        let is_sent = self.image.source == ImageSource::Upload && kind == ImageKind::Raw;
        if is_sent && !size.is_multiple_of(512) { Err(ImportError::Odd { size }) } else { Ok(()) }
    }

    async fn unpack(&self, size: u64) -> Result<TemporaryFile, ImportError> {
        let folder = self.folder();
        let room = self.blocking(|folder| folder.room(), "check the free space").await?;
        let most = room.saturating_sub(RESERVE).min(self.most);
        let unpacked = tokio::task::spawn_blocking(move || {
            let scratch = TemporaryFile(folder.work());
            let from = File::open(folder.download()).map_err(ReceiveError::Read)?;
            let received = receive(from, &scratch.0, most, |_| {})?;
            Ok((scratch, received))
        });
        let (scratch, received) = match unpacked.await.map_err(|_| ImportError::Interrupted)? {
            Err(ReceiveError::TooLarge { most }) if most == self.most => {
                return Err(ImportError::OverLimit { most });
            }
            Err(ReceiveError::TooLarge { most }) => return Err(ImportError::TooLarge { most }),
            result => result?,
        };
        if received.compression == Compression::None {
            self.check_sectors(ImageKind::Raw, size)?;
        }
        Ok(scratch)
    }

    pub(super) async fn clear(&self) {
        if let Err(failure) = self.blocking(|folder| folder.remove(), "remove leftovers").await {
            warn!(image = self.image.name, error = %Chain(&failure), "cannot remove files of image");
        }
    }

    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Folder) -> io::Result<T> + Send + 'static,
        doing: &'static str,
    ) -> Result<T, ImportError> {
        let folder = self.folder();
        let done = tokio::task::spawn_blocking(move || work(folder)).await;
        let done = done.map_err(|_| ImportError::Interrupted)?;
        done.map_err(|source| ImportError::File { doing, source })
    }
}
