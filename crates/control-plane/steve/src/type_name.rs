//! Names of types: from a name in a path to a kind of the server, and back. Pure.
//!
//! A type is called by its group and kind in the singular (`kubevirt.io.virtualmachine`), and
//! by its group and resource in paths (`kubevirt.io.virtualmachines`). Both are understood.

use std::sync::Arc;

use client::{Catalog, CatalogKind};

/// The type of a kind's objects: `kubevirt.io.virtualmachine`, `node`.
pub(crate) fn id(kind: &CatalogKind) -> String {
    qualified(&kind.group, &kind.kind.to_lowercase())
}

/// The name of a kind in paths: `kubevirt.io.virtualmachines`, `nodes`.
pub(crate) fn plural(kind: &CatalogKind) -> String {
    qualified(&kind.group, &kind.plural)
}

fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}.{name}") }
}

/// The kind that a name in a path means.
pub(crate) fn find<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Arc<CatalogKind>> {
    let (group, resource) = name.rsplit_once('.').unwrap_or(("", name));
    // Groups of actions list resources without objects, such as subresources.kubevirt.io.
    let mut kinds = catalog.kinds().iter().filter(|kind| !kind.kind.is_empty());
    let by_plural = kinds.clone().find(|kind| kind.is(group, resource));
    by_plural.or_else(|| {
        kinds.find(|kind| {
            &*kind.group == group && kind.kind.to_lowercase() == resource.to_lowercase()
        })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A catalog with a few kinds.
    pub(crate) fn catalog() -> Catalog {
        let lists = ["/api", "/apis"].map(discovery);
        Catalog::read(&lists.map(|list| serde_json::from_value(list).unwrap()))
    }

    /// The discovery of a server with those, at `/api` or `/apis`.
    pub(crate) fn discovery(path: &str) -> serde_json::Value {
        let resource = |group: &str, version: &str, plural: &str, kind: &str, scope: &str| {
            json!({
                "resource": plural, "scope": scope, "singularResource": kind.to_lowercase(),
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": ["get", "list", "watch", "create", "update", "delete"],
            })
        };
        let group = |name: &str, version: &str, resources: Vec<serde_json::Value>| {
            json!({
                "metadata": {"name": name},
                "versions": [{"version": version, "resources": resources, "freshness": "Current"}],
            })
        };
        let core = [
            resource("", "v1", "nodes", "Node", "Cluster"),
            resource("", "v1", "namespaces", "Namespace", "Cluster"),
            resource("", "v1", "pods", "Pod", "Namespaced"),
            resource("", "v1", "secrets", "Secret", "Namespaced"),
            resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "Namespaced"),
        ];
        let machines = ["virtualmachines", "virtualmachineinstances"];
        let machines = machines.map(|plural| {
            let kind = if plural.ends_with("instances") { "Instance" } else { "" };
            let kind = format!("VirtualMachine{kind}");
            resource("kubevirt.io", "v1", plural, &kind, "Namespaced")
        });
        let harvester = [
            ("virtualmachineimages", "VirtualMachineImage"),
            ("virtualmachinetemplates", "VirtualMachineTemplate"),
            ("keypairs", "KeyPair"),
        ];
        let harvester = harvester.map(|(plural, kind)| {
            resource("harvesterhci.io", "v1beta1", plural, kind, "Namespaced")
        });
        let items = match path {
            "/api" => vec![group("", "v1", core.into())],
            _ => vec![
                group("kubevirt.io", "v1", machines.into()),
                group("harvesterhci.io", "v1beta1", harvester.into()),
            ],
        };
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": items,
        })
    }

    #[test]
    fn a_type_is_found_by_either_name() {
        let catalog = catalog();
        for (name, expected) in [
            ("nodes", Some("node")),
            ("node", Some("node")),
            ("kubevirt.io.virtualmachines", Some("kubevirt.io.virtualmachine")),
            ("kubevirt.io.virtualmachine", Some("kubevirt.io.virtualmachine")),
            ("virtualmachines", None),
            ("kubevirt.io.", None),
            ("", None),
        ] {
            assert_eq!(find(&catalog, name).map(|kind| id(kind)).as_deref(), expected, "{name}");
        }
        let kind = find(&catalog, "kubevirt.io.virtualmachine").unwrap();
        assert_eq!(plural(kind), "kubevirt.io.virtualmachines");
    }
}
