//! Volumes that work on this node has for a while, as a client of its own.

use std::future::Future;
use std::time::Duration;

use base::Chain;
use tokio::runtime::Handle;
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

/// A volume that is here for a ticket, until it is [released](Self::release) or dropped.
pub(crate) struct HeldVolume {
    ticket: TicketGuard,
    pub(crate) served: AttachedVolume,
}

/// A ticket that was written, and is taken back by whatever ends the work.
struct TicketGuard {
    /// Nothing once the ticket is taken back.
    storage: Option<StorageHandle>,
    volume: String,
    id: String,
}

impl TicketGuard {
    async fn take_back(mut self) {
        if let Some(storage) = self.storage.take() {
            take_back(&storage, &self.volume, &self.id).await;
        }
    }
}

impl Drop for TicketGuard {
    /// The work was cancelled: its volume must not stay attached.
    fn drop(&mut self) {
        let Some(storage) = self.storage.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (volume, id) = (std::mem::take(&mut self.volume), std::mem::take(&mut self.id));
        runtime.spawn(async move { take_back(&storage, &volume, &id).await });
    }
}

impl StorageHandle {
    /// Asks for a volume and waits until it is here.
    pub(crate) async fn hold(&self, volume: &str, ticket: &str) -> Result<HeldVolume, HeldError> {
        let guard =
            TicketGuard { storage: Some(self.clone()), volume: volume.into(), id: ticket.into() };
        self.want(volume, ticket).await?;
        match tokio::time::timeout(ATTACH_TIMEOUT, self.until_held(volume, ticket)).await {
            Ok(served) => Ok(HeldVolume { ticket: guard, served }),
            Err(_) => {
                guard.take_back().await;
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
        let Some(storage) = &self.ticket.storage else { return Ok(work.await) };
        storage.grant(&self.served, user, None).await?;
        let done = work.await;
        storage.grant(&self.served, None, None).await?;
        Ok(done)
    }

    pub(crate) async fn release(self) {
        self.ticket.take_back().await;
    }
}

/// A ticket that stays is found by the next attempt, and goes with the volume.
async fn take_back(storage: &StorageHandle, volume: &str, ticket: &str) {
    if let Err(failure) = storage.forgo(volume, ticket).await {
        warn!(volume, error = %Chain(&failure), "cannot detach unused volume");
    }
}
