//! Reading a request's body: bounded, in any encoding the API knows.

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::Value;

use crate::http::decode::{self, Parsed};
use crate::http::respond::PROTOBUF;
use crate::status::{ApiError, ApiResult};

/// The body of every request, whatever transport it came by.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Upstream's limit on a resource request.
pub(crate) const LIMIT: usize = 3 * 1024 * 1024;

pub(crate) async fn read(mut body: RequestBody) -> ApiResult<Bytes> {
    let too_large = || ApiError::too_large(format!("limit is {LIMIT}"));
    if http_body::Body::size_hint(&body).lower() > LIMIT as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| ApiError::bad_request("the request body could not be read"))?;
        let Ok(data) = frame.into_data() else { continue };
        if rest.len() + first.as_ref().map_or(0, Bytes::len) + data.remaining() > LIMIT {
            return Err(too_large());
        }
        match first.take() {
            // Most bodies arrive in one piece and need no copy.
            None if rest.is_empty() => first = Some(data),
            None => rest.extend_from_slice(&data),
            Some(head) => {
                rest.extend_from_slice(&head);
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| rest.freeze()))
}

/// The media type without parameters; absent counts as JSON.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(str::trim)
        .filter(|media| !media.is_empty())
        .unwrap_or("application/json")
}

/// The encodings of bodies that an endpoint accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepts {
    /// JSON, YAML and protobuf: built-in kinds.
    All,
    /// JSON and YAML: custom resources have no protobuf form.
    Text,
}

/// Decodes a body that holds one object.
pub(crate) fn parse(headers: &HeaderMap, bytes: &Bytes, accepts: Accepts) -> ApiResult<Parsed> {
    let malformed = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding request body: {error}"))
    };
    let media = media_type(headers);
    let parsed = match media {
        "application/json" | "application/merge-patch+json" => {
            let parsed = decode::json(bytes).map_err(|error| malformed(&error))?;
            Parsed { source: bytes.clone(), ..parsed }
        }
        "application/yaml" => decode::yaml(bytes).map_err(|error| malformed(&error))?,
        PROTOBUF if accepts == Accepts::All => Parsed {
            value: types::decode(bytes).map_err(|error| malformed(&base::Chain(&error)))?,
            duplicates: Vec::new(),
            source: Bytes::new(),
        },
        _ if accepts == Accepts::All => {
            return Err(ApiError::unsupported_media_type(&[
                "application/json",
                "application/yaml",
                PROTOBUF,
            ]));
        }
        _ => {
            return Err(ApiError::unsupported_media_type(&[
                "application/json",
                "application/yaml",
            ]));
        }
    };
    if !parsed.value.is_object() {
        let found = match parsed.value {
            Value::Null => "null",
            Value::Array(_) => "a list",
            _ => "a scalar",
        };
        return Err(malformed(&format_args!("expected an object, found {found}")));
    }
    Ok(parsed)
}
