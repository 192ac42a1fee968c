//! Requests as they go over the wire, without a client's interpretation.
//!
//! The calls block, so that they mix with processes in one readable test; they may be made
//! from many threads.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// No answer takes longer; a watch has limits of its own.
const BOUND: Duration = Duration::from_secs(300);

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// Runs something beside the test.
pub(super) fn spawn<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    RUNTIME.spawn(future)
}

#[derive(Clone)]
pub(crate) struct Http {
    client: Client,
    /// Sent with each request.
    headers: HeaderMap,
    /// Audit IDs of requests that were refused, with their codes.
    refused: Arc<Mutex<Vec<(String, u16)>>>,
}

impl Http {
    pub(crate) fn from_kubeconfig(path: &Path) -> Self {
        Self::new(Kubeconfig::read_from(path).unwrap())
    }

    pub(crate) fn anonymous(path: &Path) -> Self {
        let mut file = Kubeconfig::read_from(path).unwrap();
        for user in &mut file.auth_infos {
            user.auth_info = Some(AuthInfo::default());
        }
        Self::new(file)
    }

    pub(crate) fn bearer(path: &Path, token: &str) -> Self {
        Self::anonymous(path).with("authorization", &format!("Bearer {token}"))
    }

    fn new(file: Kubeconfig) -> Self {
        let client = block_on(async {
            let options = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(file, &options).await.unwrap();
            config.connect_timeout = Some(Duration::from_secs(60));
            // A refusal is what a test wants to see, the first time.
            config.default_retry = false;
            Client::try_from(config).unwrap()
        });
        Self { client, headers: HeaderMap::new(), refused: Arc::default() }
    }

    /// kube-rs on the same connection.
    pub(crate) fn kube(&self) -> Client {
        self.client.clone()
    }

    /// The same with a header on each request.
    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.append(name, value.parse().unwrap());
        Self { client: self.client.clone(), headers, refused: Arc::clone(&self.refused) }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path), Bytes::new())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(json(Request::post(path)), body.to_string())
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Reply {
        self.send(json(Request::put(path)), body.to_string())
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.send(Request::delete(path), Bytes::new())
    }

    pub(crate) fn delete_with(&self, path: &str, options: &Value) -> Reply {
        self.send(json(Request::delete(path)), options.to_string())
    }

    pub(crate) fn merge(&self, path: &str, patch: &Value) -> Reply {
        self.patch(path, "application/merge-patch+json", patch.to_string())
    }

    pub(crate) fn apply(&self, path: &str, manager: &str, object: &Value) -> Reply {
        let path = format!("{path}{}fieldManager={manager}", joint(path));
        self.patch(&path, "application/apply-patch+yaml", object.to_string())
    }

    pub(crate) fn patch(&self, path: &str, media_type: &str, body: impl Into<Bytes>) -> Reply {
        self.send(Request::patch(path).header("content-type", media_type), body)
    }

    pub(crate) fn send(&self, request: request::Builder, body: impl Into<Bytes>) -> Reply {
        self.try_send(request, body).unwrap()
    }

    /// The complaint concerns the connection; a refusal is a reply.
    pub(crate) fn try_send(
        &self,
        request: request::Builder,
        body: impl Into<Bytes>,
    ) -> Result<Reply, String> {
        let is_write = request.method_ref().is_some_and(|method| !method.is_safe());
        let answer = async {
            let response = self.open(request, body.into()).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        let answer = async {
            let reply = answer.await;
            if let Ok(reply) = &reply
                && (is_write || matches!(reply.status, 401 | 403))
            {
                self.note(reply);
            }
            reply
        };
        block_on(async { tokio::time::timeout(BOUND, answer).await })
            .map_err(|_| "no answer in time".to_owned())?
    }

    fn note(&self, reply: &Reply) {
        let id = reply.header("audit-id");
        if reply.status >= 400 && !id.is_empty() {
            self.refused.lock().unwrap().push((id.to_owned(), reply.status));
        }
    }

    /// Audit IDs and codes of requests that the audit log has to have, of all clones: writes that
    /// failed, and reads that were not allowed.
    pub(crate) fn refusals(&self) -> Vec<(String, u16)> {
        self.refused.lock().unwrap().clone()
    }

    /// Follows a watch; `path` has all its parameters.
    pub(crate) fn watch(&self, path: &str) -> Events {
        self.try_watch(path).unwrap()
    }

    pub(crate) fn try_watch(&self, path: &str) -> Result<Events, String> {
        let path = format!("{path}{}watch=true", joint(path));
        let response = block_on(self.open(Request::get(path), Bytes::new()))?;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            let body = block_on(body.collect()).map_err(|error| error.to_string())?.to_bytes();
            return Err(String::from_utf8_lossy(&body).into_owned());
        }
        Ok(Events { body, left: Vec::new() })
    }

    async fn open(&self, request: request::Builder, body: Bytes) -> Result<Response<Body>, String> {
        let mut request = request.body(Body::from(body.to_vec())).unwrap();
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        let describe = |error: kube::Error| format!("{error}: {error:?}");
        self.client.send(request).await.map_err(describe)
    }
}

fn json(request: request::Builder) -> request::Builder {
    request.header("content-type", "application/json")
}

fn joint(path: &str) -> char {
    if path.contains('?') { '&' } else { '?' }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{} is no JSON: {error}: {}", self.status, self.text()),
        }
    }

    /// The object; the request must have succeeded.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        self.json()
    }

    /// The message of a `Status`; the request must have been refused with this code.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16) -> String {
        assert_eq!(self.status, code, "{}", self.text());
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["code"], code, "{status}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// The events of a watch, as they come.
pub(crate) struct Events {
    body: Body,
    left: Vec<u8>,
}

impl Events {
    /// The next event; there must be one.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        match self.next_within(BOUND) {
            Some(event) => event,
            None => panic!("the watch has ended or says nothing"),
        }
    }

    /// The next event that is no bookmark.
    #[track_caller]
    pub(crate) fn change(&mut self) -> Value {
        loop {
            let event = self.next();
            if event["type"] != "BOOKMARK" {
                return event;
            }
        }
    }

    /// Nothing if the stream ends or is silent for that long.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Option<Value> {
        let read = async {
            loop {
                if let Some(at) = self.left.iter().position(|&byte| byte == b'\n') {
                    let line: Vec<u8> = self.left.drain(..=at).collect();
                    return Some(serde_json::from_slice(&line).unwrap());
                }
                let frame = self.body.frame().await?.ok()?;
                self.left.extend_from_slice(&frame.into_data().ok()?);
            }
        };
        block_on(async { tokio::time::timeout(limit, read).await }).ok().flatten()
    }

    /// Waits for the end of the stream, also an abrupt one.
    #[track_caller]
    pub(crate) fn until_end(&mut self) {
        let read = async { while let Some(Ok(_)) = self.body.frame().await {} };
        let ended = block_on(async { tokio::time::timeout(BOUND, read).await });
        assert!(ended.is_ok(), "the stream goes on");
    }

    /// Everything until the stream ends, which it must do in time.
    pub(crate) fn rest(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next_within(BOUND) {
            events.push(event);
        }
        events
    }
}
