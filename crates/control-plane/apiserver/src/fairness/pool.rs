//! The seats of readers, or those of writers, and their assignment to waiting requests.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::admission_queues::{Admission, AdmissionQueues, Opened};
use super::meter::Meters;

/// Seats of one kind.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) queues: Mutex<AdmissionQueues<oneshot::Sender<Admission>>>,
    /// The usage of each flow, over the seats of both kinds.
    pub(super) meters: Arc<Mutex<Meters>>,
    /// The most that a request takes of a processor, in seconds.
    pub(super) dearest: f64,
    /// A request that was admitted from the side queue has ended.
    pub(super) left: Notify,
    pub(super) refused: AtomicU64,
    /// How many may be elsewhere at once, without the seats that they had.
    pub(super) away: Semaphore,
}

impl Pool {
    /// So many seats, so many for heavy flows, and at most `limit`, which is also how many may
    /// be elsewhere.
    pub(super) fn new(
        [seats, aside, limit]: [u32; 3],
        dearest: f64,
        meters: &Arc<Mutex<Meters>>,
    ) -> Arc<Self> {
        let away = usize::try_from(limit).unwrap_or(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            queues: Mutex::new(AdmissionQueues::new(seats.min(limit), aside.min(limit))),
            meters: Arc::clone(meters),
            dearest,
            left: Notify::new(),
            refused: AtomicU64::new(0),
            away: Semaphore::new(away),
        })
    }

    pub(super) fn finish(&self, admission: &Admission, seconds: f64) {
        let begun = self.queues.lock().finish(admission, seconds);
        if admission.is_aside() {
            self.left.notify_one();
        }
        self.begin(begun);
    }

    /// Gives seats that are free to those who wait in front.
    pub(super) fn dispatch(&self) {
        let begun = self.queues.lock().dispatch();
        self.begin(begun);
    }

    /// Notifies the requests that are admitted. One that was closed passes the seat to the next.
    pub(super) fn begin(&self, mut begun: Vec<(oneshot::Sender<Admission>, Admission)>) {
        while let Some((waiting, admission)) = begun.pop() {
            if let Err(admission) = waiting.send(admission) {
                begun.extend(self.queues.lock().finish(&admission, 0.0));
            }
        }
    }
}

/// Drains the side queue whenever all others had their turn, until the heavy flows are gone.
pub(super) async fn drain_side_queue(pool: Arc<Pool>) {
    loop {
        // Connections with new input are read meanwhile.
        tokio::task::yield_now().await;
        let opened = pool.queues.lock().open();
        match opened {
            Opened::Begin(begun) => pool.begin(begun),
            Opened::Full => pool.left.notified().await,
            Opened::Empty => return,
        }
    }
}
