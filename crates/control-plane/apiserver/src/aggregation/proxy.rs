//! Passes a request on, on behalf of its sender.

use auth::User;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode, request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::RemoteGroup;
use crate::api::Api;
use crate::http::body::RequestBody;
use crate::http::negotiate::is_websocket;
use crate::http::respond::{self, HttpReply};
use crate::http::websocket::Upgrade;
use crate::status::{ApiError, ApiResult};

/// Headers that concern one connection, and not the request.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HOST,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// The characters that must be escaped when a key of extra information is part of a header name.
const IN_NAME: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'/')
    .add(b':')
    .add(b'"')
    .add(b'(')
    .add(b')')
    .add(b',')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'{')
    .add(b'}');

/// Passes a request on and its answer back, as both come.
pub(crate) async fn pass(
    api: &Api,
    remote: &RemoteGroup,
    user: &User,
    parts: &request::Parts,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    if remote.is_down {
        return Err(ApiError::unavailable("the server is currently unable to handle the request"));
    }
    let unreached =
        |why: String| ApiError::unavailable(format!("error trying to reach service: {why}"));
    let (route, authority) = remote.route(api).map_err(|error| unreached(error.to_string()))?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder()
        .method(parts.method.clone())
        .uri(format!("https://{authority}{path}"))
        .body(body)
        .map_err(|error| unreached(error.to_string()))?;
    *request.headers_mut() = headers(&parts.headers, user);
    let upgrade = is_websocket(parts).then(|| parts.extensions.get::<Upgrade>()).flatten();
    if upgrade.is_some() {
        for name in [CONNECTION, UPGRADE] {
            if let Some(value) = parts.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
    }
    let sent = api.outbound.send(&route, request).await;
    let answer = sent.map_err(|error| unreached(error.to_string()))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(connected(api, upgrade.and_then(Upgrade::take), answer));
    }
    let (mut head, body) = answer.into_parts();
    for name in &HOP_BY_HOP {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, streamed(body)))
}

/// The sender's headers without the credentials, and with the name of the user instead.
fn headers(sent: &HeaderMap, user: &User) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        let text = name.as_str();
        let ours = text.starts_with("x-remote-") || text.starts_with("impersonate-");
        if !HOP_BY_HOP.contains(name) && name != AUTHORIZATION && !ours {
            headers.append(name.clone(), value.clone());
        }
    }
    let mut add = |name: &str, text: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(text)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        let key = utf8_percent_encode(&key.to_ascii_lowercase(), IN_NAME).to_string();
        for value in values {
            add(&format!("x-remote-extra-{key}"), value);
        }
    }
    headers
}

fn streamed(body: Incoming) -> respond::Body {
    // A body that breaks off ends here; the client notices by the length or the missing last
    // chunk.
    let frames = body.into_data_stream().take_while(|frame| std::future::ready(frame.is_ok()));
    respond::streamed(frames.map(|frame| frame.unwrap_or_else(|_| Bytes::new())))
}

/// Ties both connections together once they are no longer HTTP.
fn connected(
    api: &Api,
    upgrade: Option<hyper::upgrade::OnUpgrade>,
    mut answer: Response<Incoming>,
) -> HttpReply {
    let there = hyper::upgrade::on(&mut answer);
    if let Some(here) = upgrade {
        api.tasks.spawn("aggregated stream", async move {
            let (Ok(here), Ok(there)) = tokio::join!(here, there) else { return };
            let (mut here, mut there) = (TokioIo::new(here), TokioIo::new(there));
            let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
        });
    }
    let (head, _) = answer.into_parts();
    Response::from_parts(head, respond::full(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_impersonate_and_credentials_stay_here() {
        let mut sent = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("impersonate-user", "root"),
            ("connection", "close"),
            ("accept", "application/json"),
        ] {
            sent.insert(name, HeaderValue::from_static(value));
        }
        let mut user = User::new("jane", ["a", "b"]);
        user.extra.insert("example.com/Scope".to_owned(), vec!["x".to_owned()]);
        let headers = headers(&sent, &user);
        let all = |name: &str| -> Vec<&str> {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
        };
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-example.com%2fscope"), ["x"]);
        assert_eq!(all("accept"), ["application/json"]);
        for gone in ["authorization", "impersonate-user", "connection"] {
            assert!(all(gone).is_empty(), "{gone}");
        }
    }
}
