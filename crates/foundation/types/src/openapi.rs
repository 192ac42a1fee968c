//! OpenAPI schemas of the built-in types, under upstream's names and with its
//! `x-kubernetes-*` extensions: version 3 for `/openapi/v3`, version 2 (Swagger) for
//! `/openapi/v2`. Paths and operations are assembled by the server.
//!
//! Documents are built on demand from the table and are not kept here.

mod describe;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::describe::Descriptions;
use crate::Kind;
use crate::shape::default;
use crate::table::{Field, List, Many, MessageSlot, Table, Ty};

/// Which OpenAPI a schema is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenApiVersion {
    /// OpenAPI 3.0: `#/components/schemas/…`, references wrapped in `allOf`.
    V3,
    /// Swagger 2.0: `#/definitions/…`, without defaults.
    V2,
}

impl OpenApiVersion {
    fn reference(self, name: &str) -> Value {
        let base = match self {
            Self::V3 => "#/components/schemas/",
            Self::V2 => "#/definitions/",
        };
        json!({"$ref": format!("{base}{name}")})
    }
}

/// Types of `meta.k8s.io` that operations of every group refer to.
const OPERATIONS: &[&str] = &["APIResourceList", "DeleteOptions", "Status", "WatchEvent"];

/// The schemas of everything in one group and version, with all that they refer to: the
/// `components.schemas` of its version 3 document. `None` if there is no such group.
pub fn components(group: &str, version: &str) -> Option<Map<String, Value>> {
    Table::of(group, version)?;
    Some(schemas(&Kind::all(group, version), &[(group, version)], OpenApiVersion::V3))
}

/// The schemas of some kinds with all that they refer to, by name. Types that operations
/// of any kind refer to (`Status`, `DeleteOptions`, `Patch`, …) and `ObjectMeta` are always there.
///
/// `served` are the groups and versions that the document describes: each of them has its
/// own `DeleteOptions` and `WatchEvent`.
pub fn schemas(
    kinds: &[Kind],
    served: &[(&str, &str)],
    form: OpenApiVersion,
) -> Map<String, Value> {
    let mut writer = OpenApiWriter {
        form,
        served,
        texts: Descriptions::load(),
        todo: Vec::new(),
        done: BTreeMap::new(),
    };
    writer.todo.extend(kinds.iter().map(|kind| Ty::Message(kind.slot())));
    let meta = Table::of("meta.k8s.io", "v1").expect("there is a table of meta types");
    for name in OPERATIONS.iter().chain(&["ObjectMeta", "ListMeta"]) {
        writer.todo.extend(meta.slot(name).map(Ty::Message));
    }
    writer.run();
    let mut schemas: Map<String, Value> = writer.done.into_iter().collect();
    schemas.insert(format!("{}.Patch", meta.package()), json!({
        "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
        "type": "object",
    }));
    schemas
}

impl Kind {
    /// The name of this type in OpenAPI documents: `io.k8s.api.core.v1.ConfigMap`.
    pub fn openapi_name(self) -> String {
        message_name(self.slot())
    }
}

fn message_name(slot: &MessageSlot) -> String {
    format!("{}.{}", slot.table.package(), slot.name)
}

/// The name of a type that is referred to; `None` if it is written in place.
fn name(ty: Ty) -> Option<String> {
    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
    const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
    let (package, name) = match ty {
        Ty::Message(slot) => return Some(message_name(slot)),
        Ty::Time => (META, "Time"),
        Ty::MicroTime => (META, "MicroTime"),
        Ty::Duration => (META, "Duration"),
        Ty::FieldsV1 => (META, "FieldsV1"),
        Ty::Quantity => ("io.k8s.apimachinery.pkg.api.resource", "Quantity"),
        Ty::IntOrString => ("io.k8s.apimachinery.pkg.util.intstr", "IntOrString"),
        Ty::RawExtension => ("io.k8s.apimachinery.pkg.runtime", "RawExtension"),
        Ty::Json => (EXTENSIONS, "JSON"),
        Ty::SchemaOrArray => (EXTENSIONS, "JSONSchemaPropsOrArray"),
        Ty::SchemaOrBool => (EXTENSIONS, "JSONSchemaPropsOrBool"),
        Ty::SchemaOrStrings => (EXTENSIONS, "JSONSchemaPropsOrStringArray"),
        Ty::String | Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double | Ty::Bytes | Ty::Strings => {
            return None;
        }
    };
    Some(format!("{package}.{name}"))
}

