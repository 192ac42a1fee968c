//! Schemas of the built-in types: the table as a tree of [`Node`]s with shared subtrees.
//!
//! Only the facts that merging needs are here: types, list and map types, keys, patch strategies,
//! defaults. The required fields of OpenAPI are not: upstream validates built-in objects by code
//! instead of by their schema, and so do we (crate `kinds`).

use std::sync::{Arc, LazyLock};

use schema::{Additional, ListType, MapType, PatchStrategy, Schema, SchemaNode, Type, Validation};

use crate::table::{Field, List, Many, MessageSlot, Ty};

/// The one type that contains itself; values below it are merged as plain JSON.
const RECURSIVE: &str = "JSONSchemaProps";

/// The schema of a message, built on first use.
pub(crate) fn schema(slot: &'static MessageSlot) -> &'static Schema {
    slot.schema(|| {
        if slot.name == RECURSIVE {
            return ANYTHING.clone();
        }
        let mut properties: Vec<(Box<str>, Schema)> =
            slot.fields().iter().map(|(name, field)| ((*name).into(), of_field(field))).collect();
        if slot.message().kind {
            for name in ["apiVersion", "kind"] {
                properties.push((name.into(), STRING.clone()));
            }
            properties.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        Arc::new(SchemaNode {
            ty: Type::Object,
            properties: properties.into(),
            map: if slot.message().atomic { MapType::Atomic } else { MapType::Granular },
            ..SchemaNode::default()
        })
    })
}

fn of_field(field: &Field) -> Schema {
    let item = of_type(field.ty);
    let patch = field.patch.map(|patch| {
        Box::new(PatchStrategy {
            merge: patch.strategy.split(',').any(|word| word == "merge"),
            retain_keys: patch.strategy.split(',').any(|word| word == "retainKeys"),
            key: patch.key.map(Into::into),
        })
    });
    let map = match field.map {
        Some("atomic") => MapType::Atomic,
        _ => MapType::Granular,
    };
    match field.many {
        Many::List => Arc::new(SchemaNode {
            ty: Type::Array,
            items: Some(item),
            list: list_type(field.list),
            patch,
            ..SchemaNode::default()
        }),
        Many::Map => Arc::new(SchemaNode {
            ty: Type::Object,
            additional: Additional::Of(item),
            map,
            patch,
            ..SchemaNode::default()
        }),
        Many::One => {
            let default = default(field);
            if patch.is_none() && default.is_none() && field.map.is_none() {
                return item;
            }
            let map = if field.map.is_some() { map } else { item.map };
            Arc::new(SchemaNode {
                patch,
                default: default.map(Box::new),
                map,
                ..SchemaNode::clone(&item)
            })
        }
    }
}

fn list_type(list: Option<List>) -> ListType {
    match list {
        None | Some(List::Atomic) => ListType::Atomic,
        Some(List::Set) => ListType::Set,
        Some(List::Map(keys)) => ListType::Map(keys.split(',').map(Into::into).collect()),
    }
}

/// Declared defaults, and the zero of scalars that are always there. That a struct
/// defaults to an empty one is left to normalisation.
pub(crate) fn default(field: &Field) -> Option<serde_json::Value> {
    if let Some(json) = field.default {
        return Some(serde_json::from_str(json).expect("the type table is well formed"));
    }
    let scalar = matches!(field.ty, Ty::String | Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double);
    (field.is_value() && scalar && !field.omit).then(|| crate::zero::zero(field.ty))
}

fn of_type(ty: Ty) -> Schema {
    match ty {
        Ty::Message(slot) => schema(slot).clone(),
        Ty::String => STRING.clone(),
        Ty::Bool => BOOLEAN.clone(),
        Ty::Int32 => INT32.clone(),
        Ty::Int64 => INT64.clone(),
        Ty::Double => DOUBLE.clone(),
        Ty::Bytes => BYTES.clone(),
        Ty::Time => TIME.clone(),
        Ty::MicroTime => MICRO_TIME.clone(),
        Ty::Duration => DURATION.clone(),
        Ty::Quantity => QUANTITY.clone(),
        Ty::IntOrString => INT_OR_STRING.clone(),
        Ty::Strings => STRINGS.clone(),
        // An object of another schema: applied as a whole.
        Ty::RawExtension => RAW.clone(),
        Ty::FieldsV1 | Ty::Json | Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => {
            ANYTHING.clone()
        }
    }
}

// Most fields are scalars: one node of each sort serves them all.
static ANYTHING: LazyLock<Schema> = LazyLock::new(SchemaNode::anything);
static RAW: LazyLock<Schema> = LazyLock::new(|| {
    Arc::new(SchemaNode { preserve_unknown: true, map: MapType::Atomic, ..SchemaNode::default() })
});
static STRING: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String, None));
static BOOLEAN: LazyLock<Schema> = LazyLock::new(|| scalar(Type::Boolean, None));
static INT32: LazyLock<Schema> = LazyLock::new(|| scalar(Type::Integer, Some("int32")));
static INT64: LazyLock<Schema> = LazyLock::new(|| scalar(Type::Integer, Some("int64")));
static DOUBLE: LazyLock<Schema> = LazyLock::new(|| scalar(Type::Number, Some("double")));
static BYTES: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String, Some("byte")));
static TIME: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String, Some("date-time")));
static MICRO_TIME: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String, Some("micro-time")));
static DURATION: LazyLock<Schema> = LazyLock::new(|| scalar(Type::String, Some("duration")));
/// A string or a number: upstream accepts both.
static QUANTITY: LazyLock<Schema> = LazyLock::new(|| scalar(Type::Any, Some("quantity")));
static INT_OR_STRING: LazyLock<Schema> = LazyLock::new(|| scalar(Type::IntOrString, None));
static STRINGS: LazyLock<Schema> = LazyLock::new(|| {
    Arc::new(SchemaNode { ty: Type::Array, items: Some(STRING.clone()), ..SchemaNode::default() })
});

