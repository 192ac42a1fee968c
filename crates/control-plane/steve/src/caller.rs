//! Requests to the Kubernetes API in the name of the user who asked: their rights decide, and
//! the API server checks them.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::error::SteveError;

/// Rows with the object in each: columns and object in one answer.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";
/// Characters of a key that a header name may have.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// The user who sent a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name == "system:anonymous"
    }

    /// The headers that make a request one of this user.
    fn headers(&self) -> Result<HeaderMap, SteveError> {
        let refused = || {
            let message = format!(
                "user {:?} cannot use this API: names, groups and extra values have to be ASCII",
                self.name
            );
            SteveError::forbidden(message)
        };
        // An empty or unreadable name would make the request one of this process.
        if self.name.is_empty() || self.groups.is_empty() {
            return Err(refused());
        }
        // The server reads only values that are ASCII, and takes others for absent.
        let value = |text: &str| {
            let value = HeaderValue::from_str(text).ok();
            value.filter(|value| value.to_str().is_ok()).ok_or_else(refused)
        };
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", value(&self.name)?);
        for group in &self.groups {
            headers.append("impersonate-group", value(group)?);
        }
        if !self.uid.is_empty() {
            headers.insert("impersonate-uid", value(&self.uid)?);
        }
        for (key, texts) in &self.extra {
            let name = format!("impersonate-extra-{}", utf8_percent_encode(key, KEY));
            let name = HeaderName::try_from(name).map_err(|_| refused())?;
            for text in texts {
                headers.append(name.clone(), value(text)?);
            }
        }
        Ok(headers)
    }
}

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

    /// One object, or nothing if there is none.
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

    /// Asks for something that is answered without an object.
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

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &[u8],
        accept: &str,
    ) -> Result<Bytes, SteveError> {
        let mut request = Request::new(Body::from(body.to_vec()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| {
            SteveError::bad_request(format!("{path:?} is not a path of the Kubernetes API"))
        })?;
        let text = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| SteveError::bad_request("a header of the request is not ASCII"))
        };
        *request.headers_mut() = self.caller.headers()?;
        request.headers_mut().insert(CONTENT_TYPE, text(content_type)?);
        request.headers_mut().insert(ACCEPT, text(accept)?);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_made_in_the_name_of_its_sender() {
        let mut caller = Caller {
            name: "jane".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
            extra: BTreeMap::new(),
        };
        caller.extra.insert("a.io/key".into(), vec!["one".into(), "two".into()]);
        let headers = caller.headers().unwrap();
        assert_eq!(headers["impersonate-user"], "jane");
        assert_eq!(headers["impersonate-uid"], "7");
        assert_eq!(headers.get_all("impersonate-group").iter().count(), 2);
        assert_eq!(headers.get_all("impersonate-extra-a.io%2fkey").iter().count(), 2);
    }

    #[test]
    fn no_request_is_ever_made_in_the_name_of_this_process() {
        let group = || vec!["g".to_owned()];
        for caller in [
            Caller::default(),
            Caller { groups: group(), ..Caller::default() },
            Caller { name: "jane".into(), ..Caller::default() },
            Caller { name: "jané".into(), groups: group(), ..Caller::default() },
            Caller { name: "a\nb".into(), groups: group(), ..Caller::default() },
            Caller { name: "a".into(), groups: vec!["b\r".into()], ..Caller::default() },
        ] {
            assert_eq!(caller.headers().unwrap_err().status, 403, "{caller:?}");
        }
    }
}
