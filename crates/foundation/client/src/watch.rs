//! Following the metadata of one kind: list, watch, and begin again where needed.
//!
//!   list ──► watch ──closed──► watch from the last version seen
//!     ▲        └──410 Gone───► list
//!     └── failure: wait, longer each time
//!
//! It keeps no objects. After a gap it lists again between [`Change::Listing`] and
//! [`Change::Listed`], and consumers that keep objects drop those that were not named.

use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain};
use bytes::{Buf, Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::catalog::CatalogKind;
use crate::fault::Fault;
use crate::feed::{FeedChange, Update};
use crate::meta::{MetadataPage, Partial};

const LIST_ACCEPT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const ITEM_ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Objects per page of a list: bounds the memory that one page takes.
const PAGE: u32 = 500;

/// Why following a kind was interrupted.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("cannot reach the server")]
    Request(#[source] Fault),
    #[error("the server answered {code}: {message}")]
    Refused { code: u16, message: String },
    #[error("cannot read what the server sent")]
    Decode(#[source] serde_json::Error),
    #[error("cannot build a request")]
    Build(#[source] http::Error),
    #[error("the version to watch from is too old")]
    Expired,
    #[error("the receiver is gone")]
    Unheard,
}

/// Sends every change of the objects of `kind` (those that `fields` selects) to `updates`.
/// Ends only when the receiver is dropped.
pub async fn follow(
    client: Client,
    kind: Arc<CatalogKind>,
    fields: Option<&'static str>,
    updates: mpsc::Sender<Update>,
) {
    let mut follower = KindWatcher { client, path: kind.path(""), kind, fields, updates };
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
    let mut version = None;
    let mut failing = false;
    loop {
        let started = Instant::now();
        let failure = match follower.advance(&mut version).await {
            Ok(()) if started.elapsed() > Duration::from_secs(1) => {
                backoff.reset();
                failing = false;
                continue;
            }
            // Closed at once: without a pause this would spin.
            Ok(()) => None,
            Err(WatchError::Unheard) => return,
            Err(WatchError::Expired) => {
                debug!(path = follower.path, "version expired, listing again");
                version = None;
                continue;
            }
            Err(failure) => Some(failure),
        };
        match failure {
            // Its definition was deleted; the consumers here are informed of that separately.
            Some(WatchError::Refused { code: 404, message }) => {
                debug!(path = follower.path, message, "kind is not served");
            }
            // A server that stays away is reported once for each kind.
            Some(failure) if !failing => {
                failing = true;
                warn!(path = follower.path, error = %Chain(&failure), "cannot watch kind");
            }
            Some(failure) => {
                debug!(path = follower.path, error = %Chain(&failure), "cannot follow kind yet");
            }
            None => failing = false,
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.delay()) => {}
            () = follower.updates.closed() => return,
        }
    }
}

struct KindWatcher {
    client: Client,
    path: String,
    kind: Arc<CatalogKind>,
    fields: Option<&'static str>,
    updates: mpsc::Sender<Update>,
}

impl KindWatcher {
    /// Lists if there is no version to go on from, then watches until the stream ends.
    async fn advance(&mut self, version: &mut Option<String>) -> Result<(), WatchError> {
        if version.is_none() {
            *version = Some(self.list().await?);
        }
        let Some(version) = version else { return Ok(()) };
        self.watch(version).await
    }

    async fn list(&self) -> Result<String, WatchError> {
        self.emit(FeedChange::Listing).await?;
        let mut next = String::new();
        loop {
            let mut query = format!("limit={PAGE}");
            self.select(&mut query);
            if !next.is_empty() {
                query.push_str("&continue=");
                query.push_str(&escape(&next));
            }
            let body = self.send(&query, LIST_ACCEPT).await?;
            let body = body.collect().await.map_err(unreachable)?.to_bytes();
            let page: MetadataPage = serde_json::from_slice(&body).map_err(WatchError::Decode)?;
            drop(body);
            for item in page.items {
                self.emit(FeedChange::Applied(item.metadata)).await?;
            }
            next = page.metadata.r#continue.unwrap_or_default();
            if next.is_empty() {
                self.emit(FeedChange::Listed).await?;
                return Ok(page.metadata.resource_version);
            }
        }
    }

    async fn watch(&self, version: &mut String) -> Result<(), WatchError> {
        // Spread over five minutes, so that the watches of all kinds are not renewed at once.
        let spread = self.path.bytes().fold(0_u64, |sum, byte| sum * 31 % 300 + u64::from(byte));
        let timeout = 600 + spread % 300;
        let mut query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={timeout}&resourceVersion={version}"
        );
        self.select(&mut query);
        let mut lines =
            Lines { body: self.send(&query, ITEM_ACCEPT).await?, rest: BytesMut::new() };
        loop {
            let line = tokio::select! {
                line = lines.next() => line?,
                () = self.updates.closed() => return Err(WatchError::Unheard),
            };
            let Some(line) = line else { return Ok(()) };
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.event(&line, version).await?;
            }
        }
    }

    async fn event(&self, line: &[u8], version: &mut String) -> Result<(), WatchError> {
        let event: Event<'_> = serde_json::from_slice(line).map_err(WatchError::Decode)?;
        if event.kind == "ERROR" {
            return Err(refusal(event.object.get().as_bytes(), StatusCode::INTERNAL_SERVER_ERROR));
        }
        let object: Partial =
            serde_json::from_str(event.object.get()).map_err(WatchError::Decode)?;
        let meta = object.metadata;
        if !meta.resource_version.is_empty() {
            version.clone_from(&meta.resource_version);
        }
        match event.kind {
            "ADDED" | "MODIFIED" => self.emit(FeedChange::Applied(meta)).await,
            "DELETED" => self.emit(FeedChange::Deleted(meta)).await,
            _ => Ok(()),
        }
    }

    async fn send(&self, query: &str, accept: &str) -> Result<Body, WatchError> {
        let request = Request::get(format!("{}?{query}", self.path))
            .header(http::header::ACCEPT, accept)
            .body(Body::empty())
            .map_err(WatchError::Build)?;
        let response = self.client.send(request).await.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await.map_err(unreachable)?;
        Err(refusal(&body.to_bytes(), status))
    }

    fn select(&self, query: &mut String) {
        if let Some(fields) = self.fields {
            query.push_str("&fieldSelector=");
            query.push_str(&escape(fields));
        }
    }

    async fn emit(&self, change: FeedChange) -> Result<(), WatchError> {
        let update = Update { kind: Arc::clone(&self.kind), change };
        self.updates.send(update).await.map_err(|_| WatchError::Unheard)
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Cuts a body into lines; holds no memory between them.
struct Lines {
    body: Body,
    rest: BytesMut,
}

impl Lines {
    /// Cancel-safe: received bytes stay in `rest`.
    async fn next(&mut self) -> Result<Option<Bytes>, WatchError> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.rest[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(searched + end).freeze();
                self.rest.advance(1);
                if self.rest.is_empty() {
                    self.rest = BytesMut::new();
                }
                return Ok(Some(line));
            }
            searched = self.rest.len();
            match self.body.frame().await {
                // A line that was cut short by the end of the stream is no event.
                None => return Ok(None),
                Some(Err(failure)) => return Err(unreachable(failure)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.rest.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

fn unreachable(failure: kube::Error) -> WatchError {
    WatchError::Request(Fault(failure))
}

/// The error for a `Status` in place of an answer.
fn refusal(body: &[u8], status: StatusCode) -> WatchError {
    let (code, message) = match serde_json::from_slice::<Status>(body) {
        Ok(status) => (status.code, status.message),
        Err(_) => (status.as_u16(), String::from_utf8_lossy(body).into_owned()),
    };
    if code == StatusCode::GONE.as_u16() {
        return WatchError::Expired;
    }
    WatchError::Refused { code, message }
}

/// Percent-encodes what is not allowed in the value of a query.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
