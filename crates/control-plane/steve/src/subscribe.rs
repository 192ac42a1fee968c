//! `/v1/subscribe`: changes of objects over a WebSocket, as Rancher's pages read them.
//!
//! Each subscription is a watch of the Kubernetes API in the caller's name.

mod encoded;
mod message;
mod session;

use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::Steve;
use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::route::SteveRoute;

pub(crate) use encoded::EncodedMessages;
use session::Subscriber;

/// Turns the connection into a WebSocket. Requests with a session cookie come from pages of
/// this server: the API server checks their origin.
pub(crate) fn answer(steve: &Steve, asked: &mut RequestHead, route: &SteveRoute) -> SteveResult {
    if asked.parts.method != Method::GET {
        return Err(SteveError::method_not_allowed(&asked.parts.method));
    }
    let key = asked.parts.headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| {
        SteveError::bad_request("subscribe is a WebSocket: header Sec-WebSocket-Key is missing")
    })?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| SteveError::bad_request("header Sec-WebSocket-Key is not valid"))?;
    let upgrade = asked.upgrade.take().ok_or_else(|| {
        SteveError::bad_request("this connection cannot become a WebSocket; use HTTP/1.1")
    })?;
    let subscriber = Subscriber {
        caller: asked.caller.clone().unwrap_or_default(),
        origin: asked.origin(),
        prefix: route.prefix,
    };
    // Ends with the connection, which the server counts.
    tokio::spawn(session::serve(steve.clone(), subscriber, upgrade));
    let mut reply = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(reply)
}
