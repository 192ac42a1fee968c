//! Discovery of the served resources, in the legacy and in the aggregated form.

use base64::Engine as _;
use http::HeaderMap;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::aggregation;
use crate::api::Api;
use crate::extension;
use crate::http::negotiate;
use crate::http::respond::{self, HttpReply};
use crate::http::route::Discovery;
use crate::schemas::catalog::{Catalog, Group};
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(crate) fn answer(
    api: &Api,
    wanted: Discovery<'_>,
    headers: &HeaderMap,
) -> ApiResult<HttpReply> {
    let catalog = api.catalog.load();
    let document = match wanted {
        Discovery::CoreVersions | Discovery::Groups if wants_aggregated(headers) => {
            let core = wanted == Discovery::CoreVersions;
            return Ok(aggregated(api, &catalog, core, headers));
        }
        Discovery::CoreVersions => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [
                {"clientCIDR": "0.0.0.0/0", "serverAddress": api.settings.advertise.to_string()},
            ],
        }),
        Discovery::Groups => {
            let groups = catalog.groups();
            let listed = groups.iter().filter(|group| !group.name.is_empty()).map(group_value);
            let listed = listed.chain(api.extensions.groups.iter().map(extension::group_value));
            let mut listed: Vec<Value> = listed.collect();
            aggregation::groups(api, &mut listed);
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        }
        Discovery::Group(name) => {
            let groups = catalog.groups();
            let group = groups.iter().find(|group| *group.name == *name && !name.is_empty());
            let mut group = match (group, api.extensions.group(name)) {
                (Some(group), _) => group_value(group),
                (None, Some(extended)) => extension::group_value(extended),
                (None, None) => match aggregation::versions_of(api, name) {
                    Some(versions) => versions,
                    None => return Ok(respond::nowhere()),
                },
            };
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        Discovery::Resources { group, version } => match api.extensions.group(group) {
            Some(extended) => extension::resource_list(extended, version)?,
            None => resources(&catalog, group, version)?,
        },
    };
    Ok(cached(headers, "application/json", &document))
}

/// The client prefers the aggregated form in the one version of it that we speak.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    for clause in negotiate::clauses(headers) {
        let is_json = clause.media == "application/json" || clause.media.ends_with("/*");
        match (clause.param("g"), clause.param("v"), clause.param("as")) {
            (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) if is_json => {
                return clause.media == "application/json";
            }
            (None, None, None) if is_json => return false,
            _ => {}
        }
    }
    false
}

/// With an ETag, so that clients that cache need not read it twice.
fn cached(headers: &HeaderMap, content_type: &'static str, document: &Value) -> HttpReply {
    let bytes = serde_json::to_vec(document).expect("a tree always encodes");
    let hash = Sha256::digest(&bytes);
    let tag: String = hash.iter().take(16).map(|byte| format!("{byte:02X}")).collect();
    let tag = format!("\"{tag}\"");
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut reply = if known == Some(&*tag) {
        respond::reply(StatusCode::NOT_MODIFIED, content_type, respond::full(""))
    } else {
        respond::reply(StatusCode::OK, content_type, respond::full(bytes))
    };
    let out = reply.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        out.insert(ETAG, tag);
    }
    out.insert(VARY, HeaderValue::from_static("Accept"));
    if content_type == AGGREGATED {
        out.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    }
    out.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

