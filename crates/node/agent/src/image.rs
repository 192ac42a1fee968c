//! Backing images: read-only data on this node's disks that volumes begin as.
//!
//! Longhorn's BackingImage says where the data comes from and on which disks it is to be; here
//! it is fetched or taken in, turned into a raw disk and kept until nothing needs it. How far
//! that is, the object reports. Decisions are in `plan`; `keep` carries them out.
//!
//! Refuses images that point at other files, and to remove what a replica begins with.

mod cancel;
mod check;
mod clone;
mod controller;
mod error;
mod export;
mod files;
mod import;
mod intake;
mod plan;
mod remove;
mod status_writer;
mod upload;

use std::path::PathBuf;

use base::Tasks;
use http::StatusCode;
use hyper::body::Incoming;
use kube::Client;
use tokio::sync::{mpsc, oneshot};

use self::controller::ImageController;
use crate::config::Config;
use crate::egress::Egress;
use crate::storage::StorageHandle;

/// Uploads that wait for their turn to begin.
const WAITING: usize = 16;
/// Imports at a time, and sums of images that are complete.
const TURNS: usize = 4;
const SUMS: usize = 1;

/// Why an upload is refused or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("no upload is expected for the image {image}")]
    NotExpected { image: String },
    #[error("upload offset is {offset}; expected {at}")]
    Position { at: u64, offset: u64 },
    #[error("the upload did not end well")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the agent is stopping, or the image was deleted")]
    Stopped,
}

impl UploadError {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::NotExpected { .. } | Self::Position { .. } => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::BAD_REQUEST,
            Self::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Data of an image on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UploadChunk {
    /// How much its client has in all, as far as it says so.
    pub(crate) size: Option<u64>,
    /// Where in it this begins; nothing if it is all of it, or nothing.
    pub(crate) offset: Option<u64>,
}

/// An upload that has come in and waits for its turn.
struct PendingUpload {
    image: String,
    piece: UploadChunk,
    body: Incoming,
    answer: oneshot::Sender<Result<u64, UploadError>>,
}

/// A request to the image controller.
enum ImageRequest {
    Upload(PendingUpload),
    /// Where the upload of an image goes on.
    Position {
        image: String,
        answer: oneshot::Sender<Option<u64>>,
    },
    /// Where a complete image is.
    File {
        image: String,
        answer: oneshot::Sender<Option<PathBuf>>,
    },
}

/// Requests of the rest of the agent about images; clones share the same controller.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    asks: mpsc::Sender<ImageRequest>,
}

impl Images {
    /// Begins to keep the images of this node; ends with `tasks`.
    pub(crate) fn start(
        client: Client,
        config: &Config,
        storage: StorageHandle,
        egress: Egress,
        tasks: &Tasks,
    ) -> Self {
        let (asks, asked) = mpsc::channel(WAITING);
        let keeper = ImageController::new(client, config, storage, egress);
        tasks.spawn("images", keeper.run(asked, tasks.stop_signal()));
        Self { asks }
    }

    /// Takes in the data of an image that waits for it; returns when it is in place, or in its
    /// part of the file, and says how much is there.
    pub(crate) async fn upload(
        &self,
        image: String,
        piece: UploadChunk,
        body: Incoming,
    ) -> Result<u64, UploadError> {
        let (answer, answered) = oneshot::channel();
        let arrival = PendingUpload { image, piece, body, answer };
        self.asks.send(ImageRequest::Upload(arrival)).await.map_err(|_| UploadError::Stopped)?;
        answered.await.map_err(|_| UploadError::Stopped)?
    }

    /// Where an upload goes on; nothing if none is expected.
    pub(crate) async fn position(&self, image: String) -> Option<u64> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(ImageRequest::Position { image, answer }).await.ok()?;
        answered.await.ok()?
    }

    /// The file of a complete image, to be read only.
    pub(crate) async fn file(&self, image: String) -> Option<PathBuf> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(ImageRequest::File { image, answer }).await.ok()?;
        answered.await.ok()?
    }
}
