//! The types of the API, as far as the caller may see them, with their actions and the parameters of
//! these.

use std::sync::Arc;

use client::{Catalog, CatalogKind};
use http::StatusCode;
use serde_json::{Value, json};

use crate::action::{self, ActionInput};
use crate::caller::Session;
use crate::error::SteveError;
use crate::reply::{self, SteveResult};
use crate::request::RequestHead;
use crate::rights::{self, Rights};
use crate::route::SteveRoute;
use crate::type_name;

/// Answers a request for the root of the API.
pub(crate) fn root(asked: &RequestHead, route: &SteveRoute) -> SteveResult {
    let base = format!("{}{}", asked.origin(), route.prefix);
    let root = json!({
        "id": route.prefix.trim_start_matches('/'), "type": "apiRoot", "actions": {},
        "apiVersion": {"group": "", "path": route.prefix, "version": "v1"},
        "links": {
            "self": base, "root": base, "schemas": format!("{base}/schemas"),
            "counts": format!("{base}/counts"), "subscribe": format!("{base}/subscribe"),
        },
    });
    Ok(reply::json(StatusCode::OK, &root))
}

/// Answers with all schemas, or the one of a name.
pub(crate) async fn answer(
    session: &Session<'_>,
    asked: &RequestHead,
    route: &SteveRoute,
    name: Option<&String>,
    catalog: &Catalog,
) -> SteveResult {
    let (path, body) = rights::question("");
    let rights = Rights::read(&session.post(path, &body).await?);
    let base = format!("{}{}", asked.origin(), route.prefix);
    if let Some(name) = name {
        if let Some(input) = action::INPUTS.iter().find(|input| input.id == name) {
            return Ok(reply::json(StatusCode::OK, &input_schema(input, &base)));
        }
        let kind = type_name::find(catalog, name).filter(|kind| is_visible(kind, &rights));
        let kind = kind.ok_or_else(|| SteveError::no_such_type(name))?;
        return Ok(reply::json(StatusCode::OK, &schema(kind, &base, &rights)));
    }
    let visible = visible(catalog, &rights);
    let inputs = action::INPUTS.iter().map(|input| input_schema(input, &base));
    let data: Vec<Value> = visible.map(|kind| schema(kind, &base, &rights)).chain(inputs).collect();
    let collection = json!({
        "type": "collection", "links": {"self": format!("{base}/schemas")}, "createTypes": {},
        "actions": {}, "resourceType": "schema", "count": data.len(), "data": data,
    });
    Ok(reply::json(StatusCode::OK, &collection))
}

/// The kinds of which the caller may see objects.
pub(crate) fn visible<'a>(
    catalog: &'a Catalog,
    rights: &'a Rights,
) -> impl Iterator<Item = &'a Arc<CatalogKind>> {
    catalog.kinds().iter().filter(|kind| is_visible(kind, rights))
}

fn is_visible(kind: &CatalogKind, rights: &Rights) -> bool {
    kind.can(client::Verb::List) && rights.may("list", &kind.group, &kind.plural, "")
}

/// The schema of a kind: its names, and the caller's rights to its objects.
fn schema(kind: &CatalogKind, base: &str, rights: &Rights) -> Value {
    let (id, plural) = (type_name::id(kind), type_name::plural(kind));
    let may = |verb: &str| rights.may(verb, &kind.group, &kind.plural, "");
    let methods = |verbs: &[(&'static str, &str)]| -> Vec<&'static str> {
        verbs.iter().filter(|(_, verb)| may(verb)).map(|(method, _)| *method).collect()
    };
    let verbs: Vec<&str> = ["get", "list", "watch", "create", "update", "patch", "delete"]
        .into_iter()
        .filter(|verb| may(verb))
        .collect();
    json!({
        "id": id, "type": "schema", "pluralName": plural,
        "links": {
            "self": format!("{base}/schemas/{id}"), "collection": format!("{base}/{plural}"),
        },
        "resourceMethods": methods(&[
            ("GET", "get"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete"),
        ]),
        "collectionMethods": methods(&[("GET", "list"), ("POST", "create")]),
        "resourceActions": action::resource_actions(kind),
        "collectionActions": action::collection_actions(kind),
        "resourceFields": {},
        "attributes": {
            "group": kind.group, "version": kind.version, "kind": kind.kind,
            "resource": kind.plural, "namespaced": kind.namespaced, "verbs": verbs,
        },
    })
}

/// The schema of the parameters of an action, which are no objects.
fn input_schema(input: &ActionInput, base: &str) -> Value {
    let id = input.id;
    json!({
        "id": id, "type": "schema", "pluralName": format!("{id}s"),
        "links": {"self": format!("{base}/schemas/{id}")},
        "resourceMethods": [], "collectionMethods": [], "resourceActions": {},
        "collectionActions": {}, "resourceFields": input.fields(), "attributes": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::type_name::tests::catalog;

    #[test]
    fn schemas_show_what_the_caller_may_do() {
        let rights = Rights::read(&json!({"status": {"resourceRules": [
            {"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["pods", "nodes"]},
            {"verbs": ["create"], "apiGroups": [""], "resources": ["pods", "secrets"]},
        ]}}));
        let catalog = catalog();
        let shown: Vec<Value> =
            visible(&catalog, &rights).map(|kind| schema(kind, "https://h/v1", &rights)).collect();
        let ids: Vec<&str> = shown.iter().map(|schema| schema["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["node", "pod"]);
        assert_eq!(shown[1]["collectionMethods"], json!(["GET", "POST"]));
        assert_eq!(shown[1]["resourceMethods"], json!(["GET"]));
        assert_eq!(shown[1]["links"]["collection"], "https://h/v1/pods");
        assert_eq!(shown[0]["attributes"]["namespaced"], false);
        let maintenance = json!({"input": "maintenanceModeInput"});
        assert_eq!(shown[0]["resourceActions"]["enableMaintenanceMode"], maintenance);
        assert_eq!(shown[1]["resourceActions"], json!({}));
    }
}
