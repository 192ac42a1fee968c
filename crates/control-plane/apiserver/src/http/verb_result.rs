//! The result of a verb, and its conversion to a response in the form that the client wants.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::api::ObjectEntry;
use crate::http::negotiate::ResponseForm;
use crate::http::respond::{self, HttpReply};
use crate::verbs::call::Call;
use crate::verbs::item;
use crate::verbs::table;

/// The result of a verb on one object.
#[derive(Debug)]
pub(crate) enum VerbResult {
    /// A stored object: its bytes are sent as they are where possible.
    Stored(StatusCode, ObjectEntry),
    /// An object that was made up for this answer (dry run, deletion, subresource).
    Made(StatusCode, Value),
    /// A `Status`.
    Status(StatusCode, Value),
}

impl VerbResult {
    pub(crate) fn ok(entry: ObjectEntry) -> Self {
        Self::Stored(StatusCode::OK, entry)
    }

    pub(crate) fn render(self, call: &Call<'_>) -> HttpReply {
        let encoding = call.wanted.encoding;
        match (self, call.wanted.form) {
            (Self::Stored(code, entry), ResponseForm::Object)
                if call.served.reads_verbatim(entry.revision) =>
            {
                respond::object(code, encoding, entry.item.bytes().clone())
            }
            (Self::Stored(code, entry), ResponseForm::Metadata(version)) => {
                respond::object(code, encoding, partial(&entry.item.metadata(), version))
            }
            (Self::Stored(code, entry), _) => {
                Self::Made(code, call.served.live(&entry)).render(call)
            }
            (Self::Made(code, value), ResponseForm::Object) => {
                let bytes = if value.get("metadata").is_some_and(Value::is_object) {
                    item::encode_for_client(&value)
                } else {
                    serde_json::to_vec(&value).expect("a tree always encodes")
                };
                respond::object(code, encoding, bytes.into())
            }
            (Self::Made(code, value), ResponseForm::Table(version)) => {
                let include = table::include(call.query);
                let table = table::of_one(&call.served, include, &value, version);
                respond::object(code, encoding, table.into())
            }
            (Self::Made(code, value), ResponseForm::Metadata(version)) => {
                let metadata = Bytes::from(value["metadata"].to_string());
                respond::object(code, encoding, partial(&metadata, version))
            }
            (Self::Status(code, value), _) => {
                respond::object(code, encoding, value.to_string().into())
            }
        }
    }
}

/// A `PartialObjectMetadata` around a metadata object.
pub(crate) fn partial(metadata: &[u8], version: &str) -> Bytes {
    let head = format!(
        "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":"
    );
    [head.as_bytes(), metadata, b"}"].concat().into()
}

/// The `Success` status that answers a deletion.
pub(crate) fn deleted(call: &Call<'_>, object: &Value) -> VerbResult {
    let subject = call.served.subject(crate::verbs::object::name(object));
    let status = crate::status::deleted(subject, crate::verbs::object::uid(object));
    VerbResult::Status(StatusCode::OK, status)
}

/// List metadata as JSON text.
pub(crate) fn list_meta(revision: u64, token: Option<&str>, remaining: Option<usize>) -> Value {
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if let Some(token) = token {
        meta["continue"] = token.into();
        if let Some(remaining) = remaining.filter(|remaining| *remaining > 0) {
            meta["remainingItemCount"] = remaining.into();
        }
    }
    meta
}
