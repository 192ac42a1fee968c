//! From an answer to bytes on the wire: headers, encodings, compression.

use std::convert::Infallible;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt as _};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY,
    WARNING,
};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::Value;

use crate::http::negotiate::Encoding;
use crate::status::ApiError;

/// The body of every response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
pub type HttpReply = Response<Body>;

/// Compressing less than this costs more than it saves; upstream's threshold.
const GZIP_FROM: usize = 128 * 1024;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A body that is produced while it is sent.
pub(crate) fn streamed(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(chunks.map(|chunk| Ok(Frame::data(chunk)))).boxed_unsync()
}

pub(crate) fn reply(code: StatusCode, content_type: &'static str, body: Body) -> HttpReply {
    let mut reply = Response::new(body);
    *reply.status_mut() = code;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    reply
}

pub(crate) fn json(code: StatusCode, value: &Value) -> HttpReply {
    let bytes = serde_json::to_vec(value).expect("a tree always encodes");
    reply(code, "application/json", full(bytes))
}

pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> HttpReply {
    reply(code, "text/plain; charset=utf-8", full(text.into()))
}

/// The answer to a path that is not served.
pub(crate) fn nowhere() -> HttpReply {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// The answer to HEAD. HTTP/2 clients take a body for a violation of the protocol.
pub(crate) fn without_body(reply: HttpReply) -> HttpReply {
    reply.map(|_| full(Bytes::new()))
}

/// A whole object (as JSON bytes) in the encoding that was negotiated.
pub(crate) fn object(code: StatusCode, encoding: Encoding, bytes: Bytes) -> HttpReply {
    match encoding {
        Encoding::Json => reply(code, "application/json", full(bytes)),
        Encoding::Yaml => {
            let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            match serde_saphyr::to_string(&value) {
                Ok(text) => reply(code, "application/yaml", full(text)),
                Err(error) => failure(&ApiError::internal(error), Encoding::Json),
            }
        }
        Encoding::Protobuf => {
            let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            match types::encode(&value) {
                Ok(raw) => reply(code, PROTOBUF, full(raw)),
                // Not in the table: every client that asks for protobuf reads JSON as well.
                Err(_) => reply(code, "application/json", full(bytes)),
            }
        }
    }
}

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub(crate) fn failure(error: &ApiError, encoding: Encoding) -> HttpReply {
    let bytes = serde_json::to_vec(&error.to_value()).expect("a tree always encodes");
    let mut reply = object(error.code(), encoding, bytes.into());
    if let Some(seconds) = error.retry_after_seconds() {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

/// Adds `Warning` headers, which kubectl prints.
pub(crate) fn warn(reply: &mut HttpReply, warnings: &[String]) {
    for warning in warnings {
        let text: String = warning
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .flat_map(|c| match c {
                '"' | '\\' => vec!['\\', c],
                c => vec![c],
            })
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            reply.headers_mut().append(WARNING, value);
        }
    }
}

pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|part| part.split(';').next().map(str::trim) == Some("gzip"))
    })
}

/// A large JSON body given in parts, compressed on the way out if the client reads gzip.
pub(crate) fn large_json(
    headers: &HeaderMap,
    size: usize,
    parts: impl Iterator<Item = Bytes> + Send + 'static,
) -> HttpReply {
    if size < GZIP_FROM || !accepts_gzip(headers) {
        let body = streamed(futures_util::stream::iter(gathered(parts)));
        return reply(StatusCode::OK, "application/json", body);
    }
    let body = streamed(futures_util::stream::iter(zipped(parts)));
    let mut reply = reply(StatusCode::OK, "application/json", body);
    reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    reply.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    reply
}

/// Joins small parts into chunks that are worth a frame each.
fn gathered(mut parts: impl Iterator<Item = Bytes> + Send) -> impl Iterator<Item = Bytes> + Send {
    const CHUNK: usize = 64 * 1024;
    std::iter::from_fn(move || {
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 8);
        for part in parts.by_ref() {
            chunk.extend_from_slice(&part);
            if chunk.len() >= CHUNK {
                break;
            }
        }
        (!chunk.is_empty()).then(|| Bytes::from(chunk))
    })
}

fn zipped(parts: impl Iterator<Item = Bytes> + Send) -> impl Iterator<Item = Bytes> + Send {
    use std::io::Write as _;
    let mut parts = gathered(parts);
    let mut encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    std::iter::from_fn(move || {
        loop {
            let writer = encoder.as_mut()?;
            match parts.next() {
                Some(part) => {
                    writer.write_all(&part).expect("writing to memory cannot fail");
                    if writer.get_ref().len() >= 16 * 1024 {
                        return Some(Bytes::from(std::mem::take(writer.get_mut())));
                    }
                }
                None => {
                    let rest = encoder.take()?.finish().expect("writing to memory cannot fail");
                    return Some(Bytes::from(rest));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[tokio::test]
    async fn a_large_list_is_zipped_and_comes_back_whole() {
        let part = Bytes::from(vec![b'x'; 1000]);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=0.8"));
        let parts = vec![part; 300];
        let reply = large_json(&headers, 300_000, parts.into_iter());
        assert_eq!(reply.headers()[CONTENT_ENCODING], "gzip");
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, vec![b'x'; 300_000]);
    }

    #[tokio::test]
    async fn an_answer_to_head_keeps_its_headers_only() {
        let reply = without_body(text(StatusCode::OK, "ok"));
        assert_eq!(reply.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        assert!(reply.into_body().collect().await.unwrap().to_bytes().is_empty());
    }

    #[test]
    fn warnings_are_quoted() {
        let mut reply = text(StatusCode::OK, "");
        warn(&mut reply, &["unknown field \"spec.x\"".to_owned()]);
        assert_eq!(reply.headers()[WARNING], r#"299 - "unknown field \"spec.x\"""#);
    }
}
