//! Fills the volume of a claim with its content, and reports the progress.
//!
//! The progress is written to the claim in CDI's annotations; data volumes repeat it. A temporary
//! failure is retried forever, and reported; a failure caused by the image is final.

use std::io;
use std::time::Duration;

use base::{Backoff, Chain};
use client::Fault;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use tracing::{debug, info, warn};
use virt::reason::FillFailure;

use super::checksum::{Checksum, ChecksumError, Mismatch};
use super::clone::CloneError;
use super::controller::VolumeContext;
use super::fetch::{Access, Download, FetchEnd, FetchError};
use super::gauge::{Gauge, StallReason};
use super::image::{self, ConvertError, TemporaryFile};
use super::lookup::{self, LookupError};
use super::object::{Claim, FillProgress};
use super::registry::PullError;
use super::replicated::{self, ReplicatedError};
use super::source::{FillSource, RemoteSource};
use super::status_writer::ClaimStatusWriter;
use crate::event::EventNote;
use qemu::image::{ReceiveError, Received, receive::receive};

const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Why a claim is not filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Clone(#[from] CloneError),
    #[error(transparent)]
    Replicated(#[from] ReplicatedError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(
        "Virtual image size is larger than the reported available storage {room}. A larger PVC is \
         required: the image has more than {most} bytes"
    )]
    Overlong { most: u64, room: u64 },
    #[error("cannot fill a volume from {what}")]
    Unsupported { what: String },
    #[error("cannot {doing}")]
    File { doing: &'static str, source: io::Error },
    #[error("cannot write to the claim")]
    Report(#[source] Fault),
    #[error("the image did not arrive completely")]
    Interrupted,
}

impl FillError {
    /// Whether trying again is of no use.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Fetch(failure) => failure.is_final(),
            Self::Receive(failure) => match failure {
                ReceiveError::Refused(_) | ReceiveError::TooLarge { .. } | ReceiveError::Empty => {
                    true
                }
                // Bytes that arrived and make no sense to the decoder.
                ReceiveError::Read(source) => source.kind() != io::ErrorKind::ConnectionAborted,
                ReceiveError::Write { .. } => false,
            },
            Self::Convert(failure) => failure.is_final(),
            Self::Pull(failure) => failure.is_final(),
            Self::Clone(failure) => failure.is_final(),
            Self::Checksum(_) | Self::Mismatch(_) => true,
            Self::Replicated(_) => false,
            Self::Unsupported { .. } | Self::Overlong { .. } => true,
            Self::Lookup(_) | Self::File { .. } | Self::Report(_) | Self::Interrupted => false,
        }
    }

    fn reason(&self) -> FillFailure {
        match self {
            Self::Clone(failure) => failure.reason(),
            Self::Pull(_) => FillFailure::ImagePull,
            _ => FillFailure::Error,
        }
    }

    pub(super) fn trouble(&self) -> StallReason {
        StallReason { reason: self.reason(), message: Chain(self).to_string() }
    }
}

/// A claim that is to be filled.
pub(super) struct Job {
    pub(super) shared: VolumeContext,
    pub(super) volume: String,
    pub(super) claim: Claim,
    pub(super) source: FillSource,
}

impl Job {
    /// Works until the claim is filled or cannot be. Dropping it stops it; the next attempt
    /// removes what is left behind.
    pub(super) async fn run(self) -> Result<Option<PersistentVolumeClaim>, FillError> {
        let mut writer = ClaimStatusWriter::new(self.shared.client.clone(), &self.claim);
        self.work(&mut writer).await?;
        Ok(writer.into_claim())
    }

    async fn work(&self, writer: &mut ClaimStatusWriter) -> Result<(), FillError> {
        // The watch may be older than our own writes.
        let now = writer.read_claim().await.map_err(FillError::Report)?;
        if now.is_none_or(|claim| claim.progress == FillProgress::Over) {
            return Ok(());
        }
        if self.source == FillSource::Upload {
            return writer.ready().await.map_err(FillError::Report);
        }
        let gauge = Gauge::default();
        writer.begun().await.map_err(FillError::Report)?;
        let result = {
            let work = std::pin::pin!(self.persist(&gauge));
            writer.follow(&gauge, work).await
        };
        self.sweep().await;
        let about = self.claim.reference();
        match result {
            Ok(()) => {
                info!(claim = self.claim.name, namespace = self.claim.namespace, "claim filled");
                writer.succeeded().await.map_err(FillError::Report)
            }
            Err(failure) => {
                let trouble = failure.trouble();
                warn!(
                    claim = self.claim.name,
                    namespace = self.claim.namespace,
                    error = trouble.message,
                    "claim cannot be filled"
                );
                let note = EventNote::warning("ImportFailed", trouble.message.clone());
                self.shared.reporter.report(&about, note).await;
                writer.failed(&trouble).await.map_err(FillError::Report)
            }
        }
    }

