//! The errors of an object, and the response to the client.

use serde::Deserialize;
use serde_json::{Value, json};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid` and its like.
    pub reason: &'static str,
    pub field: String,
    pub message: String,
}

/// A write that is denied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.message())]
pub struct Denial {
    webhook: &'static str,
    code: u16,
    causes: Vec<Cause>,
}

/// As many causes as upstream reports.
const MOST: usize = 10;

impl Denial {
    pub(super) fn invalid(causes: Vec<Cause>) -> Self {
        Self { webhook: "", code: 422, causes }
    }

    /// A request that makes no sense, for a reason that no field is to blame for.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        let cause = Cause { reason: "", field: String::new(), message: message.into() };
        Self { webhook: "", code: 400, causes: vec![cause] }
    }

    /// A request that cannot be done, for a reason that no field causes.
    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self { code: 422, ..Self::bad_request(message) }
    }

    pub(super) fn by(mut self, webhook: &'static str) -> Self {
        self.webhook = webhook;
        self
    }

    pub fn code(&self) -> u16 {
        self.code
    }

    pub fn causes(&self) -> &[Cause] {
        &self.causes
    }

    /// The API server's message for a webhook that denies a request.
    pub fn message(&self) -> String {
        let messages: Vec<&str> =
            self.causes.iter().take(MOST).map(|cause| cause.message.as_str()).collect();
        let mut message = messages.join(", ");
        if let more @ 1.. = self.causes.len().saturating_sub(MOST) {
            message = format!("{message}, and {more} more validation errors");
        }
        match self.webhook {
            "" => message,
            webhook => format!("admission webhook \"{webhook}\" denied the request: {message}"),
        }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message(),
            "code": self.code,
        });
        if self.code == 422 {
            let causes: Vec<Value> = self.causes.iter().take(MOST).map(describe).collect();
            status["reason"] = "Invalid".into();
            status["details"] = json!({"causes": causes});
        } else {
            status["reason"] = "BadRequest".into();
        }
        status
    }
}

fn describe(cause: &Cause) -> Value {
    let mut described = json!({"reason": cause.reason, "message": cause.message});
    if !cause.field.is_empty() {
        described["field"] = cause.field.as_str().into();
    }
    described
}

/// Collects causes in upstream's order.
#[derive(Debug, Default)]
pub(crate) struct Causes(Vec<Cause>);

impl Causes {
    fn push(&mut self, reason: &'static str, field: String, message: impl Into<String>) {
        self.0.push(Cause { reason, field, message: message.into() });
    }

    pub(crate) fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueInvalid", field.into(), message);
    }

    pub(crate) fn required(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueRequired", field.into(), message);
    }

    pub(crate) fn duplicate(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueDuplicate", field.into(), message);
    }

    pub(crate) fn not_found(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueNotFound", field.into(), message);
    }

    pub(crate) fn unsupported(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueNotSupported", field.into(), message);
    }

    pub(crate) fn forbidden(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push("FieldValueForbidden", field.into(), message);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing if nothing is wrong.
    pub(crate) fn finish(self) -> Result<(), Denial> {
        if self.0.is_empty() { Ok(()) } else { Err(Denial::invalid(self.0)) }
    }
}

/// Reads a part of an object as its type. The schema has been checked, so this only fails on
/// numbers that do not fit.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<T, Denial> {
    T::deserialize(value).map_err(|error| Denial::bad_request(error.to_string()))
}
