//! The keywords of `JSONSchemaProps`, for strict field validation of
//! CustomResourceDefinitions: the schema inside them is itself an API type.

use serde_json::{Map, Value};

/// Dotted paths of fields, relative to the schema, that `JSONSchemaProps` does not have.
pub fn unknown_fields(raw: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    visit(raw, &mut String::new(), 0, &mut unknown);
    unknown.sort();
    unknown
}

/// Whether a field of a schema means something.
pub(crate) fn is_keyword(name: &str) -> bool {
    holds(name).is_some()
}

/// The content of a keyword's value, as far as needed to find unknown fields.
enum KeywordContent {
    /// A scalar, a list of scalars, or any JSON.
    Plain,
    Schema,
    /// A schema, or something that is not one (`true`).
    Schemas,
    /// Schemas by name.
    Named,
    Rules,
    Docs,
}

fn holds(keyword: &str) -> Option<KeywordContent> {
    Some(match keyword {
        "id"
        | "$schema"
        | "$ref"
        | "description"
        | "type"
        | "format"
        | "title"
        | "default"
        | "maximum"
        | "exclusiveMaximum"
        | "minimum"
        | "exclusiveMinimum"
        | "maxLength"
        | "minLength"
        | "pattern"
        | "maxItems"
        | "minItems"
        | "uniqueItems"
        | "multipleOf"
        | "enum"
        | "maxProperties"
        | "minProperties"
        | "required"
        | "example"
        | "nullable"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-embedded-resource"
        | "x-kubernetes-int-or-string"
        | "x-kubernetes-list-map-keys"
        | "x-kubernetes-list-type"
        | "x-kubernetes-map-type" => KeywordContent::Plain,
        "not" | "items" | "additionalProperties" | "additionalItems" => KeywordContent::Schema,
        "allOf" | "anyOf" | "oneOf" => KeywordContent::Schemas,
        "properties" | "patternProperties" | "definitions" | "dependencies" => {
            KeywordContent::Named
        }
        "x-kubernetes-validations" => KeywordContent::Rules,
        "externalDocs" => KeywordContent::Docs,
        _ => return None,
    })
}

const RULE: &[&str] =
    &["rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf"];
const DOCS: &[&str] = &["description", "url"];

fn visit(raw: &Value, at: &mut String, depth: usize, unknown: &mut Vec<String>) {
    let Value::Object(map) = raw else { return };
    if depth > super::MAX_DEPTH {
        return;
    }
    for (name, value) in map {
        descend(at, name, |at| match (holds(name), value) {
            (None, _) => unknown.push(at.clone()),
            (Some(KeywordContent::Plain), _) => {}
            (Some(KeywordContent::Schema | KeywordContent::Schemas), Value::Array(list)) => {
                for (index, raw) in list.iter().enumerate() {
                    descend_index(at, index, |at| visit(raw, at, depth + 1, unknown));
                }
            }
            (Some(KeywordContent::Schema | KeywordContent::Schemas), _) => {
                visit(value, at, depth + 1, unknown)
            }
            (Some(KeywordContent::Named), Value::Object(named)) => {
                for (name, raw) in named {
                    descend(at, name, |at| visit(raw, at, depth + 1, unknown));
                }
            }
            (Some(KeywordContent::Rules), Value::Array(rules)) => {
                for (index, rule) in rules.iter().filter_map(Value::as_object).enumerate() {
                    descend_index(at, index, |at| flat(rule, RULE, at, unknown));
                }
            }
            (Some(KeywordContent::Docs), Value::Object(docs)) => flat(docs, DOCS, at, unknown),
            (Some(KeywordContent::Named | KeywordContent::Rules | KeywordContent::Docs), _) => {}
        });
    }
}

fn flat(map: &Map<String, Value>, known: &[&str], at: &mut String, unknown: &mut Vec<String>) {
    for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
        descend(at, name, |at| unknown.push(at.clone()));
    }
}

fn descend(at: &mut String, name: &str, inside: impl FnOnce(&mut String)) {
    let length = at.len();
    if length > 0 {
        at.push('.');
    }
    at.push_str(name);
    inside(at);
    at.truncate(length);
}

fn descend_index(at: &mut String, index: usize, inside: impl FnOnce(&mut String)) {
    let length = at.len();
    at.push_str(&format!("[{index}]"));
    inside(at);
    at.truncate(length);
}
