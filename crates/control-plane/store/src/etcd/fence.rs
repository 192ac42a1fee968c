//! Finding the present.
//!
//! A tiny read that the cluster answers by agreement names a revision that no earlier
//! write can exceed; when the mirror has reached it, the mirror is up to date. Keys of
//! others advance the revision without an event for us, so if the mirror does not get
//! there by itself, our own marker is written, whose event must arrive.
//!
//! Callers that come while a read is under way share the next one: the first read may
//! have been answered before they asked.

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use tokio::sync::{mpsc, oneshot};

use super::link::{EtcdLink, REQUEST};
use super::{Offset, cause};
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::shape::Shape;
use crate::store::FenceError;
use crate::write::WriteError;

/// How long the watch may take to deliver before it is asked for a sign.
const SHORTLY: Duration = Duration::from_millis(100);
const QUEUE: usize = 1024;

type FenceReply = Result<Revision, FenceError>;

pub(super) struct Fence {
    callers: mpsc::Sender<oneshot::Sender<FenceReply>>,
}

impl Fence {
    /// Starts the task that answers; it ends with the last handle.
    pub(super) fn start<S: Shape>(
        link: &EtcdLink,
        offset: Offset,
        mirror: &Arc<Mirror<S>>,
        tasks: &Tasks,
    ) -> Self {
        let (callers, queue) = mpsc::channel(QUEUE);
        let (link, mirror, mut stop) = (link.clone(), Arc::clone(mirror), tasks.stop_signal());
        tasks.spawn("etcd fence", async move {
            tokio::select! {
                () = stop.requested() => {}
                () = answer(queue, &link, offset, &mirror) => {}
            }
        });
        Self { callers }
    }

    pub(super) async fn pass(&self) -> FenceReply {
        let closed = || FenceError::Unavailable { source: cause(WriteError::Closed) };
        let (caller, answer) = oneshot::channel();
        self.callers.send(caller).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

async fn answer<S: Shape>(
    mut queue: mpsc::Receiver<oneshot::Sender<FenceReply>>,
    link: &EtcdLink,
    offset: Offset,
    mirror: &Mirror<S>,
) {
    let mut callers = Vec::new();
    while queue.recv_many(&mut callers, QUEUE).await > 0 {
        let answer = present(link, offset, mirror).await;
        for caller in callers.drain(..) {
            let _ = caller.send(answer.clone());
        }
    }
}

async fn present<S: Shape>(link: &EtcdLink, offset: Offset, mirror: &Mirror<S>) -> FenceReply {
    let unavailable = |error| FenceError::Unavailable { source: cause(error) };
    let read = link.read(link.keys.marker()).await.map_err(unavailable)?;
    let revision = offset.revision(read.now);
    if mirror.reached(revision, SHORTLY).await {
        return Ok(revision);
    }
    let marked = link.put(link.keys.marker(), "").await.map_err(unavailable)?;
    let revision = offset.revision(marked);
    if mirror.reached(revision, REQUEST).await {
        Ok(revision)
    } else {
        Err(FenceError::Behind { revision })
    }
}