fn scalar(ty: Type, format: Option<&str>) -> Schema {
    let validation = format.map(|format| {
        Box::new(Validation { format: Some(format.into()), ..Validation::default() })
    });
    Arc::new(SchemaNode { ty, validation, ..SchemaNode::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn at(kind: &str, path: &str) -> Schema {
        let group = if kind == "Deployment" { "apps" } else { "" };
        let mut node = schema(table::find(group, "v1", kind).unwrap()).clone();
        for name in path.split('.') {
            let next = match name {
                "[]" => node.items.clone(),
                _ => node.field(name).cloned(),
            };
            node = next.unwrap_or_else(|| panic!("{kind} has no {path}"));
        }
        node
    }

    #[test]
    fn metadata_merges_as_upstream_merges_it() {
        let keys = |path| match &at("ConfigMap", path).list {
            ListType::Map(keys) => keys.iter().map(ToString::to_string).collect(),
            other => vec![format!("{other:?}")],
        };
        assert_eq!(keys("metadata.ownerReferences"), ["uid"]);
        assert_eq!(keys("metadata.finalizers"), ["Set"]);
        assert_eq!(keys("metadata.managedFields"), ["Atomic"]);
        let labels = at("ConfigMap", "metadata.labels");
        assert_eq!((labels.ty, labels.map), (Type::Object, MapType::Granular));
        let patch = at("ConfigMap", "metadata.ownerReferences").patch.clone().unwrap();
        assert_eq!(patch.key.as_deref(), Some("uid"));
        assert!(patch.merge);
    }

    #[test]
    fn lists_of_a_pod_template_have_their_keys_and_defaults() {
        let ports = at("Deployment", "spec.template.spec.containers.[].ports");
        let ListType::Map(keys) = &ports.list else { panic!("{:?}", ports.list) };
        assert_eq!(**keys, ["containerPort".into(), "protocol".into()]);
        let protocol = at("Deployment", "spec.template.spec.containers.[].ports.[].protocol");
        assert_eq!(protocol.default.as_deref(), Some(&"TCP".into()));
        assert_eq!(at("Deployment", "spec.selector").map, MapType::Atomic);
        assert!(at("Deployment", "spec.strategy").patch.as_ref().unwrap().retain_keys);
        let volume = at("Deployment", "spec.template.spec.volumes.[]");
        assert!(volume.property("configMap").is_some(), "sources are inlined");
    }

    #[test]
    fn special_types_are_scalars() {
        let format = |kind, path| at(kind, path).validation.as_ref().unwrap().format.clone();
        let requests = "spec.resources.requests.storage";
        assert_eq!(format("PersistentVolumeClaim", requests).as_deref(), Some("quantity"));
        assert_eq!(format("Secret", "data.key").as_deref(), Some("byte"));
        assert_eq!(at("Service", "spec.ports.[].targetPort").ty, Type::IntOrString);
    }

    #[test]
    fn subtrees_are_shared() {
        let one = at("Deployment", "spec.template.spec.affinity");
        let other = at("Pod", "spec.affinity");
        assert!(Arc::ptr_eq(&one, &other));
    }
}
