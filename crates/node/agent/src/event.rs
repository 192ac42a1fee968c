//! Events of this node's agent about objects, written through a recorder that counts repeated
//! ones: [`client::events`].

use client::events::{Occurrence, Recorder, Severity};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventNote {
    pub(crate) severity: Severity,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl EventNote {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

/// Writes events in the name of this node's agent; clones share the memory of what was written.
#[derive(Clone)]
pub(crate) struct Reporter {
    client: Client,
    node: String,
    recorder: Recorder,
}

impl Reporter {
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), recorder: Recorder::default() }
    }

    /// Records an event.
    pub(crate) async fn report(&self, about: &ObjectReference, note: EventNote) {
        let occurrence = Occurrence {
            about: about.clone(),
            severity: note.severity,
            reason: note.reason.to_owned(),
            message: note.message,
            component: "virt-handler".to_owned(),
            host: Some(self.node.clone()),
        };
        self.recorder.record(&self.client, occurrence).await;
    }
}
