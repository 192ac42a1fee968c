//! Asking the node that runs a guest, over HTTP/1.1 on whatever wire leads there.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::header::{
    CONNECTION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, UPGRADE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::Body;
use crate::answer::{GatewayError, GatewayResult};

/// A connection to a node.
pub trait NodeConnection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> NodeConnection for T {}

/// How nodes are reached.
pub trait Nodes: Send + Sync {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeConnection>>>;

    /// The grant that shows the node that the request is allowed, for the header [`GRANT`].
    fn grant(&self, _: &NodeRequest<'_>) -> Option<String> {
        None
    }
}

/// One request to a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeRequest<'a> {
    pub node: &'a str,
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    pub user: &'a str,
    /// The uid of the machine that the request is for.
    pub machine: Option<&'a str>,
}

/// Sends requests to nodes for one user.
#[derive(Clone, Copy)]
pub(crate) struct NodeRequester<'a> {
    pub(crate) nodes: &'a dyn Nodes,
    pub(crate) user: &'a str,
    pub(crate) machine: Option<&'a str>,
}

impl<'a> NodeRequester<'a> {
    /// For requests about this machine, and no other of its name.
    pub(crate) fn for_machine(self, vmi: &'a serde_json::Value) -> Self {
        Self { machine: vmi["metadata"]["uid"].as_str(), ..self }
    }
}

/// The header with the grant of a request.
pub const GRANT: &str = "sheaf-grant";

/// The protocol of streams in the `Upgrade` header.
const PROTOCOL: HeaderValue = HeaderValue::from_static("sheaf-stream");
/// More than any answer that is not a stream.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// One request and its whole answer.
pub(crate) async fn ask(
    requester: NodeRequester<'_>,
    node: &str,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<Bytes, GatewayError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "node")
        .header(CONTENT_TYPE, "application/json")
        .body(whole(body))
        .map_err(GatewayError::internal)?;
    let answer = send(requester, node, request).await?;
    let code = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), ANSWER_LIMIT);
    let bytes = body.collect().await.map_err(|error| lost(node, &*error))?.to_bytes();
    if code.is_success() { Ok(bytes) } else { Err(refused(code, &bytes)) }
}

/// Why a node sent no files about itself.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// With the message of the node, or of the connection to it.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    NoJson(#[from] serde_json::Error),
}

/// Files about a node for a support bundle: names and contents.
pub async fn report(nodes: &dyn Nodes, node: &str) -> Result<Vec<(String, String)>, ReportError> {
    let requester = NodeRequester { nodes, user: "system:sheaf-gateway", machine: None };
    let asked = ask(requester, node, Method::GET, "/v1/report", Bytes::new()).await;
    let bytes = asked.map_err(|error| ReportError::Refused(error.message))?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// A request with a body that is as long as it is, passed on as it arrives.
pub(crate) async fn pass(
    requester: NodeRequester<'_>,
    node: &str,
    path: &str,
    length: Option<HeaderValue>,
    body: Body,
) -> Result<(), GatewayError> {
    let mut request = Request::builder().method(Method::PUT).uri(path).header(HOST, "node");
    if let Some(length) = length {
        request = request.header(CONTENT_LENGTH, length);
    }
    let request = request.body(body).map_err(GatewayError::internal)?;
    let answer = send(requester, node, request).await?;
    let code = answer.status();
    let bytes = answer.into_body().collect().await.map_err(|error| lost(node, &error))?.to_bytes();
    if code.is_success() { Ok(()) } else { Err(refused(code, &bytes)) }
}

/// A file of a node, passed on as it arrives. If the node is lost meanwhile the answer is shorter
/// than it says, which is how a client learns of it.
pub(crate) async fn fetch(
    requester: NodeRequester<'_>,
    node: &str,
    path: &str,
    name: &str,
) -> GatewayResult {
    let request = Request::builder().method(Method::GET).uri(path).header(HOST, "node");
    let request = request.body(whole(Bytes::new())).map_err(GatewayError::internal)?;
    let answer = send(requester, node, request).await?;
    let (parts, body) = answer.into_parts();
    if !parts.status.is_success() {
        let bytes = body.collect().await.map_err(|error| lost(node, &error))?.to_bytes();
        return Err(refused(parts.status, &bytes));
    }
    let pieces = stream::unfold(body, |mut body| async {
        let frame = body.frame().await?.ok()?;
        Some((Ok::<_, Infallible>(frame), body))
    });
    let mut reply = Response::new(StreamBody::new(pieces).boxed_unsync());
    for key in [CONTENT_TYPE, CONTENT_LENGTH] {
        if let Some(value) = parts.headers.get(&key) {
            reply.headers_mut().insert(key, value.clone());
        }
    }
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename={}", quoted(name))) {
        reply.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(reply)
}

/// A file name as a header has it: without quotes where that is possible, since scripts take what is
/// behind the `=`.
fn quoted(name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_graphic() && *c != '"').collect();
    let is_token = plain.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if is_token { plain } else { format!("\"{plain}\"") }
}

/// A request that becomes a stream of bytes.
pub(crate) async fn open(
    requester: NodeRequester<'_>,
    node: &str,
    path: &str,
) -> Result<TokioIo<hyper::upgrade::Upgraded>, GatewayError> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(HOST, "node")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, PROTOCOL)
        .body(whole(Bytes::new()))
        .map_err(GatewayError::internal)?;
    let answer = send(requester, node, request).await?;
    let code = answer.status();
    if code == StatusCode::SWITCHING_PROTOCOLS {
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| lost(node, &error))?;
        return Ok(TokioIo::new(upgraded));
    }
    let bytes = answer.into_body().collect().await.map_err(|error| lost(node, &error))?.to_bytes();
    Err(refused(code, &bytes))
}

async fn send(
    requester: NodeRequester<'_>,
    node: &str,
    mut request: Request<Body>,
) -> Result<Response<Incoming>, GatewayError> {
    let NodeRequester { nodes, user, machine } = requester;
    let path = request.uri().path_and_query().map_or("", |own| own.as_str());
    let method = request.method().as_str();
    if let Some(grant) = nodes.grant(&NodeRequest { node, method, path, user, machine }) {
        let grant = HeaderValue::from_str(&grant).map_err(GatewayError::internal)?;
        request.headers_mut().insert(GRANT, grant);
    }
    let wire = nodes.connect(node).await.map_err(|error| lost(node, &error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(wire)).await.map_err(|error| lost(node, &error))?;
    // Ends with the connection, which ends when both halves are dropped.
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender.send_request(request).await.map_err(|error| lost(node, &error))
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn lost(node: &str, error: &dyn std::error::Error) -> GatewayError {
    GatewayError::unavailable(format!("cannot reach the node {node}: {}", base::Chain(error)))
}

/// The node's own message; client errors keep their status code.
fn refused(code: StatusCode, body: &[u8]) -> GatewayError {
    let message = serde_json::from_slice::<serde_json::Value>(body)
        .ok()
        .and_then(|value| value["message"].as_str().map(str::to_owned))
        .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    match code {
        StatusCode::BAD_REQUEST => GatewayError::bad_request(message),
        StatusCode::SERVICE_UNAVAILABLE => GatewayError::unavailable(message),
        code if code.is_client_error() => GatewayError::with_message(code, message),
        _ => GatewayError::internal(message),
    }
}
