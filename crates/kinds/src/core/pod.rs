//! Pods.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["po"],
    categories: &["all"],
    subresources: SUBRESOURCES,
    strategy: Strategy { generation: true, returns_deleted: true, ..Strategy::WITH_STATUS },
    ..Resource::namespaced("", "v1", "pods", "pod", "Pod")
};

const SUBRESOURCES: &[Subresource] = &[
    Subresource { name: "binding", kind: Some(("", "v1", "Binding")), verbs: &["create"] },
    Subresource { name: "eviction", kind: Some(("policy", "v1", "Eviction")), verbs: &["create"] },
    Subresource { name: "log", kind: None, verbs: &["get"] },
    Subresource::STATUS,
];
