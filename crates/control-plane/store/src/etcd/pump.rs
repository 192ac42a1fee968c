//! The one watch that feeds the mirror.
//!
//! It resumes after the last revision of the mirror, as often as the connection breaks, so no
//! event is missed and none is delivered twice. Only if etcd has meanwhile compacted that
//! revision, the current state is loaded again; the events in between are lost then, so all
//! history ends there and watchers have to start over.
//!
//! ```text
//!   connecting ──► following ──► (stream ends) ──► waiting ──► connecting
//!        └──► (compacted) ──► reload ──► connecting
//! ```

use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop};
use bytes::Bytes;
use etcd_client::{Event, EventType, WatchResponse};
use tracing::{info, warn};

use super::link::{EtcdLink, LinkError};
use super::value::opened;
use super::{Health, Offset, cause, load};
use crate::mirror::{Durable, DurableChange, Mirror};
use crate::seal::SealError;
use crate::shape::Shape;
use crate::store::Unhealthy;

pub(super) struct WatchPump<S: Shape> {
    link: EtcdLink,
    offset: Offset,
    mirror: Arc<Mirror<S>>,
    health: Arc<Health>,
    backoff: Backoff,
    /// A value could not be read; to be connected again is no cure for that.
    stuck: bool,
}

/// Why the watch ended.
#[derive(Debug, thiserror::Error)]
enum WatchEnd {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the watch of etcd failed")]
    Stream { source: etcd_client::Error },
    #[error("etcd ended the watch: {reason:?}")]
    Ended { reason: String },
    #[error("etcd has compacted the revisions the watch needs")]
    Compacted,
}

/// The value that could not be read, if that is why the watch is down.
pub(super) fn sealed(health: &Health) -> Option<SealError> {
    let health = health.lock();
    let Some(Unhealthy::Unavailable { source }) = &*health else { return None };
    match source.downcast_ref::<WatchEnd>()? {
        WatchEnd::Link(LinkError::Sealed(error)) => Some(error.clone()),
        _ => None,
    }
}

impl<S: Shape> WatchPump<S> {
    pub(super) fn new(
        link: &EtcdLink,
        offset: Offset,
        mirror: &Arc<Mirror<S>>,
        health: &Arc<Health>,
    ) -> Self {
        Self {
            link: link.clone(),
            offset,
            mirror: Arc::clone(mirror),
            health: Arc::clone(health),
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
            stuck: false,
        }
    }

    /// Works until it is stopped or the store is dropped.
    pub(super) async fn run(mut self, mut stop: Stop) {
        let mirror = Arc::clone(&self.mirror);
        tokio::select! {
            () = stop.requested() => {}
            () = mirror.closed() => {}
            () = self.keep_following() => {}
        }
        *self.health.lock() = Some(Unhealthy::Closed);
        self.mirror.close();
    }

    async fn keep_following(&mut self) {
        loop {
            let Err(broken) = self.follow().await;
            let repaired = match broken {
                // A version that cannot be read may have been replaced since.
                WatchEnd::Link(LinkError::Sealed(_)) => {
                    info!("a version is sealed with a key that is not known, reading the newest");
                    self.reload().await.map_err(WatchEnd::Link)
                }
                WatchEnd::Compacted => {
                    warn!(
                        "etcd has dropped history that was still needed, loading everything anew"
                    );
                    self.reload().await.map_err(WatchEnd::Link)
                }
                broken => Err(broken),
            };
            match repaired {
                Ok(()) => self.stuck = false,
                Err(broken) => {
                    self.stuck |= matches!(broken, WatchEnd::Link(LinkError::Sealed(_)));
                    self.report(broken);
                    tokio::time::sleep(self.backoff.delay()).await;
                }
            }
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, WatchEnd> {
        let last = self.offset.etcd(self.mirror.revision()).unwrap_or_default();
        // A member may lag behind the one that answered last, but not the cluster.
        if self.link.read(self.link.keys.marker()).await?.now < last {
            return Err(LinkError::WentBack.into());
        }
        let mut stream = self.link.watch(last + 1).await?;
        loop {
            let response = stream.message().await.map_err(|source| WatchEnd::Stream { source })?;
            let Some(response) = response else {
                return Err(WatchEnd::Ended { reason: String::new() });
            };
            if response.compact_revision() > 0 {
                return Err(WatchEnd::Compacted);
            }
            if response.canceled() {
                return Err(WatchEnd::Ended { reason: response.cancel_reason().to_owned() });
            }
            self.publish(&response)?;
            self.stuck &= response.events().is_empty();
            if !self.stuck {
                self.works();
            }
        }
    }

    fn publish(&self, response: &WatchResponse) -> Result<(), LinkError> {
        let Some(last) = response.events().last().and_then(Event::kv) else { return Ok(()) };
        let last = self.offset.revision(last.mod_revision());
        let changes = response.events().iter().filter_map(|event| self.durable(event).transpose());
        self.mirror.publish(changes.collect::<Result<_, _>>()?);
        // The last event may have been one of our own records.
        self.mirror.skip_to(last);
        Ok(())
    }

    fn durable(&self, event: &Event) -> Result<Option<Durable>, LinkError> {
        let Some(kv) = event.kv() else { return Ok(None) };
        let Some((table, name)) = self.link.keys.parse(kv.key()) else { return Ok(None) };
        let change = match event.event_type() {
            EventType::Put => DurableChange::Put {
                value: self.link.sealing.open(
                    table,
                    name,
                    Bytes::copy_from_slice(opened(kv.value()).0),
                )?,
                created: self.offset.revision(kv.create_revision()),
            },
            EventType::Delete => DurableChange::Delete,
        };
        let revision = self.offset.revision(kv.mod_revision());
        Ok(Some(Durable { table: table.into(), name: name.into(), revision, change }))
    }

    async fn reload(&self) -> Result<(), LinkError> {
        let known = |table: &str, name: &str, revision| {
            self.mirror.entry(table, name).filter(|entry| entry.revision == revision)
        };
        let found = load::load(&self.link, self.offset, self.mirror.shape(), None, &known).await?;
        if found.revision < self.mirror.revision() {
            return Err(LinkError::WentBack);
        }
        self.mirror.replace(found.tables, found.revision, found.revision);
        Ok(())
    }

    fn works(&mut self) {
        self.backoff.reset();
        if self.health.lock().take().is_some() {
            info!("watching etcd again");
        }
    }

    fn report(&self, broken: WatchEnd) {
        let mut health = self.health.lock();
        if health.is_none() {
            warn!(error = %Chain(&broken), "cannot watch etcd");
        }
        *health = Some(Unhealthy::Unavailable { source: cause(broken) });
    }
}
