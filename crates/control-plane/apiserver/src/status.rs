//! Every answer that is not an object: the `Status` of the Kubernetes API.
//!
//! This is the one file that maps failures to HTTP codes, reasons and texts.

mod refusal;

use std::borrow::Cow;

use http::StatusCode;
use schema::FieldError;
use serde_json::{Map, Value, json};

/// A failed request, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError(Box<Failure>);

#[derive(Debug, Clone, PartialEq)]
struct Failure {
    code: u16,
    reason: Cow<'static, str>,
    message: String,
    details: Map<String, Value>,
    /// Whether `details` are sent although there is nothing in them: upstream does so where
    /// no handler was reached.
    generic: bool,
    /// `ListMeta.continue`, only for an expired list that may go on inconsistently.
    continue_token: Option<String>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// The subject of a `Status`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusSubject<'a> {
    pub group: &'a str,
    /// The plural for most reasons, the kind for `Invalid`.
    pub resource: &'a str,
    pub name: &'a str,
}

impl StatusSubject<'_> {
    /// `deployments.apps "web"`
    fn quoted(&self) -> String {
        format!("{} {:?}", qualified(self.resource, self.group), self.name)
    }
}

/// `deployments.apps`, or `pods` in the core group.
pub(crate) fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl ApiError {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Failure {
            code: code.as_u16(),
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: Map::new(),
            generic: false,
            continue_token: None,
        }))
    }

    fn generic(mut self) -> Self {
        self.0.generic = true;
        self
    }

    fn with_details(mut self, subject: StatusSubject<'_>) -> Self {
        for (key, value) in
            [("name", subject.name), ("group", subject.group), ("kind", subject.resource)]
        {
            if !value.is_empty() {
                self.0.details.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    fn causes(mut self, causes: Vec<Value>) -> Self {
        if !causes.is_empty() {
            self.0.details.insert("causes".to_owned(), causes.into());
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.0.details.insert("retryAfterSeconds".to_owned(), seconds.into());
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn certificate_revoked(user: &str, serial: &str) -> Self {
        let message = format!("the client certificate {serial} of {user:?} was revoked");
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    pub(crate) fn certificate_of_former_node(node: &str, serial: &str) -> Self {
        let message = format!(
            "the client certificate {serial} is of a former node {node:?}: another machine has \
             joined under this name"
        );
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    /// `message` is the whole text, as the authorizer words it.
    pub(crate) fn forbidden(subject: StatusSubject<'_>, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(subject);
        if subject.resource.is_empty() { error.generic() } else { error }
    }

    /// `pods "x" is forbidden: why`
    pub(crate) fn forbidden_because(
        subject: StatusSubject<'_>,
        why: impl std::fmt::Display,
    ) -> Self {
        let message = format!("{} is forbidden: {why}", subject.quoted());
        Self::forbidden(subject, message)
    }

    pub(crate) fn namespace_terminating(subject: StatusSubject<'_>, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        Self::forbidden_because(subject, why).causes(vec![json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        })])
    }

    pub(crate) fn not_found(subject: StatusSubject<'_>) -> Self {
        let message = format!("{} not found", subject.quoted());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(subject)
    }

    /// A path below `/api` or `/apis` that nothing serves.
    pub(crate) fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).generic()
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).generic()
    }

    pub(crate) fn not_acceptable(offered: &[&str]) -> Self {
        let message =
            format!("only the following media types are accepted: {}", offered.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The same as said of built-in kinds.
    pub(crate) fn no_representation(offered: &[&str]) -> Self {
        let list = offered.join(", ");
        let message = format!("406: Not Acceptable\n\nAvailable representations: {list}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).generic()
    }

    pub(crate) fn unsupported_media_type(offered: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            offered.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The same as said of patches to built-in kinds.
    pub(crate) fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).generic()
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn already_exists(subject: StatusSubject<'_>) -> Self {
        let message = format!("{} already exists", subject.quoted());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(subject)
    }

    /// The name is that of an object which is on its way out.
    pub(crate) fn being_deleted(subject: StatusSubject<'_>) -> Self {
        let message = format!("object is being deleted: {} already exists", subject.quoted());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(subject)
    }

    /// A generated name that kept colliding; the client may simply try again.
    pub(crate) fn generated_name_taken(subject: StatusSubject<'_>) -> Self {
        let message = format!(
            "{} already exists, the server was not able to generate a unique name for the object",
            subject.quoted()
        );
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message)
            .with_details(subject)
            .retry_after(1)
    }

    pub(crate) fn conflict(subject: StatusSubject<'_>, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {}: {why}", subject.quoted());
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(subject)
    }

    /// The optimistic lock failed.
    pub(crate) fn modified(subject: StatusSubject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Server-side apply met fields that others own: `causes` as (manager text, field).
    pub(crate) fn apply_conflict(message: String, causes: Vec<(String, String)>) -> Self {
        let causes = causes
            .into_iter()
            .map(|(message, field)| {
                json!({"reason": "FieldManagerConflict", "message": message, "field": field})
            })
            .collect();
        Self::new(StatusCode::CONFLICT, "Conflict", message).causes(causes)
    }

    /// `subject.resource` must be the kind here.
    pub(crate) fn invalid(subject: StatusSubject<'_>, errors: &[FieldError]) -> Self {
        let text = match errors {
            [one] => one.to_string(),
            many => {
                // Upstream lists each distinct text once, in order.
                let mut seen: Vec<String> = Vec::new();
                for error in many {
                    let text = error.to_string();
                    if !seen.contains(&text) {
                        seen.push(text);
                    }
                }
                if seen.len() == 1 { seen.remove(0) } else { format!("[{}]", seen.join(", ")) }
            }
        };
        let causes = errors
            .iter()
            .map(|error| {
                json!({
                    "reason": error.reason.cause(),
                    "message": error.body(),
                    "field": error.field,
                })
            })
            .collect();
        let message = format!("{} is invalid: {text}", subject.quoted());
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
            .with_details(subject)
            .causes(causes)
    }

    /// Query options that contradict each other.
    pub(crate) fn invalid_options(kind: &str, errors: &[FieldError]) -> Self {
        Self::invalid(StatusSubject { group: "meta.k8s.io", resource: kind, name: "" }, errors)
    }

    /// A well-formed body that cannot be processed (a JSON patch whose test fails).
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = Some(token);
        self
    }

    pub(crate) fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(1)
    }

    /// An eviction that a disruption budget does not allow.
    pub(crate) fn disruption(why: String) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let cause = json!({"reason": "DisruptionBudget", "message": why});
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).causes(vec![cause])
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        let cause = json!({"message": message.trim_start_matches("Internal error occurred: ")});
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message).causes(vec![cause])
    }

    /// A failure for which upstream has no class: 500 without a reason, in plain words.
    pub(crate) fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(1)
    }

    /// A request that cannot succeed later either: no `Retry-After`, which would make clients
    /// retry ten times.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub(crate) fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", message)
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// The client is ahead of us: it asked for a revision that this server has not seen.
    pub(crate) fn too_large_resource_version(wanted: u64, current: u64) -> Self {
        let text = format!("Too large resource version: {wanted}, current: {current}");
        Self::timeout(format!("Timeout: {text}"))
            .causes(vec![json!({
                "reason": "ResourceVersionTooLarge",
                "message": "Too large resource version",
            })])
            .retry_after(1)
    }

    pub(crate) fn code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn reason(&self) -> &str {
        &self.0.reason
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.0.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.0.continue_token {
            metadata.insert("continue".to_owned(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.0.message,
            "code": self.0.code,
        });
        if !self.0.reason.is_empty() {
            status["reason"] = (*self.0.reason).into();
        }
        if !self.0.details.is_empty() || self.0.generic {
            status["details"] = self.0.details.clone().into();
        }
        status
    }
}

/// The `Status` that answers a successful deletion.
pub(crate) fn deleted(subject: StatusSubject<'_>, uid: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in
        [("name", subject.name), ("group", subject.group), ("kind", subject.resource), ("uid", uid)]
    {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

#[cfg(test)]
mod tests;