    /// Tries until it works or is hopeless.
    async fn persist(&self, gauge: &Gauge) -> Result<(), FillError> {
        let mut backoff = Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY);
        loop {
            self.sweep().await;
            let failure = match self.attempt(gauge).await {
                Err(failure) if !failure.is_final() => failure,
                result => return result,
            };
            let pause = backoff.delay();
            let StallReason { reason, message } = failure.trouble();
            let message = format!("{message}; trying again in {} s", pause.as_secs());
            debug!(volume = self.volume, error = message, "filling is held up");
            gauge.stumble(StallReason { reason, message });
            tokio::time::sleep(pause).await;
            gauge.recover();
        }
    }

    async fn attempt(&self, gauge: &Gauge) -> Result<(), FillError> {
        match &self.source {
            FillSource::Http(remote) => self.http(remote, gauge).await,
            FillSource::Registry(remote) => self.registry(remote, gauge).await,
            FillSource::Clone { namespace, name } => {
                let copy = self.shared.clone_claim(namespace, name, &self.volume, self.claim.size);
                let scratch = copy.run(gauge).await?;
                self.publish(scratch).await
            }
            // The disk was empty when it was made.
            FillSource::Blank | FillSource::Upload => Ok(()),
            FillSource::Unsupported(what) => Err(FillError::Unsupported { what: what.clone() }),
        }
    }

    async fn access(&self, remote: &RemoteSource) -> Result<Access, LookupError> {
        let VolumeContext { client, egress, .. } = &self.shared;
        lookup::access(client, egress, &self.claim.namespace, remote).await
    }

    async fn http(&self, remote: &RemoteSource, gauge: &Gauge) -> Result<(), FillError> {
        let checksum = match remote.checksum.as_str() {
            "" => None,
            text => Some(Checksum::parse(text)?),
        };
        let access = self.access(remote).await?;
        let mut download = Download::new(&remote.url, access, checksum)?;
        let (sender, feed) = qemu::image::feed();
        let scratch = TemporaryFile(self.shared.disks.scratch(&self.volume));
        let (path, most) = (scratch.0.clone(), image::most(self.claim.size));
        let receiving = tokio::task::spawn_blocking(move || receive(feed, &path, most, |_| {}));
        let ended = download.run(Some(&sender), gauge).await;
        if ended.is_err() {
            let _ = sender.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
        }
        drop(sender);
        let received = receiving.await.map_err(|_| FillError::Interrupted)?;
        let ended = ended?;
        received.map_err(|failure| measured(failure, self.claim.size))?;
        if download.checksum.is_some() && ended == FetchEnd::Closed {
            // A decoder that has all it wants leaves the rest to us.
            download.run(None, gauge).await?;
        }
        if let Some(checksum) = download.checksum.take() {
            checksum.finish()?;
        }
        self.finish(scratch, gauge).await
    }

    async fn registry(&self, remote: &RemoteSource, gauge: &Gauge) -> Result<(), FillError> {
        let access = self.access(remote).await?;
        let scratch = TemporaryFile(self.shared.disks.scratch(&self.volume));
        super::registry::extract(&remote.url, &access, None, &scratch.0, gauge).await?;
        self.finish(scratch, gauge).await
    }

    /// From an image in a file to the claim's disk.
    async fn finish(&self, scratch: TemporaryFile, gauge: &Gauge) -> Result<(), FillError> {
        finish(&self.shared, &self.volume, self.claim.size, scratch, gauge).await
    }

    async fn publish(&self, complete: TemporaryFile) -> Result<(), FillError> {
        publish(&self.shared, &self.volume, self.claim.size, complete).await
    }

    async fn sweep(&self) {
        let (disks, volume) = (self.shared.disks.clone(), self.volume.clone());
        let swept = tokio::task::spawn_blocking(move || disks.sweep(&volume)).await;
        if let Ok(Err(failure)) = swept {
            warn!(volume = self.volume, error = %Chain(&failure), "cannot remove leftovers");
        }
    }
}

/// Turns an image in a file into a volume's disk.
pub(super) async fn finish(
    shared: &VolumeContext,
    volume: &str,
    size: u64,
    scratch: TemporaryFile,
    gauge: &Gauge,
) -> Result<(), FillError> {
    let at = shared.disks.scratch(volume);
    let complete = image::to_disk(&scratch.0, &at, Some(size), gauge).await;
    let complete = complete.inspect_err(|_| drop(std::fs::remove_file(&at)))?;
    publish(shared, volume, size, TemporaryFile(complete)).await
}

async fn publish(
    shared: &VolumeContext,
    volume: &str,
    size: u64,
    complete: TemporaryFile,
) -> Result<(), FillError> {
    if let Some(handle) = shared.handles.of(volume) {
        return Ok(replicated::write(shared, &handle, &complete.0, size).await?);
    }
    let (disks, volume) = (shared.disks.clone(), volume.to_owned());
    let published =
        tokio::task::spawn_blocking(move || disks.publish(&volume, &complete.0, size)).await;
    published
        .map_err(|_| FillError::Interrupted)?
        .map_err(|source| FillError::File { doing: "put the disk into its place", source })
}

/// Takes in an image that a client sends.
pub(super) async fn take_in(
    shared: &VolumeContext,
    volume: &str,
    size: u64,
    feed: qemu::image::receive::Feed,
    gauge: &Gauge,
) -> Result<Received, FillError> {
    let disks = shared.disks.clone();
    let scratch = TemporaryFile(disks.scratch(volume));
    let (path, most) = (scratch.0.clone(), image::most(size));
    let receiving = tokio::task::spawn_blocking(move || receive(feed, &path, most, |_| {}));
    let received = receiving.await.map_err(|_| FillError::Interrupted)?;
    let received = received.map_err(|failure| measured(failure, size))?;
    finish(shared, volume, size, scratch, gauge).await?;
    Ok(received)
}

/// The error of an image that is too long also reports the available size.
fn measured(failure: ReceiveError, room: u64) -> FillError {
    match failure {
        ReceiveError::TooLarge { most } => FillError::Overlong { most, room },
        failure => failure.into(),
    }
}
