//! How an object lives in memory and in the store: as encoded JSON.
//!
//! The stored form is JSON without `metadata.resourceVersion` (the revision is the
//! store's to give), with `apiVersion`, `kind` and `metadata` first, in that order:
//!
//! ```text
//! {"apiVersion":"v1","kind":"ConfigMap","metadata":{…},"data":{…}}
//!                                                  ▲ the revision is spliced in here
//! ```
//!
//! Because the head is first, three things cost a copy or a slice and never a parse
//! of the whole: adding the revision, showing only the metadata, and leaving out
//! `apiVersion` and `kind` inside lists. Reads and watches send these bytes as they are.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use store::Revision;

const METADATA: &[u8] = b"\"metadata\":{";

/// Gives the store its in-memory form of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectShape;

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Item {
    /// The whole object as clients read it.
    bytes: Bytes,
    /// Where the value of `metadata` lies in `bytes`, braces included.
    metadata: Range<usize>,
    labels: Box<[(Box<str>, Box<str>)]>,
}

impl store::Shape for ObjectShape {
    type Item = Item;
    /// One watch event as JSON, encoded once for all watchers.
    type Frame = Bytes;

    fn shape(
        &self,
        _table: &str,
        _name: &str,
        value: Bytes,
        revision: Revision,
        _created: Revision,
    ) -> Item {
        Item::with_revision(&value, revision).unwrap_or_else(|| {
            // Written by another program: bring it into our order first.
            let tree = serde_json::from_slice::<Value>(&value).unwrap_or(Value::Null);
            Item::with_revision(&encode(&tree), revision)
                .expect("our own encoding always has metadata")
        })
    }

    fn weight(&self, item: &Item) -> usize {
        item.bytes.len()
    }
}

impl Item {
    fn with_revision(stored: &[u8], revision: Revision) -> Option<Self> {
        let open = find_metadata(stored)? + METADATA.len();
        let empty = stored.get(open) == Some(&b'}');
        let stamp = format!("\"resourceVersion\":\"{revision}\"{}", if empty { "" } else { "," });
        let mut bytes = Vec::with_capacity(stored.len() + stamp.len());
        bytes.extend_from_slice(&stored[..open]);
        bytes.extend_from_slice(stamp.as_bytes());
        bytes.extend_from_slice(&stored[open..]);
        let start = open - 1;
        let mut reader = serde_json::Deserializer::from_slice(&bytes[start..]).into_iter::<Head>();
        let head = reader.next()?.ok()?;
        let end = start + reader.byte_offset();
        let labels = head.labels.unwrap_or_default().into_iter().map(|(key, value)| {
            (key.into_boxed_str(), value.as_str().unwrap_or("").to_owned().into_boxed_str())
        });
        Some(Self { metadata: start..end, labels: labels.collect(), bytes: Bytes::from(bytes) })
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The object's metadata as JSON.
    pub(crate) fn metadata(&self) -> Bytes {
        self.bytes.slice(self.metadata.clone())
    }

    /// Everything from `"metadata":` on: the object without its first brace,
    /// `apiVersion` and `kind`.
    pub(crate) fn tail(&self) -> Bytes {
        self.bytes.slice(self.metadata.start + 1 - METADATA.len()..)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| **known == *key).map(|(_, value)| &**value)
    }

    /// The object as a tree.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("the store holds what we encoded")
    }

    /// The same object with another revision, as DELETED events carry it.
    pub(crate) fn restamped(&self, revision: Revision) -> Vec<u8> {
        let stamp = b"\"resourceVersion\":\"";
        let from = self.metadata.start + 1 + stamp.len();
        let digits = self.bytes[from..].iter().position(|byte| *byte == b'"').unwrap_or(0);
        let mut bytes = Vec::with_capacity(self.bytes.len() + 4);
        bytes.extend_from_slice(&self.bytes[..from]);
        bytes.extend_from_slice(revision.to_string().as_bytes());
        bytes.extend_from_slice(&self.bytes[from + digits..]);
        bytes
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    labels: Option<Map<String, Value>>,
}

fn find_metadata(bytes: &[u8]) -> Option<usize> {
    // The head is short; a body that does not have metadata there is not ours.
    let head = &bytes[..bytes.len().min(1024)];
    let at = head.windows(METADATA.len()).position(|window| window == METADATA)?;
    head.starts_with(b"{\"apiVersion\"").then_some(at)
}

/// Encodes an object for the store: head first, without its revision.
pub(crate) fn encode(object: &Value) -> Vec<u8> {
    encode_with(object, false)
}

/// Encodes an object for a client, head first.
pub(crate) fn encode_for_client(object: &Value) -> Vec<u8> {
    encode_with(object, true)
}

fn encode_with(object: &Value, keep_revision: bool) -> Vec<u8> {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let mut out = Vec::with_capacity(512);
    out.push(b'{');
    for field in ["apiVersion", "kind"] {
        write(&mut out, field, fields.get(field).unwrap_or(&Value::Null));
        out.push(b',');
    }
    out.extend_from_slice(METADATA);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut first = true;
    for (field, value) in metadata {
        if field == "resourceVersion" && !keep_revision {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write(&mut out, field, value);
    }
    out.push(b'}');
    for (field, value) in fields {
        if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            out.push(b',');
            write(&mut out, field, value);
        }
    }
    out.push(b'}');
    out
}

fn write(out: &mut Vec<u8>, field: &str, value: &Value) {
    serde_json::to_writer(&mut *out, field).expect("writing to memory cannot fail");
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::Shape as _;

    use super::*;

    fn item(object: &Value, revision: u64) -> Item {
        let value = Bytes::from(encode(object));
        ObjectShape.shape("t", "n", value, Revision::new(revision), Revision::new(revision))
    }

    #[test]
    fn the_revision_is_spliced_in() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"metadata": "{\"metadata\":{"},
            "metadata": {"name": "a", "resourceVersion": "1", "labels": {"x": "y"}},
        });
        let item = item(&object, 77);
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = "77".into();
        assert_eq!(item.to_value(), expected);
        assert_eq!(item.label("x"), Some("y"));
        assert_eq!(item.label("z"), None);
        let metadata: Value = serde_json::from_slice(&item.metadata()).unwrap();
        assert_eq!(metadata, expected["metadata"]);
        let tail = [b"{".as_slice(), &item.tail()].concat();
        let tail: Value = serde_json::from_slice(&tail).unwrap();
        assert_eq!(tail, json!({"metadata": expected["metadata"], "data": expected["data"]}));
        let again: Value = serde_json::from_slice(&item.restamped(Revision::new(100))).unwrap();
        assert_eq!(again["metadata"]["resourceVersion"], "100");
    }

    #[test]
    fn a_foreign_order_is_repaired() {
        let value = Bytes::from_static(
            br#"{"data":{},"kind":"ConfigMap","metadata":{"name":"a"},"apiVersion":"v1"}"#,
        );
        let item = ObjectShape.shape("t", "n", value, Revision::new(5), Revision::new(5));
        assert!(item.bytes().starts_with(b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\""));
        assert_eq!(item.to_value()["metadata"]["resourceVersion"], "5");
    }
}
