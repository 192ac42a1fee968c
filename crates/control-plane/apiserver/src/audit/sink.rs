//! Where events go: a file, which is never ahead of and never far behind the requests, and
//! a webhook, which may lose some rather than hold requests up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Backoff, Stop, Tasks, clock};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tracing::{error, warn};

use super::log::{Log, LogConfig};

/// Events on their way to the file.
const QUEUE: usize = 1000;

/// A receiver of events in batches.
pub trait AuditBackend: Send + Sync {
    /// Delivers an `EventList`, or says why not.
    fn deliver(
        &self,
        list: Bytes,
    ) -> BoxFuture<'_, Result<(), Box<dyn std::error::Error + Send + Sync>>>;
}

/// How events are gathered before they are delivered.
#[derive(Debug, Clone, Copy)]
pub struct Batching {
    /// Events that may wait; those beyond are lost.
    pub queue: usize,
    pub most: usize,
    pub max_wait: Duration,
    /// The pause before a delivery is tried again; it grows.
    pub retry: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            queue: 10_000,
            most: 400,
            max_wait: Duration::from_secs(30),
            retry: Duration::from_secs(10),
        }
    }
}

/// Everywhere that events go.
#[derive(Debug, Default)]
pub(super) struct AuditBackends {
    file: Option<mpsc::Sender<Bytes>>,
    webhook: Option<mpsc::Sender<Bytes>>,
    lost: Arc<AtomicU64>,
}

impl AuditBackends {
    pub(super) fn add_file(&mut self, config: LogConfig, tasks: &Tasks) -> std::io::Result<()> {
        let log = Log::open(config)?;
        let (sender, queue) = mpsc::channel(QUEUE);
        tasks.spawn("audit log", keep(log, queue, tasks.stop_signal()));
        self.file = Some(sender);
        Ok(())
    }

    pub(super) fn add_webhook(
        &mut self,
        receiver: Arc<dyn AuditBackend>,
        batching: Batching,
        tasks: &Tasks,
    ) {
        let (sender, queue) = mpsc::channel(batching.queue);
        let stop = tasks.stop_signal();
        tasks.spawn("audit webhook", deliver(receiver, batching, queue, stop, self.lost.clone()));
        self.webhook = Some(sender);
    }

    /// Takes an event; waits while the file cannot keep up.
    pub(super) async fn take(&self, line: Bytes) {
        self.offer(&line);
        if let Some(file) = &self.file {
            // Closed only when the process ends.
            let _ = file.send(line).await;
        }
    }

    /// The same for those who cannot wait, as when a connection breaks.
    pub(super) fn take_now(&self, line: Bytes) {
        self.offer(&line);
        if let Some(file) = &self.file
            && file.try_send(line).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn offer(&self, line: &Bytes) {
        if let Some(webhook) = &self.webhook
            && webhook.try_send(line.clone()).is_err()
            && self.lost.fetch_add(1, Ordering::Relaxed) == 0
        {
            warn!("audit webhook is too slow; dropping events");
        }
    }

    /// Events that were not delivered.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Writes what comes, several lines at a time, until the end.
async fn keep(log: Log, mut queue: mpsc::Receiver<Bytes>, mut stop: Stop) {
    let mut log = Some(log);
    let mut lines = Vec::new();
    let mut complained = false;
    loop {
        let stopping = tokio::select! {
            count = queue.recv_many(&mut lines, QUEUE) => count == 0,
            () = stop.requested() => {
                while let Ok(line) = queue.try_recv() {
                    lines.push(line);
                }
                true
            }
        };
        let (Some(mut open), batch) = (log.take(), std::mem::take(&mut lines)) else { return };
        let written = tokio::task::spawn_blocking(move || {
            let result = open.write(&batch, clock::now());
            (open, result)
        });
        let Ok((open, result)) = written.await else { return };
        match result {
            Ok(()) => complained = false,
            Err(failure) if !complained => {
                complained = true;
                error!(error = %base::Chain(&failure), "cannot write the audit log");
            }
            Err(_) => {}
        }
        log = Some(open);
        if stopping {
            return;
        }
    }
}

async fn deliver(
    receiver: Arc<dyn AuditBackend>,
    batching: Batching,
    mut queue: mpsc::Receiver<Bytes>,
    mut stop: Stop,
    lost: Arc<AtomicU64>,
) {
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            first = queue.recv() => match first {
                Some(first) => batch.push(first),
                None => return,
            },
            () = stop.requested() => return,
        }
        let gathering = async {
            while batch.len() < batching.most {
                match queue.recv().await {
                    Some(next) => batch.push(next),
                    None => return,
                }
            }
        };
        let stopping = tokio::select! {
            _ = tokio::time::timeout(batching.max_wait, gathering) => false,
            () = stop.requested() => true,
        };
        let list = list_of(&batch);
        let sending = attempt(&*receiver, &list, batching.retry);
        let delivered = tokio::select! {
            delivered = sending => delivered,
            () = stop.requested(), if !stopping => receiver.deliver(list.clone()).await.is_ok(),
        };
        if !delivered {
            lost.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Tries a few times, later and later.
async fn attempt(receiver: &dyn AuditBackend, list: &Bytes, retry: Duration) -> bool {
    let mut backoff = Backoff::new(retry, retry * 8);
    for left in (0..4).rev() {
        match receiver.deliver(list.clone()).await {
            Ok(()) => return true,
            Err(failure) => {
                warn!(error = %base::Chain(&*failure), "audit webhook rejected events");
            }
        }
        if left > 0 {
            tokio::time::sleep(backoff.delay()).await;
        }
    }
    false
}

fn list_of(batch: &[Bytes]) -> Bytes {
    let mut list =
        Vec::with_capacity(batch.iter().map(|event| event.len() + 1).sum::<usize>() + 96);
    list.extend_from_slice(
        br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#,
    );
    for (index, event) in batch.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        list.extend_from_slice(event);
    }
    list.extend_from_slice(b"]}");
    list.into()
}
