//! Requests that this server makes itself: to webhooks and to aggregated servers.
//!
//! Connections are kept alive and reused, with one pool for each combination of address, expected
//! server name and trusted CAs. Errors have the texts of Go's client, because they reach the users
//! of the API and are searched for.

mod connect;
mod service;
mod trust;
pub(crate) mod webhook;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;

use crate::http::body::RequestBody;
use connect::Connector;

pub(crate) use connect::ConnectError;
pub(crate) use service::{ResolveError, resolve};
pub(crate) use trust::{ClientIdentity, Trust};

/// Beyond this all are forgotten; a cluster has a few dozen.
const ROUTES: usize = 256;
/// An idle connection is closed after this time.
const IDLE: Duration = Duration::from_secs(90);

type HttpClient = Client<Connector, RequestBody>;

/// Where a request goes and who is believed there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    /// `host:port`, where the connection is made to.
    pub(crate) dial: String,
    /// The name that the certificate must be for.
    pub(crate) server_name: String,
    pub(crate) trust: Trust,
    /// The client certificate, sent if the server requests one.
    pub(crate) identity: Option<Arc<ClientIdentity>>,
}

/// The connections of this server to others.
#[derive(Default)]
pub(crate) struct Outbound {
    clients: Mutex<HashMap<Route, HttpClient>>,
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outbound").finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Connect(ConnectError),
    #[error("{0}")]
    Broken(String),
    #[error("context deadline exceeded")]
    Late,
}

impl Outbound {
    /// Sends a request; its URI must be absolute. The body of the answer follows as it comes.
    pub(crate) async fn send(
        &self,
        route: &Route,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let client = self.client(route)?;
        client.request(request).await.map_err(explain)
    }

    /// A whole answer, within a time and no larger than `limit` bytes.
    pub(crate) async fn exchange(
        &self,
        route: &Route,
        request: Request<RequestBody>,
        time: Duration,
        limit: usize,
    ) -> Result<Response<Bytes>, SendError> {
        let exchange = async {
            let (parts, body) = self.send(route, request).await?.into_parts();
            let body = http_body_util::Limited::new(body, limit);
            let bytes = body.collect().await.map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    SendError::Broken(format!("the answer is larger than {limit} bytes"))
                } else {
                    SendError::Broken(base::Chain(&*error).to_string())
                }
            })?;
            Ok(Response::from_parts(parts, bytes.to_bytes()))
        };
        tokio::time::timeout(time, exchange).await.unwrap_or(Err(SendError::Late))
    }

    fn client(&self, route: &Route) -> Result<HttpClient, SendError> {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(route) {
            return Ok(known.clone());
        }
        if clients.len() >= ROUTES {
            clients.clear();
        }
        let connector = Connector::new(route).map_err(SendError::Connect)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        clients.insert(route.clone(), client.clone());
        Ok(client)
    }
}

/// The root cause of an error, without the layers that only wrap it.
fn explain(error: hyper_util::client::legacy::Error) -> SendError {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref::<ConnectError>() {
            return SendError::Connect(found.clone());
        }
        source = cause.source();
    }
    SendError::Broken(match std::error::Error::source(&error) {
        Some(cause) => base::Chain(cause).to_string(),
        None => error.to_string(),
    })
}

/// A body that is known from the start.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> RequestBody {
    http_body_util::Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
