//! A request and its body.

use client::Caller;
use std::io;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::upgrade::OnUpgrade;
use serde_json::{Map, Value};

use crate::error::SteveError;

/// Larger bodies are refused, as by the Kubernetes API.
const MOST: usize = 3 << 20;

/// The body of a request, whatever transport it came by.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// One request, from a user whose credentials were checked.
#[derive(Debug)]
pub struct SteveRequest {
    pub head: RequestHead,
    pub body: Body,
}

/// The facts about a request before its body is read.
#[derive(Debug)]
pub struct RequestHead {
    /// None for paths that check credentials of their own.
    pub caller: Option<Caller>,
    /// Where the connection comes from, if it is one.
    pub source: Option<IpAddr>,
    pub parts: request::Parts,
    /// The right to take the connection over, if it can become a WebSocket.
    pub upgrade: Option<OnUpgrade>,
}

impl RequestHead {
    /// Where the client reaches this server, for links.
    pub(crate) fn origin(&self) -> String {
        let host = self.parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or(self.parts.uri.authority().map(http::uri::Authority::as_str));
        format!("https://{}", host.unwrap_or("localhost"))
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.parts.method, http::Method::GET | http::Method::HEAD)
    }

    pub(crate) fn query(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }

    /// One parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query().as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// A parameter that may be given several times, or with commas.
    pub(crate) fn list_parameter(&self, name: &str) -> Vec<String> {
        let pairs = form_urlencoded::parse(self.query().as_bytes());
        let values = pairs.filter(|(key, _)| key == name);
        values
            .flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>())
            .filter(|value| !value.is_empty())
            .collect()
    }
}

pub(crate) async fn read(body: Body) -> Result<Bytes, SteveError> {
    let read = Limited::new(body, MOST).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let message = format!("the body is larger than {MOST} bytes");
            return SteveError::new(
                http::StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                message,
            );
        }
        SteveError::bad_request("the body could not be read to its end")
    })
}

/// The object in a body, which is JSON or YAML.
pub(crate) fn parse(
    parts: &request::Parts,
    bytes: &[u8],
) -> Result<Map<String, Value>, SteveError> {
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let wrong = |format: &str, error: String| {
        let message = format!("the body is not {format}: {error}");
        SteveError::invalid("InvalidBodyContent", message)
    };
    let parsed: Value = if kind.is_some_and(|kind| kind.contains("yaml")) {
        let text = std::str::from_utf8(bytes).map_err(|error| wrong("YAML", error.to_string()))?;
        serde_saphyr::from_str(text).map_err(|error| wrong("YAML", error.to_string()))?
    } else {
        serde_json::from_slice(bytes).map_err(|error| wrong("JSON", error.to_string()))?
    };
    match parsed {
        Value::Object(fields) => Ok(fields),
        _ => Err(wrong("an object", "it has to have fields".into())),
    }
}
