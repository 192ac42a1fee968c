//! Judging the schemas inside a definition; the rest of it is judged in crate `kinds`.

use schema::{FieldError, Path};
use serde_json::Value;

const SCHEMA: &str = "openAPIV3Schema";

/// Errors in any version's schema; versions whose schema did not change since `old` were
/// judged when they were written, and a stricter server must not lock their owner out.
pub(crate) fn validate(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let versions = definition["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    // Upstream keeps a schema that all versions share in one place, which has no other name.
    let shared = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    let judged = if shared { versions.get(..1).unwrap_or_default() } else { versions };
    let mut errors = Vec::new();
    for (index, version) in judged.iter().enumerate() {
        let root = Path::Root;
        let spec = root.field("spec");
        let (common, versions) = (spec.field("validation"), spec.field("versions"));
        let version_path = versions.index(index);
        let own = version_path.field("schema");
        let path = if shared { common.field(SCHEMA) } else { own.field(SCHEMA) };
        let raw = &version["schema"]["openAPIV3Schema"];
        if raw.is_null() {
            errors.push(FieldError::required(own.field(SCHEMA), "schemas are required"));
            continue;
        }
        if old.is_some_and(|old| unchanged(old, version)) {
            continue;
        }
        errors.extend(schema::check_structural(raw, &path));
        if version["subresources"]["status"].is_object() {
            errors.extend(schema::check_status_root(raw, &path));
        }
    }
    errors
}

fn unchanged(old: &Value, version: &Value) -> bool {
    let before = old["spec"]["versions"].as_array();
    before.into_iter().flatten().any(|known| {
        known["name"] == version["name"]
            && known["schema"] == version["schema"]
            && known["selectableFields"] == version["selectableFields"]
    })
}

/// Unknown keywords of the schemas, as paths; unknown fields elsewhere are found
/// by the type table.
pub(crate) fn unknown_keywords(definition: &Value) -> Vec<String> {
    let versions = definition["spec"]["versions"].as_array();
    let mut unknown = Vec::new();
    for (index, version) in versions.into_iter().flatten().enumerate() {
        let raw = &version["schema"]["openAPIV3Schema"];
        unknown.extend(
            schema::unknown_fields(raw)
                .into_iter()
                .map(|path| format!("spec.versions[{index}].schema.openAPIV3Schema.{path}")),
        );
    }
    unknown
}
