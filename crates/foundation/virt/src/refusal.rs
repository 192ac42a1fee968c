//! Why a request to a subresource is not carried out, in upstream's words.

use serde_json::{Value, json};

/// A request that is refused, as the `Status` that the client gets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// The object that the request was for; null if there is none.
    pub details: Value,
}

/// Names a kind in the text of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalSubject {
    Machine,
    Instance,
    Claim,
}

impl RefusalSubject {
    fn singular(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachine",
            Self::Instance => "virtualmachineinstance",
            Self::Claim => "persistentvolumeclaim",
        }
    }

    fn details(self, name: &str) -> Value {
        json!({"name": name, "group": "kubevirt.io", "kind": self.singular()})
    }

    pub fn conflict(self, name: &str, why: &str) -> Refusal {
        let kind = self.singular();
        Refusal {
            code: 409,
            reason: "Conflict",
            message: format!(
                "Operation cannot be fulfilled on {kind}.kubevirt.io \"{name}\": {why}"
            ),
            details: self.details(name),
        }
    }

    pub fn forbidden(self, name: &str, why: &str) -> Refusal {
        let kind = self.singular();
        Refusal {
            code: 403,
            reason: "Forbidden",
            message: format!("{kind}.kubevirt.io \"{name}\" is forbidden: {why}"),
            details: self.details(name),
        }
    }

    pub fn not_found(self, name: &str) -> Refusal {
        Refusal {
            code: 404,
            reason: "NotFound",
            message: format!("{}.kubevirt.io \"{name}\" not found", self.singular()),
            details: self.details(name),
        }
    }
}

impl Refusal {
    pub fn bad_request(why: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: why.into(), details: Value::Null }
    }

    pub fn internal(why: &str) -> Self {
        Self {
            code: 500,
            reason: "InternalError",
            message: format!("Internal error occurred: {why}"),
            details: json!({"causes": [{"message": why}]}),
        }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
