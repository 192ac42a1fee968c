//! One request's way through the queues.

use std::time::{Duration, Instant};

use auth::User;

use super::{FlowAssignment, Seat};
use crate::api::Api;
use crate::http::route::ResourcePath;
use crate::http::verb::RequestVerb;
use crate::status::ApiResult;

#[derive(Debug, Default)]
pub(crate) struct RequestTicket {
    /// The flow that the request was assigned to; none for requests from this process.
    pub(crate) flow: Option<FlowAssignment>,
    /// How long it waited for a seat.
    pub(crate) waited: Duration,
}

impl RequestTicket {
    /// Waits for as many seats as `width` says, for a request for a resource.
    pub(crate) async fn enter(
        &mut self,
        api: &Api,
        user: &User,
        verb: &RequestVerb,
        target: &ResourcePath<'_>,
        width: u32,
    ) -> ApiResult<Option<Seat>> {
        self.flow = api.fairness.assign(user, verb.as_str(), target);
        self.wait(api, !verb.is_read(), width).await
    }

    /// Waits for a seat for a request to a path outside of the resources.
    pub(crate) async fn enter_path(
        &mut self,
        api: &Api,
        user: &User,
        verb: &str,
        path: &str,
    ) -> ApiResult<Option<Seat>> {
        self.flow = api.fairness.assign_path(user, verb, path);
        self.wait(api, false, 1).await
    }

    async fn wait(&mut self, api: &Api, writes: bool, width: u32) -> ApiResult<Option<Seat>> {
        let came = Instant::now();
        let seat = api.fairness.enter(self.flow.as_ref(), writes, width).await;
        self.waited = came.elapsed();
        seat
    }
}
