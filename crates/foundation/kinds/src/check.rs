//! Putting verdicts on fields: the small checks that many kinds share.

use schema::{FieldError, Path};
use serde_json::Value;

use crate::json;

/// The text for a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(crate) const METADATA: Path<'static> = Path::Field(&Path::Root, "metadata");
pub(crate) const SPEC: Path<'static> = Path::Field(&Path::Root, "spec");
pub(crate) const STATUS: Path<'static> = Path::Field(&Path::Root, "status");

/// Turns what `syntax` says about `value` into errors on `path`.
pub(crate) fn each(
    problems: Vec<String>,
    value: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    errors.extend(problems.into_iter().map(|text| FieldError::invalid(path, value, text)));
}

/// Demands a text at `key` of `value`; returns it when it is there.
pub(crate) fn required<'a>(
    value: &'a Value,
    key: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<&'a str> {
    match value.get(key).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Some(text),
        _ => {
            errors.push(FieldError::required(path.field(key), ""));
            None
        }
    }
}

/// Demands that the text at `key`, where given, is one of `valid`.
pub(crate) fn one_of(
    value: &Value,
    key: &str,
    valid: &[&str],
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(text) = value.get(key).and_then(Value::as_str)
        && !valid.contains(&text)
    {
        errors.push(FieldError::not_supported(path.field(key), text, valid));
    }
}

/// Demands that the text at `key` is given and one of `valid`.
pub(crate) fn required_one_of(
    value: &Value,
    key: &str,
    valid: &[&str],
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if required(value, key, path, errors).is_some() {
        one_of(value, key, valid, path, errors);
    }
}

/// Demands that the number at `key`, where given, is not negative.
pub(crate) fn not_negative(
    value: &Value,
    key: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(number) = value.get(key).and_then(Value::as_i64)
        && number < 0
    {
        errors.push(FieldError::invalid(path.field(key), number, NOT_NEGATIVE));
    }
}

/// Demands that `key` is the same in both objects.
pub(crate) fn immutable(
    new: &Value,
    old: &Value,
    key: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let (new, old) = (new.get(key), old.get(key));
    if !same(new, old) {
        let value = new.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path.field(key), value, IMMUTABLE));
    }
}

/// Whether two fields mean the same: absent, null, empty map and empty list are one.
pub(crate) fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    a.filter(|value| !is_empty(value)) == b.filter(|value| !is_empty(value))
}

/// Demands that the items of the list at `pointer` are distinct texts.
pub(crate) fn distinct(
    value: &Value,
    pointer: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let items = json::list(value, pointer);
    for (index, item) in items.iter().enumerate() {
        if items[..index].contains(item) {
            errors.push(FieldError::duplicate(path.index(index), item.clone()));
        }
    }
}
