//! Schemas of built-in Kubernetes types in the structural form that custom resources need:
//! references resolved in place, without defaults and the marks of other consumers.

mod description;

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
    structural(name, raw.expect("pods or claims refer to every embedded type"), known)
}

fn known() -> &'static Map<String, Value> {
    static KNOWN: OnceLock<Map<String, Value>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let kinds: Vec<Kind> = ROOTS.iter().filter_map(|kind| Kind::find("", "v1", kind)).collect();
        schemas(&kinds, &[], OpenApiVersion::V2)
    })
}

/// `kind` is the type that `raw` belongs to.
fn structural(kind: &str, raw: &Value, known: &Map<String, Value>) -> Value {
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
            _ => structural(name.rsplit('.').next().unwrap_or_default(), &known[name], known),
        };
    }
    let mut schema = Map::new();
    for (keyword, value) in raw.as_object().into_iter().flatten() {
        let value = match keyword.as_str() {
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                let described = |(name, field): (&String, &Value)| {
                    let mut schema = structural(kind, field, known);
                    let about = description::of(kind, name);
                    if !about.is_empty() {
                        schema["description"] = about.into();
                    }
                    (name.clone(), schema)
                };
                fields.map(described).collect()
            }
            "items" | "additionalProperties" => structural(kind, value, known),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of fields without a description.
    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            undescribed(field, &path, found);
        }
        for inner in ["items", "additionalProperties"].iter().filter_map(|name| schema.get(name)) {
            undescribed(inner, path, found);
        }
    }

    #[test]
    fn every_field_of_an_embedded_type_is_described() {
        let mut found = Vec::new();
        for name in [
            "Affinity",
            "DownwardAPIVolumeFile",
            "ExecAction",
            "HTTPGetAction",
            "NodeSelectorRequirement",
            "PersistentVolumeClaimSpec",
            "PersistentVolumeClaimVolumeSource",
            "PodDNSConfig",
            "ResourceRequirements",
            "TCPSocketAction",
            "Toleration",
            "TopologySpreadConstraint",
            "VolumeResourceRequirements",
        ] {
            undescribed(&schema(name), name, &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
    }
}
