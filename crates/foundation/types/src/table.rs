//! The table of facts about the built-in types: which fields a message has, how each
//! is written in JSON and in protobuf, and how two versions of it merge.
//!
//! The text lies in `table/*.txt`, one file per API group and version, in the format
//! that [`parse`] documents. A file is indexed when one of its messages is first asked
//! for, and a message is parsed when it is first used, so that an idle server holds
//! nothing but the text. Nothing here knows what a field is good for.

mod parse;

use std::sync::OnceLock;

use schema::Schema;
use serde_json::Value;

use crate::zero::zero;

macro_rules! tables {
    ($($stem:literal),+ $(,)?) => {
        static TABLES: [Table; [$($stem),+].len()] = [$(Table {
            stem: $stem,
            text: include_str!(concat!("../table/", $stem, ".txt")),
            slots: OnceLock::new(),
        }),+];
    };
}

tables![
    "admissionregistration_v1",
    "apiextensions_v1",
    "apiregistration_v1",
    "apiserverinternal_v1alpha1",
    "apps_v1",
    "authentication_v1",
    "authorization_v1",
    "autoscaling_v1",
    "autoscaling_v2",
    "batch_v1",
    "certificates_v1",
    "certificates_v1beta1",
    "coordination_v1",
    "coordination_v1beta1",
    "core_v1",
    "discovery_v1",
    "events_v1",
    "flowcontrol_v1",
    "meta_v1",
    "metrics_v1beta1",
    "networking_v1",
    "node_v1",
    "policy_v1",
    "rbac_v1",
    "resource_v1",
    "scheduling_v1",
    "scheduling_v1alpha3",
    "storage_v1",
    "storagemigration_v1",
    "storagemigration_v1beta1",
];

/// Types of the group `meta.k8s.io` that upstream registers in every other group too.
const EVERYWHERE: &[&str] = &[
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "Status",
    "UpdateOptions",
    "WatchEvent",
];

/// The types of one API group and version.
#[derive(Debug)]
pub(crate) struct Table {
    stem: &'static str,
    text: &'static str,
    slots: OnceLock<Box<[MessageSlot]>>,
}

impl Table {
    pub(crate) fn all() -> &'static [Self] {
        &TABLES
    }

    /// The table of an API group (empty for core) and version.
    pub(crate) fn of(group: &str, version: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.group() == group && table.version() == version)
    }

    /// The API group; empty for core.
    pub(crate) fn group(&self) -> &'static str {
        match parse::header(self.text, "group") {
            "core" => "",
            group => group,
        }
    }

    pub(crate) fn version(&self) -> &'static str {
        parse::header(self.text, "version")
    }

    /// The prefix of a type's name in OpenAPI: `io.k8s.api.core.v1`.
    pub(crate) fn package(&self) -> &'static str {
        parse::header(self.text, "package")
    }

    /// All messages, sorted by name.
    pub(crate) fn slots(&'static self) -> &'static [MessageSlot] {
        self.slots.get_or_init(|| parse::slots(self))
    }

    pub(crate) fn slot(&'static self, name: &str) -> Option<&'static MessageSlot> {
        let slots = self.slots();
        let at = slots.binary_search_by(|slot| slot.name.cmp(name)).ok()?;
        Some(&slots[at])
    }

    /// The one message that special types refer to.
    pub(crate) fn json_schema() -> &'static MessageSlot {
        let table = Self::of("apiextensions.k8s.io", "v1");
        let slot = table.and_then(|table| table.slot("JSONSchemaProps"));
        slot.expect("the table describes JSONSchemaProps")
    }

    fn by_stem(stem: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.stem == stem)
    }
}

/// The message that describes a kind, looked up as upstream's scheme would.
pub(crate) fn find(group: &str, version: &str, kind: &str) -> Option<&'static MessageSlot> {
    if let Some(slot) = Table::of(group, version).and_then(|table| table.slot(kind)) {
        return (slot.message().kind || EVERYWHERE.contains(&kind)).then_some(slot);
    }
    // Metadata alone is also asked for under its former version.
    let former = (group, version) == ("meta.k8s.io", "v1beta1") && kind.starts_with("Partial");
    if EVERYWHERE.contains(&kind) || former {
        return Table::by_stem("meta_v1")?.slot(kind);
    }
    None
}

/// The place of one message: known by name, parsed when first used.
#[derive(Debug)]
pub(crate) struct MessageSlot {
    pub(crate) name: &'static str,
    pub(crate) table: &'static Table,
    attributes: &'static str,
    body: &'static str,
    message: OnceLock<Message>,
    schema: OnceLock<Schema>,
}

