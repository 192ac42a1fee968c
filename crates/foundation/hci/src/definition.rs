//! The CustomResourceDefinitions of all kinds: names, versions, columns and subresources as
//! upstream publishes them, with the schemas of the records.

mod alarm;
mod cluster_network_policy;
mod dhcp;
mod harvester;
mod load_balancer;
mod longhorn;
mod management;
mod network;
mod snapshot;

use crd::definition::{
    Column, DefinitionScope, DefinitionVersion, KindDefinition, Subresources, definition,
};
use serde_json::{Value, json};

/// The definitions, ready to be created. Made one by one: together they are large.
pub fn definitions() -> impl Iterator<Item = Value> {
    let all = harvester::CATALOG.iter().chain(longhorn::CATALOG).chain(snapshot::CATALOG);
    let all = all.chain(management::CATALOG).chain(network::CATALOG).chain(load_balancer::CATALOG);
    let all = all.chain(dhcp::CATALOG).chain(alarm::CATALOG).chain(cluster_network_policy::CATALOG);
    all.map(|kind| {
        let mut definition = definition(kind);
        if let Some(approval) = approval(kind.group) {
            definition["metadata"]["annotations"] = json!({APPROVED: approval});
        }
        definition
    })
}

/// Groups of Kubernetes itself are for definitions that were approved there.
const APPROVED: &str = "api-approved.kubernetes.io";

fn approval(group: &str) -> Option<&'static str> {
    match group {
        crate::snapshot::GROUP => {
            Some("https://github.com/kubernetes-csi/external-snapshotter/pull/814")
        }
        crate::cluster_network_policy::GROUP => {
            Some("https://github.com/kubernetes-sigs/network-policy-api/pull/347")
        }
        _ => None,
    }
}

const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", "", 0);
const ALPHA1: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1alpha1", stored: true, deprecated: None }];
const BETA1: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1beta1", stored: true, deprecated: None }];
const BETA2: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1beta2", stored: true, deprecated: None }];
const ONE: &[DefinitionVersion] =
    &[DefinitionVersion { name: "v1", stored: true, deprecated: None }];

/// A namespaced kind that is not in category `all`.
const fn kind(
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    versions: &'static [DefinitionVersion],
    schema: fn() -> Value,
) -> KindDefinition {
    KindDefinition {
        scope: DefinitionScope::Namespaced,
        ..KindDefinition::new(group, name, plural, short, versions, schema)
    }
}

/// The same with a status of its own.
const fn with_status(
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    versions: &'static [DefinitionVersion],
    schema: fn() -> Value,
) -> KindDefinition {
    KindDefinition {
        subresources: Subresources::Status,
        ..kind(group, name, plural, short, versions, schema)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::definitions;

    /// Fields whose type is one of Kubernetes itself: their parts have no texts, to save memory.
    const EMBEDDED: &[&str] = &["persistentVolumeClaim", "persistentVolumeClaimSpec", "sourceSpec"];

    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        if let Some(items) = schema.get("items") {
            undescribed(items, path, found);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            // Kubernetes describes metadata itself.
            if name != "metadata" && field["description"].as_str().is_none_or(str::is_empty) {
                found.push(path.clone());
            }
            if !EMBEDDED.contains(&name.as_str()) {
                undescribed(field, &path, found);
            }
        }
    }

    #[test]
    fn every_field_has_a_description() {
        let mut found = Vec::new();
        for definition in definitions() {
            let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
            for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
                undescribed(&version["schema"]["openAPIV3Schema"], kind, &mut found);
            }
        }
        assert_eq!(found, Vec::<String>::new());
    }
}
