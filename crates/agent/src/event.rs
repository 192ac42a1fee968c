//! Telling people what happened, as Events beside the object.

use base::clock;
use client::Fault;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tracing::debug;

/// Whether an event is news or a complaint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

/// Something that happened to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) severity: Severity,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Note {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason, message: message.into() }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason, message: message.into() }
    }
}

/// Writes events in the name of this node's agent.
#[derive(Clone)]
pub(crate) struct Reporter {
    client: Client,
    node: String,
}

impl Reporter {
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned() }
    }

    /// An event that cannot be written is only logged: nothing depends on it.
    pub(crate) async fn report(&self, about: &ObjectReference, note: Note) {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let now = clock::now();
        let kind = match note.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}.{:x}",
                    about.name.as_deref().unwrap_or_default(),
                    now.as_nanosecond()
                )),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: about.clone(),
            type_: Some(kind.into()),
            reason: Some(note.reason.into()),
            message: Some(note.message),
            source: Some(EventSource {
                component: Some("virt-handler".into()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some("virt-handler".into()),
            reporting_instance: Some(self.node.clone()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        if let Err(failure) = events.create(&PostParams::default(), &event).await {
            debug!(reason = note.reason, error = %Fault(failure), "cannot write event");
        }
    }
}
