//! The types of fields in records: plain values, quantities, times, and the built-in Kubernetes
//! types that custom kinds embed.
//!
//! Embedded types that nothing here reads (affinity, probes, claims) stay JSON; their
//! schema comes from the table in crate `types`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::embed;
use crate::record::{Field, record};

pub type Map<T> = BTreeMap<String, T>;

impl Field for String {
    fn schema() -> Value {
        json!({"type": "string"})
    }
}

impl Field for bool {
    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

impl Field for f64 {
    fn schema() -> Value {
        json!({"type": "number"})
    }
}

macro_rules! integers {
    ($($type:ty => $format:literal),*) => { $(
        impl Field for $type {
            fn schema() -> Value {
                json!({"type": "integer", "format": $format})
            }
        }
    )* };
}

integers!(u8 => "int32", i32 => "int32", u32 => "int32", i64 => "int64", u64 => "int64");

impl<T: Field> Field for Option<T> {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        T::schema()
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Field> Field for Vec<T> {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Field> Field for Map<T> {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema()})
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

macro_rules! texts {
    ($($(#[doc = $about:literal])* $name:ident => $schema:tt),* $(,)?) => { $(
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl Field for $name {
            fn schema() -> Value {
                json!($schema)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }

        impl<T: Into<String>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }
    )* };
}

texts! {
    /// A moment, as RFC 3339 writes it.
    Time => {"type": "string", "format": "date-time"},
    /// A span of time as Go writes it: `5m0s`.
    Duration => {"type": "string"},
}

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// An amount (`1Gi`, `500m`), as it was written; numbers are read as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(pub String);

impl Quantity {
    /// The amount itself; nothing if the text is no quantity.
    pub fn amount(&self) -> Option<types::Quantity> {
        self.0.parse().ok()
    }

    /// Whole units (bytes, processors), rounded up.
    pub fn units(&self) -> Option<i64> {
        self.amount().map(|amount| amount.units())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<T: Into<String>> From<T> for Quantity {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            _ => Err(serde::de::Error::custom("a quantity is a string or a number")),
        }
    }
}

impl Field for Quantity {
    fn schema() -> Value {
        json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        })
    }
}

macro_rules! opaque {
    ($($(#[doc = $about:literal])* $name:ident => $schema:expr),* $(,)?) => { $(
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Value);

        impl Field for $name {
            fn schema() -> Value {
                $schema
            }
        }
    )* };
}

opaque! {
    /// Any JSON.
    Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
    /// A number, or text such as `25%`.
    IntOrString => json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
    }),
    Affinity => embed::schema("Affinity"),
    ClaimReference => embed::schema("PersistentVolumeClaimVolumeSource"),
    ComputeResources => embed::schema("ResourceRequirements"),
    DownwardAPIVolumeFile => embed::schema("DownwardAPIVolumeFile"),
    ExecAction => embed::schema("ExecAction"),
    HTTPGetAction => embed::schema("HTTPGetAction"),
    NodeSelectorRequirement => embed::schema("NodeSelectorRequirement"),
    PersistentVolumeClaimSpec => embed::schema("PersistentVolumeClaimSpec"),
    PodDNSConfig => embed::schema("PodDNSConfig"),
    TCPSocketAction => embed::schema("TCPSocketAction"),
    Toleration => embed::schema("Toleration"),
    TopologySpreadConstraint => embed::schema("TopologySpreadConstraint"),
    VolumeResourceRequirements => embed::schema("VolumeResourceRequirements"),
}

/// An object whose presence is all it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

impl Field for Empty {
    fn schema() -> Value {
        json!({"type": "object"})
    }
}

/// The metadata of an object or a template. The server owns its schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "crate::record::lenient")]
    pub labels: Map<String>,
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "crate::record::lenient")]
    pub annotations: Map<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::record::lenient")]
    pub owner_references: Vec<OwnerReference>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::record::lenient")]
    pub finalizers: Vec<String>,
}

impl ObjectMeta {
    /// The object that controls this one.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }
}

impl Field for ObjectMeta {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        json!({"type": "object"})
    }

    fn is_absent(&self) -> bool {
        *self == Self::default()
    }
}

record! {
    OwnerReference {
        api_version: String,
        kind: String,
        name: String,
        uid: String,
        controller: Option<bool>,
        block_owner_deletion: Option<bool>,
    }

    LocalObjectReference: {"x-kubernetes-map-type": "atomic"} {
        /// Name of the object.
        name: Option<String> = {"default": ""},
    }

    TypedLocalObjectReference: {"x-kubernetes-map-type": "atomic"} {
        /// API group of the object; empty for the core group.
        api_group: Option<String>,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    }

    TypedObjectReference {
        /// API group of the object; empty for the core group.
        api_group: Option<String>,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// Namespace of the object; default is the same namespace.
        namespace: Option<String>,
    }

    LabelSelector: {"x-kubernetes-map-type": "atomic"} {
        /// Labels that an object must have.
        match_labels: Map<String>,
        /// Further requirements on labels.
        match_expressions: Vec<LabelSelectorRequirement> = {"x-kubernetes-list-type": "atomic"},
    }

    LabelSelectorRequirement {
        /// Key of the label.
        key: String,
        /// In, NotIn, Exists or DoesNotExist.
        operator: String,
        /// Values for In and NotIn.
        values: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    /// A condition of an operator's object.
    OperatorCondition {
        r#type: String,
        status: String,
        reason: Option<String>,
        message: Option<String>,
        /// When the condition was last updated.
        last_heartbeat_time: Option<Time>,
        last_transition_time: Option<Time>,
    }
}
