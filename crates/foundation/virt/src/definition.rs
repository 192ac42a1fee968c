//! The CustomResourceDefinitions of all kinds: names, versions, columns and subresources as
//! upstream publishes them, with the schemas of the records in [`crate::api`].

mod backup;
mod catalog;
mod network;
mod storage;
mod template;

use crd::definition::{KindDefinition, definition};
use serde_json::Value;

/// The definitions, ready to be created. Made one by one: together they are large.
pub fn definitions() -> impl Iterator<Item = Value> {
    let kinds =
        [catalog::CATALOG, storage::CATALOG, network::CATALOG, template::CATALOG, backup::CATALOG];
    kinds
        .into_iter()
        .flatten()
        .map(|kind| definition(&KindDefinition { label: label(kind), ..*kind }))
}

/// The label by which upstream's components find their own definitions.
fn label(kind: &KindDefinition) -> &'static str {
    match (kind.group, kind.kind) {
        (_, "KubeVirt") => "operator.kubevirt.io",
        (_, "CDI") => "operator.cdi.kubevirt.io",
        ("cdi.kubevirt.io", _) => "cdi.kubevirt.io",
        ("k8s.cni.cncf.io", _) => "",
        _ => "kubevirt.io",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::definitions;

    /// Fields whose type is one of Kubernetes itself, or experimental: their parts have no texts, to
    /// save memory.
    const EMBEDDED: &[&str] = &[
        "affinity",
        "dataSource",
        "defaultPodResourceRequirements",
        "dnsConfig",
        "exec",
        "experimental",
        "fields",
        "httpGet",
        "nodeSelectorRequirementMatcher",
        "persistentVolumeClaim",
        "pvc",
        "podResourceRequirements",
        "resources",
        "selector",
        "tcpSocket",
        "tolerations",
        "topologySpreadConstraints",
    ];

    fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
        for inner in ["items", "additionalProperties"] {
            undescribed_if_object(&schema[inner], path, found);
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

    fn undescribed_if_object(schema: &Value, path: &str, found: &mut Vec<String>) {
        if schema.is_object() {
            undescribed(schema, path, found);
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
