//! Answers of the node endpoint.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::json;

pub(super) type Body = Full<Bytes>;

/// A refusal or a failure, in words for the person at the other end.
#[derive(Debug)]
pub(super) struct Failure {
    code: StatusCode,
    message: String,
}

impl Failure {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Something on this node did not work.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, base::Chain(error).to_string())
    }

    pub(super) fn into_response(self) -> Response<Body> {
        with(self.code, "application/json", json!({"message": self.message}).to_string())
    }
}

pub(super) fn empty() -> Body {
    Body::default()
}

pub(super) fn done() -> Response<Body> {
    with(StatusCode::OK, "application/json", "{}")
}

pub(super) fn json(value: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_string(value).expect("answers are JSON");
    with(StatusCode::OK, "application/json", text)
}

pub(super) fn content(kind: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    with(StatusCode::OK, kind, content)
}

fn with(code: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(content.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