/// A document being written.
struct OpenApiWriter<'a> {
    form: OpenApiVersion,
    served: &'a [(&'a str, &'a str)],
    texts: Descriptions,
    todo: Vec<Ty>,
    done: BTreeMap<String, Value>,
}

impl OpenApiWriter<'_> {
    fn run(&mut self) {
        while let Some(ty) = self.todo.pop() {
            let Some(name) = name(ty) else { continue };
            if self.done.contains_key(&name) {
                continue;
            }
            let mut schema = match ty {
                Ty::Message(slot) => self.message(slot, &name),
                special => self.special(special),
            };
            if let Some(text) = self.texts.of_type(&name) {
                schema.insert("description".to_owned(), text.into());
            }
            self.done.insert(name, Value::Object(schema));
        }
    }

    fn message(&mut self, slot: &'static MessageSlot, name: &str) -> Map<String, Value> {
        let message = slot.message();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        let mut properties = Map::new();
        let mut required = Vec::new();
        if message.kind {
            for field in ["apiVersion", "kind"] {
                let mut property = json!({"type": "string"});
                if let Some(text) = self.texts.of_field(name, field) {
                    property["description"] = text.into();
                }
                properties.insert(field.to_owned(), property);
            }
        }
        for (field_name, field) in slot.fields() {
            let text = self.texts.of_field(name, field_name);
            properties.insert((*field_name).to_owned(), self.property(field, text));
            if field.required {
                required.push(Value::from(*field_name));
            }
        }
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            schema.insert("required".to_owned(), Value::Array(required));
        }
        if message.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        if let Some(union) = message.union.and_then(|json| serde_json::from_str(json).ok()) {
            schema.insert("x-kubernetes-unions".to_owned(), union);
        }
        let kinds = self.group_version_kinds(slot);
        if !kinds.is_empty() {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), Value::Array(kinds));
        }
        schema
    }

    fn group_version_kinds(&self, slot: &'static MessageSlot) -> Vec<Value> {
        let gvk = |group: &str, version: &str| json!({"group": group, "kind": slot.name, "version": version});
        let table = slot.table;
        let is_meta = table.group() == "meta.k8s.io";
        match slot.name {
            "DeleteOptions" | "WatchEvent" if is_meta => {
                let others = self.served.iter().filter(|served| **served != ("", "v1"));
                let others = others.map(|(group, version)| gvk(group, version));
                std::iter::once(gvk("", "v1")).chain(others).collect()
            }
            _ if !slot.message().kind => Vec::new(),
            _ if is_meta => vec![gvk("", "v1")],
            _ => vec![gvk(table.group(), table.version())],
        }
    }

    fn property(&mut self, field: &'static Field, description: Option<String>) -> Value {
        let mut schema = Map::new();
        let item = self.inline(field.ty);
        match field.many {
            Many::List => {
                schema.insert("type".to_owned(), "array".into());
                schema.insert("items".to_owned(), item);
            }
            Many::Map => {
                schema.insert("type".to_owned(), "object".into());
                schema.insert("additionalProperties".to_owned(), item);
            }
            Many::One => {
                if let Value::Object(item) = item {
                    schema = item;
                }
            }
        }
        if let Some(text) = description {
            schema.insert("description".to_owned(), text.into());
        }
        if self.form == OpenApiVersion::V3
            && let Some(default) = published_default(field)
        {
            schema.insert("default".to_owned(), default);
        }
        extensions(field, &mut schema);
        // In version 3 nothing may be beside a reference.
        if self.form == OpenApiVersion::V3
            && schema.len() > 1
            && let Some(reference) = schema.remove("$ref")
        {
            schema.insert("allOf".to_owned(), json!([{"$ref": reference}]));
        }
        Value::Object(schema)
    }

    /// A type where it is used: a reference, or the schema of a scalar.
    fn inline(&mut self, ty: Ty) -> Value {
        if let Some(name) = name(ty) {
            self.todo.push(ty);
            return self.form.reference(&name);
        }
        match ty {
            Ty::Int32 => json!({"type": "integer", "format": "int32"}),
            Ty::Int64 => json!({"type": "integer", "format": "int64"}),
            Ty::Bool => json!({"type": "boolean"}),
            Ty::Double => json!({"type": "number", "format": "double"}),
            Ty::Bytes => json!({"type": "string", "format": "byte"}),
            Ty::Strings => json!({"type": "array", "items": {"type": "string"}}),
            _ => json!({"type": "string"}),
        }
    }

    fn special(&self, ty: Ty) -> Map<String, Value> {
        let schema = match (ty, self.form) {
            (Ty::Time | Ty::MicroTime, _) => json!({"type": "string", "format": "date-time"}),
            (Ty::Quantity, OpenApiVersion::V3) => {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
            }
            (Ty::IntOrString, OpenApiVersion::V3) => json!({
                "format": "int-or-string",
                "oneOf": [{"type": "integer"}, {"type": "string"}],
            }),
            (Ty::IntOrString, OpenApiVersion::V2) => {
                json!({"type": "string", "format": "int-or-string"})
            }
            (Ty::Quantity | Ty::Duration, _) => json!({"type": "string"}),
            (Ty::RawExtension | Ty::FieldsV1, _) => json!({"type": "object"}),
            // Anything goes: no type.
            _ => json!({}),
        };
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

/// Declared defaults, and the zeros that Go always writes.
fn published_default(field: &Field) -> Option<Value> {
    match field.ty {
        Ty::Message(_) if field.is_value() => Some(json!({})),
        _ => default(field),
    }
}

fn extensions(field: &Field, schema: &mut Map<String, Value>) {
    let mut set = |name: &str, value: Value| schema.insert(name.to_owned(), value);
    match field.list {
        None => {}
        Some(List::Atomic) => drop(set("x-kubernetes-list-type", "atomic".into())),
        Some(List::Set) => drop(set("x-kubernetes-list-type", "set".into())),
        Some(List::Map(keys)) => {
            set("x-kubernetes-list-type", "map".into());
            set("x-kubernetes-list-map-keys", keys.split(',').collect());
        }
    }
    if let Some(map) = field.map {
        set("x-kubernetes-map-type", map.into());
    }
    if let Some(patch) = field.patch {
        set("x-kubernetes-patch-strategy", patch.strategy.into());
        if let Some(key) = patch.key {
            set("x-kubernetes-patch-merge-key", key.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_closed_under_its_references() {
        for table in Table::all() {
            for form in [OpenApiVersion::V3, OpenApiVersion::V2] {
                let kinds = Kind::all(table.group(), table.version());
                let schemas = schemas(&kinds, &[(table.group(), table.version())], form);
                for (name, schema) in &schemas {
                    check_references(name, schema, &schemas);
                }
            }
        }
    }

    fn check_references(at: &str, value: &Value, schemas: &Map<String, Value>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    let name = reference.rsplit('/').next().unwrap();
                    assert!(schemas.contains_key(name), "{at} refers to {name}");
                }
                map.values().for_each(|value| check_references(at, value, schemas));
            }
            Value::Array(items) => {
                items.iter().for_each(|value| check_references(at, value, schemas));
            }
            _ => {}
        }
    }

    #[test]
    fn properties_carry_what_clients_merge_and_explain_with() {
        let core = components("", "v1").unwrap();
        let spec = &core["io.k8s.api.core.v1.PodSpec"];
        let containers = &spec["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(containers["x-kubernetes-list-type"], "map");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(
            containers["items"],
            json!({"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"})
        );
        assert!(containers["description"].as_str().unwrap().contains("containers"));
        assert_eq!(spec["required"], json!(["containers"]));
        let config_map = &core["io.k8s.api.core.v1.ConfigMap"];
        assert_eq!(
            config_map["x-kubernetes-group-version-kind"],
            json!([{"group": "", "kind": "ConfigMap", "version": "v1"}])
        );
        assert_eq!(config_map["properties"]["metadata"]["default"], json!({}));
        let port = &core["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"];
        assert_eq!(port["default"], "TCP");
    }

    #[test]
    fn most_types_and_fields_are_described() {
        let (mut fields, mut described) = (0, 0);
        for schema in components("apps", "v1").unwrap().values() {
            for property in schema["properties"].as_object().into_iter().flat_map(Map::values) {
                fields += 1;
                described += usize::from(property.get("description").is_some());
            }
        }
        assert!(described * 100 > fields * 95, "{described} of {fields}");
    }
}
