//! Writing a complete disk into a replicated volume: through its socket, as a client of its own.

use std::path::Path;

use qemu::image::{ImageError, Tool};

use super::controller::VolumeContext;
use super::image::{self, ConvertError};
use crate::storage::{HeldError, HeldVolume};

/// Why a replicated volume was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicatedError {
    #[error(transparent)]
    Held(#[from] HeldError),
    #[error(transparent)]
    File(#[from] ConvertError),
    #[error("volume {volume} has {has} bytes; {wants} are needed")]
    Small { volume: String, has: u64, wants: u64 },
    #[error("cannot read volume {volume}")]
    Read { volume: String, source: ImageError },
    #[error("cannot write to volume {volume}")]
    Write { volume: String, source: ImageError },
}

/// Attaches the volume for as long as it takes. The file at `disk` is scratch: it is given to the user
/// of the tool that reads it.
pub(super) async fn write(
    shared: &VolumeContext,
    volume: &str,
    disk: &Path,
    size: u64,
) -> Result<(), ReplicatedError> {
    let held = shared.storage.hold(volume, &format!("import-{volume}")).await?;
    let written = fill(&held, volume, disk, size).await;
    held.release().await;
    written
}

/// Copies a volume to a file, if it fits into `most` bytes; answers how large it is. It must
/// not be written to meanwhile.
pub(super) async fn read(
    shared: &VolumeContext,
    volume: &str,
    ticket: &str,
    to: &Path,
    most: u64,
) -> Result<u64, ReplicatedError> {
    let held = shared.storage.hold(volume, ticket).await?;
    let read = export(&held, volume, to, most).await;
    held.release().await;
    read
}

async fn export(
    held: &HeldVolume,
    volume: &str,
    to: &Path,
    most: u64,
) -> Result<u64, ReplicatedError> {
    let served = &held.served;
    if served.size <= most {
        // The data is ours: no foreign image is parsed.
        let copied =
            qemu::image::read_from_socket(&Tool::default(), &served.socket, to, |_| {}).await;
        copied.map_err(|source| ReplicatedError::Read { volume: volume.into(), source })?;
    }
    Ok(served.size)
}

async fn fill(
    held: &HeldVolume,
    volume: &str,
    disk: &Path,
    size: u64,
) -> Result<(), ReplicatedError> {
    let served = &held.served;
    if served.size < size {
        let (has, volume) = (served.size, volume.to_owned());
        return Err(ReplicatedError::Small { volume, has, wants: size });
    }
    let tool = image::tool();
    image::hand_to_reader(disk, &tool)?;
    let user = tool.identity.as_ref().map(|identity| identity.uid);
    let writing = qemu::image::write_to_socket(&tool, disk, &served.socket);
    let written = held.open_to(user, writing).await?;
    written.map_err(|source| ReplicatedError::Write { volume: volume.into(), source })
}
