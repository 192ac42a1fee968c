//! The fields of a rule in `x-kubernetes-validations`, apart from the expressions.

use serde_json::Value;

use super::super::raw::Raw;
use crate::cel::field_path;
use crate::field::{FieldError, Path};

const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

pub(super) fn check(raw: Raw<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let at = at.field("x-kubernetes-validations");
    for (index, rule) in raw.list("x-kubernetes-validations").iter().enumerate() {
        check_rule(raw, Raw::new(rule), &at.index(index), errors);
    }
}

fn check_rule(raw: Raw<'_>, rule: Raw<'_>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let expression = rule.text("rule").trim();
    let message = rule.text("message");
    if expression.is_empty() {
        errors.push(FieldError::required(at.field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        let text = "must be non-empty if specified";
        errors.push(FieldError::invalid(at.field("message"), message, text));
    } else if has_newlines(message.trim()) {
        let text = "must not contain line breaks";
        errors.push(FieldError::invalid(at.field("message"), message, text));
    } else if has_newlines(expression) && message.is_empty() {
        let text = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(at.field("message"), text));
    }
    let message = rule.text("messageExpression");
    if !message.is_empty() && message.trim().is_empty() {
        let text = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(at.field("messageExpression"), text));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(at.field("reason"), reason, REASONS));
    }
    let path = rule.text("fieldPath");
    if path.is_empty() {
        return;
    }
    let mut invalid =
        |text: &str| errors.push(FieldError::invalid(at.field("fieldPath"), path, text));
    if path.trim().is_empty() {
        invalid("must be non-empty if specified");
    }
    if has_newlines(path) {
        invalid("must not contain line breaks");
    }
    let exists = raw.schema().is_some_and(|schema| field_path::resolve(path, &schema).is_some());
    if !exists {
        invalid("must be a valid path");
    }
}

fn has_newlines(text: &str) -> bool {
    text.contains(['\n', '\r'])
}
