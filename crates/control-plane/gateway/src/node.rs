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
}

/// The protocol of streams in the `Upgrade` header.
const PROTOCOL: HeaderValue = HeaderValue::from_static("sheaf-stream");
/// More than any answer that is not a stream.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;

/// One request and its whole answer.
pub(crate) async fn ask(
    nodes: &dyn Nodes,
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
    let answer = send(nodes, node, request).await?;
    let code = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), ANSWER_LIMIT);
    let bytes = body.collect().await.map_err(|error| lost(node, &*error))?.to_bytes();
    if code.is_success() { Ok(bytes) } else { Err(refused(code, &bytes)) }
}

/// Files about a node for a support bundle: names and contents.
pub async fn report(nodes: &dyn Nodes, node: &str) -> Result<Vec<(String, String)>, String> {
    let asked = ask(nodes, node, Method::GET, "/v1/report", Bytes::new()).await;
    let bytes = asked.map_err(|error| error.message)?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// A request with a body that is as long as it is, passed on as it arrives.
pub(crate) async fn pass(
    nodes: &dyn Nodes,
    node: &str,
    path: &str,
    length: Option<HeaderValue>,
    body: Body,
) -> Result<(), GatewayError> {
    let mut request = Request::builder().method(Method::PUT).uri(path).header(HOST, "node");
    if let Some(length) = length {
        request = request.header(CONTENT_LENGTH, length);
    }
    let answer = send(nodes, node, request.body(body).map_err(GatewayError::internal)?).await?;
    let code = answer.status();
    let bytes = answer.into_body().collect().await.map_err(|error| lost(node, &error))?.to_bytes();
    if code.is_success() { Ok(()) } else { Err(refused(code, &bytes)) }
}

/// A file of a node, passed on as it arrives. If the node is lost meanwhile the answer is shorter
/// than it says, which is how a client learns of it.
pub(crate) async fn fetch(nodes: &dyn Nodes, node: &str, path: &str, name: &str) -> GatewayResult {
    let request = Request::builder().method(Method::GET).uri(path).header(HOST, "node");
    let request = request.body(whole(Bytes::new())).map_err(GatewayError::internal)?;
    let answer = send(nodes, node, request).await?;
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
    let plain: String = name.chars().filter(|c| c.is_ascii_graphic() && *c != '"').collect();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\"")) {
        reply.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    Ok(reply)
}

/// A request that becomes a stream of bytes.
pub(crate) async fn open(
    nodes: &dyn Nodes,
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
    let answer = send(nodes, node, request).await?;
    let code = answer.status();
    if code == StatusCode::SWITCHING_PROTOCOLS {
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| lost(node, &error))?;
        return Ok(TokioIo::new(upgraded));
    }
    let bytes = answer.into_body().collect().await.map_err(|error| lost(node, &error))?.to_bytes();
    Err(refused(code, &bytes))
}

async fn send(
    nodes: &dyn Nodes,
    node: &str,
    request: Request<Body>,
) -> Result<Response<Incoming>, GatewayError> {
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
