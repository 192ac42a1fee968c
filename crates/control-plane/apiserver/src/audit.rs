//! The audit log: who did what and when, as upstream's audit events. Off by default. It does not
//! take part in serving a request: it reads the request and the response.
//!
//! Code that decides something inside reports it by [`annotate`], which costs next to nothing
//! while there is no audit log.

mod log;
mod policy;
mod refusals;
mod request;
mod sink;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use auth::User;
use base::{Tasks, clock};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::identity::{self, Transport};
use crate::api::Api;
use crate::http::body::{self, Accepts, RequestBody};
use crate::http::respond::HttpReply;
use crate::verbs::object;

pub use log::LogConfig;
use policy::{AuditLevel, AuditStage, AuditVerdict, PolicyInput};
pub use policy::{AuditPolicy, PolicyError};
use refusals::RefusalLimits;
use request::AuditedRequest;
use sink::AuditBackends;
pub use sink::{AuditBackend, Batching};

tokio::task_local! {
    static NOTES: RefCell<AuditNotes>;
}

/// Facts of a request that are known only while it is served.
#[derive(Debug, Default)]
struct AuditNotes {
    annotations: BTreeMap<String, String>,
    /// The name in the body of a request that creates an object.
    created: Option<String>,
    /// No rule logs the request: there is an event only if it is refused.
    only_refusal: bool,
}

/// Adds a note to the event of the request that is being served, if it has one.
pub(crate) fn annotate(key: &str, value: impl FnOnce() -> String) {
    let _ = NOTES.try_with(|notes| {
        notes.borrow_mut().annotations.entry(key.to_owned()).or_insert_with(value);
    });
}

/// Adds the decision that a request is allowed, and the reason. Nearly all requests that no rule logs
/// are allowed: nothing is made for them.
pub(crate) fn note_allowed(reason: Option<&str>) {
    if NOTES.try_with(|notes| notes.borrow().only_refusal).unwrap_or(true) {
        return;
    }
    annotate("authorization.k8s.io/decision", || "allow".to_owned());
    if let Some(reason) = reason {
        annotate("authorization.k8s.io/reason", || reason.to_owned());
    }
}

/// Adds the decision that a request is refused, and the reason. Other checks of the same request may
/// have been allowed before, that of impersonation for instance.
pub(crate) fn note_refused(reason: &str) {
    let _ = NOTES.try_with(|notes| {
        let annotations = &mut notes.borrow_mut().annotations;
        annotations.insert("authorization.k8s.io/decision".to_owned(), "forbid".to_owned());
        annotations.insert("authorization.k8s.io/reason".to_owned(), reason.to_owned());
    });
}

/// Adds the name of a created object to the audit event: the path of the request does not have it.
pub(crate) fn note_created(name: &str) {
    let _ = NOTES.try_with(|notes| notes.borrow_mut().created = Some(name.to_owned()));
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
    refusals: RefusalLimits,
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
        let refusals = RefusalLimits::default();
        Ok(Self { policy: config.policy, sinks: Arc::new(sinks), refusals })
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
        if audit.policy.ignores(asked.verb.as_str(), asked.target()) {
            drop(path);
            let request = Request::from_parts(parts, body);
            return self.answer_unlogged(audit, request, transport, id).await;
        }
        let sender = identity::authenticate(self, transport, &parts);
        let sender = sender.unwrap_or_else(|_| User::new("", Vec::<String>::new()));
        let facts =
            PolicyInput { user: &sender, verb: asked.verb.as_str(), target: asked.target() };
        let verdict = audit.policy.judge(&facts);
        if verdict.level == AuditLevel::None {
            drop(path);
            let request = Request::from_parts(parts, body);
            return self.answer_unlogged(audit, request, transport, id).await;
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
        let (reply, notes) = NOTES
            .scope(RefCell::default(), async {
                let reply = work.await;
                (reply, NOTES.with(|notes| notes.take()))
            })
            .await;
        record.add(notes);
        record.finish(reply, is_resource).await
    }
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

    fn add(&mut self, notes: AuditNotes) {
        if !notes.annotations.is_empty() {
            self.event["annotations"] = json!(notes.annotations);
        }
        if let Some(name) = notes.created.filter(|name| !name.is_empty())
            && let Some(object) = self.event["objectRef"].as_object_mut()
        {
            object.entry("name").or_insert_with(|| name.into());
        }
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
mod tests;
