//! The shape of the built-in Kubernetes types as a table of facts, and what follows
//! from it: schemas for the merge and validation engine, Kubernetes' protobuf encoding,
//! the normal form of a typed object, and OpenAPI components.
//!
//! No I/O, no clock, not async. Defaults and validation of kinds live in `kinds`;
//! custom resources are described by their own schemas and never come here.

mod depth;
mod normalize;
pub mod openapi;
mod protobuf;
mod quantity;
mod shape;
mod table;
mod time;
mod zero;

use schema::Schema;
use serde_json::Value;

pub use normalize::{Filling, NormalizeError};
pub use protobuf::{
    DecodeError, EncodeError, Envelope, MAGIC, decode, decode_as, encode, encode_watch_event,
    encode_watch_frame,
};
pub use quantity::{Quantity, QuantityError};
pub use time::TimeError;

/// One built-in kind at one version: a cheap handle into the table.
#[derive(Clone, Copy)]
pub struct Kind(&'static table::MessageSlot);

impl Kind {
    /// Finds a kind; `group` is empty for core. Lists (`ConfigMapList`) are kinds too, and
    /// option types (`DeleteOptions`, `Status`, …) exist in every group and version.
    pub fn find(group: &str, version: &str, kind: &str) -> Option<Self> {
        table::find(group, version, kind).map(Self)
    }

    /// Finds a kind by the two fields of an object: `apps/v1` and `Deployment`.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::find(group, version, kind)
    }

    /// All kinds of a group and version, lists included, sorted by name.
    pub fn all(group: &str, version: &str) -> Vec<Self> {
        let slots = table::Table::of(group, version).map(table::Table::slots).unwrap_or_default();
        slots.iter().filter(|slot| slot.message().kind).map(Self).collect()
    }

    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The group that defines the type: `meta.k8s.io` for option types.
    pub fn group(self) -> &'static str {
        self.0.table.group()
    }

    pub fn version(self) -> &'static str {
        self.0.table.version()
    }

    /// The schema that merge and apply work with. Built on first use, then shared.
    pub fn schema(self) -> Schema {
        shape::schema(self.0).clone()
    }

    /// Brings a JSON object into the form that upstream's typed decoding and encoding
    /// gives it; returns the paths of unknown fields, which are dropped from it.
    pub fn normalize(self, object: &mut Value) -> Result<Vec<String>, NormalizeError> {
        normalize::normalize(object, self.0, Filling::Whole)
    }

    /// The same for a part of an object that a client applies: nothing is filled in or left out.
    pub fn normalize_applied(self, object: &mut Value) -> Result<Vec<String>, NormalizeError> {
        normalize::normalize(object, self.0, Filling::Sparse)
    }

    /// An object of this kind in which nothing was ever set, as upstream's encoding prints it:
    /// with the structs that are always there, and `null` for lists that are.
    pub fn blank(self) -> &'static Value {
        self.0.blank()
    }

    /// Decodes a bare protobuf message (without envelope) into the object, with its
    /// apiVersion and kind.
    pub fn decode(self, raw: &[u8]) -> Result<Value, DecodeError> {
        let mut object = protobuf::decode_message(self.0, raw)?;
        if self.0.message().kind {
            let api_version = api_version(self.group(), self.version());
            object.insert("apiVersion".to_owned(), api_version.into());
            object.insert("kind".to_owned(), self.name().into());
        }
        Ok(Value::Object(object))
    }

    /// Encodes an object as a bare protobuf message (without envelope).
    pub fn encode(self, object: &Value) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        protobuf::encode_message(self.0, object, &mut out)?;
        Ok(out)
    }

    fn slot(self) -> &'static table::MessageSlot {
        self.0
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Kind({}, {})", api_version(self.group(), self.version()), self.name())
    }
}

/// The groups (empty for core) and versions that the table covers.
pub fn group_versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    table::Table::all().iter().map(|table| (table.group(), table.version()))
}

/// The schema of a built-in kind; see [`Kind::schema`].
pub fn schema(group: &str, version: &str, kind: &str) -> Option<Schema> {
    Kind::find(group, version, kind).map(Kind::schema)
}

/// `apps/v1`, or `v1` for the core group.
fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
