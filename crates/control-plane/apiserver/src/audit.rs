//! The audit log: who did what and when, as upstream's audit events. Off by default. It does not
//! take part in serving a request: it reads the request and the response.
//!
//! Those who decide something inside tell it by [`annotate`], which costs next to nothing
//! while nobody listens.

mod log;
mod policy;
mod sink;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use auth::User;
use base::{Tasks, clock};
use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, Request, request};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::identity::{self, Transport};
use crate::api::Api;
use crate::extension::SourceAddress;
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::options::Query;
use crate::http::respond::HttpReply;
use crate::http::route::{self, ResourcePath};
use crate::verbs::object;

pub use log::LogConfig;
use policy::{AuditLevel, AuditStage, AuditTarget, AuditVerdict, PolicyInput};
pub use policy::{AuditPolicy, PolicyError};
use sink::AuditBackends;
pub use sink::{AuditBackend, Batching};

tokio::task_local! {
    static ANNOTATIONS: RefCell<BTreeMap<String, String>>;
}

/// Adds a note to the event of the request that is being served, if it has one.
pub(crate) fn annotate(key: &str, value: impl FnOnce() -> String) {
    let _ = ANNOTATIONS.try_with(|notes| {
        notes.borrow_mut().entry(key.to_owned()).or_insert_with(value);
    });
}

/// The audit policy, and the destination of the log.
#[derive(Clone)]
pub struct AuditConfig {
    pub policy: AuditPolicy,
    pub log: Option<LogConfig>,
    pub webhook: Option<(Arc<dyn AuditBackend>, Batching)>,
}

impl std::fmt::Debug for AuditConfig {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AuditConfig").field("log", &self.log).finish_non_exhaustive()
    }
}

/// Why nothing can be written down.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {}", path.display())]
pub struct AuditError {
    path: std::path::PathBuf,
    source: std::io::Error,
}

#[derive(Debug)]
pub(crate) struct Audit {
    policy: AuditPolicy,
    sinks: Arc<AuditBackends>,
}

impl Audit {
    pub(crate) fn start(config: AuditConfig, tasks: &Tasks) -> Result<Self, AuditError> {
        let mut sinks = AuditBackends::default();
        if let Some(log) = config.log {
            let path = log.path.clone();
            sinks.add_file(log, tasks).map_err(|source| AuditError { path, source })?;
        }
        if let Some((receiver, batching)) = config.webhook {
            sinks.add_webhook(receiver, batching, tasks);
        }
        Ok(Self { policy: config.policy, sinks: Arc::new(sinks) })
    }

    pub(crate) fn lost(&self) -> u64 {
        self.sinks.lost()
    }
}

impl Api {
    /// Answers a request and writes down what the policy wants of it.
    pub(crate) async fn answer_audited(
        &self,
        audit: &Audit,
        request: Request<RequestBody>,
        transport: &Transport,
        id: &str,
    ) -> HttpReply {
        let (parts, body) = request.into_parts();
        let path = percent_encoding::percent_decode_str(parts.uri.path()).decode_utf8_lossy();
        let asked = AuditedRequest::new(&parts, &path);
        // Most requests are not logged for any user; these cost next to nothing.
        if audit.policy.ignores(&asked.verb, asked.target()) {
            drop(path);
            return self.answer_request(Request::from_parts(parts, body), transport).await;
        }
        let sender = identity::authenticate(self, transport, &parts);
        let sender = sender.unwrap_or_else(|_| User::new("", Vec::<String>::new()));
        let facts = PolicyInput { user: &sender, verb: &asked.verb, target: asked.target() };
        let verdict = audit.policy.judge(&facts);
        if verdict.level == AuditLevel::None {
            drop(path);
            return self.answer_request(Request::from_parts(parts, body), transport).await;
        }
        let mut event = asked.event(&parts, &sender, id, &verdict);
        let impersonated = identity::impersonate(self, sender.clone(), &parts.headers);
        if let Ok(other) = impersonated
            && other != sender
        {
            event["impersonatedUser"] = other.to_user_info();
        }
        let is_resource = asked.resource.is_some();
        drop(path);
        let mut record = AuditRecord { event, verdict, sinks: audit.sinks.clone(), ended: false };
        record.stage(AuditStage::RequestReceived).await;
        let body = match record.verdict.level >= AuditLevel::Request && is_resource {
            true => record.note_request(&parts.headers, body).await,
            false => body,
        };
        let work = Box::pin(self.answer_request(Request::from_parts(parts, body), transport));
        let notes = RefCell::new(BTreeMap::new());
        let (reply, notes) = ANNOTATIONS
            .scope(notes, async {
                let reply = work.await;
                (reply, ANNOTATIONS.with(|notes| notes.take()))
            })
            .await;
        if !notes.is_empty() {
            record.event["annotations"] = json!(notes);
        }
        record.finish(reply, is_resource).await
    }
}

