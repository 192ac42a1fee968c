//! ServiceAccounts.

use crate::resource::{Resource, Strategy, Subresource};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        kind: Some(("authentication.k8s.io", "v1", "TokenRequest")),
        verbs: &["create"],
    }],
    strategy: Strategy { returns_deleted: true, ..Strategy::GENERIC },
    ..Resource::namespaced("", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount")
};
