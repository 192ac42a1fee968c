//! `apiVersion`, `kind` and `metadata` of embedded resources.

use serde_json::{Map, Value};

use super::MAX_ERRORS;
use super::format::is_label;
use crate::field::{FieldError, Path, Reason};
use crate::metadata::{self, Malformed};
use crate::node::SchemaNode;

/// The most bytes that keys and values of all annotations may have together.
const ANNOTATIONS_SIZE: usize = 256 << 10;

/// Checks the resources embedded in a value. The root is the caller's business unless its
/// schema says that it is embedded.
pub(crate) fn validate(value: &Value, node: &SchemaNode, at: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(value, node, at, &mut errors);
    errors
}

fn visit(value: &Value, node: &SchemaNode, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded {
                check_resource(map, at, errors);
            }
            for (name, value) in map {
                if let Some(schema) = node.property(name) {
                    visit(value, schema, &at.field(name), errors);
                } else if let Some(schema) = node.field(name) {
                    visit(value, schema, &at.key(name), errors);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &node.items else { return };
            for (index, item) in list.iter().enumerate() {
                visit(item, items, &at.index(index), errors);
            }
        }
        _ => {}
    }
}

pub(crate) fn check_resource(
    map: &Map<String, Value>,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    match map.get("apiVersion") {
        None => errors.push(FieldError::required(at.field("apiVersion"), "")),
        Some(version) => check_name(version, &at.field("apiVersion"), errors, |text| {
            (text.matches('/').count() > 1)
                .then(|| format!("unexpected GroupVersion string: {text}"))
        }),
    }
    match map.get("kind") {
        None => errors.push(FieldError::required(at.field("kind"), "")),
        Some(kind) => check_name(kind, &at.field("kind"), errors, |text| {
            (!is_kind(text)).then(|| {
                format!(
                    "may have mixed case, but should otherwise match: {}",
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                     start with an alphabetic character, and end with an alphanumeric character \
                     (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                     '[a-z]([-a-z0-9]*[a-z0-9])?')"
                )
            })
        }),
    }
    let Some(raw) = map.get("metadata") else { return };
    let at = at.field("metadata");
    match metadata::read(raw, Malformed::Refuse, "") {
        Ok(meta) => check_metadata(&meta.fields, &at, errors),
        Err(error) => errors.push(FieldError::invalid(at, raw.clone(), error.to_string())),
    }
}

fn check_name(
    value: &Value,
    at: &Path<'_>,
    errors: &mut Vec<FieldError>,
    wrong: impl FnOnce(&str) -> Option<String>,
) {
    let text = match value {
        Value::String(text) if text.is_empty() => Some("must not be empty".to_owned()),
        Value::String(text) => wrong(text),
        _ => Some("must be a string".to_owned()),
    };
    errors.extend(text.map(|text| FieldError::invalid(at, value.clone(), text)));
}

fn is_kind(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.len() <= 63 && is_label(&lower) && lower.starts_with(|c: char| c.is_ascii_lowercase())
}

fn check_metadata(meta: &Map<String, Value>, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["name", "generateName"] {
        let text = meta.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut invalid = |detail: String| {
            errors.push(FieldError::invalid(at.field(name), text, detail));
        };
        if name == "name" && (text == "." || text == "..") {
            invalid(format!("may not be '{text}'"));
        }
        for illegal in ['/', '%'].into_iter().filter(|illegal| text.contains(*illegal)) {
            invalid(format!("may not contain '{illegal}'"));
        }
    }
    if meta.get("generation").and_then(Value::as_i64).is_some_and(|generation| generation < 0) {
        let text = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(at.field("generation"), meta["generation"].clone(), text));
    }
    let texts = |name: &str| {
        let map = meta.get(name).and_then(Value::as_object).into_iter().flatten();
        map.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    let labels = at.field("labels");
    for (key, value) in texts("labels") {
        check_key(key, &labels, errors);
        if let Some(text) = wrong_label_value(value) {
            errors.push(FieldError::invalid(labels, value, text));
        }
    }
    let annotations = at.field("annotations");
    let mut size = 0;
    for (key, value) in texts("annotations") {
        check_key(&key.to_lowercase(), &annotations, errors);
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_SIZE {
        let text = format!("may not be more than {ANNOTATIONS_SIZE} bytes");
        errors.push(FieldError::new(Reason::TooLong, annotations, text));
    }
    let finalizers = meta.get("finalizers").and_then(Value::as_array).into_iter().flatten();
    for finalizer in finalizers.filter_map(Value::as_str) {
        check_key(finalizer, &at.field("finalizers"), errors);
    }
}

const NAME_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX_TEXT: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower \
    case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
    character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// A qualified name: `name` or `example.com/name`.
fn check_key(key: &str, at: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut invalid = |text: &str| errors.push(FieldError::invalid(at, key, text));
    let (prefix, name) = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            invalid(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', \
                and must start and end with an alphanumeric character (e.g. 'MyName',  or \
                'my.name',  or '123-abc', regex used for validation is \
                '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix \
                and '/' (e.g. 'example.com/MyName')",
            );
            return;
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => invalid("prefix part must be non-empty"),
        Some(prefix) if prefix.len() > 253 || !prefix.split('.').all(is_label) => {
            invalid(PREFIX_TEXT);
        }
        _ => {}
    }
    if name.is_empty() {
        invalid("name part must be non-empty");
    } else if name.len() > 63 {
        invalid("name part must be no more than 63 bytes");
    }
    if !is_word(name) {
        invalid(NAME_TEXT);
    }
}

fn wrong_label_value(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!value.is_empty() && !is_word(value)).then_some(VALUE_TEXT)
}

fn is_word(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests;
