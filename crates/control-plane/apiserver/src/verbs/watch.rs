//! Watches: the current state if it was asked for, then every change in order.
//!
//! A feed pulls from the table's log when the connection is ready for more, so a slow
//! client costs other clients nothing; one that falls behind the log gets an error and has to
//! list again. Events are sent as the bytes that are in memory anyway.

mod encode;
mod feed;
mod limit;

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;

use crate::http::negotiate::Encoding;
use crate::http::options::{Freshness, ListOptions};
use crate::http::respond::{self, HttpReply};
use crate::status::ApiResult;
use crate::verbs::call::Call;
use crate::verbs::read;
use crate::verbs::selection::Selection;

pub(crate) use feed::Feed;
pub(crate) use limit::WatchLimit;

/// Unless the client says otherwise, a watch ends after half an hour to an hour.
const LEAST: Duration = Duration::from_secs(1800);

pub(crate) async fn watch(call: &Call<'_>, options: &ListOptions) -> ApiResult<HttpReply> {
    let feed = open(call, options).await?;
    let content_type = match call.wanted.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Encoding::Json | Encoding::Yaml => "application/json",
    };
    let watching = call.api.traffic.watching();
    let chunks = stream::unfold((feed, watching), |(mut feed, watching)| async move {
        let chunk = feed.next().await?;
        Some((Bytes::from(chunk), (feed, watching)))
    });
    Ok(respond::reply(StatusCode::OK, content_type, respond::streamed(chunks)))
}

/// Everything that can be refused is refused here; later errors travel in the stream.
pub(crate) async fn open(call: &Call<'_>, options: &ListOptions) -> ApiResult<Feed> {
    let slot = call.api.watch_limit.begin(call.user)?;
    let selection = Selection::new(&call.served, options)?.within(call.namespace());
    let wants_state = options.initial_events.unwrap_or(matches!(options.revision, None | Some(0)));
    if wants_state || options.revision.is_none() {
        let freshness = match options.freshness {
            Freshness::Exact(revision) => Freshness::NotOlderThan(revision),
            other => other,
        };
        read::catch_up(call, freshness).await?;
    }
    let limit = options.timeout_seconds.map_or_else(default_limit, Duration::from_secs);
    Feed::new(call, options, selection, wants_state, limit, slot).await
}

/// Spread over a factor of two, so that clients do not all come back at once.
fn default_limit() -> Duration {
    let spread = u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * LEAST.as_secs() / 256;
    LEAST + Duration::from_secs(spread)
}
