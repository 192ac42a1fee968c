//! Errors for a write that was refused by extensions, webhooks or policies.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Value, json};

use super::{ApiError, Failure, StatusSubject};

impl ApiError {
    /// An extension refuses, in its own words.
    pub(crate) fn denied(denial: crate::extension::Denial) -> Self {
        let causes = denial.causes.iter().map(
            |cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}),
        );
        let code = StatusCode::from_u16(denial.code).unwrap_or(StatusCode::FORBIDDEN);
        Self::new(code, denial.reason, denial.message).causes(causes.collect())
    }

    /// A webhook refuses, with the `Status` that it explains itself by.
    pub(crate) fn rejected(webhook: &str, status: Option<&Value>) -> Self {
        let denied = format!("admission webhook {webhook:?} denied the request");
        let field = |name: &str| status.map_or(&Value::Null, |status| &status[name]);
        let text = |name: &str| field(name).as_str().unwrap_or("");
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        // A refusal is never a success, whatever the webhook says.
        let code = field("code").as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
        Self(Box::new(Failure {
            code,
            reason: Cow::Owned(text("reason").to_owned()),
            message,
            details: field("details").as_object().cloned().unwrap_or_default(),
            generic: false,
            continue_token: None,
        }))
    }

    /// A policy refuses.
    pub(crate) fn denied_by_policy(
        subject: StatusSubject<'_>,
        code: StatusCode,
        reason: &'static str,
        why: &str,
    ) -> Self {
        let message = format!("{} is forbidden: {why}", subject.quoted());
        Self::new(code, reason, message).with_details(subject).causes(vec![json!({"message": why})])
    }

    /// Policies that change objects could not; there is at least one complaint.
    pub(crate) fn denied_mutation(
        subject: StatusSubject<'_>,
        reason: &'static str,
        complaints: Vec<String>,
    ) -> Self {
        let message = complaints.first().cloned().unwrap_or_default();
        let causes = complaints.into_iter().map(|text| json!({"message": text})).collect();
        Self::new(StatusCode::FORBIDDEN, reason, message).with_details(subject).causes(causes)
    }
}