/// The subject of a request, in the terms of an audit event.
struct AuditedRequest<'a> {
    path: &'a str,
    verb: Cow<'static, str>,
    resource: Option<ResourcePath<'a>>,
}

impl<'a> AuditedRequest<'a> {
    fn new(parts: &request::Parts, path: &'a str) -> Self {
        let method = || Cow::Owned(parts.method.as_str().to_ascii_lowercase());
        match route::parse(path) {
            route::RouteTarget::Resource(resource) => {
                let query = parts.uri.query().map(Query::parse);
                let watches = query.is_some_and(|query| query.wants_watch());
                let verb = route::verb(&parts.method, &resource, watches);
                let verb = verb.map_or_else(method, Cow::Borrowed);
                Self { path, verb, resource: Some(resource) }
            }
            _ => Self { path, verb: method(), resource: None },
        }
    }

    fn target(&self) -> AuditTarget<'a> {
        match &self.resource {
            Some(path) => AuditTarget::Resource {
                group: path.group,
                resource: path.resource,
                subresource: path.subresource,
                namespace: path.namespace,
                name: path.name,
            },
            None => AuditTarget::Path(self.path),
        }
    }

    fn event(
        &self,
        parts: &request::Parts,
        user: &User,
        id: &str,
        verdict: &AuditVerdict,
    ) -> Value {
        let uri = parts.uri.path_and_query().map_or("", |uri| uri.as_str());
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": verdict.level.name(),
            "auditID": id, "stage": "", "requestURI": uri, "verb": self.verb,
            "user": user.to_user_info(),
            "sourceIPs": source_addresses(parts),
            "requestReceivedTimestamp": clock::rfc3339_micro(clock::now()),
            "stageTimestamp": "",
        });
        if let Some(agent) = text(&parts.headers, USER_AGENT.as_str()) {
            event["userAgent"] = agent.into();
        }
        if let Some(path) = &self.resource {
            let mut object = json!({"resource": path.resource, "apiVersion": path.version});
            for (field, value) in [
                ("namespace", path.namespace),
                ("name", path.name),
                ("apiGroup", path.group),
                ("subresource", path.subresource),
            ] {
                if !value.is_empty() {
                    object[field] = value.into();
                }
            }
            event["objectRef"] = object;
        }
        event
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// From the one that began the request to the one that connected to us.
fn source_addresses(parts: &request::Parts) -> Vec<String> {
    let forwarded = text(&parts.headers, "x-forwarded-for").unwrap_or("").split(',');
    let mut found: Vec<String> = forwarded
        .filter_map(|address| address.trim().parse::<std::net::IpAddr>().ok())
        .map(|address| address.to_string())
        .collect();
    if found.is_empty() {
        found.extend(text(&parts.headers, "x-real-ip").map(str::to_owned));
    }
    let direct = parts.extensions.get::<SourceAddress>().map(|remote| remote.0.ip().to_string());
    found.extend(direct.filter(|direct| found.last() != Some(direct)));
    found
}

/// An event that is growing.
struct AuditRecord {
    event: Value,
    verdict: AuditVerdict,
    sinks: Arc<AuditBackends>,
    ended: bool,
}

impl AuditRecord {
    fn line(&mut self, stage: AuditStage, now: Timestamp) -> Option<Bytes> {
        if !self.verdict.wants(stage) {
            return None;
        }
        self.event["stage"] = stage.name().into();
        self.event["stageTimestamp"] = clock::rfc3339_micro(now).into();
        Some(Bytes::from(self.event.to_string()))
    }

    async fn stage(&mut self, stage: AuditStage) {
        if let Some(line) = self.line(stage, clock::now()) {
            self.sinks.take(line).await;
        }
    }

