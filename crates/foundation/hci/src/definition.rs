//! The CustomResourceDefinitions of all kinds: names, versions, columns and subresources as
//! upstream publishes them, with the schemas of the records.

mod alarm;
mod cluster_network_policy;
mod dhcp;
mod harvester;
mod load_balancer;
mod longhorn;
mod management;
mod multi_network_policy;
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
    let all = all.chain(multi_network_policy::CATALOG);
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
