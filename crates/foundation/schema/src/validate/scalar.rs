//! Texts, and equality of values as enumerations see it.

use serde_json::Value;

use super::{ValidationOutcome, ValueSite, format, pattern};
use crate::field::FieldError;
use crate::node::Validation;

pub(super) fn check_text(
    text: &str,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    outcome.score += 1;
    check_length_and_pattern(text, validation, site, outcome);
    if let Some(wanted) = validation.format.as_deref()
        && let Some(matches) = format::matches(wanted, text)
    {
        outcome.score += 1;
        if !matches {
            outcome.add(site.wrong_type(wanted, text));
        }
    }
}

/// Reports the first failure only.
fn check_length_and_pattern(
    text: &str,
    validation: &Validation,
    site: &ValueSite<'_>,
    outcome: &mut ValidationOutcome,
) {
    if validation.max_length.is_some() || validation.min_length.is_some() {
        let length = text.chars().count() as u64;
        if let Some(most) = validation.max_length.filter(|most| length > *most) {
            outcome.add(FieldError::too_long(super::name(site.at), most as usize));
            return;
        }
        if let Some(least) = validation.min_length.filter(|least| length < *least) {
            outcome.add(site.invalid(text, format_args!("should be at least {least} chars long")));
            return;
        }
    }
    let Some(wanted) = validation.pattern.as_deref() else { return };
    match pattern::compile(wanted) {
        Ok(regex) if regex.is_match(text) => {}
        Ok(_) => outcome.add(site.invalid(text, format_args!("should match '{wanted}'"))),
        Err(error) => outcome.add(site.invalid(
            text,
            format_args!("should match '{wanted}, but pattern is invalid: {error}'"),
        )),
    }
}

/// Equality in which `1` and `1.0` are the same number. Null equals nothing, as upstream.
pub(super) fn equals(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(value), Value::Number(allowed)) => {
            value == allowed || value.as_f64() == allowed.as_f64()
        }
        (value, allowed) => value == allowed,
    }
}