    /// Reads the body to write it down, and hands it on.
    async fn note_request(&mut self, headers: &HeaderMap, body: RequestBody) -> RequestBody {
        // The next reader of a body refuses it if it is too large or incomplete.
        let Ok(bytes) = body::read(body).await else {
            let broken = std::io::Error::other("the request body could not be read");
            let failing = futures_util::stream::once(async { Err(Box::from(broken)) });
            return http_body_util::StreamBody::new(failing).boxed_unsync();
        };
        if !bytes.is_empty() {
            let patch = body::media_type(headers).ends_with("patch+json");
            let parsed = match patch {
                true => serde_json::from_slice(&bytes).ok(),
                false => body::parse(headers, &bytes, Accepts::All).ok().map(|body| body.value),
            };
            if let Some(object) = parsed {
                self.event["requestObject"] = self.shown(object);
            }
        }
        Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
    }

    fn shown(&self, mut object: Value) -> Value {
        if self.verdict.omit_managed_fields {
            without_managed_fields(&mut object);
            for item in object::list_mut(&mut object, "/items") {
                without_managed_fields(item);
            }
        }
        object
    }

    /// Writes down how it went. The end of a stream is when its body is dropped.
    async fn finish(mut self, reply: HttpReply, is_resource: bool) -> HttpReply {
        let code = reply.status().as_u16();
        self.event["responseStatus"] = json!({"metadata": {}, "code": code});
        if self.event["verb"] == "watch" && code < 300 {
            self.stage(AuditStage::ResponseStarted).await;
            let mut ending = Ending(Some(self));
            return reply.map(|body| {
                body.map_frame(move |frame| {
                    ending.touch();
                    frame
                })
                .boxed_unsync()
            });
        }
        let wants_body = self.verdict.level == AuditLevel::RequestResponse && is_resource;
        let reply = if wants_body || code >= 400 {
            let (parts, body) = reply.into_parts();
            let bytes = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
            self.note_answer(&parts.headers, &bytes, wants_body);
            HttpReply::from_parts(parts, crate::http::respond::full(bytes))
        } else {
            reply
        };
        self.stage(AuditStage::ResponseComplete).await;
        self.ended = true;
        reply
    }

    fn note_answer(&mut self, headers: &HeaderMap, bytes: &Bytes, whole: bool) {
        if headers.contains_key(http::header::CONTENT_ENCODING) {
            return;
        }
        let Ok(answer) = body::parse(headers, bytes, Accepts::All) else { return };
        let answer = answer.value;
        if answer["kind"] == "Status" {
            let mut status = answer.clone();
            if let Some(fields) = status.as_object_mut() {
                fields.remove("kind");
                fields.remove("apiVersion");
            }
            self.event["responseStatus"] = status;
        }
        if whole {
            self.event["responseObject"] = self.shown(answer);
        }
    }
}

fn without_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

impl Drop for AuditRecord {
    /// A request that was given up, or a handler that panicked, is written down as well.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let stage =
            if std::thread::panicking() { AuditStage::Panic } else { AuditStage::ResponseComplete };
        if let Some(line) = self.line(stage, clock::now()) {
            self.sinks.take_now(line);
        }
    }
}

/// Keeps the record of a stream until its end.
struct Ending(Option<AuditRecord>);

impl Ending {
    /// Keeps the record where the body is.
    fn touch(&mut self) {
        debug_assert!(self.0.is_some(), "it ends with the body");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_of_a_request_is_told_from_its_beginning() {
        let request = |headers: &[(&str, &str)]| {
            let mut request =
                Request::get("/api").extension(SourceAddress(([192, 0, 2, 9], 1).into()));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            source_addresses(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(request(&[]), ["192.0.2.9"]);
        assert_eq!(
            request(&[("x-forwarded-for", "10.0.0.1, 10.0.0.2")]),
            ["10.0.0.1", "10.0.0.2", "192.0.2.9"]
        );
        assert_eq!(request(&[("x-real-ip", "10.0.0.3")]), ["10.0.0.3", "192.0.2.9"]);
        assert_eq!(request(&[("x-forwarded-for", "192.0.2.9")]), ["192.0.2.9"]);
    }

    #[tokio::test]
    async fn notes_reach_the_request_they_are_made_in() {
        annotate("a", || panic!("nobody listens"));
        let notes = RefCell::new(BTreeMap::new());
        let found = ANNOTATIONS
            .scope(notes, async {
                annotate("a", || "first".to_owned());
                annotate("a", || "second".to_owned());
                ANNOTATIONS.with(|notes| notes.take())
            })
            .await;
        assert_eq!(found, BTreeMap::from([("a".to_owned(), "first".to_owned())]));
    }
}
