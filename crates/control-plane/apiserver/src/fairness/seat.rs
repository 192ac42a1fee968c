//! The seat of a request that is executed, and its release while the request waits for a webhook.
//!
//! A webhook may take ten seconds to answer. A request that waits for it uses none of our
//! processors, and a few such requests with seats would block all other writes. The number of
//! requests without a seat is bounded, too.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Pool;
use super::admission_queues::Admission;

tokio::task_local! {
    /// The seat of the request that this task answers.
    static OWN: Mutex<Option<Seat>>;
}

#[derive(Debug)]
pub(crate) struct Seat {
    /// `None` for exempt requests, whose usage is only measured.
    admission: Option<Admission>,
    flow: u64,
    pool: Arc<Pool>,
    /// When it was taken; `None` while its request waits for a webhook.
    since: Option<Instant>,
}

impl Seat {
    pub(super) fn new(pool: &Arc<Pool>, admission: Option<Admission>, flow: u64) -> Self {
        Self { admission, flow, pool: Arc::clone(pool), since: Some(Instant::now()) }
    }

    /// Whether the seat was released: not if it was before, or if too many requests have done so.
    fn release(&mut self) -> bool {
        let (Some(since), Some(_)) = (self.since, &self.admission) else { return false };
        let Ok(permit) = self.pool.away.try_acquire() else { return false };
        permit.forget();
        self.since = None;
        self.grant(since);
        true
    }

    /// Taking a seat again never waits: the request that has it now will finish soon.
    fn reacquire(&mut self) {
        self.pool.away.add_permits(1);
        if let Some(admission) = &self.admission {
            self.pool.queues.lock().resume(admission);
        }
        self.since = Some(Instant::now());
    }

    fn grant(&self, since: Instant) {
        let now = Instant::now();
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        self.pool.meters.lock().charge(self.flow, seconds.min(self.pool.dearest), now);
        if let Some(admission) = &self.admission {
            self.pool.finish(admission, seconds);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        match self.since {
            Some(since) => self.grant(since),
            None => self.pool.away.add_permits(1),
        }
    }
}

/// Executes a request that has a seat; returns the seat with the result. Futures are pinned, here
/// and below, because they are large and would be stored twice.
pub(crate) async fn with_seat<T>(
    seat: Option<Seat>,
    work: impl Future<Output = T> + Unpin,
) -> (T, Option<Seat>) {
    let work = async {
        let done = work.await;
        (done, OWN.with(|own| own.lock().take()))
    };
    OWN.scope(Mutex::new(seat), work).await
}

/// Waits for `others`, which need none of our processors, and releases the seat meanwhile.
pub(crate) async fn without_seat<T>(others: impl Future<Output = T> + Unpin) -> T {
    let left = OWN.try_with(|own| own.lock().as_mut().is_some_and(Seat::release));
    let done = others.await;
    if matches!(left, Ok(true)) {
        OWN.with(|own| own.lock().as_mut().into_iter().for_each(Seat::reacquire));
    }
    done
}

#[cfg(test)]
mod tests {
    use auth::User;
    use tokio::sync::oneshot;

    use super::super::{Fairness, FlowAssignment, InFlight};
    use super::*;

    fn place(fairness: &Fairness) -> FlowAssignment {
        let user = User::new("jane", ["system:authenticated"]);
        fairness.assign_path(&user, "post", "/api").unwrap()
    }

    fn taken(fairness: &Fairness) -> u32 {
        fairness.in_flight()[1].1
    }

    #[tokio::test]
    async fn a_request_that_waits_elsewhere_releases_its_seat_and_takes_it_again() {
        let fairness = Fairness::new(InFlight { reading: 1, writing: 1 });
        let place = place(&fairness);
        let first = fairness.enter(Some(&place), true, 1).await.unwrap();
        let (answer, asked) = oneshot::channel::<()>();
        let busy = std::pin::pin!(async {
            without_seat(asked).await.unwrap();
            assert_eq!(taken(&fairness), 2, "it does not wait for its own seat");
        });
        let mut work = std::pin::pin!(with_seat(first, busy));
        assert!(futures_util::poll!(work.as_mut()).is_pending());
        assert_eq!(taken(&fairness), 0);

        let second = fairness.enter(Some(&place), true, 1).await.unwrap();
        assert_eq!(taken(&fairness), 1, "the seat was free");
        // The number of requests without a seat is bounded.
        let (_never, unanswered) = oneshot::channel::<()>();
        let waiting = std::pin::pin!(without_seat(unanswered));
        let mut other = std::pin::pin!(with_seat(second, waiting));
        assert!(futures_util::poll!(other.as_mut()).is_pending());
        assert_eq!(taken(&fairness), 1);

        answer.send(()).unwrap();
        let ((), seat) = work.await;
        drop(seat);
        assert_eq!(taken(&fairness), 1);
    }

    #[tokio::test]
    async fn a_request_that_is_closed_elsewhere_leaves_no_seat_taken() {
        let fairness = Fairness::new(InFlight { reading: 1, writing: 1 });
        for _ in 0..3 {
            let seat = fairness.enter(Some(&place(&fairness)), true, 1).await.unwrap();
            let (_never, unanswered) = oneshot::channel::<()>();
            let mut work = Box::pin(with_seat(seat, Box::pin(without_seat(unanswered))));
            assert!(futures_util::poll!(work.as_mut()).is_pending());
            assert_eq!(taken(&fairness), 0);
        }
        assert_eq!(taken(&fairness), 0);
    }
}
