//! The CustomResourceDefinitions of all kinds: names, versions, columns and subresources as
//! upstream publishes them, with the schemas of the records.

mod harvester;
mod longhorn;
mod snapshot;

use crd::definition::{Column, Kind, Scope, Subresources, Version, definition};
use serde_json::{Value, json};

/// The definitions, ready to be created. Made one by one: together they are large.
pub fn definitions() -> impl Iterator<Item = Value> {
    let all = harvester::CATALOG.iter().chain(longhorn::CATALOG).chain(snapshot::CATALOG);
    all.map(|kind| {
        let mut definition = definition(kind);
        if kind.group == crate::snapshot::GROUP {
            definition["metadata"]["annotations"] = json!({APPROVED: APPROVAL});
        }
        definition
    })
}

/// Groups of Kubernetes itself are for definitions that were approved there.
const APPROVED: &str = "api-approved.kubernetes.io";
const APPROVAL: &str = "https://github.com/kubernetes-csi/external-snapshotter/pull/814";

const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", "", 0);
const BETA1: &[Version] = &[Version { name: "v1beta1", stored: true, deprecated: None }];
const BETA2: &[Version] = &[Version { name: "v1beta2", stored: true, deprecated: None }];
const ONE: &[Version] = &[Version { name: "v1", stored: true, deprecated: None }];

/// A namespaced kind that is not in category `all`.
const fn kind(
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    versions: &'static [Version],
    schema: fn() -> Value,
) -> Kind {
    Kind { scope: Scope::Namespaced, ..Kind::new(group, name, plural, short, versions, schema) }
}

/// The same with a status of its own.
const fn with_status(
    group: &'static str,
    name: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    versions: &'static [Version],
    schema: fn() -> Value,
) -> Kind {
    Kind {
        subresources: Subresources::Status,
        ..kind(group, name, plural, short, versions, schema)
    }
}
