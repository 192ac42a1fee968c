//! Requests to the Kubernetes API with the identity of the authenticated user (impersonation), so
//! that the API server authorizes them with the user's rights.

use bytes::{Bytes, BytesMut};
use client::Caller;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::error::SteveError;

/// The media type of tables whose rows contain the objects.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";

/// A client that acts as one user.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) client: &'a Client,
    pub(crate) caller: &'a Caller,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Session").field("caller", self.caller).finish_non_exhaustive()
    }
}

impl Session<'_> {
    pub(crate) async fn get(&self, path: &str) -> Result<Value, SteveError> {
        self.send(Method::GET, path, JSON, &[], JSON).await
    }

    /// One object, or `None` if it does not exist.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>, SteveError> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.status == http::StatusCode::NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, SteveError> {
        let bytes = serde_json::to_vec(body).unwrap_or_default();
        self.send(Method::POST, path, JSON, &bytes, JSON).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<Value, SteveError> {
        let bytes = serde_json::to_vec(patch).unwrap_or_default();
        self.send(Method::PATCH, path, "application/merge-patch+json", &bytes, JSON).await
    }

    /// Sends a request whose answer has no object.
    pub(crate) async fn act(&self, path: &str, body: &Value) -> Result<(), SteveError> {
        let bytes = serde_json::to_vec(body).unwrap_or_default();
        self.exchange(Method::PUT, path, JSON, &bytes, JSON).await.map(drop)
    }

    /// Sends a request, and reads the object in the answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &[u8],
        accept: &str,
    ) -> Result<Value, SteveError> {
        let bytes = self.exchange(method, path, content_type, body, accept).await?;
        serde_json::from_slice(&bytes).map_err(|error| SteveError::unavailable(&error))
    }

    /// Opens a watch of tables; fails here if the watch is refused.
    pub(crate) async fn watch(&self, path: &str) -> Result<WatchLines, SteveError> {
        self.open(path, TABLE).await
    }

    /// Opens a watch of objects.
    pub(crate) async fn watch_plain(&self, path: &str) -> Result<WatchLines, SteveError> {
        self.open(path, JSON).await
    }

    async fn open(&self, path: &str, accept: &str) -> Result<WatchLines, SteveError> {
        let request = self.request(Method::GET, path, JSON, &[], accept)?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| SteveError::unavailable(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(WatchLines { body: answer.into_body(), rest: BytesMut::new() });
        }
        let bytes = answer.into_body().collect().await;
        let bytes = bytes.map_err(|error| SteveError::broken_answer(&error))?.to_bytes();
        Err(SteveError::from_answer(status, &bytes))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &[u8],
        accept: &str,
    ) -> Result<Bytes, SteveError> {
        let request = self.request(method, path, content_type, body, accept)?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| SteveError::unavailable(&error))?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await;
        let bytes = bytes.map_err(|error| SteveError::broken_answer(&error))?.to_bytes();
        if !status.is_success() {
            return Err(SteveError::from_answer(status, &bytes));
        }
        Ok(bytes)
    }

    /// A request with the headers that impersonate the caller.
    fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &[u8],
        accept: &str,
    ) -> Result<Request<Body>, SteveError> {
        let mut request = Request::new(Body::from(body.to_vec()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| {
            SteveError::bad_request(format!("{path:?} is not a path of the Kubernetes API"))
        })?;
        let text = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| SteveError::bad_request("a header of the request is not ASCII"))
        };
        let headers = self.caller.headers();
        *request.headers_mut() =
            headers.map_err(|error| SteveError::forbidden(error.to_string()))?;
        request.headers_mut().insert(CONTENT_TYPE, text(content_type)?);
        request.headers_mut().insert(ACCEPT, text(accept)?);
        Ok(request)
    }
}

/// The events of a watch, one line each.
#[derive(Debug)]
pub(crate) struct WatchLines {
    body: Body,
    rest: BytesMut,
}

impl WatchLines {
    /// The next event; nothing once the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let mut line = self.rest.split_to(end + 1);
                line.truncate(end);
                if line.is_empty() {
                    continue;
                }
                return Some(line.freeze());
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                self.rest.extend_from_slice(&bytes);
            }
        }
    }
}
