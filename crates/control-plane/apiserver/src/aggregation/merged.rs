//! Other servers' groups in our discovery and our documents.

use serde_json::{Map, Value, json};

use super::{RemoteGroup, found, remotes};
use crate::api::Api;

/// Adds their groups to those of `APIGroupList`.
pub(crate) fn groups(api: &Api, groups: &mut Vec<Value>) {
    for remote in remotes(api).iter() {
        let version = version_value(remote);
        match groups.iter_mut().find(|group| group["name"] == remote.group) {
            Some(group) => {
                let listed = group["versions"].as_array_mut();
                if let Some(list) = listed.filter(|list| !list.contains(&version)) {
                    list.push(version);
                }
            }
            None => groups.push(json!({
                "name": remote.group, "versions": [version], "preferredVersion": version,
            })),
        }
    }
}

/// `APIGroup` of a group that is only served elsewhere.
pub(crate) fn versions_of(api: &Api, group: &str) -> Option<Value> {
    let mut all = Vec::new();
    groups(api, &mut all);
    all.into_iter().find(|known| known["name"] == group)
}

fn version_value(remote: &RemoteGroup) -> Value {
    let name = format!("{}/{}", remote.group, remote.version);
    json!({"groupVersion": name, "version": remote.version})
}

/// Adds their groups to those of `APIGroupDiscoveryList`.
pub(crate) fn aggregated(api: &Api, items: &mut Vec<Value>) {
    for remote in remotes(api).iter() {
        let known = found(api, remote);
        let resources = known.map_or_else(Vec::new, |found| nested(&found.resources, remote));
        let freshness = if remote.is_down { "Stale" } else { "Current" };
        let version = json!({
            "version": remote.version, "resources": resources, "freshness": freshness,
        });
        match items.iter_mut().find(|item| item["metadata"]["name"] == remote.group) {
            Some(item) => {
                if let Some(versions) = item["versions"].as_array_mut() {
                    versions.retain(|known| known["version"] != remote.version);
                    versions.push(version);
                }
            }
            None => items.push(json!({"metadata": {"name": remote.group}, "versions": [version]})),
        }
    }
}

/// The flat list of resources in the nested form.
fn nested(list: &Value, remote: &RemoteGroup) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for resource in list["resources"].as_array().into_iter().flatten() {
        let text = |field: &str| resource[field].as_str().unwrap_or("");
        let or = |field: &str, own: &str| match text(field) {
            "" => own.to_owned(),
            given => given.to_owned(),
        };
        let kind = json!({
            "group": or("group", &remote.group), "version": or("version", &remote.version),
            "kind": text("kind"),
        });
        match text("name").split_once('/') {
            None => {
                let scope = if resource["namespaced"] == true { "Namespaced" } else { "Cluster" };
                let mut value = json!({
                    "resource": text("name"), "responseKind": kind, "scope": scope,
                    "singularResource": text("singularName"), "verbs": resource["verbs"],
                });
                for field in ["shortNames", "categories"] {
                    if resource[field].is_array() {
                        value[field] = resource[field].clone();
                    }
                }
                resources.push(value);
            }
            Some((parent, sub)) => {
                let below = json!({
                    "subresource": sub, "responseKind": kind, "verbs": resource["verbs"],
                });
                let parent = resources.iter_mut().find(|known| known["resource"] == parent);
                if let Some(parent) = parent {
                    match parent["subresources"].as_array_mut() {
                        Some(list) => list.push(below),
                        None => parent["subresources"] = json!([below]),
                    }
                }
            }
        }
    }
    resources
}

/// Adds where their documents are to the index.
pub(crate) fn with_v3(api: &Api, paths: &mut Map<String, Value>) {
    for remote in remotes(api).iter() {
        for (path, url) in found(api, remote).iter().flat_map(|found| &found.v3) {
            paths.insert(path.clone(), json!({"serverRelativeURL": url}));
        }
    }
}

/// Their documents in the older form, those that are up.
pub(crate) fn documents_v2(api: &Api) -> Vec<Value> {
    let remotes = remotes(api);
    let up = remotes.iter().filter(|remote| !remote.is_down);
    let documents = up.filter_map(|remote| {
        let prefix = format!("{}/", remote.path());
        let mut document = found(api, remote)?.v2.clone()?;
        // Health, version and the like are ours to describe.
        let paths = document["paths"].as_object_mut()?;
        paths.retain(|path, _| path.starts_with(&prefix));
        Some(document)
    });
    documents.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::Trust;

    #[test]
    fn a_flat_list_is_nested() {
        let remote = RemoteGroup {
            name: "v1.g".to_owned(),
            group: "g".to_owned(),
            version: "v1".to_owned(),
            namespace: String::new(),
            service: String::new(),
            port: 443,
            trust: Trust::System,
            priority: (1, 1),
            is_down: false,
        };
        let list = json!({"resources": [
            {"name": "things", "kind": "Thing", "namespaced": true, "verbs": ["get"],
             "singularName": "thing", "shortNames": ["t"]},
            {"name": "things/scale", "group": "autoscaling", "version": "v1", "kind": "Scale",
             "verbs": ["get"]},
        ]});
        let nested = nested(&list, &remote);
        assert_eq!(nested.len(), 1);
        assert_eq!(nested[0]["scope"], "Namespaced");
        assert_eq!(nested[0]["shortNames"], json!(["t"]));
        assert_eq!(
            nested[0]["responseKind"],
            json!({"group": "g", "version": "v1", "kind": "Thing"})
        );
        assert_eq!(nested[0]["subresources"][0]["responseKind"]["group"], "autoscaling");
    }
}
