//! Machines that other nodes bring: the only thing that a node may ask of another.
//!
//!   PUT /v1/migrations/{uid}/prepare   the machine, as JSON: 200 when it waits for the stream
//!   GET /v1/migrations/{uid}/stream    with `Upgrade: sheaf-stream`: 101, then QEMU's stream
//!   GET /v1/migrations/{uid}/disks     the same, then NBD to the disks that the source mirrors
//!   GET /v1/migrations/{uid}/resume    the same for a post-copy whose stream broke
//!   PUT /v1/migrations/{uid}/switch    the guest has stopped: 200 when its volumes are claimed
//!   PUT /v1/migrations/{uid}/loaded    in post-copy: 200 when QEMU has the state of all devices
//!   PUT /v1/migrations/{uid}/cancel    the guest stays where it is

use base::Chain;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::response::{self, EndpointError, ResponseBody};
use crate::vmi::{IncomingError, IncomingMigrations, MigrationOffer};

/// Seeds and firmware variables are a few MiB at most.
const MAX_OFFER: usize = 64 << 20;

/// Which stream a node brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MigrationStream {
    First,
    /// After the first of a post-copy broke.
    Resumed,
    /// A connection to disks that are copied along; there may be several.
    Disks,
}

/// A step that a node requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MigrationStep {
    Prepare,
    Switch,
    Loaded,
    Cancel,
}

pub(super) async fn act(
    migrations: &IncomingMigrations,
    peer: &str,
    migration: &str,
    step: MigrationStep,
    body: Incoming,
) -> Result<Response<ResponseBody>, EndpointError> {
    match step {
        MigrationStep::Prepare => {
            let bad = |text: String| EndpointError::new(StatusCode::BAD_REQUEST, text);
            let body = Limited::new(body, MAX_OFFER).collect().await;
            let body = body.map_err(|failure| bad(failure.to_string()))?.to_bytes();
            let offer: MigrationOffer = serde_json::from_slice(&body)
                .map_err(|failure| bad(format!("the offer cannot be read: {failure}")))?;
            if offer.migration != migration {
                return Err(bad("the offer is for another migration".into()));
            }
            let prepared = migrations.prepare(peer, offer).await.map_err(refused)?;
            Ok(response::json(&prepared))
        }
        MigrationStep::Switch => {
            migrations.switch(peer, migration).await.map_err(refused)?;
            Ok(response::done())
        }
        MigrationStep::Loaded => {
            migrations.loaded(peer, migration).await.map_err(refused)?;
            Ok(response::done())
        }
        MigrationStep::Cancel => {
            migrations.cancel(peer, migration).await;
            Ok(response::done())
        }
    }
}

pub(super) fn refused(failure: IncomingError) -> EndpointError {
    let code = match failure {
        IncomingError::Unknown { .. } => StatusCode::NOT_FOUND,
        IncomingError::NotAsked { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::CONFLICT,
    };
    EndpointError::new(code, Chain(&failure).to_string())
}
