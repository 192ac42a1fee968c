//! The representation: an immutable tree (in memory a graph with shared subtrees) of [`Node`]s. It
//! holds the facts that a reader of objects needs and is small when idle: fields that most nodes
//! lack are behind one optional box.

use std::sync::Arc;

use serde_json::Value;

/// A shared, immutable schema.
pub type Schema = Arc<SchemaNode>;

/// The JSON type that a value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// No type given: anything goes (with `preserve_unknown`, or an embedded `JSON` value).
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

/// The content of an object beside its named properties.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Additional {
    /// Nothing: other fields are unknown (pruned, or refused when strict).
    #[default]
    Closed,
    /// `additionalProperties: true`.
    Anything,
    /// A map: every value has this schema.
    Of(Schema),
}

/// `x-kubernetes-list-type`: how two lists merge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    /// Items are objects identified by these fields.
    Map(Box<[Box<str>]>),
}

/// `x-kubernetes-map-type`: how two objects merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapType {
    #[default]
    Granular,
    Atomic,
}

/// `x-kubernetes-patch-strategy` and `-merge-key`: how a strategic merge patch changes this field.
/// Built-in types only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    /// Merge key of a list of objects; absent for a list of scalars or an object.
    pub key: Option<Box<str>>,
}

/// One node of a schema.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SchemaNode {
    pub ty: Type,
    pub nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// Sorted by name; look up with [`Node::property`].
    pub properties: Box<[(Box<str>, Schema)]>,
    pub additional: Additional,
    pub items: Option<Schema>,
    pub list: ListType,
    pub map: MapType,
    pub default: Option<Box<Value>>,
    pub patch: Option<Box<PatchStrategy>>,
    pub validation: Option<Box<Validation>>,
}

/// The conditions for a value beyond its type. The same structure serves inside
/// `allOf`/`anyOf`/`oneOf`/`not`, where nested properties and items carry only validations again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Validation {
    pub format: Option<Box<str>>,
    pub title: Option<Box<str>>,
    pub description: Option<Box<str>>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Box<str>>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Box<[Box<str>]>,
    pub enumeration: Box<[Value]>,
    pub all_of: Box<[Schema]>,
    pub any_of: Box<[Schema]>,
    pub one_of: Box<[Schema]>,
    pub not: Option<Schema>,
    /// `x-kubernetes-validations`.
    pub rules: Box<[CelRule]>,
}

/// One CEL rule of `x-kubernetes-validations`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CelRule {
    pub rule: Box<str>,
    pub message: Option<Box<str>>,
    pub message_expression: Option<Box<str>>,
    /// `FieldValueRequired`, `FieldValueForbidden`, `FieldValueInvalid` or `FieldValueDuplicate`.
    pub reason: Option<Box<str>>,
    pub field_path: Option<Box<str>>,
    pub optional_old_self: bool,
}

impl SchemaNode {
    /// The schema of the property `name`, if it is declared.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        let at = self.properties.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// The schema of the field `name`: a declared property, or a map's value.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.property(name).or(match &self.additional {
            Additional::Of(schema) => Some(schema),
            Additional::Closed | Additional::Anything => None,
        })
    }

    /// Whether fields that are not declared are kept.
    pub fn keeps_unknown(&self) -> bool {
        self.preserve_unknown || matches!(self.additional, Additional::Anything)
    }

    /// A node about which nothing is known: everything is kept.
    pub fn anything() -> Schema {
        Arc::new(Self { preserve_unknown: true, ..Self::default() })
    }
}