fn group_value(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            json!({"groupVersion": format!("{}/{version}", group.name), "version": &**version})
        })
        .collect();
    json!({"name": &*group.name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(catalog: &Catalog, group: &str, version: &str) -> ApiResult<Value> {
    let mut list = Vec::new();
    for served in catalog.of(group, version) {
        list.push(resource_value(served));
        for sub in &served.subresources {
            let mut value = json!({
                "name": format!("{}/{}", served.plural, sub.name),
                "singularName": "",
                "namespaced": served.namespaced,
                "kind": &*served.kind,
                "verbs": sub.verbs,
            });
            if let Some((of_group, of_version, kind)) = sub.kind {
                value["kind"] = kind.into();
                // As upstream: said only where it is not that of the whole list.
                if (of_group, of_version) != (group, version) {
                    value["group"] = of_group.into();
                    value["version"] = of_version.into();
                }
            }
            list.push(value);
        }
    }
    if list.is_empty() {
        return Err(ApiError::unknown_resource());
    }
    list.sort_by_cached_key(|value| {
        let name = value["name"].as_str().unwrap_or("").to_owned();
        let custom = catalog
            .find(group, version, name.split('/').next().unwrap_or(""))
            .is_some_and(|served| served.is_custom());
        // As upstream: definitions say status before scale.
        if custom { name.replace("/scale", "/status/") } else { name }
    });
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version, "resources": list,
    }))
}

fn resource_value(served: &ServedKind) -> Value {
    let mut value = json!({
        "name": &*served.plural,
        "singularName": &*served.singular,
        "namespaced": served.namespaced,
        "kind": &*served.kind,
        "verbs": served.verbs,
    });
    if !served.short_names.is_empty() {
        value["shortNames"] = served.short_names.iter().map(|name| Value::from(&**name)).collect();
    }
    if !served.categories.is_empty() {
        value["categories"] = served.categories.iter().map(|name| Value::from(&**name)).collect();
    }
    if served.verbs.len() > 1 {
        value["storageVersionHash"] = storage_version_hash(served).into();
    }
    value
}

/// Eight bytes that change when the stored form does.
fn storage_version_hash(served: &ServedKind) -> String {
    let (group, version, kind) = match served.row().and_then(|row| row.conversion) {
        Some(conversion) => conversion.stored,
        None => match served.custom() {
            Some(custom) => (&*served.group, &*custom.storage_version, &*served.kind),
            None => (&*served.group, &*served.version, &*served.kind),
        },
    };
    let hash = Sha256::digest(format!("{group}/{version}/{kind}"));
    base64::engine::general_purpose::STANDARD.encode(&hash[..8])
}

fn aggregated(api: &Api, catalog: &Catalog, core: bool, headers: &HeaderMap) -> HttpReply {
    let mut groups: Vec<Value> = catalog
        .groups()
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = catalog
                        .of(&group.name, version)
                        .map(|served| aggregated_resource(served))
                        .collect();
                    json!({"version": &**version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({});
            if !group.name.is_empty() {
                metadata["name"] = (&*group.name).into();
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    if !core {
        groups.extend(api.extensions.groups.iter().map(extension::aggregated));
        aggregation::aggregated(api, &mut groups);
    }
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": groups,
    });
    cached(headers, AGGREGATED, &document)
}

fn aggregated_resource(served: &ServedKind) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let own = kind(&served.group, &served.version, &served.kind);
    let mut value = json!({
        "resource": &*served.plural,
        "responseKind": own,
        "scope": if served.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*served.singular,
        "verbs": served.verbs,
    });
    if !served.short_names.is_empty() {
        value["shortNames"] = served.short_names.iter().map(|name| Value::from(&**name)).collect();
    }
    if !served.categories.is_empty() {
        value["categories"] = served.categories.iter().map(|name| Value::from(&**name)).collect();
    }
    if !served.subresources.is_empty() {
        value["subresources"] = served
            .subresources
            .iter()
            .map(|sub| {
                let response = sub.kind.map_or(own.clone(), |(g, v, k)| kind(g, v, k));
                json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
            })
            .collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;

    fn aggregated_for(accept: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        wants_aggregated(&headers)
    }

    #[test]
    fn only_who_asks_for_v2_gets_it() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert!(aggregated_for(&format!("{v2},{beta},application/json")));
        // kubectl 1.27 to 1.29: an answer in v2 would break them.
        assert!(!aggregated_for(&format!("{beta},application/json")));
        assert!(!aggregated_for("application/json"));
        assert!(!aggregated_for("*/*"));
    }
}
