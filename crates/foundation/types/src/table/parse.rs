//! Reads the table's text. The format, line by line:
//!
//! ```text
//! group apps                 header: API group ("core" for the core group),
//! version v1                 its version,
//! package io.k8s.api.apps.v1 and the prefix of its types' names in OpenAPI
//!                            (a blank line ends the header and every message)
//! Deployment kind            a message: its name, then attributes
//!  1 metadata meta_v1.ObjectMeta omit
//!                            a field (one leading space): number in protobuf,
//!                            name in JSON, type, attributes
//! ```
//!
//! Attributes of a message: `kind` (objects carry apiVersion and kind), `map=atomic`
//! (`x-kubernetes-map-type`), `union=JSON` (`x-kubernetes-unions`).
//!
//! A type is a scalar (`string`, `int32`, `int64`, `bool`, `double`, `bytes`), one of the
//! special types of [`Ty`], a message of the same file, or `file.Message`. It may be
//! preceded by `[]` (a list), `{}` (a map with string keys) or `*` (a pointer in Go).
//!
//! Attributes of a field: `omit` and `zero` (Go's `omitempty` and `omitzero`), `inline`,
//! `req` (required), `list=atomic|set|map:KEYS`, `map=atomic|granular`,
//! `patch=STRATEGY[:KEY]`, `go=TYPE` (what Go calls it, where that is not plain; clients
//! read it in errors), `default=JSON` (only where it is not the zero of a Go value).
//! Attributes contain no spaces.

use std::sync::OnceLock;

use super::{Field, List, Many, Message, MessageSlot, Patch, Table, Ty};

/// The table is part of the program: the test that parses all of it keeps this true.
const SOUND: &str = "the type table is well formed";

/// The value of one line of the header.
pub(super) fn header(text: &'static str, key: &str) -> &'static str {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .expect("every table has a header")
}

/// The messages of a table, by name, unparsed.
pub(super) fn slots(table: &'static Table) -> Box<[MessageSlot]> {
    let mut slots: Vec<MessageSlot> = table
        .text
        .split("\n\n")
        .skip(1)
        .map(|block| {
            let (head, body) = block.split_once('\n').unwrap_or((block, ""));
            let (name, attributes) = head.split_once(' ').unwrap_or((head, ""));
            MessageSlot {
                name: name.trim_end(),
                table,
                attributes,
                body,
                message: OnceLock::new(),
                schema: OnceLock::new(),
            }
        })
        .collect();
    slots.sort_unstable_by_key(|slot| slot.name);
    slots.into()
}

pub(super) fn message(slot: &'static MessageSlot) -> Message {
    let mut message = Message {
        kind: false,
        atomic: false,
        union: None,
        fields: slot.body.lines().map(|line| field(slot.table, line)).collect(),
        by_name: OnceLock::new(),
        written: OnceLock::new(),
        blank: OnceLock::new(),
    };
    message.fields.sort_unstable_by_key(|field| field.number);
    for attribute in slot.attributes.split_whitespace() {
        match attribute.split_once('=') {
            None if attribute == "kind" => message.kind = true,
            Some(("map", "atomic")) => message.atomic = true,
            Some(("union", json)) => message.union = Some(json),
            _ => unreachable!("{}: {attribute}", slot.name),
        }
    }
    message
}

fn field(table: &'static Table, line: &'static str) -> Field {
    let mut words = line.split_whitespace();
    let number = words.next().and_then(|word| word.parse().ok()).expect(SOUND);
    let name = words.next().expect(SOUND);
    let written = words.next().expect(SOUND);
    let (many, pointer, written) = match written.split_at_checked(2) {
        Some(("[]", item)) => (Many::List, false, item),
        Some(("{}", item)) => (Many::Map, false, item),
        _ => match written.strip_prefix('*') {
            Some(pointee) => (Many::One, true, pointee),
            None => (Many::One, false, written),
        },
    };
    let mut field = Field {
        number,
        name,
        many,
        ty: ty(table, written),
        pointer,
        omit: false,
        omit_zero: false,
        inline: false,
        required: false,
        list: None,
        map: None,
        patch: None,
        go: None,
        default: None,
    };
    for attribute in words {
        set_attribute(&mut field, attribute);
    }
    field
}

fn set_attribute(field: &mut Field, attribute: &'static str) {
    match attribute.split_once('=') {
        None => match attribute {
            "omit" => field.omit = true,
            "zero" => field.omit_zero = true,
            "inline" => field.inline = true,
            "req" => field.required = true,
            _ => unreachable!("{}: {attribute}", field.name),
        },
        Some(("list", "atomic")) => field.list = Some(List::Atomic),
        Some(("list", "set")) => field.list = Some(List::Set),
        Some(("list", map)) => {
            field.list = Some(List::Map(map.strip_prefix("map:").expect(SOUND)));
        }
        Some(("map", map)) => field.map = Some(map),
        Some(("patch", patch)) => {
            field.patch = Some(match patch.split_once(':') {
                Some((strategy, key)) => Patch { strategy, key: Some(key) },
                None => Patch { strategy: patch, key: None },
            });
        }
        Some(("go", name)) => field.go = Some(name),
        Some(("default", json)) => field.default = Some(json),
        Some(_) => unreachable!("{}: {attribute}", field.name),
    }
}

fn ty(table: &'static Table, name: &'static str) -> Ty {
    match name {
        "string" => Ty::String,
        "int32" => Ty::Int32,
        "int64" => Ty::Int64,
        "bool" => Ty::Bool,
        "double" => Ty::Double,
        "bytes" => Ty::Bytes,
        "Time" => Ty::Time,
        "MicroTime" => Ty::MicroTime,
        "Duration" => Ty::Duration,
        "Quantity" => Ty::Quantity,
        "IntOrString" => Ty::IntOrString,
        "RawExtension" => Ty::RawExtension,
        "FieldsV1" => Ty::FieldsV1,
        "JSON" => Ty::Json,
        "SchemaOrArray" => Ty::SchemaOrArray,
        "SchemaOrBool" => Ty::SchemaOrBool,
        "SchemaOrStrings" => Ty::SchemaOrStrings,
        "Strings" => Ty::Strings,
        _ => {
            let (table, name) = match name.split_once('.') {
                Some((stem, name)) => (Table::by_stem(stem).expect(SOUND), name),
                None => (table, name),
            };
            Ty::Message(table.slot(name).expect(SOUND))
        }
    }
}
