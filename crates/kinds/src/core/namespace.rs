//! Namespaces.

use crate::resource::{NameRule, Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["ns"],
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    subresources: &[
        Subresource { name: "finalize", kind: None, verbs: &["update"] },
        Subresource::STATUS,
    ],
    strategy: Strategy { name: NameRule::Label, returns_deleted: true, ..Strategy::WITH_STATUS },
    ..Resource::cluster("", "v1", "namespaces", "namespace", "Namespace")
};
