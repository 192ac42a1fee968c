//! Requests that are refused, in Steve's shape.

use http::StatusCode;
use serde_json::{Value, json};

/// Why a request is refused or could not be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SteveError {
    pub(crate) status: StatusCode,
    /// The reason, as Kubernetes or Rancher calls it.
    pub(crate) code: String,
    pub(crate) message: String,
    /// Actions answer with plain text, which clients search.
    pub(crate) is_text: bool,
    /// Seconds after which it is worth trying again; 0 if that is not known.
    pub(crate) retry_after: u64,
}

impl SteveError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { status, code, message, is_text: false, retry_after: 0 }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "must authenticate")
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn no_such_type(name: &str) -> Self {
        Self::not_found(format!("type {name:?} does not exist; /v1/schemas lists the types"))
    }

    pub(crate) fn method_not_allowed(method: &http::Method) -> Self {
        let message = format!("method {method} is not possible on this path");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// The API cannot be reached.
    pub(crate) fn unavailable(error: &(dyn std::error::Error + 'static)) -> Self {
        let message = format!("cannot reach the Kubernetes API: {}", base::Chain(error));
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The API did not finish its answer.
    pub(crate) fn broken_answer(error: &dyn std::fmt::Display) -> Self {
        let message = format!("cannot read the answer of the Kubernetes API: {error}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The error for an answer of the Kubernetes API with `status`.
    pub(crate) fn from_answer(status: StatusCode, body: &[u8]) -> Self {
        let parsed = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let code = parsed["reason"].as_str().filter(|reason| !reason.is_empty());
        let message = parsed["message"].as_str().map(str::to_owned);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
        let retry_after = parsed["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
        let code = code.unwrap_or(status.canonical_reason().unwrap_or("Unknown"));
        Self { retry_after, ..Self::new(status, code, message) }
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({
            "type": "error", "links": {}, "status": self.status.as_u16(), "code": self.code,
            "message": self.message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_kubernetes_becomes_an_error_of_steve() {
        let body = br#"{"kind":"Status","reason":"NotFound","message":"pods \"a\" not found"}"#;
        let error = SteveError::from_answer(StatusCode::NOT_FOUND, body);
        let expected = json!({
            "type": "error", "links": {}, "status": 404, "code": "NotFound",
            "message": "pods \"a\" not found",
        });
        assert_eq!(error.to_value(), expected);
        let error = SteveError::from_answer(StatusCode::NOT_FOUND, b"404 page not found\n");
        assert_eq!((&*error.code, &*error.message), ("Not Found", "404 page not found"));
    }
}
