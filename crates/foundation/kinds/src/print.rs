//! Cells that many kinds share.

use jiff::Timestamp;
use serde_json::Value;

use crate::{duration, json};

/// The object's name.
pub(crate) fn name(object: &Value) -> Value {
    json::text(object, "/metadata/name").into()
}

/// The time since the object was created.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(object, "/metadata/creationTimestamp", now).into()
}

/// The time since the moment at `pointer`.
pub(crate) fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    duration::age(json::text(object, pointer), now)
}

/// `text`, or `fallback` when it is empty.
pub(crate) fn or(text: &str, fallback: &str) -> String {
    if text.is_empty() { fallback.to_owned() } else { text.to_owned() }
}

/// The text at `pointer`, or `fallback` when there is none.
pub(crate) fn text_or(object: &Value, pointer: &str, fallback: &str) -> Value {
    json::text_at(object, pointer).unwrap_or(fallback).into()
}

/// The texts joined, or `fallback` when there are none.
pub(crate) fn join_or<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    separator: &str,
    fallback: &str,
) -> String {
    or(&texts.into_iter().collect::<Vec<_>>().join(separator), fallback)
}

/// The first `most` of the texts, and how many more there are.
pub(crate) fn first(texts: &[String], most: usize, fallback: &str) -> String {
    if texts.len() <= most {
        return or(&texts.join(","), fallback);
    }
    format!("{} + {} more...", texts[..most].join(","), texts.len() - most)
}

/// The status of the condition of that type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    json::list(object, "/status/conditions")
        .iter()
        .find(|condition| json::text(condition, "/type") == kind)
        .map(|condition| json::text(condition, "/status"))
}

/// A quantity as written in the object: text, or a bare number.
pub(crate) fn quantity(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "0".to_owned(),
    }
}

/// An int-or-string as text.
pub(crate) fn int_or_string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Abbreviated access modes of a volume, in upstream's order.
pub(crate) fn access_modes(object: &Value, pointer: &str) -> String {
    const MODES: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = json::texts(object, pointer);
    let short = MODES.iter().filter(|(mode, _)| given.contains(mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

/// Names and images of the containers of the pod spec at `pointer`.
pub(crate) fn containers(object: &Value, pointer: &str) -> (Value, Value) {
    let containers = json::list(object, &format!("{pointer}/containers"));
    let join = |key: &str| {
        let texts = containers.iter().map(|container| json::text(container, key));
        texts.collect::<Vec<_>>().join(",")
    };
    (join("/name").into(), join("/image").into())
}

/// Addresses of a load balancer.
pub(crate) fn load_balancer(object: &Value) -> String {
    let mut addresses: Vec<&str> = json::list(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| match json::text(ingress, "/ip") {
            "" => json::text(ingress, "/hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}
