//! Numbers that may be percentages: how many at a time, how many at least.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::check::NOT_NEGATIVE;
use crate::{check, syntax};

/// Demands a number that is not negative, or a percentage.
pub(crate) fn validate(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) => check::each(syntax::percent(text), text, path, errors),
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
        }
        _ => {}
    }
}

/// Demands a percentage of at most a hundred.
pub(crate) fn at_most_everything(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

/// Whether it is zero, in either form.
pub(crate) fn is_zero(value: Option<&Value>) -> bool {
    match value {
        None => true,
        Some(value) => value.as_i64() == Some(0) || percent(value) == Some(0),
    }
}

/// The number before the percent sign.
fn percent(value: &Value) -> Option<i64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}
