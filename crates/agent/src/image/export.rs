//! An image that is made of all of a volume, read through its socket as a client of its own.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use base::Chain;
use qemu::image::ImageError;
use tracing::warn;

use super::files::{Facts, Fetched, Folder};
use super::import::{ImportError, Job};
use crate::storage::{LinkError, Served, TicketError};
use crate::volume::{ConvertError, Gauge, Scratch, hand_to_reader, shortage, tool};

/// For a volume to be attached here.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a volume was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error(transparent)]
    Ticket(#[from] TicketError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("volume {volume} is not attached after {} s", PATIENCE.as_secs())]
    NotAttached { volume: String },
    #[error("cannot read volume {volume}")]
    Read { volume: String, source: ImageError },
}

impl Job {
    /// Attaches the volume for as long as it takes.
    pub(super) async fn export(&self, volume: &str, gauge: &Gauge) -> Result<Facts, ImportError> {
        let ticket = format!("image-{}", self.image.uid);
        self.storage.want(volume, &ticket).await.map_err(ExportError::from)?;
        let read = self.read(volume, &ticket, gauge).await;
        // A ticket that stays goes with the volume, which was made to be read.
        if let Err(failure) = self.storage.forgo(volume, &ticket).await {
            warn!(volume, error = %Chain(&failure), "a volume that was read stays attached");
        }
        read
    }

    async fn read(&self, volume: &str, ticket: &str, gauge: &Gauge) -> Result<Facts, ImportError> {
        let late = |_| ExportError::NotAttached { volume: volume.into() };
        let held = self.storage.until_held(volume, ticket);
        let served = tokio::time::timeout(PATIENCE, held).await.map_err(late)?;
        let scratch = Scratch(self.folder().work());
        let path = scratch.0.clone();
        let make = move |_| OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
        self.blocking(make, "make the image").await?;
        tokio::select! {
            copied = self.copy(volume, &served, &scratch.0, gauge) => copied?,
            free = shortage(&scratch.0) => Err(ConvertError::NoRoom { free })?,
        }
        let fetched = Fetched { size: served.size, checksum: String::new() };
        let publish = move |folder: Folder| {
            let scratch = scratch;
            folder.publish(&scratch.0, &fetched)
        };
        self.blocking(publish, "put the image into its place").await
    }

    async fn copy(
        &self,
        volume: &str,
        served: &Served,
        to: &Path,
        gauge: &Gauge,
    ) -> Result<(), ImportError> {
        let tool = tool();
        hand_to_reader(to, &tool)?;
        let user = tool.identity.as_ref().map(|identity| identity.uid);
        self.storage.grant(served, user, None).await.map_err(ExportError::from)?;
        let progress = |percent: f32| gauge.set(percent / 100.0);
        let read = qemu::image::read_from_socket(&tool, &served.socket, to, progress).await;
        self.storage.grant(served, None, None).await.map_err(ExportError::from)?;
        let failed = |source| ExportError::Read { volume: volume.into(), source };
        Ok(read.map_err(failed)?)
    }
}
