//! Writing a complete disk into a replicated volume: through its socket, as a client of its own.

use std::path::Path;
use std::time::Duration;

use base::Chain;
use qemu::image::{ImageError, Tool};
use tracing::warn;

use super::image;
use super::keep::Shared;
use crate::storage::{LinkError, TicketError};

/// For a volume to be attached here; then it is tried again from the beginning.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a replicated volume was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicatedError {
    #[error(transparent)]
    Ticket(#[from] TicketError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("volume {volume} is not attached after {} s", PATIENCE.as_secs())]
    NotAttached { volume: String },
    #[error("volume {volume} has {has} bytes and {wants} are to be on it")]
    Small { volume: String, has: u64, wants: u64 },
    #[error("cannot read volume {volume}")]
    Read { volume: String, source: ImageError },
    #[error("cannot write to volume {volume}")]
    Write { volume: String, source: ImageError },
}

/// Attaches the volume for as long as it takes.
pub(super) async fn write(
    shared: &Shared,
    volume: &str,
    disk: &Path,
    size: u64,
) -> Result<(), ReplicatedError> {
    let ticket = format!("import-{volume}");
    shared.storage.want(volume, &ticket).await?;
    let written = fill(shared, volume, &ticket, disk, size).await;
    // A ticket that stays is found by the next attempt, and goes with the volume.
    if let Err(failure) = shared.storage.forgo(volume, &ticket).await {
        warn!(volume, error = %Chain(&failure), "a volume that was filled stays attached");
    }
    written
}

/// Copies a volume to a file, if it fits into `most` bytes; answers how large it is. Nobody may
/// write to it meanwhile.
pub(super) async fn read(
    shared: &Shared,
    volume: &str,
    ticket: &str,
    to: &Path,
    most: u64,
) -> Result<u64, ReplicatedError> {
    shared.storage.want(volume, ticket).await?;
    let read = export(shared, volume, ticket, to, most).await;
    if let Err(failure) = shared.storage.forgo(volume, ticket).await {
        warn!(volume, error = %Chain(&failure), "a volume that was copied stays attached");
    }
    read
}

async fn export(
    shared: &Shared,
    volume: &str,
    ticket: &str,
    to: &Path,
    most: u64,
) -> Result<u64, ReplicatedError> {
    let late = |_| ReplicatedError::NotAttached { volume: volume.into() };
    let held = shared.storage.until_held(volume, ticket);
    let served = tokio::time::timeout(PATIENCE, held).await.map_err(late)?;
    if served.size <= most {
        // What is read is ours: no stranger's image is looked at.
        let copied =
            qemu::image::read_from_socket(&Tool::default(), &served.socket, to, |_| {}).await;
        copied.map_err(|source| ReplicatedError::Read { volume: volume.into(), source })?;
    }
    Ok(served.size)
}

async fn fill(
    shared: &Shared,
    volume: &str,
    ticket: &str,
    disk: &Path,
    size: u64,
) -> Result<(), ReplicatedError> {
    let late = |_| ReplicatedError::NotAttached { volume: volume.into() };
    let held = shared.storage.until_held(volume, ticket);
    let served = tokio::time::timeout(PATIENCE, held).await.map_err(late)?;
    if served.size < size {
        let (has, volume) = (served.size, volume.to_owned());
        return Err(ReplicatedError::Small { volume, has, wants: size });
    }
    let tool = image::tool();
    let user = tool.identity.as_ref().map(|identity| identity.uid);
    shared.storage.grant(&served, user, None).await?;
    let written = qemu::image::write_to_socket(&tool, disk, &served.socket).await;
    shared.storage.grant(&served, None, None).await?;
    written.map_err(|source| ReplicatedError::Write { volume: volume.into(), source })
}
