//! Schemas of custom kinds as they are published: the author's own, with the fields that
//! every object has, and for version 2 without what kubectl cannot read there.

use serde_json::{Map, Value, json};
use types::openapi::Form;

use super::resource::{Described, Source, gvk};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const API_VERSION: &str = "The version of the schema that this object is written in.";
const KIND: &str = "The kind of this object.";

/// Adds the schemas of a custom kind and of its list.
pub(super) fn schemas(resource: &Described<'_>, form: Form, into: &mut Map<String, Value>) {
    let Source::Custom(raw) = &resource.source else { return };
    into.insert(resource.schema(), object(resource, raw.as_ref(), form));
    into.insert(resource.list_schema(), list(resource, form));
}

fn object(resource: &Described<'_>, raw: Option<&Value>, form: Form) -> Value {
    let mut schema = match raw {
        None => json!({"type": "object"}),
        // kubectl would take the properties for the only ones that are allowed.
        Some(raw) if form == Form::V2 && is_set(raw, "x-kubernetes-preserve-unknown-fields") => {
            json!({"type": "object"})
        }
        Some(raw) => {
            let mut schema = raw.clone();
            if form == Form::V2 {
                lower(&mut schema);
            }
            embed(&mut schema, form);
            identify(&mut schema, "ObjectMeta", "Standard object's metadata.", form);
            schema
        }
    };
    schema["x-kubernetes-group-version-kind"] = json!([resource.gvk()]);
    schema
}

fn list(resource: &Described<'_>, form: Form) -> Value {
    let (kind, list_kind) = (resource.kind, resource.list_kind);
    let mut schema = json!({
        "type": "object",
        "description": format!("{list_kind} is a list of {kind}"),
        "required": ["items"],
        "properties": {"items": {
            "type": "array",
            "description": format!("List of {}.", resource.plural),
            "items": {"$ref": reference(&resource.schema(), form)},
        }},
        "x-kubernetes-group-version-kind": [gvk(resource.group, resource.version, list_kind)],
    });
    identify(&mut schema, "ListMeta", "Standard list metadata.", form);
    schema
}

/// Declares apiVersion, kind and metadata.
fn identify(schema: &mut Value, metadata: &str, text: &str, form: Form) {
    let target = reference(&format!("{META}.{metadata}"), form);
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = match form {
        Form::V3 => json!({"allOf": [{"$ref": target}], "description": text}),
        Form::V2 => json!({"$ref": target, "description": text}),
    };
}

/// Gives embedded resources the fields of an object.
fn embed(schema: &mut Value, form: Form) {
    each_child(schema, &mut |child| embed(child, form));
    let open = form == Form::V2 && is_set(schema, "x-kubernetes-preserve-unknown-fields");
    if open || !is_set(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    identify(schema, "ObjectMeta", "Standard object's metadata.", form);
    let mut required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known == name) {
            required.push(name.into());
        }
    }
    schema["required"] = Value::Array(required);
}

/// Drops what version 2 lacks, and what kubectl of old misunderstands.
fn lower(schema: &mut Value) {
    if let Value::Object(map) = schema {
        let nullable: Vec<String> = map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter(|(_, child)| is_set(child, "nullable"))
            .map(|(name, _)| name.clone())
            .collect();
        if let Some(Value::Array(required)) = map.get_mut("required") {
            required.retain(|name| !nullable.iter().any(|known| name == known.as_str()));
        }
        for name in ["allOf", "oneOf", "anyOf", "not", "default", "x-kubernetes-validations"] {
            map.remove(name);
        }
        let untyped = map.remove("nullable") == Some(Value::Bool(true));
        let open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        if untyped || open {
            map.remove("items");
            map.remove("properties");
        }
        let ty = map.get("type").and_then(Value::as_str).unwrap_or_default();
        let loose = ty == "array" && !map.contains_key("items") || ty == "object" && open;
        if untyped || loose {
            map.remove("type");
        }
    }
    each_child(schema, &mut lower);
}

fn each_child(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(&mut *visit);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(child) = schema.get_mut(name).filter(|child| child.is_object()) {
            visit(child);
        }
    }
}

fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn reference(name: &str, form: Form) -> String {
    match form {
        Form::V3 => format!("#/components/schemas/{name}"),
        Form::V2 => format!("#/definitions/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(raw: Value, form: Form) -> Value {
        let resource = Described {
            group: "example.com",
            version: "v1",
            kind: "Thing",
            list_kind: "ThingList",
            plural: "things",
            namespaced: true,
            verbs: &["get"],
            subresources: Vec::new(),
            source: Source::Custom(Some(raw)),
        };
        let mut schemas = Map::new();
        super::schemas(&resource, form, &mut schemas);
        schemas["com.example.v1.Thing"].clone()
    }

    #[test]
    fn version_three_keeps_what_the_author_wrote() {
        let raw = json!({"type": "object", "properties": {"spec": {
            "type": "object", "nullable": true, "oneOf": [{"required": ["a"]}],
            "properties": {"a": {"type": "string", "default": "x"}},
        }}});
        let schema = published(raw.clone(), Form::V3);
        assert_eq!(schema["properties"]["spec"], raw["properties"]["spec"]);
        assert_eq!(
            schema["properties"]["metadata"]["allOf"],
            json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
        );
        assert_eq!(
            schema["x-kubernetes-group-version-kind"],
            json!([{"group": "example.com", "version": "v1", "kind": "Thing"}])
        );
    }

    #[test]
    fn version_two_drops_what_it_cannot_say() {
        let raw = json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"a": {"type": "string"}}},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "list": {"type": "array", "items": {"type": "string", "default": "x"}},
        }});
        let schema = published(raw, Form::V2);
        let properties = &schema["properties"];
        assert_eq!(properties["spec"], json!({}));
        assert_eq!(properties["free"], json!({"x-kubernetes-preserve-unknown-fields": true}));
        assert_eq!(properties["port"], json!({"x-kubernetes-int-or-string": true}));
        assert_eq!(properties["list"], json!({"type": "array", "items": {"type": "string"}}));
        assert_eq!(schema["required"], json!([]));
    }

    #[test]
    fn a_kind_that_keeps_everything_is_just_an_object_in_version_two() {
        let raw = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"spec": {"type": "object"}}});
        let schema = published(raw.clone(), Form::V2);
        assert!(schema.get("properties").is_none());
        assert!(published(raw, Form::V3)["properties"].get("spec").is_some());
    }

    #[test]
    fn embedded_resources_have_the_fields_of_an_object() {
        let raw = json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true,
        }}});
        let template = &published(raw, Form::V3)["properties"]["template"];
        assert_eq!(template["required"], json!(["kind", "apiVersion"]));
        assert!(template["properties"]["metadata"].is_object());
    }
}
