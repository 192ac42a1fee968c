//! Starting background tasks so that none is forgotten: each has a name, all are
//! stopped together, and a panic in one is logged instead of vanishing.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, warn};

/// A signal that says when to end; cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Resolves once a stop is requested or the owner is gone. Cancel-safe.
    pub async fn requested(&mut self) {
        // An error means that the owner was dropped, which is a stop as well.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }
}

/// Ends with its owner, who would leave it running otherwise.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A task and what the log calls it.
type Named = (&'static str, JoinHandle<()>);

/// A family of tasks that start one by one and stop together.
#[derive(Debug, Clone)]
pub struct Tasks {
    stop: Arc<watch::Sender<bool>>,
    running: Arc<Mutex<Vec<Named>>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { stop: Arc::new(watch::channel(false).0), running: Arc::default() }
    }
}

impl Tasks {
    pub fn stop_signal(&self) -> Stop {
        Stop(self.stop.subscribe())
    }

    /// Starts `work` as a task called `name` in the log.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(async move {
            let mut inner = AbortOnDrop(tokio::spawn(work));
            if let Err(failure) = (&mut inner.0).await
                && failure.is_panic()
            {
                error!(task = name, "task panicked");
            }
        });
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(_, task)| !task.is_finished());
        running.push((name, task));
    }

    /// Asks every task to stop and waits at most `limit` for them.
    pub async fn stop(&self, limit: Duration) {
        let _ = self.stop.send(true);
        let running =
            std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        let deadline = tokio::time::Instant::now() + limit;
        for (name, mut task) in running {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                warn!(task = name, "task did not stop in time");
                task.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_reaches_every_task() {
        let tasks = Tasks::default();
        let (done, mut seen) = tokio::sync::mpsc::channel(2);
        for _ in 0..2 {
            let (mut stop, done) = (tasks.stop_signal(), done.clone());
            tasks.spawn("waiter", async move {
                stop.requested().await;
                let _ = done.send(()).await;
            });
        }
        tasks.stop(Duration::from_secs(60)).await;
        assert!(seen.recv().await.is_some() && seen.recv().await.is_some());
    }
}
