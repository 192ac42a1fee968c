//! Parsers of untrusted bytes, as targets for fuzzing. No input may make them panic, and a
//! document that was read and written must read the same again.
//!
//! The tests beside this throw changed documents at it for a moment in every run; `make fuzz`
//! lets a fuzzer that sees which code runs do it for long (`fuzz/` at the root of the tree). Both begin
//! with the documents in `fuzz/<target>/`, where every failure of the past is kept.

use serde_json::{Value, json};

use crate::http::decode;
use crate::schemas::crd;
use crate::verbs::selector::{FieldSelector, LabelSelector};

#[cfg(test)]
mod tests;

/// Takes any bytes; panics if it finds a defect.
pub type FuzzTarget = fn(&[u8]);

/// All of them, with the names of their corpora.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("json", json_reads_back_as_it_was_read),
    ("yaml", yaml_becomes_json_or_is_refused),
    ("protobuf", protobuf_becomes_json_or_is_refused),
    ("selector", selectors_are_read_or_refused),
    ("patch", patches_apply_or_are_refused),
    ("apply", applied_documents_merge_or_are_refused),
    ("schema", schemas_and_their_rules_are_judged),
    ("cel", expressions_are_judged),
    ("object", objects_are_cleaned_and_judged),
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json_reads_back_as_it_was_read(bytes: &[u8]) {
    if let Ok(parsed) = decode::json(bytes) {
        let written = parsed.value.to_string();
        let again = decode::json(written.as_bytes()).expect("the written body is JSON");
        assert_eq!(again.value, parsed.value);
    }
}

fn yaml_becomes_json_or_is_refused(bytes: &[u8]) {
    if let Ok(parsed) = decode::yaml(bytes) {
        assert!(decode::json(parsed.value.to_string().as_bytes()).is_ok());
    }
}

fn protobuf_becomes_json_or_is_refused(bytes: &[u8]) {
    // The corpus is text: a base64 of the whole message.
    use base64::Engine as _;
    let raw = base64::engine::general_purpose::STANDARD.decode(bytes.trim_ascii());
    let raw = raw.unwrap_or_else(|_| bytes.to_vec());
    if let Ok(value) = types::decode(&raw)
        && let Ok(written) = types::encode(&value)
    {
        assert_eq!(types::decode(&written).ok(), Some(value), "it does not read back");
    }
}

fn selectors_are_read_or_refused(bytes: &[u8]) {
    let text = text(bytes);
    let _ = LabelSelector::parse(&text);
    let _ = FieldSelector::parse(&text);
}

/// An object that patches are tried on.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
    })
}

fn patches_apply_or_are_refused(bytes: &[u8]) {
    let Ok(parsed) = decode::yaml(bytes) else { return };
    let live = pod();
    let _ = merge::json_patch(&live, &parsed.value);
    let _ = merge::merge_patch(&live, &parsed.value);
    if let Some(schema) = types::schema("", "v1", "Pod") {
        let _ = merge::strategic_merge(&live, &parsed.value, &schema);
    }
}

fn applied_documents_merge_or_are_refused(bytes: &[u8]) {
    let Ok(parsed) = decode::yaml(bytes) else { return };
    let schema = types::schema("", "v1", "Pod").expect("pods have a schema");
    let _ = merge::to_field_set(&parsed.value, &schema);
    if let Ok(Some(merged)) = merge::merge(&pod(), &parsed.value, &schema) {
        let _ = merge::compare(&pod(), &merged, &schema);
    }
    if let Ok(set) = merge::Set::from_fields_v1(&parsed.value) {
        assert_eq!(merge::Set::from_fields_v1(&set.to_fields_v1()).ok(), Some(set));
    }
}

/// A definition with this schema.
fn definition(schema: &Value) -> Value {
    json!({"spec": {"group": "e.com", "names": {"plural": "as", "kind": "A"},
        "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}})
}

/// Runs the steps of the server on an object of an accepted definition.
fn serve(schema: &Value, mut object: Value) {
    let Ok(parsed) = schema::parse(schema) else { return };
    schema::prune(&mut object, &parsed, schema::ObjectLevel::Root);
    assert!(
        schema::prune(&mut object, &parsed, schema::ObjectLevel::Root).is_empty(),
        "pruned twice"
    );
    schema::default(&mut object, &parsed);
    let defaulted = object.clone();
    schema::default(&mut object, &parsed);
    assert_eq!(object, defaulted, "defaults are filled in twice");
    let _ = schema::validate(&object, None, &parsed);
    let rules = schema::Compiled::new(parsed);
    let _ = rules.validate(&object, None);
    let _ = rules.validate(&object, Some(&defaulted));
}

/// An object that schemas are tried on.
fn sample() -> Value {
    json!({"apiVersion": "e.com/v1", "kind": "A", "metadata": {"name": "a"},
        "spec": {"n": 3, "l": ["x", "y"], "m": {"k": "v"}, "a": null, "p": 1.5, "t": "1h"}})
}

fn schemas_and_their_rules_are_judged(bytes: &[u8]) {
    let Ok(parsed) = decode::yaml(bytes) else { return };
    if crd::validate(&definition(&parsed.value), None).is_empty() {
        serve(&parsed.value, sample());
    }
}

fn expressions_are_judged(bytes: &[u8]) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"n": {"type": "integer"},
            "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}},
            "m": {"type": "object", "maxProperties": 3,
                "additionalProperties": {"type": "string", "maxLength": 9}},
            "p": {"type": "number"}, "t": {"type": "string", "maxLength": 40}},
            "x-kubernetes-validations": [{"rule": text(bytes)}]}}});
    if crd::validate(&definition(&schema), None).is_empty() {
        serve(&schema, sample());
    }
}

fn objects_are_cleaned_and_judged(bytes: &[u8]) {
    let Ok(parsed) = decode::yaml(bytes) else { return };
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "default": {"n": 1},
            "properties": {
                "n": {"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 3, "default": 6},
                "l": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5,
                    "items": {"type": "string", "maxLength": 9, "pattern": "^[a-z]*$"}},
                "m": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                        "required": ["k"], "properties": {"k": {"type": "string"},
                            "v": {"type": "string", "nullable": true, "default": "d"}}}},
                "a": {"type": "object", "additionalProperties": {"type": "integer"}},
                "b": {"x-kubernetes-int-or-string": true},
                "e": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true},
                "t": {"type": "string", "format": "date-time"},
                "d": {"type": "string", "format": "duration"}},
            "x-kubernetes-validations": [{"rule": "!has(self.l) || self.l.all(x, x != 'no')"},
                {"rule": "self.n >= oldSelf.n"}]}}});
    serve(&schema, parsed.value);
}
