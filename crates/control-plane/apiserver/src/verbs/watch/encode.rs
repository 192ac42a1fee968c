//! Watch events on the wire.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use store::Revision;

use crate::api::{ObjectEntry, ObjectEvent};
use crate::http::negotiate::{AcceptedForm, Encoding, ResponseForm};
use crate::http::verb_result;
use crate::schemas::served::ServedKind;
use crate::status::ApiError;
use crate::verbs::item;
use crate::verbs::object;
use crate::verbs::table::{self, Include};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl WatchEventKind {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// Writes events in the form that one client asked for.
#[derive(Debug)]
pub(super) struct Encoder {
    served: Arc<ServedKind>,
    wanted: AcceptedForm,
    include: Include,
    /// Only the first table of a stream carries its columns.
    sent_columns: bool,
}

impl Encoder {
    pub(super) fn new(served: Arc<ServedKind>, wanted: AcceptedForm, include: Include) -> Self {
        Self { served, wanted, include, sent_columns: false }
    }

    pub(super) fn object(
        &mut self,
        chunk: &mut Vec<u8>,
        kind: WatchEventKind,
        entry: &ObjectEntry,
    ) {
        match self.wanted.form {
            ResponseForm::Object if self.served.reads_verbatim(entry.revision) => {
                self.frame(chunk, kind, entry.item.bytes());
            }
            ResponseForm::Metadata(version) => {
                let partial = verb_result::partial(&entry.item.metadata(), version);
                self.frame(chunk, kind, &partial);
            }
            _ => {
                let object = self.served.live(entry);
                self.tree(chunk, kind, &object);
            }
        }
    }

    /// The last state of an object that is gone (or left the selection), with the
    /// revision at which that happened.
    pub(super) fn removed(&mut self, chunk: &mut Vec<u8>, old: &ObjectEntry, event: &ObjectEvent) {
        let verbatim =
            self.wanted.form == ResponseForm::Object && self.served.reads_verbatim(old.revision);
        if verbatim {
            let restamped =
                event.frame.get_or_init(|| Bytes::from(old.item.restamped(event.revision)));
            self.frame(chunk, WatchEventKind::Deleted, restamped);
            return;
        }
        let mut object = self.served.live(old);
        let revision = event.revision.to_string();
        object::set_meta(&mut object, "resourceVersion", Some(revision.into()));
        self.tree(chunk, WatchEventKind::Deleted, &object);
    }

    pub(super) fn bookmark(&mut self, chunk: &mut Vec<u8>, revision: Revision, ends_state: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_state {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({
            "kind": &*self.served.kind,
            "apiVersion": self.served.api_version(),
            "metadata": metadata,
        });
        match self.wanted.form {
            ResponseForm::Object => {
                self.frame(chunk, WatchEventKind::Bookmark, object.to_string().as_bytes())
            }
            ResponseForm::Metadata(version) => {
                let partial =
                    verb_result::partial(object["metadata"].to_string().as_bytes(), version);
                self.frame(chunk, WatchEventKind::Bookmark, &partial);
            }
            ResponseForm::Table(version) => {
                // A table without rows whose metadata carries the revision.
                let mut table = table::of_event(
                    &self.served,
                    self.include,
                    &object,
                    version,
                    !self.sent_columns,
                );
                table["rows"] = json!([{"cells": [], "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": object["metadata"],
                }}]);
                self.sent_columns = true;
                self.frame(chunk, WatchEventKind::Bookmark, table.to_string().as_bytes());
            }
        }
    }

    pub(super) fn error(&mut self, chunk: &mut Vec<u8>, error: &ApiError) {
        let status = error.to_value().to_string();
        self.frame(chunk, WatchEventKind::Error, status.as_bytes());
    }

    fn tree(&mut self, chunk: &mut Vec<u8>, kind: WatchEventKind, object: &Value) {
        match self.wanted.form {
            ResponseForm::Object => self.frame(chunk, kind, &item::encode_for_client(object)),
            ResponseForm::Metadata(version) => {
                let partial =
                    verb_result::partial(object["metadata"].to_string().as_bytes(), version);
                self.frame(chunk, kind, &partial);
            }
            ResponseForm::Table(version) => {
                let first = !std::mem::replace(&mut self.sent_columns, true);
                let table = table::of_event(&self.served, self.include, object, version, first);
                self.frame(chunk, kind, table.to_string().as_bytes());
            }
        }
    }

    fn frame(&self, chunk: &mut Vec<u8>, kind: WatchEventKind, object: &[u8]) {
        if self.wanted.encoding == Encoding::Protobuf
            && let Ok(value) = serde_json::from_slice::<Value>(object)
            && let Ok(frame) = types::encode_watch_event(kind.name(), &value)
        {
            chunk.extend_from_slice(&frame);
            return;
        }
        chunk.extend_from_slice(b"{\"type\":\"");
        chunk.extend_from_slice(kind.name().as_bytes());
        chunk.extend_from_slice(b"\",\"object\":");
        chunk.extend_from_slice(object);
        chunk.extend_from_slice(b"}\n");
    }
}
