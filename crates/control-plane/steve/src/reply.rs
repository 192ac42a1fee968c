//! Answers as bytes: JSON or YAML, as the client accepts.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use crate::error::SteveError;

/// The answer to a request.
pub type SteveReply = Response<UnsyncBoxBody<Bytes, Infallible>>;
pub(crate) type SteveResult = Result<SteveReply, SteveError>;

pub(crate) fn wants_yaml(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut types = accept.split(',').map(|part| part.split(';').next().unwrap_or("").trim());
    types.find_map(|name| match name {
        "application/yaml" | "application/x-yaml" | "text/yaml" => Some(true),
        "application/json" => Some(false),
        _ => None,
    }) == Some(true)
}

pub(crate) fn json(status: StatusCode, value: &Value) -> SteveReply {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    with_type(status, "application/json", bytes)
}

pub(crate) fn yaml(status: StatusCode, value: &Value) -> SteveResult {
    let text = serde_saphyr::to_string(value).map_err(|error| {
        let message = format!("cannot write the object as YAML: {error}");
        SteveError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    })?;
    Ok(with_type(status, "application/yaml", text))
}

pub(crate) fn empty(status: StatusCode) -> SteveReply {
    let mut reply = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *reply.status_mut() = status;
    reply
}

pub(crate) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> SteveReply {
    let mut reply = empty(status);
    *reply.body_mut() = Full::new(bytes.into()).boxed_unsync();
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

pub(crate) fn failure(error: &SteveError) -> SteveReply {
    let mut reply = if error.is_text {
        with_type(error.status, "text/plain; charset=utf-8", error.message.clone())
    } else {
        json(error.status, &error.to_value())
    };
    if error.retry_after > 0 {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(error.retry_after));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_type_that_is_known_decides() {
        for (accept, yaml) in [
            ("", false),
            ("*/*", false),
            ("application/yaml", true),
            ("text/html, application/yaml;q=0.9, application/json", true),
            ("application/json, application/yaml", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_yaml(&headers), yaml, "{accept}");
        }
    }
}