impl MessageSlot {
    pub(crate) fn message(&'static self) -> &'static Message {
        self.message.get_or_init(|| parse::message(self))
    }

    /// The memoised schema of this message; `build` must be a pure function of the slot.
    pub(crate) fn schema(&'static self, build: impl FnOnce() -> Schema) -> &'static Schema {
        self.schema.get_or_init(build)
    }

    /// The declared fields and those of inlined messages, sorted by JSON name.
    pub(crate) fn fields(&'static self) -> &'static [(&'static str, &'static Field)] {
        self.message().by_name.get_or_init(|| {
            let mut named = Vec::new();
            self.collect(&mut named);
            named.sort_unstable_by_key(|(name, _)| *name);
            named.into()
        })
    }

    /// The field with this JSON name, declared or inlined.
    pub(crate) fn field(&'static self, name: &str) -> Option<&'static Field> {
        let fields = self.fields();
        let at = fields.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
        Some(fields[at].1)
    }

    /// Fields that Go writes even when they were never set: scalars and structs held
    /// by value, unless `omitempty` leaves them out.
    pub(crate) fn always_written(&'static self) -> &'static [&'static Field] {
        self.message().written.get_or_init(|| {
            self.fields()
                .iter()
                .map(|(_, field)| *field)
                .filter(|field| field.is_always_written())
                .collect()
        })
    }

    /// Go's output for this struct when nothing was ever set in it.
    pub(crate) fn blank(&'static self) -> &'static Value {
        self.message().blank.get_or_init(|| {
            let fields = self.fields().iter().map(|(_, field)| *field);
            let printed = fields.filter(|field| field.is_always_written() || !field.omit);
            let blank = |field: &Field| match (field.many, field.pointer, field.ty) {
                (Many::One, false, Ty::Message(slot)) => slot.blank().clone(),
                (Many::One, false, ty) => zero(ty),
                _ => Value::Null,
            };
            printed.map(|field| (field.name.to_owned(), blank(field))).collect()
        })
    }

    fn collect(&'static self, into: &mut Vec<(&'static str, &'static Field)>) {
        for field in &self.message().fields {
            match field.inlined() {
                Some(slot) => slot.collect(into),
                None => into.push((field.name, field)),
            }
        }
    }
}

/// One message: a struct of upstream's API.
#[derive(Debug)]
pub(crate) struct Message {
    /// Whether objects of this type carry `apiVersion` and `kind`.
    pub(crate) kind: bool,
    /// `x-kubernetes-map-type: atomic`: applied as a whole.
    pub(crate) atomic: bool,
    /// `x-kubernetes-unions`, as JSON.
    pub(crate) union: Option<&'static str>,
    /// Sorted by field number.
    pub(crate) fields: Box<[Field]>,
    by_name: OnceLock<Box<[(&'static str, &'static Field)]>>,
    written: OnceLock<Box<[&'static Field]>>,
    blank: OnceLock<Value>,
}

impl Message {
    pub(crate) fn numbered(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some(&self.fields[at])
    }
}

/// One field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The JSON name; for an inlined message its protobuf name.
    pub(crate) name: &'static str,
    pub(crate) many: Many,
    pub(crate) ty: Ty,
    /// A Go pointer: absent and zero are different things.
    pub(crate) pointer: bool,
    /// `omitempty`: an empty scalar, list or map is left out of JSON.
    pub(crate) omit: bool,
    /// `omitzero`: a struct that is zero is left out of JSON.
    pub(crate) omit_zero: bool,
    /// The message's fields are beside this one's siblings in JSON.
    pub(crate) inline: bool,
    /// Required according to OpenAPI.
    pub(crate) required: bool,
    pub(crate) list: Option<List>,
    /// `x-kubernetes-map-type` on the field: atomic or granular.
    pub(crate) map: Option<&'static str>,
    pub(crate) patch: Option<Patch>,
    /// Go's name of the type, where that does not follow from the type itself.
    pub(crate) go: Option<&'static str>,
    /// A default that OpenAPI declares and that is not the zero of a Go value; JSON.
    pub(crate) default: Option<&'static str>,
}

impl Field {
    pub(crate) fn inlined(&self) -> Option<&'static MessageSlot> {
        match self.ty {
            Ty::Message(slot) if self.inline => Some(slot),
            _ => None,
        }
    }

    /// A single value that is not behind a pointer.
    pub(crate) fn is_value(&self) -> bool {
        self.many == Many::One && !self.pointer
    }

    fn is_always_written(&self) -> bool {
        if !self.is_value() || self.omit_zero {
            return false;
        }
        match self.ty {
            Ty::String | Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double | Ty::Duration => !self.omit,
            // `omitempty` knows no empty struct.
            Ty::Message(_) | Ty::Quantity | Ty::IntOrString => true,
            // Structs that print themselves, as `null` if never set.
            Ty::Time | Ty::MicroTime => true,
            // Their zero is `null`, which we leave out.
            Ty::Bytes
            | Ty::RawExtension
            | Ty::FieldsV1
            | Ty::Json
            | Ty::SchemaOrArray
            | Ty::SchemaOrBool
            | Ty::SchemaOrStrings
            | Ty::Strings => false,
        }
    }
}

/// How many values a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Many {
    One,
    List,
    /// With string keys.
    Map,
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ty {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    /// base64 in JSON.
    Bytes,
    Message(&'static MessageSlot),
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// `1h2m3s`, nanoseconds in protobuf.
    Duration,
    Quantity,
    IntOrString,
    /// Any object, as JSON text in protobuf.
    RawExtension,
    FieldsV1,
    /// Any JSON value.
    Json,
    /// `JSONSchemaPropsOrArray` and its two siblings.
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
    /// A list of strings that protobuf wraps in a message.
    Strings,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Atomic,
    Set,
    /// The keys, separated by commas.
    Map(&'static str),
}

/// `x-kubernetes-patch-strategy` and `-merge-key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patch {
    /// As in OpenAPI: `merge`, `retainKeys` or `merge,retainKeys`.
    pub(crate) strategy: &'static str,
    pub(crate) key: Option<&'static str>,
}

#[cfg(test)]
mod tests;
