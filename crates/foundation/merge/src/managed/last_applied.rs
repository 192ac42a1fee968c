//! The way from `kubectl apply` to server-side apply: fields that still are as
//! the annotation of the last client-side apply says may be taken over without
//! a conflict, and the annotation is kept up to date as long as it is there.

use serde_json::Value;

use super::{MergeRequest, metadata};
use crate::set::Set;
use crate::typed::{Duplicates, compare, to_field_set, validate};

/// The only manager for whom this is done.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations together may not be larger than this.
const MOST_ANNOTATION_BYTES: usize = 256 << 10;

/// The fields that are as they were last applied; `None` if that is unknown.
pub(super) fn allowed_conflicts(live: &Value, request: &MergeRequest<'_>) -> Option<Set> {
    let text = annotation(live)?;
    validate(live, request.schema, Duplicates::Refused).ok()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(request.api_version) {
        return None;
    }
    validate(&applied, request.schema, Duplicates::Refused).ok()?;
    let mut fields = to_field_set(&applied, request.schema);
    let differs = compare(&applied, live, request.schema).ok()?;
    for differing in [&differs.modified, &differs.added, &differs.removed] {
        fields.subtract(differing);
    }
    Some(fields)
}

fn annotation(object: &Value) -> Option<&str> {
    let annotations = metadata(object)?.get("annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Sets the annotation, if the object has it, to the configuration.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let text = html_safe(&config.to_string()) + "\n";
    if let Some(annotations) = annotations_mut(object) {
        annotations.insert(ANNOTATION.to_owned(), Value::from(text));
        let size = |value: &Value| value.as_str().map_or(0, str::len);
        let bytes: usize = annotations.iter().map(|(name, value)| name.len() + size(value)).sum();
        if bytes > MOST_ANNOTATION_BYTES {
            annotations.remove(ANNOTATION);
        }
    }
}

fn annotations_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}

/// Escapes what Go's encoder escapes, so that both write the same annotation.
fn html_safe(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            letter => text.push(letter),
        }
    }
    text
}
