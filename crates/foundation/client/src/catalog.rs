//! Which kinds a server serves, read from its aggregated discovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::client::{APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery};

use crate::fault::Fault;

/// The verbs that a kind supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Delete,
    DeleteCollection,
    List,
    Watch,
}

impl Verb {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Delete, "delete"),
        (Self::DeleteCollection, "deletecollection"),
        (Self::List, "list"),
        (Self::Watch, "watch"),
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// One kind, at the version its server prefers.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogKind {
    /// Empty for the core group.
    pub group: Box<str>,
    pub plural: Box<str>,
    pub kind: Box<str>,
    pub version: Box<str>,
    /// Every version it is served at, the preferred one first.
    pub versions: Box<[Box<str>]>,
    pub namespaced: bool,
    verbs: u8,
}

impl CatalogKind {
    pub fn can(&self, verb: Verb) -> bool {
        self.verbs & verb.bit() != 0
    }

    pub fn is(&self, group: &str, plural: &str) -> bool {
        &*self.group == group && &*self.plural == plural
    }

    /// As `apiVersion` says it: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Path of the collection in `namespace`, or of all its objects if that is empty.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let version = self.api_version();
        match namespace {
            "" => format!("/{root}/{version}/{}", self.plural),
            _ => format!("/{root}/{version}/namespaces/{namespace}/{}", self.plural),
        }
    }
}

/// All kinds of a server.
#[derive(Debug, Default)]
pub struct Catalog {
    kinds: Vec<Arc<CatalogKind>>,
    /// Group versions whose kinds the server could not find out just now.
    pub stale: Vec<String>,
}

/// Why the kinds could not be found out.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}")]
pub struct DiscoverError {
    path: &'static str,
    source: Fault,
}

/// Asks the server which kinds it serves.
pub async fn discover(client: &Client) -> Result<Catalog, DiscoverError> {
    let core = client
        .list_core_api_versions_aggregated()
        .await
        .map_err(|source| DiscoverError { path: "/api", source: Fault(source) })?;
    let groups = client
        .list_api_groups_aggregated()
        .await
        .map_err(|source| DiscoverError { path: "/apis", source: Fault(source) })?;
    Ok(Catalog::read(&[core, groups]))
}

impl Catalog {
    pub fn read(lists: &[APIGroupDiscoveryList]) -> Self {
        let mut catalog = Self::default();
        for group in lists.iter().flat_map(|list| &list.items) {
            catalog.add_group(group);
        }
        catalog
    }

    pub fn kinds(&self) -> &[Arc<CatalogKind>] {
        &self.kinds
    }

    /// The kind that objects of this `apiVersion` and `kind` are, if that is served.
    pub fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<CatalogKind>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.kinds.iter().find(|own| {
            &*own.group == group
                && &*own.kind == kind
                && own.versions.iter().any(|own| &**own == version)
        })
    }

    pub fn resource(&self, group: &str, plural: &str) -> Option<&Arc<CatalogKind>> {
        self.kinds.iter().find(|kind| kind.is(group, plural))
    }

    fn add_group(&mut self, group: &APIGroupDiscovery) {
        let name = group.metadata.as_ref().and_then(|meta| meta.name.as_deref()).unwrap_or("");
        let mut found: BTreeMap<&str, CatalogKind> = BTreeMap::new();
        for served in &group.versions {
            let version = served.version.as_deref().unwrap_or_default();
            if served.freshness.as_deref() == Some("Stale") {
                self.stale.push(match name {
                    "" => version.to_owned(),
                    _ => format!("{name}/{version}"),
                });
            }
            for resource in &served.resources {
                let Some(plural) = resource.resource.as_deref() else { continue };
                match found.get_mut(plural) {
                    Some(kind) => {
                        let versions = kind.versions.iter().cloned();
                        kind.versions = versions.chain([version.into()]).collect();
                    }
                    None => {
                        found.insert(plural, kind_of(name, version, plural, resource));
                    }
                }
            }
        }
        self.kinds.extend(found.into_values().map(Arc::new));
    }
}

fn kind_of(
    group: &str,
    version: &str,
    plural: &str,
    resource: &APIResourceDiscovery,
) -> CatalogKind {
    let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.as_deref());
    CatalogKind {
        group: group.into(),
        plural: plural.into(),
        kind: kind.unwrap_or_default().into(),
        version: version.into(),
        versions: [version.into()].into(),
        namespaced: resource.scope.as_deref() == Some("Namespaced"),
        verbs: Verb::ALL
            .iter()
            .filter(|(_, name)| resource.verbs.iter().any(|verb| verb == name))
            .fold(0, |bits, (verb, _)| bits | verb.bit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let groups = serde_json::from_str(
            r#"{"items":[
            {"metadata":{"name":"a.io"},"versions":[
                {"version":"v2","resources":[{"resource":"things","scope":"Namespaced",
                    "responseKind":{"kind":"Thing"},"verbs":["delete","list","watch"]}]},
                {"version":"v1","freshness":"Stale","resources":[
                    {"resource":"things","scope":"Namespaced","responseKind":{"kind":"Thing"},
                     "verbs":["list"]},
                    {"resource":"olds","scope":"Cluster","responseKind":{"kind":"Old"},
                     "verbs":["list"]}]}]}]}"#,
        );
        let core = serde_json::from_str(
            r#"{"items":[{"versions":[{"version":"v1","resources":[{"resource":"nodes",
            "scope":"Cluster","responseKind":{"kind":"Node"},"verbs":["deletecollection"]}]}]}]}"#,
        );
        Catalog::read(&[core.unwrap(), groups.unwrap()])
    }

    #[test]
    fn the_first_version_that_has_a_resource_is_preferred() {
        let catalog = catalog();
        let thing = catalog.resource("a.io", "things").unwrap();
        assert_eq!(thing.path("n"), "/apis/a.io/v2/namespaces/n/things");
        assert!(thing.can(Verb::Delete) && !thing.can(Verb::DeleteCollection));
        assert_eq!(catalog.resource("a.io", "olds").unwrap().path(""), "/apis/a.io/v1/olds");
        assert_eq!(catalog.resource("", "nodes").unwrap().path(""), "/api/v1/nodes");
    }

    #[test]
    fn a_kind_is_found_by_every_served_version_and_no_other() {
        let catalog = catalog();
        assert_eq!(catalog.find("a.io/v1", "Thing").unwrap().version.as_ref(), "v2");
        assert!(catalog.find("a.io/v3", "Thing").is_none());
        assert!(catalog.find("v1", "Node").is_some());
    }

    #[test]
    fn stale_groups_are_named() {
        assert_eq!(catalog().stale, ["a.io/v1"]);
    }
}
