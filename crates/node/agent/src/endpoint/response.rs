//! Answers of the node endpoint.

use std::io;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde::Serialize;
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::gzip::GzipPieces;

const PIECE: usize = 256 * 1024;

pub(super) type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

/// A refusal or a failure, in words for the person at the other end.
#[derive(Debug)]
pub(super) struct EndpointError {
    code: StatusCode,
    message: String,
}

impl EndpointError {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Something on this node did not work.
    pub(super) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, base::Chain(error).to_string())
    }

    pub(super) fn into_response(self) -> Response<ResponseBody> {
        with(self.code, "application/json", json!({"message": self.message}).to_string())
    }
}

pub(super) fn empty() -> ResponseBody {
    whole(Bytes::new())
}

pub(super) fn done() -> Response<ResponseBody> {
    with(StatusCode::OK, "application/json", "{}")
}

pub(super) fn json(value: &impl Serialize) -> Response<ResponseBody> {
    let text = serde_json::to_string(value).expect("answers are JSON");
    with(StatusCode::OK, "application/json", text)
}

pub(super) fn content(kind: &'static str, content: impl Into<Bytes>) -> Response<ResponseBody> {
    with(StatusCode::OK, kind, content)
}

fn whole(content: Bytes) -> ResponseBody {
    Full::new(content).map_err(|never| match never {}).boxed_unsync()
}

/// The form in which a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFormat {
    Raw,
    Gzip,
}

/// A file, piece by piece.
pub(super) async fn file(path: &Path, format: FileFormat) -> io::Result<Response<ResponseBody>> {
    match format {
        FileFormat::Raw => raw_file(path).await,
        FileFormat::Gzip => compressed_file(path).await,
    }
}

/// The next bytes of a file; none at its end.
async fn next_piece(file: &mut File) -> io::Result<Bytes> {
    let mut buffer = vec![0; PIECE];
    let count = file.read(&mut buffer).await?;
    buffer.truncate(count);
    Ok(buffer.into())
}

/// A file that is compressed while it is read. Its length is not known, and a client finds that it
/// was cut off by the checksum at the end of the data.
async fn compressed_file(path: &Path) -> io::Result<Response<ResponseBody>> {
    let input = (File::open(path).await?, Some(GzipPieces::default()));
    let pieces = stream::try_unfold(input, |(mut file, encoder)| async move {
        let Some(mut encoder) = encoder else { return Ok(None) };
        loop {
            let piece = next_piece(&mut file).await?;
            if piece.is_empty() {
                let end = encoder.finish().await?;
                return Ok(Some((Frame::data(end), (file, None))));
            }
            // Zeros become so few bytes that there is often nothing to send.
            let packed = encoder.pack(piece).await?;
            if !packed.is_empty() {
                return Ok(Some((Frame::data(packed), (file, Some(encoder)))));
            }
        }
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    Ok(response)
}

async fn raw_file(path: &Path) -> io::Result<Response<ResponseBody>> {
    let file = File::open(path).await?;
    let length = file.metadata().await?.len();
    let pieces = stream::try_unfold(file, |mut file| async move {
        let piece = next_piece(&mut file).await?;
        Ok((!piece.is_empty()).then_some((Frame::data(piece), file)))
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

/// A body that arrives in pieces; `length` is its total size, if known.
pub(super) fn pieces(
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    length: Option<u64>,
) -> Response<ResponseBody> {
    let pieces = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

fn with(code: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(whole(content.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
