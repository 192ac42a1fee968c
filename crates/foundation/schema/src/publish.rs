//! Schemas of custom resources as the OpenAPI documents publish them.
//!
//! Version 3 gets nearly everything. Version 2 is read by old clients that misjudge what
//! Swagger cannot say, so there everything they would stumble over goes: a field that they
//! know less about is one that they do not refuse. Both get `apiVersion`, `kind` and
//! `metadata`, which no CustomResourceDefinition spells out.

use serde_json::{Map, Value, json};

use crate::parse::is_keyword;

/// These begin as upstream's do: its conformance suite checks these words in `kubectl explain`.
const API_VERSION: &str =
    "APIVersion defines the group and version that this object is written in, such as \"apps/v1\".";
const METADATA: &str =
    "Standard object's metadata: name, labels and everything else that all objects have.";

/// The name of ObjectMeta's schema in every OpenAPI document.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenApiVersion {
    V2,
    V3,
}

/// The schema of a custom resource for OpenAPI 3; `null` means "no schema".
pub fn to_openapi_v3(raw: &Value) -> Value {
    let Value::Object(map) = raw else { return json!({"type": "object"}) };
    publish_root(map, OpenApiVersion::V3)
}

/// The schema of a custom resource for OpenAPI 2; `null` means "no schema".
pub fn to_openapi_v2(raw: &Value) -> Value {
    let Value::Object(map) = raw else { return json!({"type": "object"}) };
    if flag(map, "x-kubernetes-preserve-unknown-fields") {
        // Not even metadata: a client that sees any property refuses all others.
        return json!({"type": "object"});
    }
    publish_root(map, OpenApiVersion::V2)
}

fn publish_root(map: &Map<String, Value>, version: OpenApiVersion) -> Value {
    let mut schema = publish(map, version, 0);
    set_type_and_metadata(&mut schema, version);
    Value::Object(schema)
}

fn flag(map: &Map<String, Value>, name: &str) -> bool {
    map.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn publish(map: &Map<String, Value>, version: OpenApiVersion, depth: usize) -> Map<String, Value> {
    let mut schema = Map::new();
    if depth > crate::MAX_DEPTH {
        return schema;
    }
    let known = map.iter().filter(|(name, value)| is_keyword(name) && !value.is_null());
    for (name, value) in known {
        let value = match name.as_str() {
            "properties" => publish_named(value, version, depth),
            "items" | "additionalProperties" | "not" => publish_value(value, version, depth),
            "allOf" | "anyOf" | "oneOf" => publish_list(value, version, depth),
            _ => value.clone(),
        };
        schema.insert(name.clone(), value);
    }
    match version {
        OpenApiVersion::V3 => unfold(&mut schema),
        OpenApiVersion::V2 => lower(map, &mut schema),
    }
    let silent = version == OpenApiVersion::V2 && flag(map, "x-kubernetes-preserve-unknown-fields");
    if flag(map, "x-kubernetes-embedded-resource") && !silent {
        set_type_and_metadata(&mut schema, version);
        require(&mut schema, &["apiVersion", "kind"]);
    }
    schema
}

fn publish_value(value: &Value, version: OpenApiVersion, depth: usize) -> Value {
    match value {
        Value::Object(map) => Value::Object(publish(map, version, depth + 1)),
        other => other.clone(),
    }
}

fn publish_named(value: &Value, version: OpenApiVersion, depth: usize) -> Value {
    let named = value.as_object().into_iter().flatten();
    let named = named.map(|(name, value)| (name.clone(), publish_value(value, version, depth)));
    Value::Object(named.collect())
}

fn publish_list(value: &Value, version: OpenApiVersion, depth: usize) -> Value {
    let list = value.as_array().into_iter().flatten();
    Value::Array(list.map(|value| publish_value(value, version, depth)).collect())
}

/// Says `x-kubernetes-int-or-string` in the language of JSON Schema.
fn unfold(schema: &mut Map<String, Value>) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let said = |schema: &Map<String, Value>| schema.get("anyOf") == Some(&either);
    let first = schema.get("allOf").and_then(|list| list.get(0)).and_then(Value::as_object);
    if said(schema) || first.is_some_and(said) {
        return;
    }
    if schema.contains_key("anyOf") {
        let all = schema.entry("allOf").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.insert(0, json!({"anyOf": either}));
        }
    } else {
        schema.insert("anyOf".to_owned(), either);
    }
}

/// Takes away what OpenAPI 2 cannot say. `raw` is the same schema before.
fn lower(raw: &Map<String, Value>, schema: &mut Map<String, Value>) {
    for junctor in ["allOf", "anyOf", "oneOf", "not"] {
        schema.remove(junctor);
    }
    let nullable = flag(raw, "nullable");
    let preserving = flag(raw, "x-kubernetes-preserve-unknown-fields");
    if nullable {
        schema.remove("nullable");
        schema.remove("type");
    }
    if nullable || preserving {
        schema.remove("items");
        schema.remove("properties");
    }
    let ty = schema.get("type").and_then(Value::as_str);
    if ty == Some("array") && !schema.contains_key("items") || ty == Some("object") && preserving {
        schema.remove("type");
    }
    // A null field appears absent to these clients.
    let is_nullable = |value: Option<&Value>| {
        value.and_then(Value::as_object).is_some_and(|schema| flag(schema, "nullable"))
    };
    let properties = raw.get("properties").and_then(Value::as_object);
    if is_nullable(raw.get("additionalProperties")) {
        schema.remove("required");
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| {
            let name = name.as_str().unwrap_or_default();
            !is_nullable(properties.and_then(|properties| properties.get(name)))
        });
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

fn set_type_and_metadata(schema: &mut Map<String, Value>, version: OpenApiVersion) {
    let place = match version {
        OpenApiVersion::V2 => "#/definitions/",
        OpenApiVersion::V3 => "#/components/schemas/",
    };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return };
    let text = |description: &str| json!({"type": "string", "description": description});
    properties.insert("apiVersion".to_owned(), text(API_VERSION));
    properties.insert("kind".to_owned(), text("The kind of this object, such as \"Deployment\"."));
    let target = json!({"$ref": format!("{place}{OBJECT_META}")});
    properties.insert(
        "metadata".to_owned(),
        match version {
            OpenApiVersion::V2 => json!({"$ref": target["$ref"], "description": METADATA}),
            // Readers of OpenAPI 3 drop whatever is beside a reference.
            OpenApiVersion::V3 => json!({"allOf": [target], "description": METADATA}),
        },
    );
}

fn require(schema: &mut Map<String, Value>, names: &[&str]) {
    let required = schema.entry("required").or_insert_with(|| json!([]));
    let Value::Array(required) = required else { return };
    for name in names {
        if !required.iter().any(|known| known == name) {
            required.push((*name).into());
        }
    }
}

#[cfg(test)]
mod tests;
