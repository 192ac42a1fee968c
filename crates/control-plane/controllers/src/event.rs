//! Events of controllers, written through the one recorder that they share: [`client::events`].

use client::events::{Occurrence, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

pub(crate) use client::events::Severity as EventType;

/// The object that an event regards.
#[derive(Debug)]
pub(crate) struct Regarding<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    /// Empty for cluster-scoped objects, whose events are kept in `default`.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// Records a warning.
pub(crate) async fn warn(
    client: &Client,
    source: &str,
    regarding: &Regarding<'_>,
    reason: &str,
    message: String,
) {
    record(client, source, regarding, EventType::Warning, reason, message).await;
}

/// Records an event.
pub(crate) async fn record(
    client: &Client,
    source: &str,
    regarding: &Regarding<'_>,
    tone: EventType,
    reason: &str,
    message: String,
) {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let regarding = ObjectReference {
        api_version: text(regarding.api_version),
        kind: text(regarding.kind),
        namespace: text(regarding.namespace),
        name: text(regarding.name),
        uid: text(regarding.uid),
        ..ObjectReference::default()
    };
    let (component, reason) = (source.to_owned(), reason.to_owned());
    let occurrence =
        Occurrence { about: regarding, severity: tone, reason, message, component, host: None };
    recorder().record(client, occurrence).await;
}

#[cfg(not(test))]
fn recorder() -> Recorder {
    Recorder::shared()
}

/// Tests are clusters of their own, with objects of the same names, in a thread each.
#[cfg(test)]
fn recorder() -> Recorder {
    thread_local! {
        static OWN: Recorder = Recorder::default();
    }
    OWN.with(Recorder::clone)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    const EVENTS: &str = "/events";

    #[tokio::test]
    async fn a_repeated_event_is_counted() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
        let client = fake.client();
        let regarding =
            Regarding { api_version: "v1", kind: "Pod", namespace: "n", name: "p", uid: "u" };
        let failed = || warn(&client, "test", &regarding, "Failed", "no disk".to_owned());
        for _ in 0..3 {
            failed().await;
        }
        warn(&client, "test", &regarding, "Failed", "no node".to_owned()).await;
        let counted = |count: i32| {
            fake.any(EVENTS, |event| event["message"] == "no disk" && event["count"] == count)
        };
        assert_eq!(fake.names(EVENTS).len(), 2);
        assert!(counted(3));
        // An event that expired is written again and goes on counting.
        for name in fake.names(EVENTS) {
            fake.delete(EVENTS, "n", &name, "Background");
        }
        failed().await;
        assert_eq!(fake.names(EVENTS).len(), 1);
        assert!(counted(4));
    }
}
