//! An image that is made of all of a volume, read through its socket as a client of its own.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use qemu::image::ImageError;

use super::error::ImportError;
use super::files::{Fetched, Folder, ImageFacts};
use super::import::Job;
use super::intake::ImageForm;
use crate::storage::{HeldError, HeldVolume};
use crate::volume::{ConvertError, Gauge, TemporaryFile, hand_to_reader, shortage, tool};

/// Why a volume was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error(transparent)]
    Held(#[from] HeldError),
    #[error("cannot read volume {volume}")]
    Read { volume: String, source: ImageError },
}

impl Job {
    /// Attaches the volume for as long as it takes.
    pub(super) async fn export(
        &self,
        volume: &str,
        gauge: &Gauge,
    ) -> Result<ImageFacts, ImportError> {
        let ticket = format!("image-{}", self.image.uid);
        let held = self.storage.hold(volume, &ticket).await.map_err(ExportError::from)?;
        let read = self.read(volume, &held, gauge).await;
        held.release().await;
        read
    }

    async fn read(
        &self,
        volume: &str,
        held: &HeldVolume,
        gauge: &Gauge,
    ) -> Result<ImageFacts, ImportError> {
        let scratch = TemporaryFile(self.folder().work());
        let path = scratch.0.clone();
        let make = move |_| OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
        self.blocking(make, "make the image").await?;
        tokio::select! {
            copied = copy(volume, held, &scratch.0, gauge) => copied?,
            free = shortage(&scratch.0) => Err(ConvertError::NoRoom { free })?,
        }
        let (size, checksum) = (held.served.size, String::new());
        let fetched = Fetched { size, checksum, disk: None, form: ImageForm::Disk };
        let publish = move |folder: Folder| {
            let scratch = scratch;
            folder.publish(&scratch.0, &fetched)
        };
        self.blocking(publish, "put the image into its place").await
    }
}

async fn copy(
    volume: &str,
    held: &HeldVolume,
    to: &Path,
    gauge: &Gauge,
) -> Result<(), ImportError> {
    let tool = tool();
    hand_to_reader(to, &tool)?;
    let user = tool.identity.as_ref().map(|identity| identity.uid);
    let progress = |percent: f32| gauge.set(percent / 100.0);
    let reading = qemu::image::read_from_socket(&tool, &held.served.socket, to, progress);
    let read = held.open_to(user, reading).await.map_err(ExportError::from)?;
    let failed = |source| ExportError::Read { volume: volume.into(), source };
    Ok(read.map_err(failed)?)
}
