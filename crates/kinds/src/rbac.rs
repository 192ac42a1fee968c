//! Group `rbac.authorization.k8s.io`: rows only.
//!
//! Their rules (validation, escalation) live in `auth`, which wraps these rows.

use crate::resource::{NameRule, Resource, Strategy};

const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, ..Strategy::GENERIC };

pub(crate) const CLUSTER_ROLE: Resource = Resource {
    strategy: STRATEGY,
    ..Resource::cluster(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "clusterrole",
        "ClusterRole",
    )
};

pub(crate) const CLUSTER_ROLE_BINDING: Resource = Resource {
    strategy: STRATEGY,
    ..Resource::cluster(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "clusterrolebinding",
        "ClusterRoleBinding",
    )
};

pub(crate) const ROLE: Resource = Resource {
    strategy: STRATEGY,
    ..Resource::namespaced("rbac.authorization.k8s.io", "v1", "roles", "role", "Role")
};

pub(crate) const ROLE_BINDING: Resource = Resource {
    strategy: STRATEGY,
    ..Resource::namespaced(
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "rolebinding",
        "RoleBinding",
    )
};
