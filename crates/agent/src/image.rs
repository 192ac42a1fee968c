//! Backing images: read-only data on this node's disks that volumes begin as.
//!
//! Longhorn's BackingImage says where the data comes from and on which disks it is to be; here
//! it is fetched or taken in, turned into a raw disk and kept until nothing needs it. How far
//! that is, the object is told. Decisions are in `plan`; `keep` carries them out.
//!
//! Refuses images that point at other files, and to remove what a replica begins with.

mod export;
mod files;
mod import;
mod keep;
mod object;
mod plan;
mod tell;

use base::Tasks;
use http::StatusCode;
use hyper::body::Incoming;
use kube::Client;
use tokio::sync::{mpsc, oneshot};

use self::keep::Keeper;
use crate::config::Config;
use crate::storage::Storage;

pub(crate) use object::{Ready, disks as own_disks};

/// Uploads that wait for their turn to begin.
const WAITING: usize = 16;
/// Imports at a time.
const TURNS: usize = 4;

/// Why an upload is refused or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("no upload is expected for the image {image}")]
    NotExpected { image: String },
    #[error("the upload did not end well")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the agent is stopping, or the image was deleted")]
    Stopped,
}

impl UploadError {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::NotExpected { .. } => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::BAD_REQUEST,
            Self::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An upload that has come in and waits for its turn.
struct Arrival {
    image: String,
    /// What its client says that it has.
    size: Option<u64>,
    body: Incoming,
    answer: oneshot::Sender<Result<(), UploadError>>,
}

/// What the rest of the agent may ask of images; clones ask the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    uploads: mpsc::Sender<Arrival>,
}

impl Images {
    /// Begins to keep the images of this node; ends with `tasks`.
    pub(crate) fn start(client: Client, config: &Config, storage: Storage, tasks: &Tasks) -> Self {
        let (uploads, arrivals) = mpsc::channel(WAITING);
        let keeper = Keeper::new(client, config.node_name.clone(), storage, TURNS);
        tasks.spawn("images", keeper.run(arrivals, tasks.stop_signal()));
        Self { uploads }
    }

    /// Takes in the data of an image that waits for it; returns when it is in place.
    pub(crate) async fn upload(
        &self,
        image: String,
        size: Option<u64>,
        body: Incoming,
    ) -> Result<(), UploadError> {
        let (answer, answered) = oneshot::channel();
        let arrival = Arrival { image, size, body, answer };
        self.uploads.send(arrival).await.map_err(|_| UploadError::Stopped)?;
        answered.await.map_err(|_| UploadError::Stopped)?
    }
}
