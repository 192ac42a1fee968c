//! An image that a client sends for a claim.

use std::io;
use std::time::Duration;

use base::Chain;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::clone::{CloneError, user_of};
use super::controller::VolumeContext;
use super::fetch::FETCHING;
use super::fill::{FillError, take_in};
use super::gauge::Gauge;
use super::object::Claim;
use super::status_writer::ClaimStatusWriter;

/// Why an upload is refused or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("no upload is expected for the volume {volume}")]
    NotExpected { volume: String },
    #[error("the volume {volume} is busy with another upload")]
    Busy { volume: String },
    #[error("the claim is used by VirtualMachineInstance {user}")]
    InUse { user: String },
    #[error("cannot find out whether the claim is in use")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the upload did not end well")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot take this image")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the agent is stopping, or the claim was deleted")]
    Stopped,
}

impl UploadError {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::NotExpected { .. } => StatusCode::NOT_FOUND,
            Self::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::InUse { .. } => StatusCode::CONFLICT,
            Self::Refused(_) => StatusCode::BAD_REQUEST,
            Self::Unknown(_) | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// An upload that has come in and waits for its turn.
pub(super) struct PendingUpload {
    pub(super) volume: String,
    pub(super) body: Incoming,
    pub(super) answer: oneshot::Sender<Result<(), UploadError>>,
}

impl PendingUpload {
    /// Says why not, once the client listens.
    pub(super) fn refuse(self, why: UploadError) {
        let Self { body, answer, .. } = self;
        tokio::spawn(async move {
            drain(body).await;
            let _ = answer.send(Err(why));
        });
    }
}

/// Takes an image in and reports to the claim.
pub(super) async fn upload(
    shared: &VolumeContext,
    claim: &Claim,
    volume: &str,
    body: Incoming,
    writer: &mut ClaimStatusWriter,
) -> Result<(), UploadError> {
    let unknown = |failure: CloneError| UploadError::Unknown(Box::new(failure));
    let user = user_of(shared, &claim.namespace, &claim.name).await.map_err(unknown)?;
    if let Some(user) = user {
        drain(body).await;
        return Err(UploadError::InUse { user });
    }
    let gauge = Gauge::default();
    let taken = {
        let (sender, feed) = qemu::image::feed();
        let work = async {
            let pump = pump(body, sender, &gauge);
            let take = take_in(shared, volume, claim.size, feed, &gauge);
            tokio::join!(pump, take).1
        };
        writer.follow(&gauge, std::pin::pin!(work)).await
    };
    match taken {
        Ok(received) => {
            info!(
                claim = claim.name,
                namespace = claim.namespace,
                kind = received.kind.driver(),
                bytes = received.bytes,
                "image uploaded"
            );
            writer.succeeded().await.map_err(|failure| UploadError::Failed(Box::new(failure)))
        }
        Err(failure) => {
            // The client may try again, perhaps with a better image.
            gauge.stumble(failure.trouble());
            warn!(claim = claim.name, namespace = claim.namespace, error = %Chain(&failure),
                  "upload failed");
            let _ = writer.write(super::status_writer::running(&gauge)).await;
            Err(judged(failure))
        }
    }
}

fn judged(failure: FillError) -> UploadError {
    let is_final = failure.is_final();
    let source = Box::new(failure);
    if is_final { UploadError::Refused(source) } else { UploadError::Failed(source) }
}

/// From the network to the reader, until one of them ends.
pub(crate) async fn pump(mut body: Incoming, into: mpsc::Sender<io::Result<Bytes>>, gauge: &Gauge) {
    let length = body.size_hint().exact();
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        let piece = match frame {
            Ok(frame) => frame.into_data().map(Ok),
            Err(failure) => Ok(Err(io::Error::new(io::ErrorKind::ConnectionAborted, failure))),
        };
        let Ok(piece) = piece else { continue };
        at += piece.as_ref().map_or(0, Bytes::len);
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        if let Some(length) = length.filter(|length| *length > 0) {
            gauge.set(at as f32 / length as f32 * FETCHING);
        }
        // A reader that has all it wants lets the rest pass, so that the client can finish.
        let failed = piece.is_err();
        if into.send(piece).await.is_err() {
            drain(body).await;
            return;
        }
        if failed {
            return;
        }
    }
}

/// Most clients only read an answer after they have sent everything. Those who send for very
/// long, or hardly at all, are not waited for.
pub(crate) async fn drain(mut body: Incoming) {
    const MOST: usize = 64 << 20;
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
    let rest = async {
        let mut left = MOST;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}
