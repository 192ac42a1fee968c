//! Schemas of custom kinds and their lists, by the names that documents use. The translation of
//! the author's own schema is decided in crate `schema`.

use serde_json::{Map, Value, json};
use types::openapi::OpenApiVersion;

use super::resource::{Described, SchemaSource, gvk};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const API_VERSION: &str = "APIVersion defines the version that this object is written in.";
const KIND: &str = "The kind of this object.";

/// Adds the schemas of a custom kind and of its list.
pub(super) fn schemas(
    resource: &Described<'_>,
    form: OpenApiVersion,
    into: &mut Map<String, Value>,
) {
    let SchemaSource::Custom(raw) = &resource.source else { return };
    into.insert(resource.schema(), object(resource, raw.as_ref(), form));
    into.insert(resource.list_schema(), list(resource, form));
}

fn object(resource: &Described<'_>, raw: Option<&Value>, form: OpenApiVersion) -> Value {
    let raw = raw.unwrap_or(&Value::Null);
    let mut schema = match form {
        OpenApiVersion::V3 => schema::to_openapi_v3(raw),
        OpenApiVersion::V2 => schema::to_openapi_v2(raw),
    };
    schema["x-kubernetes-group-version-kind"] = json!([resource.gvk()]);
    schema
}

fn list(resource: &Described<'_>, form: OpenApiVersion) -> Value {
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
fn identify(schema: &mut Value, metadata: &str, text: &str, form: OpenApiVersion) {
    let target = reference(&format!("{META}.{metadata}"), form);
    let properties = &mut schema["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = match form {
        OpenApiVersion::V3 => json!({"allOf": [{"$ref": target}], "description": text}),
        OpenApiVersion::V2 => json!({"$ref": target, "description": text}),
    };
}

fn reference(name: &str, form: OpenApiVersion) -> String {
    match form {
        OpenApiVersion::V3 => format!("#/components/schemas/{name}"),
        OpenApiVersion::V2 => format!("#/definitions/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(raw: Value, form: OpenApiVersion) -> Value {
        let resource = Described {
            group: "example.com",
            version: "v1",
            kind: "Thing",
            list_kind: "ThingList",
            plural: "things",
            namespaced: true,
            verbs: &["get"],
            subresources: Vec::new(),
            source: SchemaSource::Custom(Some(raw)),
        };
        let mut schemas = Map::new();
        super::schemas(&resource, form, &mut schemas);
        schemas["com.example.v1.Thing"].clone()
    }

    #[test]
    fn a_custom_kind_is_published_with_what_every_object_has() {
        let raw = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
        for (form, place) in
            [(OpenApiVersion::V3, "#/components/schemas/"), (OpenApiVersion::V2, "#/definitions/")]
        {
            let schema = published(raw.clone(), form);
            assert_eq!(schema["properties"]["spec"], json!({"type": "object"}));
            let target = format!("{place}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
            assert!(schema["properties"]["metadata"].to_string().contains(&target));
            assert_eq!(
                schema["x-kubernetes-group-version-kind"],
                json!([{"group": "example.com", "version": "v1", "kind": "Thing"}])
            );
        }
    }
}
