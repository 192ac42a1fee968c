//! Between the server's requests and an extension: routing, rights, discovery.

use std::sync::Arc;

use auth::User;
use http::{Method, request};
use serde_json::{Value, json};

use super::{AuthorizedRequest, Group, PathAccess, Paths};
use crate::access::authorize;
use crate::access::identity::{self, Transport};
use crate::api::Api;
use crate::http::body::RequestBody;
use crate::http::respond::HttpReply;
use crate::http::route::ResourcePath;
use crate::http::verb::Verb;
use crate::status::{ApiError, ApiResult, StatusSubject};

/// The extension that serves a path outside of the API.
pub(crate) fn open<'a>(api: &'a Api, path: &str, query: &str) -> Option<&'a Arc<dyn Paths>> {
    api.extensions.paths.iter().find(|paths| paths.own(path, query))
}

/// The user of a request to a path outside of the API, once authorized; `None` if the path checks
/// access itself.
pub(crate) async fn enter(
    api: &Api,
    paths: &Arc<dyn Paths>,
    parts: &request::Parts,
    path: &str,
    transport: &Transport,
) -> ApiResult<Option<User>> {
    let access = paths.access(path);
    if matches!(access, PathAccess::Open) {
        return Ok(None);
    }
    if let Some(oidc) = &api.oidc {
        oidc.prepare(&parts.headers).await;
    }
    let user = identity::authenticate(api, transport, parts)?;
    let user = identity::impersonate(api, user, &parts.headers)?;
    let PathAccess::Resource(needs) = access else { return Ok(Some(user)) };
    let attributes = auth::Attributes {
        verb: needs.verb,
        target: auth::AccessTarget::Resource(auth::ResourceRequest {
            group: needs.group,
            version: needs.version,
            resource: needs.resource,
            subresource: needs.subresource,
            namespace: needs.namespace,
            name: needs.name,
        }),
    };
    let subject = StatusSubject { group: needs.group, resource: needs.resource, name: needs.name };
    authorize::check(api, &user, &attributes, subject)?;
    Ok(Some(user))
}

/// Hands a request over, once its sender may make it.
pub(crate) async fn call(
    api: &Api,
    group: &Arc<dyn Group>,
    target: &ResourcePath<'_>,
    user: User,
    parts: &request::Parts,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    if !group.versions().contains(&target.version) {
        return Err(ApiError::unknown_resource());
    }
    let verb = match Verb::of(&parts.method, target, false) {
        Some(verb) => verb,
        // A PUT without a name: KubeVirt expands a machine that way.
        None if parts.method == Method::PUT => Verb::Update,
        None => {
            return Err(ApiError::method_not_allowed());
        }
    };
    let below = target.below_name();
    let attributes = auth::Attributes {
        verb: verb.as_str(),
        target: auth::AccessTarget::Resource(auth::ResourceRequest {
            group: target.group,
            version: target.version,
            resource: target.resource,
            subresource: group.subresource(&below),
            namespace: target.namespace,
            name: target.name,
        }),
    };
    let subject =
        StatusSubject { group: target.group, resource: target.resource, name: target.name };
    authorize::check(api, &user, &attributes, subject)?;
    Ok(group.answer(AuthorizedRequest { user: Some(user), parts: parts.clone(), body }).await)
}

pub(crate) fn group_value(group: &Arc<dyn Group>) -> Value {
    let versions: Vec<Value> = group
        .versions()
        .iter()
        .map(|version| {
            json!({"groupVersion": format!("{}/{version}", group.name()), "version": version})
        })
        .collect();
    json!({"name": group.name(), "versions": versions, "preferredVersion": versions.first()})
}

pub(crate) fn resource_list(group: &Arc<dyn Group>, version: &str) -> ApiResult<Value> {
    if !group.versions().contains(&version) {
        return Err(ApiError::unknown_resource());
    }
    let resources: Vec<Value> = group
        .resources()
        .iter()
        .map(|resource| {
            json!({
                "name": resource.name, "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": resource.verbs,
            })
        })
        .collect();
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{}/{version}", group.name()), "resources": resources,
    }))
}

/// The group as an item of the aggregated list.
pub(crate) fn aggregated(group: &Arc<dyn Group>) -> Value {
    let versions: Vec<Value> = group
        .versions()
        .iter()
        .map(|version| {
            let resources = aggregated_resources(group, version);
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": {"name": group.name()}, "versions": versions})
}

fn aggregated_resources(group: &Arc<dyn Group>, version: &str) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for row in group.resources() {
        let (parent, sub) = row.name.split_once('/').unwrap_or((row.name, ""));
        let kind = json!({"group": group.name(), "version": version, "kind": row.kind});
        let known = resources.iter().position(|resource| resource["resource"] == parent);
        let at = known.unwrap_or_else(|| {
            let scope = if row.namespaced { "Namespaced" } else { "Cluster" };
            let verbs: &[&str] = if sub.is_empty() { row.verbs } else { &[] };
            resources.push(json!({
                "resource": parent, "responseKind": kind, "scope": scope,
                "singularResource": "", "verbs": verbs,
            }));
            resources.len() - 1
        });
        if !sub.is_empty() {
            let below = json!({"subresource": sub, "responseKind": kind, "verbs": row.verbs});
            match resources[at]["subresources"].as_array_mut() {
                Some(list) => list.push(below),
                None => resources[at]["subresources"] = json!([below]),
            }
        }
    }
    resources
}
