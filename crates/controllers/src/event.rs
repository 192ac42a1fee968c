//! Telling users what a controller found, as Events beside the object.

use base::clock;
use client::Fault;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tracing::warn;

/// The object an event is about.
#[derive(Debug)]
pub(crate) struct About<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    /// Empty for cluster-scoped objects, whose events are kept in `default`.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// Whether somebody should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Normal,
    Warning,
}

/// Writes a warning.
pub(crate) async fn warn(
    client: &Client,
    source: &str,
    about: &About<'_>,
    reason: &str,
    message: String,
) {
    tell(client, source, about, Tone::Warning, reason, message).await;
}

/// Writes an event. One that cannot be written is only logged: nothing depends on it.
pub(crate) async fn tell(
    client: &Client,
    source: &str,
    about: &About<'_>,
    tone: Tone,
    reason: &str,
    message: String,
) {
    let namespace = if about.namespace.is_empty() { "default" } else { about.namespace };
    let now = clock::now();
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let event = Event {
        metadata: ObjectMeta {
            // As everywhere: the time makes the name unique and the order visible.
            name: Some(format!("{}.{:x}", about.name, now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: text(about.api_version),
            kind: text(about.kind),
            namespace: text(about.namespace),
            name: text(about.name),
            uid: text(about.uid),
            ..ObjectReference::default()
        },
        type_: Some(match tone {
            Tone::Normal => "Normal".into(),
            Tone::Warning => "Warning".into(),
        }),
        reason: Some(reason.to_owned()),
        message: Some(message),
        source: Some(EventSource { component: Some(source.to_owned()), host: None }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    };
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    if let Err(failure) = events.create(&PostParams::default(), &event).await {
        warn!(reason, error = %Fault(failure), "cannot write event");
    }
}
