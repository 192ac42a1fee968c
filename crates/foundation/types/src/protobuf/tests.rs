//! Every kind of the table, there and back; known bytes; hostile bytes.

mod oracle;

use serde_json::{Map, json};

use super::*;
use crate::table::{Field, Many, MessageSlot, Table, Ty};

/// Fills every field of a message with something that is not its zero.
struct Filler {
    count: i32,
    schemas: usize,
}

impl Filler {
    fn object(&mut self, slot: &'static MessageSlot) -> Value {
        let fields = slot.fields().iter();
        let mut object: Map<String, Value> =
            fields.map(|(name, field)| ((*name).to_owned(), self.field(field))).collect();
        object.retain(|_, value| !value.is_null());
        Value::Object(object)
    }

    fn field(&mut self, field: &'static Field) -> Value {
        let value = self.value(field.ty);
        match field.many {
            _ if value.is_null() => Value::Null,
            Many::One => value,
            Many::List => json!([value, self.value(field.ty)]),
            Many::Map => json!({"one": value, "two": self.value(field.ty)}),
        }
    }

    fn value(&mut self, ty: Ty) -> Value {
        self.count += 1;
        let count = self.count;
        match ty {
            Ty::String => format!("text {count} µ").into(),
            Ty::Int32 => (-count).into(),
            Ty::Int64 => (i64::MAX - i64::from(count)).into(),
            Ty::Bool => true.into(),
            Ty::Double => (f64::from(count) + 0.5).into(),
            Ty::Bytes => "/+8=".into(),
            Ty::Message(slot) if slot.name == "JSONSchemaProps" => self.schema(slot),
            Ty::Message(slot) => self.object(slot),
            Ty::Time => "1969-07-20T20:17:40Z".into(),
            Ty::MicroTime => "2026-01-02T03:04:05.000006Z".into(),
            Ty::Duration => "1m2.5s".into(),
            Ty::Quantity => format!("{}Mi", count * 2 + 1).into(),
            Ty::IntOrString if count % 2 == 0 => count.into(),
            Ty::IntOrString => "name".into(),
            Ty::RawExtension | Ty::FieldsV1 => json!({"f:a": {".": {}}, "n": count}),
            Ty::Json => json!([null, 1.5, {"x": count}]),
            Ty::SchemaOrArray => self.schema_or(|schema| json!([schema, schema])),
            Ty::SchemaOrBool => self.schema_or(|schema| schema.clone()),
            Ty::SchemaOrStrings => json!(["a", "b"]),
            Ty::Strings => json!(["x", ""]),
        }
    }

    /// Schemas contain schemas: stop somewhere.
    fn schema(&mut self, slot: &'static MessageSlot) -> Value {
        if self.schemas == 2 {
            return json!({"type": "string"});
        }
        self.schemas += 1;
        let schema = self.object(slot);
        self.schemas -= 1;
        schema
    }

    fn schema_or(&mut self, wrap: impl FnOnce(&Value) -> Value) -> Value {
        wrap(&self.schema(Table::json_schema()))
    }
}

/// Every kind with every field set.
fn full_objects() -> Vec<(Kind, Value)> {
    let mut objects = Vec::new();
    for table in Table::all() {
        for kind in Kind::all(table.group(), table.version()) {
            let mut object = Filler { count: 0, schemas: 0 }.object(kind.slot());
            object["apiVersion"] = crate::api_version(table.group(), table.version()).into();
            object["kind"] = kind.name().into();
            objects.push((kind, object));
        }
    }
    objects
}

#[test]
fn every_kind_with_every_field_survives_the_round_trip() {
    let objects = full_objects();
    assert!(objects.len() > 120, "{}", objects.len());
    for (kind, object) in objects {
        let bytes = encode(&object).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let decoded = decode(&bytes).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(decoded, object, "{kind:?}");
    }
}

#[test]
fn full_objects_are_in_normal_form() {
    for (kind, object) in full_objects() {
        let mut normal = object.clone();
        let unknown = kind.normalize(&mut normal).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!(unknown, [""; 0], "{kind:?}");
        assert_eq!(normal, object, "{kind:?}");
    }
}

#[test]
fn an_empty_object_decodes_to_what_normalising_it_gives() {
    for (kind, _) in full_objects() {
        let mut normal = json!({"apiVersion": crate::api_version(kind.group(), kind.version()), "kind": kind.name()});
        kind.normalize(&mut normal).unwrap();
        let nothing = kind.decode(&[]).unwrap();
        let encoded = kind.decode(&kind.encode(&json!({})).unwrap()).unwrap();
        assert_eq!(nothing, normal, "{kind:?}");
        assert_eq!(encoded, normal, "{kind:?}");
    }
}

#[test]
fn small_objects_have_the_bytes_that_upstream_writes() {
    let check = |object: Value, expected: &str| {
        let bytes = encode(&object).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.replace([' ', '\n'], ""), "{object}");
        assert_eq!(decode(&bytes).unwrap(), object);
    };
    check(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"k": "v"}}),
        "6b387300 0a0f 0a027631 1209436f6e6669674d6170
         121b 0a11 0a016e 1200 1a00 2200 2a00 3200 3800 4200
              1206 0a016b 120176
         1a00 2200",
    );
    check(
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
               "propagationPolicy": "Orphan"}),
        "6b387300 0a13 0a027631 120d44656c6574654f7074696f6e73
         120a 0800 22064f727068616e
         1a00 2200",
    );
    check(
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n"},
               "spec": {"renewTime": "1970-01-01T00:00:01.000002Z"}}),
        "6b387300 0a1f 0a16636f6f7264696e6174696f6e2e6b38732e696f2f7631 12054c65617365
         121c 0a11 0a016e 1200 1a00 2200 2a00 3200 3800 4200
              1207 2205 0801 10d00f 1a00 2200",
    );
}

