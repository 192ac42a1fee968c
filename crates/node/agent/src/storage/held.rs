//! Volumes that work on this node has for a while, as a client of its own.

use std::future::Future;
use std::time::Duration;

use base::Chain;
use tracing::warn;

use super::{AttachedVolume, LinkError, StorageHandle, TicketError};

/// For a volume to be attached here.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a volume is not to be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeldError {
    #[error(transparent)]
    Ticket(#[from] TicketError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("volume {volume} is not attached after {} s", ATTACH_TIMEOUT.as_secs())]
    NotAttached { volume: String },
}

/// A volume that is here for a ticket, until it is [released](Self::release).
pub(crate) struct HeldVolume {
    storage: StorageHandle,
    volume: String,
    ticket: String,
    pub(crate) served: AttachedVolume,
}

impl StorageHandle {
    /// Asks for a volume and waits until it is here.
    pub(crate) async fn hold(&self, volume: &str, ticket: &str) -> Result<HeldVolume, HeldError> {
        self.want(volume, ticket).await?;
        match tokio::time::timeout(ATTACH_TIMEOUT, self.until_held(volume, ticket)).await {
            Ok(served) => {
                let (storage, volume, ticket) = (self.clone(), volume.into(), ticket.into());
                Ok(HeldVolume { storage, volume, ticket, served })
            }
            Err(_) => {
                take_back(self, volume, ticket).await;
                Err(HeldError::NotAttached { volume: volume.into() })
            }
        }
    }
}

impl HeldVolume {
    /// Lets a user connect while `work` is done.
    pub(crate) async fn open_to<T>(
        &self,
        user: Option<u32>,
        work: impl Future<Output = T>,
    ) -> Result<T, HeldError> {
        self.storage.grant(&self.served, user, None).await?;
        let done = work.await;
        self.storage.grant(&self.served, None, None).await?;
        Ok(done)
    }

    pub(crate) async fn release(self) {
        take_back(&self.storage, &self.volume, &self.ticket).await;
    }
}

/// A ticket that stays is found by the next attempt, and goes with the volume.
async fn take_back(storage: &StorageHandle, volume: &str, ticket: &str) {
    if let Err(failure) = storage.forgo(volume, ticket).await {
        warn!(volume, error = %Chain(&failure), "cannot detach unused volume");
    }
}
