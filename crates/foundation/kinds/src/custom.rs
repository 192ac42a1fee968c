//! Columns and selectable fields of custom kinds, from what their definition says.

use jiff::Timestamp;
use schema::{FieldError, Path};
use serde_json::{Number, Value};

use crate::jsonpath::JsonPath;
use crate::{check, duration, json};

/// A column of a custom kind, ready to be filled.
#[derive(Debug, Clone)]
pub struct CustomColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub ty: String,
    pub format: String,
    pub priority: i64,
    pub description: String,
    path: JsonPath,
}

impl CustomColumn {
    /// Reads one entry of `additionalPrinterColumns`; none if its path makes no sense.
    pub fn new(definition: &Value) -> Option<Self> {
        let text = json::text(definition, "/jsonPath");
        let description = match json::text(definition, "/description") {
            "" => format!("Custom resource definition column (in JSONPath format): {text}"),
            given => given.to_owned(),
        };
        Some(Self {
            name: json::text(definition, "/name").to_owned(),
            ty: json::text(definition, "/type").to_owned(),
            format: json::text(definition, "/format").to_owned(),
            priority: json::int(definition, "/priority"),
            description,
            path: JsonPath::parse(text).ok()?,
        })
    }

    /// The cell for one object; null where there is nothing to show.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match self.path.eval(object) {
            Ok(found) => found.first().map_or(Value::Null, |value| cell(&self.ty, value, now)),
            Err(_) => Value::Null,
        }
    }
}

/// A found value as a cell of type `ty`.
fn cell(ty: &str, value: &Value, now: Timestamp) -> Value {
    match (ty, value) {
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(number)) => integer(number),
        ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, Value::from),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) if text.is_empty() || text == "null" => "<unknown>".into(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => duration::age(text, now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

fn integer(number: &Number) -> Value {
    if number.is_i64() {
        return Value::Number(number.clone());
    }
    // Fractions are truncated; values that do not fit an `i64` are null.
    let text = format!("{:.0}", number.as_f64().map_or(f64::NAN, f64::trunc));
    text.parse::<i64>().map_or(Value::Null, Value::from)
}

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const SELECTABLE_MAX: usize = 8;

/// Judges one entry of `additionalPrinterColumns`.
pub(crate) fn validate_column(column: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    check::required(column, "name", path, errors);
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    match json::text(column, "/type") {
        "" => errors.push(FieldError::required(path.field("type"), types)),
        ty if !COLUMN_TYPES.contains(&ty) => {
            errors.push(FieldError::invalid(path.field("type"), ty, types));
        }
        _ => {}
    }
    let format = json::text(column, "/format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(path.field("format"), format, detail));
    }
    match json::text(column, "/jsonPath") {
        "" => errors.push(FieldError::required(path.field("JSONPath"), "")),
        text => {
            validate_simple_path(text, &path.field("JSONPath"), errors);
        }
    }
}

/// Demands a path that begins with a dot; returns whether it does.
pub(crate) fn validate_simple_path(
    text: &str,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) -> bool {
    if !text.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(path, text, detail));
    }
    text.starts_with('.')
}

/// Judges `selectableFields` of a version against its schema.
pub(crate) fn validate_selectable(version: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let fields = json::list(version, "/selectableFields");
    if fields.is_empty() {
        return;
    }
    let list = path.field("selectableFields");
    let Some(schema) = json::at(version, "/schema/openAPIV3Schema") else {
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        errors.push(FieldError::invalid(list, "", detail));
        return;
    };
    let mut seen: Vec<&str> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let entry = list.index(index);
        let at = entry.field("jsonPath");
        let text = json::text(field, "/jsonPath");
        let mut refuse = |detail: &str| errors.push(FieldError::invalid(at, text, detail));
        if text.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        match leaf(schema, text) {
            Err(problem) => {
                refuse(&format!("is an invalid path: {problem}"));
                continue;
            }
            Ok(ty) => {
                if text.starts_with(".metadata") {
                    refuse("must not point to fields in metadata");
                }
                if !["string", "boolean", "integer"].contains(&ty) {
                    refuse(
                        "must point to a field of type string, boolean or integer. Enum string \
                         fields and strings with formats are allowed.",
                    );
                }
            }
        }
        if seen.contains(&text) {
            errors.push(FieldError::duplicate(at, text));
        } else {
            seen.push(text);
        }
    }
    if seen.len() > SELECTABLE_MAX {
        errors.push(FieldError::too_many(list, seen.len(), SELECTABLE_MAX));
    }
}

/// The type of the field that a dotted path means.
fn leaf<'a>(schema: &'a Value, path: &str) -> Result<&'a str, &'static str> {
    let Some(path) = path.strip_prefix('.') else {
        return Err("expected [ or . but got: something else");
    };
    let mut at = schema;
    for name in path.split('.') {
        if name.contains('[') {
            return Err("array notation is not allowed");
        }
        let property = at.get("properties").and_then(|properties| properties.get(name));
        at = property.ok_or("does not refer to a valid field")?;
    }
    Ok(at.get("type").and_then(Value::as_str).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_take_the_type_of_their_column() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let object = json!({
            "int": 3, "float": 3.7, "text": "x", "list": [1, "a"], "yes": true, "nil": null,
            "when": "2026-01-01T00:00:00Z",
        });
        for (ty, path, want) in [
            ("integer", ".int", json!(3)),
            ("integer", ".float", json!(3)),
            ("integer", ".text", json!(null)),
            ("number", ".int", json!(3.0)),
            ("string", ".int", json!("3")),
            ("string", ".list", json!(r#"[1,"a"]"#)),
            ("string", ".yes", json!("true")),
            ("string", ".nil", json!("<no value>")),
            ("string", ".missing", json!(null)),
            ("boolean", ".yes", json!(true)),
            ("boolean", ".text", json!(null)),
            ("date", ".when", json!("24h")),
            ("date", ".text", json!("<invalid>")),
            ("integer", ".int[0]", json!(null)),
        ] {
            let column = CustomColumn::new(&json!({"type": ty, "jsonPath": path})).unwrap();
            assert_eq!(column.cell(&object, now), want, "{ty} {path}");
        }
    }
}
