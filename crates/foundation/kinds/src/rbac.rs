//! Group `rbac.authorization.k8s.io`: rows and columns only.
//!
//! Their rules (validation, escalation) live in `auth`, which wraps these rows.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::{Column, NameRule, Printer, Resource, Strategy};
use crate::{json, print};

const GROUP: &str = "rbac.authorization.k8s.io";

const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, create_on_update: true, ..Strategy::GENERIC };

pub(crate) const CLUSTER_ROLE: Resource = Resource {
    strategy: STRATEGY,
    printer: Printer::CREATED,
    ..Resource::cluster(GROUP, "v1", "clusterroles", "clusterrole", "ClusterRole")
};

pub(crate) const ROLE: Resource = Resource {
    strategy: STRATEGY,
    printer: Printer::CREATED,
    ..Resource::namespaced(GROUP, "v1", "roles", "role", "Role")
};

pub(crate) const CLUSTER_ROLE_BINDING: Resource = Resource {
    strategy: STRATEGY,
    printer: BINDINGS,
    ..Resource::cluster(
        GROUP,
        "v1",
        "clusterrolebindings",
        "clusterrolebinding",
        "ClusterRoleBinding",
    )
};

pub(crate) const ROLE_BINDING: Resource = Resource {
    strategy: STRATEGY,
    printer: BINDINGS,
    ..Resource::namespaced(GROUP, "v1", "rolebindings", "rolebinding", "RoleBinding")
};

const BINDINGS: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Role", "What is granted"),
        Column::AGE,
        Column::text("Users", "Users it is granted to").wide(),
        Column::text("Groups", "Groups it is granted to").wide(),
        Column::text("ServiceAccounts", "Service accounts it is granted to").wide(),
    ],
    cells: bindings,
};

fn bindings(object: &Value, now: Timestamp) -> Vec<Value> {
    let role =
        format!("{}/{}", json::text(object, "/roleRef/kind"), json::text(object, "/roleRef/name"));
    let subjects = |kind: &str| -> Value {
        let chosen = json::list(object, "/subjects")
            .iter()
            .filter(|subject| json::text(subject, "/kind") == kind)
            .map(|subject| {
                match (json::text(subject, "/namespace"), json::text(subject, "/name")) {
                    (namespace, name) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
                    (_, name) => name.to_owned(),
                }
            });
        chosen.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        print::name(object),
        role.into(),
        print::age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
