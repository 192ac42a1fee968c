//! The engine for several nodes: an etcd cluster.
//!
//! Any number of stores may share the cluster and its keys. Each writes with
//! transactions that compare revisions, and each follows one watch over all keys
//! that feeds its mirror (see [`pump`]); a write is answered when the own mirror has
//! reached it. A [`Revision`] is etcd's revision plus an offset kept beside the keys,
//! which lets a store that was copied from a file go on above the file's revisions.

mod compact;
mod copy;
mod export;
mod fence;
mod key;
mod link;
mod load;
mod offset;
mod pump;
mod value;
mod write;

use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Tasks};
use parking_lot::Mutex;

use crate::config::{EtcdConfig, Retention};
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::seal::{SealError, Sealing};
use crate::shape::Shape;
use crate::store::{FenceError, Unhealthy};
use crate::write::{Cause, Write, WriteError, Written};

pub use copy::{CopyError, CopyProgress, copy};
pub use export::{EtcdBackupError, backup_etcd};
use fence::Fence;
use link::EtcdLink;
pub use link::LinkError;
pub(crate) use offset::Offset;
pub use offset::raise_revisions;

/// How much of the recent past is replayed when a store is opened, at most.
const REPLAY: i64 = 10_000;
/// How long to keep trying a cluster that does not answer when a store is opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Etcd<S: Shape> {
    link: EtcdLink,
    offset: Offset,
    mirror: Arc<Mirror<S>>,
    fence: Fence,
    health: Arc<Health>,
}

/// Why the watch that feeds the mirror is down, if it is.
pub(crate) type Health = Mutex<Option<Unhealthy>>;

/// Why a store in etcd cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read {}", path.display())]
    Tls { path: std::path::PathBuf, source: std::io::Error },
    #[error("cannot use the configured endpoints of etcd")]
    Endpoints { source: etcd_client::Error },
    #[error("cannot reach etcd")]
    Unreachable { source: LinkError },
    #[error("the keys under {prefix} are an unfinished copy of another store")]
    Unfinished { prefix: String },
    #[error("the revision offset under {prefix} is not a number")]
    Offset { prefix: String },
    #[error("cannot read the contents of etcd")]
    Sealed { source: SealError },
    #[error("cannot follow the changes in etcd")]
    Follow { source: FenceError },
}

impl<S: Shape> Etcd<S> {
    pub(crate) async fn open(
        config: EtcdConfig,
        retention: Retention,
        sealing: Arc<Sealing>,
        shape: S,
        tasks: &Tasks,
    ) -> Result<(Arc<Mirror<S>>, Self), OpenError> {
        let link = EtcdLink::connect(&config, sealing).await?;
        let offset = established_offset(&link).await?;
        let unreachable = |source| match source {
            LinkError::Sealed(source) => OpenError::Sealed { source },
            source => OpenError::Unreachable { source },
        };
        let start = replay_start(&link).await.map_err(unreachable)?;
        let none = |_: &str, _: &str, _| None;
        let found = load::load(&link, offset, &shape, Some(start), &none).await;
        let found = match found {
            // Another server compacts this cluster as well. And what was sealed with a key
            // that is gone may be in the past only.
            Err(error) if error.is_compacted() || matches!(error, LinkError::Sealed(_)) => {
                load::load(&link, offset, &shape, None, &none).await
            }
            found => found,
        };
        let found = found.map_err(unreachable)?;
        let (tables, at) = (found.tables, found.revision);
        let mirror = Arc::new(Mirror::new(shape, retention, tables, at, at));

        let health = Arc::new(Health::default());
        let pump = pump::WatchPump::new(&link, offset, &mirror, &health);
        tasks.spawn("etcd pump", pump.run(tasks.stop_signal()));
        let upkeep = compact::EtcdMaintenance::new(&link, offset, &mirror, retention);
        tasks.spawn("etcd upkeep", upkeep.run(tasks.stop_signal()));
        let fence = Fence::start(&link, offset, &mirror, tasks);
        let etcd = Self { link, offset, mirror: Arc::clone(&mirror), fence, health };
        // The present is reached by replaying the recent past.
        if let Err(source) = etcd.fence().await {
            mirror.close();
            return Err(match pump::sealed(&etcd.health) {
                Some(source) => OpenError::Sealed { source },
                None => OpenError::Follow { source },
            });
        }
        Ok((mirror, etcd))
    }

    pub(crate) async fn write(&self, write: Write) -> Result<Written<S>, WriteError> {
        if self.mirror.is_closed() {
            return Err(WriteError::Closed);
        }
        write::write(&self.link, self.offset, &self.mirror, write).await
    }

    pub(crate) async fn fence(&self) -> Result<Revision, FenceError> {
        self.fence.pass().await
    }

    pub(crate) fn health(&self) -> Result<(), Unhealthy> {
        self.health.lock().clone().map_or(Ok(()), Err)
    }
}

/// Reads the offset, or makes it nothing in a new store.
async fn established_offset(link: &EtcdLink) -> Result<Offset, OpenError> {
    let unreachable = |source| OpenError::Unreachable { source };
    let prefix = || link.keys.prefix().to_owned();
    let deadline = tokio::time::Instant::now() + OPEN_TIMEOUT;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let copying = loop {
        match link.read(link.keys.copying()).await {
            Ok(copying) => break copying,
            Err(error) if tokio::time::Instant::now() > deadline => return Err(unreachable(error)),
            Err(_) => tokio::time::sleep(backoff.delay()).await,
        }
    };
    if copying.value.is_some() {
        return Err(OpenError::Unfinished { prefix: prefix() });
    }
    link.create(link.keys.offset(), "0").await.map_err(unreachable)?;
    let stored = link.read(link.keys.offset()).await.map_err(unreachable)?;
    let number = stored.value.and_then(|value| String::from_utf8(value).ok()?.parse().ok());
    number.map(Offset::new).ok_or_else(|| OpenError::Offset { prefix: prefix() })
}

/// A revision of the recent past at which etcd can still be read.
async fn replay_start(link: &EtcdLink) -> Result<i64, LinkError> {
    let stored = link.read(link.keys.compaction()).await?;
    let compacted = stored.value.as_deref().and_then(compact::CompactionPlan::parse);
    let compacted = compacted.map_or(1, |plan| plan.done);
    Ok(compacted.max(stored.now - REPLAY).max(1))
}

fn cause(error: impl std::error::Error + Send + Sync + 'static) -> Cause {
    Arc::new(error)
}
