//! One request's way through the queues.

use std::time::{Duration, Instant};

use super::{FlowAssignment, Seat};
use crate::api::Api;
use crate::status::ApiResult;

#[derive(Debug, Default)]
pub(crate) struct RequestTicket {
    /// Where it belongs; nobody asks with requests from this process.
    pub(crate) place: Option<FlowAssignment>,
    /// How long it waited for a seat.
    pub(crate) waited: Duration,
}

impl RequestTicket {
    /// Waits for a seat at its place.
    pub(crate) async fn enter(
        &mut self,
        api: &Api,
        writes: bool,
        width: u32,
    ) -> ApiResult<Option<Seat>> {
        let came = Instant::now();
        let seat = api.fairness.enter(self.place.as_ref(), writes, width).await;
        self.waited = came.elapsed();
        seat
    }
}
