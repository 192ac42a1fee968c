//! The files of the web dashboard, and the headers that they are served with.
//!
//! The pages are an ordinary client: they read and change objects through the API with the session
//! of their user. So nothing here is secret, and requests are not authenticated.
//!
//! ```text
//!   ui/dist ─► build.rs ─► table of gzip files in the binary ─► Dashboard::answer
//! ```

mod assets;
mod headers;

use std::path::PathBuf;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION,
    VARY,
};
use http::{HeaderMap, Method, Response, StatusCode, request};

use assets::{AssetBody, Assets};

/// The address of the dashboard; redirects to the first page.
pub const ROOT: &str = "/dashboard";
const HOME: &str = "/dashboard/";
const INDEX: &str = "index.html";
/// Files whose name changes with their content.
const HASHED: &str = "a/";
/// The placeholder that is replaced by the nonce of the response, with which pages mark styles
/// that scripts add.
const NONCE: &str = "%NONCE%";
/// Shown where the pages were not built.
const PLACEHOLDER: &str = include_str!("placeholder.html");

/// Whether a path belongs to the dashboard.
pub fn owns(path: &str) -> bool {
    path == ROOT || path.starts_with(HOME)
}

/// Answers for the dashboard; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Dashboard {
    assets: Assets,
}

impl Dashboard {
    /// `folder` is read with each request instead of the built-in files, for work on the pages.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { assets: Assets { folder } }
    }

    pub fn answer(&self, asked: &request::Parts) -> Response<Bytes> {
        if !matches!(asked.method, Method::GET | Method::HEAD) {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "the dashboard is read with GET");
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        let path = asked.uri.path();
        let Some(name) = path.strip_prefix(HOME) else {
            let mut reply = text(StatusCode::FOUND, "");
            reply.headers_mut().insert(LOCATION, HeaderValue::from_static(HOME));
            return reply;
        };
        match self.assets.find(name) {
            Some(body) if name != INDEX => file(name, &body, &asked.headers),
            _ if name.starts_with(HASHED) => {
                text(StatusCode::NOT_FOUND, "this file is not part of the dashboard")
            }
            // Paths below the dashboard are routed by the page itself.
            _ => self.page(),
        }
    }

    fn page(&self) -> Response<Bytes> {
        let page = self.assets.find(INDEX).and_then(|body| body.plain());
        let page = page.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let page = page.unwrap_or_else(|| PLACEHOLDER.to_owned()).replace(NONCE, &nonce);
        let mut reply = text(StatusCode::OK, page);
        let own = reply.headers_mut();
        own.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        own.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers::protect_page(own, &nonce);
        reply
    }
}

fn file(name: &str, body: &AssetBody, asked: &HeaderMap) -> Response<Bytes> {
    let accepted = asked.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let packed = body.gzip.clone().filter(|_| accepted.is_some_and(|text| text.contains("gzip")));
    let is_packed = packed.is_some();
    let Some(bytes) = packed.or_else(|| body.plain()) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "this file cannot be read");
    };
    let mut reply = text(StatusCode::OK, bytes);
    let own = reply.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
    own.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_packed {
        own.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let hashed = name.starts_with(HASHED) && body.gzip.is_some();
    let cache = if hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
    own.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    reply
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut reply = Response::new(body.into());
    *reply.status_mut() = status;
    let own = reply.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers::protect(own);
    reply
}

#[cfg(test)]
mod tests;
