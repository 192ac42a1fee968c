//! Schemas of built-in Kubernetes types in the structural form that custom resources need:
//! references resolved in place, without texts, defaults and the marks of other consumers.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use types::Kind;
use types::openapi::{OpenApiVersion, schemas};

/// The kinds whose schemas hold all that is embedded.
const ROOTS: &[&str] = &["Pod", "PersistentVolumeClaim"];

/// The schema of a type of core/v1.
pub(crate) fn schema(name: &str) -> Value {
    let known = known();
    let raw = known.get(&format!("io.k8s.api.core.v1.{name}"));
    structural(raw.expect("pods or claims refer to every embedded type"), known)
}

fn known() -> &'static Map<String, Value> {
    static KNOWN: OnceLock<Map<String, Value>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let kinds: Vec<Kind> = ROOTS.iter().filter_map(|kind| Kind::find("", "v1", kind)).collect();
        schemas(&kinds, &[], OpenApiVersion::V2)
    })
}

fn structural(raw: &Value, known: &Map<String, Value>) -> Value {
    if let Some(reference) = raw["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return match name {
            "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
                <crate::atom::Quantity as crate::record::Field>::schema()
            }
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => json!({
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": true,
            }),
            _ => structural(&known[name], known),
        };
    }
    let mut schema = Map::new();
    for (keyword, value) in raw.as_object().into_iter().flatten() {
        let value = match keyword.as_str() {
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                fields.map(|(name, field)| (name.clone(), structural(field, known))).collect()
            }
            "items" | "additionalProperties" => structural(value, known),
            "type"
            | "format"
            | "required"
            | "x-kubernetes-list-type"
            | "x-kubernetes-list-map-keys"
            | "x-kubernetes-map-type" => value.clone(),
            _ => continue,
        };
        schema.insert(keyword.clone(), value);
    }
    Value::Object(schema)
}
