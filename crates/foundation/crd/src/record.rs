//! One declaration per API type: a `record!` is a Rust struct that reads and writes
//! upstream's JSON, and at the same time the structural schema of that JSON.
//!
//! Why not derive the schemas: schemars would add a second derive to some 370 types and
//! then need its references inlined, its nulls removed and its quantities rewritten; a
//! table in text would need the structs a second time. Here a type is data (names, function
//! pointers, literal keywords), so the schema costs hardly any code, and struct and schema
//! cannot drift apart.
//!
//! The rule for presence: a plain type is required, `Option`, `Vec` and `Map` are not. Reading is
//! lenient (a missing or null field is the default): the schema decides which fields are required,
//! and objects that were stored once must stay readable.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// A type that a field may have.
pub trait Field {
    /// Whether the field may be missing.
    const OPTIONAL: bool = false;

    /// The structural schema of the field's value.
    fn schema() -> Value;

    /// Whether the field is left out when it is written.
    fn is_absent(&self) -> bool {
        false
    }
}

/// One field of a record, as its schema needs it.
#[derive(Debug)]
pub struct FieldEntry {
    pub field: &'static str,
    /// The name in JSON, where it is not the field's name in camel case.
    pub wire: Option<&'static str>,
    pub about: &'static str,
    pub optional: bool,
    pub schema: fn() -> Value,
    /// Keywords that are laid over the type's schema, as JSON.
    pub rules: &'static str,
}

/// The schema of a record. The pseudo keyword `required` in a field's rules makes a list or
/// a map required.
pub fn object(about: &str, entries: &[FieldEntry], keywords: &str) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for entry in entries {
        let name = entry.wire.map_or_else(|| camel_case(entry.field), str::to_owned);
        let mut rules = read_rules(entry.rules);
        let demanded = rules.remove("required").is_some();
        if demanded || !entry.optional {
            required.push(Value::from(name.clone()));
        }
        let mut schema = (entry.schema)();
        overlay(&mut schema, rules);
        let about = if entry.about.is_empty() { usual(&name) } else { entry.about };
        describe(&mut schema, about);
        properties.insert(name, schema);
    }
    let mut schema = json!({"type": "object"});
    overlay(&mut schema, read_rules(keywords));
    describe(&mut schema, about);
    if !properties.is_empty() {
        schema["properties"] = properties.into();
    }
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn read_rules(rules: &str) -> Map<String, Value> {
    match rules {
        "" => Map::new(),
        rules => serde_json::from_str(rules).expect("the rules of a record are JSON"),
    }
}

/// Lays keywords over a schema; `items` and `additionalProperties` are laid over their own.
fn overlay(schema: &mut Value, rules: Map<String, Value>) {
    for (keyword, rule) in rules {
        match rule {
            Value::Object(inner) if schema[&keyword].is_object() => {
                overlay(&mut schema[&keyword], inner);
            }
            rule => schema[&keyword] = rule,
        }
    }
}

/// The description of fields that mean the same in every kind.
fn usual(name: &str) -> &'static str {
    match name {
        "apiVersion" => "API group and version of the object.",
        "kind" => "Kind of the object.",
        "metadata" => "Labels, annotations and other metadata.",
        "spec" => "The desired state.",
        "status" => "The observed state.",
        "conditions" => "The latest observations of the state, one per type.",
        "type" => "Type of the condition or object.",
        "reason" => "Cause in one word, for programs.",
        "message" => "Details for people.",
        "lastProbeTime" => "When the condition was last checked.",
        "lastTransitionTime" => "When the status of the condition last changed.",
        "lastUpdateTime" => "When the condition was last updated.",
        _ => "",
    }
}

fn describe(schema: &mut Value, about: &str) {
    if !about.is_empty() {
        schema["description"] = about.trim().into();
    }
}

/// The JSON name of a field, by the same rule as serde's `camelCase`.
fn camel_case(field: &str) -> String {
    let mut words = field.trim_start_matches("r#").split('_');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

/// Reads null as the default: clients write `null` for what they leave empty.
pub fn lenient<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[macro_export]
macro_rules! record {
    ($(
        $(#[doc = $about:literal])*
        $name:ident $(: $keywords:tt)? {
            $(
                $(#[doc = $text:literal])*
                $field:ident $(as $wire:literal)? : $type:ty $(= $rules:tt)?
            ),* $(,)?
        }
    )*) => { $(
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $(
            $(#[doc = $text])*
            $(#[serde(rename = $wire)])?
            #[serde(
                skip_serializing_if = "::crd::record::Field::is_absent",
                deserialize_with = "::crd::record::lenient"
            )]
            pub $field: $type,
        )* }

        impl $crate::record::Field for $name {
            fn schema() -> serde_json::Value {
                const ENTRIES: &[$crate::record::FieldEntry] = &[$(
                    $crate::record::FieldEntry {
                        field: stringify!($field),
                        wire: $crate::record::last(&[$($wire)?]),
                        about: concat!($($text),*),
                        optional: <$type as $crate::record::Field>::OPTIONAL,
                        schema: <$type as $crate::record::Field>::schema,
                        rules: concat!($(stringify!($rules))?),
                    }
                ),*];
                $crate::record::object(
                    concat!($($about),*),
                    ENTRIES,
                    concat!($(stringify!($keywords))?),
                )
            }
        }
    )* };
}

pub use crate::record;

pub const fn last(words: &[&'static str]) -> Option<&'static str> {
    match words {
        [.., word] => Some(word),
        [] => None,
    }
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "records are public")]
mod tests {
    use super::{Field, camel_case};
    use crate::atom::Map;
    use serde_json::json;

    record! {
        /// A thing.
        Thing: {"nullable": true} {
            /// The name
            /// of it.
            name: String,
            r#type: Option<String> = {"enum": ["a", "b"]},
            host_id as "hostID": Option<u32>,
            parts: Vec<String> = {"required": true, "maxItems": 3},
            sizes: Map<i64>,
        }
    }

    #[test]
    fn a_record_is_its_schema() {
        let expected = json!({
            "type": "object",
            "description": "A thing.",
            "nullable": true,
            "required": ["name", "parts"],
            "properties": {
                "name": {"type": "string", "description": "The name of it."},
                "type": {
                    "type": "string",
                    "description": "Type of the condition or object.",
                    "enum": ["a", "b"],
                },
                "hostID": {"type": "integer", "format": "int32"},
                "parts": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                "sizes": {
                    "type": "object",
                    "additionalProperties": {"type": "integer", "format": "int64"},
                },
            },
        });
        assert_eq!(Thing::schema(), expected);
    }

    #[test]
    fn absent_fields_are_left_out_and_nulls_are_absent() {
        let read: Thing = serde_json::from_value(json!({
            "name": "x", "type": null, "parts": null, "sizes": {"a": 1}, "unknown": true,
        }))
        .unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json!({"name": "x", "sizes": {"a": 1}}));
        let empty: Thing = serde_json::from_value(json!({})).unwrap();
        assert_eq!(serde_json::to_value(&empty).unwrap(), json!({"name": ""}));
    }

    #[test]
    fn names_follow_serde() {
        for (field, name) in [("r#type", "type"), ("a_b_c", "aBC"), ("io_threads", "ioThreads")] {
            assert_eq!(camel_case(field), name);
        }
    }
}
