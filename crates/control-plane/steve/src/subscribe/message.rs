//! Messages of a subscription: the requests of clients and the messages to them. Pure.

use serde_json::{Map, Value, json};

/// A message of the client: subscribe to the objects of a type, or stop.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SubscribeMessage {
    pub(super) stop: bool,
    pub(super) resource_version: String,
    #[serde(flatten)]
    pub(super) key: SubscriptionKey,
}

/// The identity of a subscription among those of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SubscriptionKey {
    pub(super) resource_type: String,
    pub(super) namespace: String,
    /// `name`, or `namespace/name`.
    pub(super) id: String,
    /// Selects by labels.
    pub(super) selector: String,
}

impl SubscriptionKey {
    /// The namespace to watch; empty for all.
    pub(super) fn watched_namespace(&self) -> &str {
        match self.id.split_once('/') {
            Some((namespace, _)) => namespace,
            None => &self.namespace,
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let fields = [
            ("resourceType", &self.resource_type),
            ("namespace", &self.namespace),
            ("id", &self.id),
            ("selector", &self.selector),
        ];
        let set = fields.into_iter().filter(|(_, value)| !value.is_empty());
        set.map(|(name, value)| (name.to_owned(), value.clone().into())).collect()
    }

    /// A message about the subscription itself: `resource.start`, `resource.stop`.
    pub(super) fn notice(&self, name: &str) -> String {
        let mut fields = self.fields();
        fields.insert("name".into(), name.into());
        Value::Object(fields).to_string()
    }

    pub(super) fn error(&self, message: &str) -> String {
        let mut fields = self.fields();
        fields.insert("name".into(), "resource.error".into());
        fields.insert("data".into(), json!({"error": message}));
        Value::Object(fields).to_string()
    }

    /// A message about one object.
    pub(super) fn change(&self, name: &str, type_id: &str, resource: Value) -> String {
        let mut fields = self.fields();
        fields.remove("namespace");
        fields.insert("name".into(), name.into());
        fields.insert("resourceType".into(), type_id.into());
        fields.insert("revision".into(), resource["metadata"]["resourceVersion"].clone());
        fields.insert("data".into(), resource);
        Value::Object(fields).to_string()
    }
}

impl SubscribeMessage {
    /// The query of the Kubernetes watch that serves this subscription.
    pub(super) fn watch_query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("watch", "true").append_pair("includeObject", "Object");
        // Rancher's clients send these for "from now, with the current state".
        if !matches!(&*self.resource_version, "" | "0" | "-1") {
            query.append_pair("resourceVersion", &self.resource_version);
        }
        if !self.key.selector.is_empty() {
            query.append_pair("labelSelector", &self.key.selector);
        }
        let name = self.key.id.rsplit('/').next().unwrap_or_default();
        if !name.is_empty() {
            query.append_pair("fieldSelector", &format!("metadata.name={name}"));
        }
        query.finish()
    }
}

/// One event of a Kubernetes watch.
#[derive(Debug, PartialEq)]
pub(super) enum WatchEvent {
    /// The name of the message to send, and a table with the object in its row, or the object.
    Object(&'static str, Value),
    /// The watch has failed, with this message.
    Failed(String),
    /// Nothing to send.
    Bookmark,
}

pub(super) fn read_event(line: &[u8]) -> WatchEvent {
    let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
        return WatchEvent::Failed("the Kubernetes API sent an event that is not JSON".into());
    };
    let object = event["object"].take();
    match event["type"].as_str() {
        Some("ADDED") => WatchEvent::Object("resource.create", object),
        Some("MODIFIED") => WatchEvent::Object("resource.change", object),
        Some("DELETED") => WatchEvent::Object("resource.remove", object),
        Some("BOOKMARK") => WatchEvent::Bookmark,
        _ => {
            let message = object["message"].as_str().unwrap_or("the watch ended with an error");
            WatchEvent::Failed(message.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> SubscribeMessage {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_subscription_becomes_a_watch() {
        for (text, namespace, query) in [
            (r#"{"resourceType":"node"}"#, "", "watch=true&includeObject=Object"),
            (
                r#"{"resourceType":"pod","namespace":"a","resourceVersion":"7"}"#,
                "a",
                "watch=true&includeObject=Object&resourceVersion=7",
            ),
            (
                r#"{"resourceType":"pod","id":"b/web","resourceVersion":"-1"}"#,
                "b",
                "watch=true&includeObject=Object&fieldSelector=metadata.name%3Dweb",
            ),
            (
                r#"{"resourceType":"node","id":"one","selector":"a=b","mode":"x"}"#,
                "",
                "watch=true&includeObject=Object&labelSelector=a%3Db&fieldSelector=metadata.name%3Done",
            ),
        ] {
            let message = message(text);
            assert_eq!(message.key.watched_namespace(), namespace, "{text}");
            assert_eq!(message.watch_query(), query, "{text}");
        }
        assert!(message(r#"{"stop":true}"#).stop);
    }

    #[test]
    fn messages_repeat_what_was_subscribed_to() {
        let key = message(r#"{"resourceType":"pods","namespace":"a","selector":"x"}"#).key;
        let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        assert_eq!(
            parse(key.notice("resource.start")),
            json!({"name": "resource.start", "resourceType": "pods", "namespace": "a", "selector": "x"})
        );
        assert_eq!(parse(key.error("no"))["data"], json!({"error": "no"}));
        let resource = json!({"id": "a/web", "metadata": {"resourceVersion": "9"}});
        assert_eq!(
            parse(key.change("resource.change", "pod", resource.clone())),
            json!({
                "name": "resource.change", "resourceType": "pod", "selector": "x",
                "revision": "9", "data": resource,
            })
        );
    }

    #[test]
    fn events_of_a_watch_are_distinguished() {
        let read = |text: &str| read_event(text.as_bytes());
        let object = |name| WatchEvent::Object(name, json!({"a": 1}));
        for (text, expected) in [
            (r#"{"type":"ADDED","object":{"a":1}}"#, object("resource.create")),
            (r#"{"type":"MODIFIED","object":{"a":1}}"#, object("resource.change")),
            (r#"{"type":"DELETED","object":{"a":1}}"#, object("resource.remove")),
            (r#"{"type":"BOOKMARK","object":{}}"#, WatchEvent::Bookmark),
            (
                r#"{"type":"ERROR","object":{"message":"too old resource version: 1 (9)"}}"#,
                WatchEvent::Failed("too old resource version: 1 (9)".into()),
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        assert!(matches!(read("{"), WatchEvent::Failed(_)));
    }
}