#[test]
fn option_types_keep_the_group_that_they_were_sent_for() {
    let object = json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    assert_eq!(decode(&encode(&object).unwrap()).unwrap(), object);
}

#[test]
fn a_watch_event_is_framed_and_carries_its_object() {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"},
                        "spec": {}, "status": {}});
    let frame = encode_watch_event("ADDED", &object).unwrap();
    let (length, event) = frame.split_at(4);
    assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, event.len());
    let event = decode_as("", "v1", "WatchEvent", event).unwrap();
    assert_eq!(event, json!({"type": "ADDED", "object": object}));
}

#[test]
fn unknown_fields_are_passed_over_and_repeated_numbers_may_be_packed() {
    let rule = Table::of("", "v1").unwrap().slot("ContainerRestartRuleOnExitCodes").unwrap();
    let expected = json!({"operator": "In", "values": [1, 300]});
    let unpacked = b"\x0a\x02In\x10\x01\x10\xac\x02\xfa\x7f\x01x\xf8\x7f\x05";
    let packed = b"\x0a\x02In\x12\x03\x01\xac\x02";
    for bytes in [&unpacked[..], &packed[..]] {
        assert_eq!(Value::Object(decode_message(rule, bytes).unwrap()), expected);
    }
}

#[test]
fn malformed_bytes_are_refused() {
    let error = |bytes: &[u8]| decode_as("", "v1", "ConfigMap", bytes).unwrap_err().to_string();
    assert_eq!(error(b"\x0a\x05ab"), "unexpected EOF");
    assert_eq!(error(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "unexpected EOF");
    assert_eq!(
        error(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        "malformed protobuf: varint longer than 10 bytes"
    );
    assert_eq!(error(b"\x0b"), "malformed protobuf: illegal tag");
    assert_eq!(error(b"\x08\x01"), "wrong wire type for field ConfigMap.metadata");
    assert_eq!(error(b"\x0a\x03\x0a\x01\xff"), "field ObjectMeta.name is not valid UTF-8");
    let message = decode(b"{}").unwrap_err().to_string();
    assert!(message.ends_with("expected prefix [107 56 115 0]"), "{message}");
    let envelope = b"k8s\0\x0a\x07\x0a\x02v9\x12\x01X";
    assert_eq!(
        decode(envelope).unwrap_err().to_string(),
        r#"no kind "X" is registered for version "v9""#
    );
}

#[test]
fn nesting_is_bounded() {
    let nest = |inner: Vec<u8>, number: u32| {
        let mut out = Vec::new();
        put_bytes(&mut out, number, &inner);
        out
    };
    // `not` in `not` in …
    let mut schema = Vec::new();
    for _ in 0..1000 {
        schema = nest(schema, 28);
    }
    let refused = decode_message(Table::json_schema(), &schema);
    assert!(matches!(refused, Err(DecodeError::TooDeep)), "{refused:?}");
    // Lists of raw objects that are lists of raw objects …
    let mut list = Vec::new();
    for _ in 0..1000 {
        let body = encode_in("v1", "List", |out| {
            out.extend_from_slice(&list);
            Ok(())
        });
        list = nest(nest(body.unwrap(), 1), 2);
    }
    let refused = decode_as("", "v1", "List", &list);
    assert!(matches!(refused, Err(DecodeError::TooDeep)), "{refused:?}");
}

#[test]
fn a_small_body_cannot_become_a_huge_object() {
    let containers = [0x12, 0].repeat(1_000_000);
    let mut pod = Vec::new();
    put_bytes(&mut pod, 2, &containers);
    let refused = decode_as("", "v1", "Pod", &pod);
    assert!(matches!(refused, Err(DecodeError::TooMany)), "{:?}", refused.map(drop));
}

/// A generator of reproducible noise (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

#[test]
fn noise_never_panics() {
    let mut noise = Noise(0x5eed);
    let kinds: Vec<Kind> = full_objects().into_iter().map(|(kind, _)| kind).collect();
    for _ in 0..5_000 {
        let length = noise.below(64);
        let bytes: Vec<u8> = (0..length).map(|_| noise.next().to_le_bytes()[0]).collect();
        let kind = kinds[noise.below(kinds.len())];
        if let Ok(object) = kind.decode(&bytes) {
            // An object that was decoded is well formed: it can be encoded and decoded again.
            kind.decode(&kind.encode(&object).unwrap()).unwrap();
        }
        let _ = decode(&[&MAGIC[..], &bytes].concat());
    }
}

#[test]
fn damaged_messages_never_panic() {
    let mut noise = Noise(0xdead);
    for (kind, object) in full_objects() {
        let bytes = kind.encode(&object).unwrap();
        for _ in 0..10 {
            let mut damaged = bytes.clone();
            for _ in 0..=noise.below(4) {
                let at = noise.below(damaged.len());
                match noise.below(4) {
                    0 => damaged[at] ^= 1 << noise.below(8),
                    1 => damaged[at] = noise.next().to_le_bytes()[0],
                    2 => damaged.truncate(at.max(1)),
                    _ => damaged.insert(at, noise.next().to_le_bytes()[0]),
                }
            }
            if let Ok(object) = kind.decode(&damaged) {
                kind.decode(&kind.encode(&object).unwrap()).unwrap();
            }
        }
    }
}
