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
