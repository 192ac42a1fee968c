//! Watches over WebSocket: one text message per event, as Headlamp and browsers read them.

use futures_util::SinkExt as _;
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{Response, StatusCode, request};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::http::options::ListOptions;
use crate::http::respond::{self, HttpReply};
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::watch;

pub(crate) async fn watch(
    call: &Call<'_>,
    options: &ListOptions,
    parts: &request::Parts,
) -> ApiResult<HttpReply> {
    let key = parts
        .headers
        .get(SEC_WEBSOCKET_KEY)
        .ok_or_else(|| ApiError::bad_request("the Sec-WebSocket-Key header is missing"))?;
    let upgrade = parts
        .extensions
        .get::<Upgrade>()
        .and_then(Upgrade::take)
        .ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded"))?;
    let mut feed = watch::open(call, options).await?;
    call.api.tasks.spawn("websocket watch", async move {
        let Ok(upgraded) = upgrade.await else { return };
        let io = TokioIo::new(upgraded);
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        while let Some(chunk) = feed.next().await {
            for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let text = String::from_utf8_lossy(line).into_owned();
                if socket.feed(Message::text(text)).await.is_err() {
                    return;
                }
            }
            if socket.flush().await.is_err() {
                return;
            }
        }
        let _ = socket.close(None).await;
    });
    let mut reply = Response::new(respond::full(""));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    // The first protocol that the client offers and that carries text; tokens travel in others.
    let offered = parts.headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    let chosen = offered
        .into_iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .find(|name| !name.starts_with("base64url.bearer.authorization.k8s.io."));
    if let Some(protocol) = chosen.and_then(|name| HeaderValue::from_str(name).ok()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(reply)
}

/// The right to take a connection over, handed along with the request and used once.
#[derive(Debug, Clone)]
pub struct Upgrade(std::sync::Arc<parking_lot::Mutex<Option<OnUpgrade>>>);

impl Upgrade {
    pub(crate) fn new(upgrade: OnUpgrade) -> Self {
        Self(std::sync::Arc::new(parking_lot::Mutex::new(Some(upgrade))))
    }

    /// The connection, for the first caller.
    pub fn take(&self) -> Option<OnUpgrade> {
        self.0.lock().take()
    }
}
