//! How many objects of each type there are, by namespace and state.

use std::collections::BTreeMap;

use client::Catalog;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::caller::Session;
use crate::envelope::{self, summarize};
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::rights::{self, Rights};
use crate::route::SteveRoute;
use crate::schemas;
use crate::type_name;

/// Counts of one type or of one namespace of it.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
struct Count {
    count: usize,
    #[serde(skip_serializing_if = "is_zero")]
    errors: usize,
    #[serde(skip_serializing_if = "is_zero")]
    transitioning: usize,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    states: BTreeMap<String, usize>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Count {
    fn add(&mut self, object: &Value) {
        let summary = summarize(object);
        self.count += 1;
        self.errors += usize::from(summary.error);
        self.transitioning += usize::from(summary.transitioning);
        if summary.name != "active" {
            *self.states.entry(summary.name).or_default() += 1;
        }
    }
}

/// Answers with the counts of every type that the caller may list.
pub(crate) async fn answer(
    session: &Session<'_>,
    asked: &RequestHead,
    route: &SteveRoute,
    catalog: &Catalog,
) -> SteveResult {
    let (path, body) = rights::question("");
    let rights = Rights::read(&session.post(path, &body).await?);
    let mut counts = Map::new();
    for kind in schemas::visible(catalog, &rights) {
        let path = kind.path("");
        // A kind whose server does not answer has no count; the others do.
        let accept = "application/json";
        let Ok(mut list) = session.send(Method::GET, &path, accept, &[], accept).await else {
            continue;
        };
        let revision = list["metadata"]["resourceVersion"].take();
        let objects = envelope::rows(list).into_iter().map(|row| row.object);
        counts.insert(type_name::id(kind), count(objects, &revision));
    }
    let base = format!("{}{}", asked.origin(), route.prefix);
    let own = format!("{base}/counts/count");
    let entry = json!({"id": "count", "type": "count", "links": {"self": own}, "counts": counts});
    if !route.rest.is_empty() {
        return Ok(reply::json(StatusCode::OK, &entry));
    }
    let collection = json!({
        "type": "collection", "links": {"self": format!("{base}/counts")}, "createTypes": {},
        "actions": {}, "resourceType": "count", "count": 1, "data": [entry],
    });
    Ok(reply::json(StatusCode::OK, &collection))
}

fn count(objects: impl Iterator<Item = Value>, revision: &Value) -> Value {
    let mut all = Count::default();
    let mut namespaces: BTreeMap<String, Count> = BTreeMap::new();
    for object in objects {
        all.add(&object);
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            namespaces.entry(namespace.to_owned()).or_default().add(&object);
        }
    }
    json!({"summary": all, "revision": revision, "namespaces": namespaces})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_counted_by_namespace_and_state() {
        let objects = [
            json!({"metadata": {"namespace": "a"}}),
            json!({"metadata": {"namespace": "a"}, "status": {"phase": "Failed"}}),
            json!({"metadata": {"namespace": "b", "deletionTimestamp": "t"}}),
        ];
        let counted = count(objects.into_iter(), &json!("7"));
        let expected = json!({
            "revision": "7",
            "summary": {
                "count": 3, "errors": 1, "transitioning": 1,
                "states": {"failed": 1, "removing": 1},
            },
            "namespaces": {
                "a": {"count": 2, "errors": 1, "states": {"failed": 1}},
                "b": {"count": 1, "transitioning": 1, "states": {"removing": 1}},
            },
        });
        assert_eq!(counted, expected);
    }
}
