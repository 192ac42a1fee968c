//! The guest's clock after its processors were stopped: a guest that was paused or restored from
//! memory goes on with the time of that moment. Its agent sets the time of the host.

use std::time::Duration;

use base::{Backoff, Chain, clock};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use qemu::guest_agent::AgentError;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::event::{EventNote, Reporter};
use crate::machine::LiveMachine;

/// How long the agent of a guest that goes on may take to answer.
const LIMIT: Duration = Duration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(5);

impl LiveMachine {
    /// Sets the guest's clock in the background, after a pause.
    pub(crate) fn set_clock_soon(&self) {
        let live = self.clone();
        self.running.tasks().clone().spawn("guest clock", async move {
            if let Some(failure) = live.set_clock().await {
                debug!(error = %Chain(&failure), "guest clock not set after a pause");
            }
        });
    }

    /// The same after a restore, which an event reports if it fails: the clock may be off by
    /// days.
    pub(super) fn set_clock_and_report(&self, reporter: Reporter, about: ObjectReference) {
        let live = self.clone();
        self.running.tasks().clone().spawn("guest clock", async move {
            let Some(failure) = live.set_clock().await else { return };
            warn!(error = %Chain(&failure), "guest clock not set after a restore from memory");
            let message = format!(
                "The guest was restored from memory and its clock was not set: {failure}. Set it \
                 in the guest, or install the QEMU guest agent."
            );
            reporter.report(&about, EventNote::warning("GuestClockNotSet", message)).await;
        });
    }

    /// Tries until the agent answers or `LIMIT` is over; why not, if the clock was not set.
    async fn set_clock(&self) -> Option<AgentError> {
        let (end, mut stop) = (Instant::now() + LIMIT, self.running.tasks().stop_signal());
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        loop {
            let now = clock::now().duration_since(Timestamp::UNIX_EPOCH);
            let now = Duration::try_from(now).unwrap_or_default();
            let failure = match self.agent.set_time(now).await {
                Ok(()) => {
                    info!("guest clock set by the guest agent");
                    return None;
                }
                Err(failure) => failure,
            };
            let delay = backoff.delay();
            let answered = matches!(failure, AgentError::Refused { .. });
            if answered || Instant::now() + delay > end {
                return Some(failure);
            }
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = self.running.exited() => return None,
                () = stop.requested() => return None,
            }
        }
    }
}
