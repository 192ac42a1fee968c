//! A schema's JSON, seen as Go sees the decoded struct: `null`, `false`, empty texts and
//! empty collections are the same as absent.

use serde_json::{Map, Value};

use crate::node::Schema;

#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    map: Option<&'a Map<String, Value>>,
}

/// `additionalProperties`
pub(super) enum Additional<'a> {
    Allowed(bool),
    Schema(Raw<'a>),
}

impl<'a> Raw<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self { map: value.as_object() }
    }

    /// The parsed form, for the checks that need one. Its errors are reported elsewhere.
    pub(super) fn schema(self) -> Option<Schema> {
        crate::parse(&Value::Object(self.map?.clone())).ok()
    }

    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.map?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn flag(self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn list(self, name: &str) -> &'a [Value] {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn ty(self) -> &'a str {
        self.text("type")
    }

    pub(super) fn named(self, name: &str) -> impl Iterator<Item = (&'a str, Raw<'a>)> + use<'a> {
        let map = self.get(name).and_then(Value::as_object);
        map.into_iter().flatten().map(|(name, raw)| (name.as_str(), Raw::new(raw)))
    }

    pub(super) fn properties(self) -> impl Iterator<Item = (&'a str, Raw<'a>)> + use<'a> {
        self.named("properties")
    }

    pub(super) fn property(self, name: &str) -> Option<Raw<'a>> {
        self.get("properties")?.get(name).map(Raw::new)
    }

    pub(super) fn has_properties(self) -> bool {
        self.properties().next().is_some()
    }

    pub(super) fn additional(self) -> Option<Additional<'a>> {
        self.get("additionalProperties").map(|value| match value {
            Value::Bool(allowed) => Additional::Allowed(*allowed),
            schema => Additional::Schema(Raw::new(schema)),
        })
    }

    /// The one schema of `items`; a list of schemas is not one.
    pub(super) fn items(self) -> Option<Raw<'a>> {
        self.get("items").filter(|value| value.is_object()).map(Raw::new)
    }

    pub(super) fn not(self) -> Option<Raw<'a>> {
        self.get("not").map(Raw::new)
    }

    /// The schemas of `allOf`, `anyOf` or `oneOf`.
    pub(super) fn schemas(self, name: &str) -> impl Iterator<Item = Raw<'a>> + use<'a> {
        self.list(name).iter().map(Raw::new)
    }

    /// The keywords that have a value.
    pub(super) fn set_keywords(self) -> impl Iterator<Item = &'a str> + use<'a> {
        let set = self.map.into_iter().flatten().filter(|(_, value)| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Bool(true) | Value::Number(_) => true,
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
        });
        set.map(|(name, _)| name.as_str())
    }

    /// `anyOf` being exactly "an integer or a string", the one place for nested types.
    pub(super) fn is_int_or_string(self) -> bool {
        let types: Vec<&str> = self
            .schemas("anyOf")
            .map(|raw| if raw.set_keywords().eq(["type"]) { raw.ty() } else { "" })
            .collect();
        types == ["integer", "string"]
    }
}
