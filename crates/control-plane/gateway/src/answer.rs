//! Answers: `Status` objects for failures, as KubeVirt words and numbers them.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

/// The answer to a request.
pub type GatewayReply = Response<UnsyncBoxBody<Bytes, Infallible>>;
pub(crate) type GatewayResult = Result<GatewayReply, GatewayError>;

/// A request that is refused or could not be met.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatewayError {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// The `details` of the status; null if there are none.
    details: Value,
    /// Sent as plain text. Clients that read raw bodies show nothing else to their users.
    is_text: bool,
}

impl GatewayError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, is_text: false }
    }

    fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    fn with_details(self, kind: &'static str, name: &str) -> Self {
        self.with(json!({"name": name, "group": "kubevirt.io", "kind": kind}))
    }

    /// An error with the reason that belongs to the code.
    pub(crate) fn with_message(code: StatusCode, message: String) -> Self {
        Self::new(code, reason(code.as_u16()), message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// A body that is not what it should be.
    pub(crate) fn body(error: &serde_json::Error) -> Self {
        Self::bad_request(format!("Can not unmarshal Request body to struct, error: {error}"))
    }

    pub(crate) fn not_found(kind: &'static str, name: &str) -> Self {
        let message = format!("{kind}.kubevirt.io {name:?} not found");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with_details(kind, name)
    }

    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn conflict(kind: &'static str, name: &str, why: impl std::fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {kind}.kubevirt.io {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(kind, name)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// The same with the caller's own message.
    pub(crate) fn internal_plain(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// A refusal in plain text with 500, as Harvester's handlers answer.
    pub(crate) fn text(message: impl Into<String>) -> Self {
        let failure = Self::internal_plain(message.into());
        Self { is_text: true, ..failure }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub(crate) fn too_many_streams(user: &str, most: u32) -> Self {
        let message = format!(
            "Too many requests, please try again later: user {user:?} has {most} consoles, \
             screens and port forwards open"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            "NotImplemented",
            format!("{what} is not supported by this cluster"),
        )
    }

    /// The error of requests that work on claims through a pod.
    pub(crate) fn needs_pods(what: &str) -> Self {
        let message = format!(
            "{what} runs a pod, and no pods run on this cluster; plug the claim into a machine \
             instead, with virtctl addvolume"
        );
        let failure = Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message);
        Self { is_text: true, ..failure }
    }

    /// The error that the Kubernetes API answered with.
    pub(crate) fn from_api(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::new(
                StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                reason(status.code),
                status.message.clone(),
            ),
            other => Self::unavailable(format!("cannot reach the API: {}", base::Chain(&other))),
        }
    }

    pub(crate) fn reply(&self) -> GatewayReply {
        if self.is_text {
            let text = self.message.clone();
            return with_type(self.code, "text/plain; charset=utf-8", text);
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        json(self.code, &status)
    }
}

impl From<virt::Refusal> for GatewayError {
    fn from(refusal: virt::Refusal) -> Self {
        let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(code, refusal.reason, refusal.message).with(refusal.details)
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    }
}

pub(crate) fn json(code: StatusCode, value: &Value) -> GatewayReply {
    let bytes = serde_json::to_vec(value).expect("a tree always encodes");
    with_type(code, "application/json", bytes)
}

pub(crate) fn with_type(
    code: StatusCode,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> GatewayReply {
    let mut reply = empty(code);
    *reply.body_mut() = Full::new(bytes.into()).boxed_unsync();
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

pub(crate) fn empty(code: StatusCode) -> GatewayReply {
    let mut reply = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *reply.status_mut() = code;
    reply
}
