//! The roles and bindings that exist in every cluster from its first start.
//!
//! Names and rights are Kubernetes', because tools bind to them and tests check for
//! them; also those that nothing here runs as, since upstream's controllers may run here.
//! Keep existing objects up to date with [`super::reconcile`].

mod component;
mod controller;
mod local;
mod person;
mod platform;

pub use platform::{NODE_ROLE, WITNESS_ROLE};

use serde_json::{Value, json};

use super::GROUP;
use super::reconcile::AUTO_UPDATE;
use super::rule::PolicyRule;

const LABEL: &str = "kubernetes.io/bootstrapping";
const KUBE_SYSTEM: &str = "kube-system";
const KUBE_PUBLIC: &str = "kube-public";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
const READ_WRITE: &[&str] =
    &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const READ_UPDATE: &[&str] = &["get", "list", "watch", "update", "patch"];

const CORE: &str = "";
const ADMISSION: &str = "admissionregistration.k8s.io";
const APPS: &str = "apps";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTOSCALING: &str = "autoscaling";
const BATCH: &str = "batch";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";
const EVENTS: &str = "events.k8s.io";
const EXTENSIONS: &str = "extensions";
const NETWORKING: &str = "networking.k8s.io";
const POLICY: &str = "policy";
const RESOURCE: &str = "resource.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// Every bootstrap object, roles before the bindings that refer to them. Those of a
/// namespace need `kube-system` and `kube-public` to exist.
pub fn objects() -> Vec<Value> {
    let mut objects = person::cluster_roles();
    objects.extend(component::cluster_roles());
    objects.extend(controller::cluster_roles());
    objects.extend(platform::cluster_roles());
    objects.extend(local::roles());
    objects.extend(platform::roles());
    objects.extend(person::cluster_role_bindings());
    objects.extend(component::cluster_role_bindings());
    objects.extend(controller::cluster_role_bindings());
    objects.extend(platform::cluster_role_bindings());
    objects.extend(local::role_bindings());
    objects.extend(platform::role_bindings());
    objects
}

/// Rights to resources of one group.
fn on(verbs: &[&str], group: &str, resources: &[&str]) -> PolicyRule {
    on_groups(verbs, &[group], resources)
}

fn on_groups(verbs: &[&str], groups: &[&str], resources: &[&str]) -> PolicyRule {
    PolicyRule {
        verbs: owned(verbs),
        api_groups: owned(groups),
        resources: owned(resources),
        ..PolicyRule::default()
    }
}

/// Rights to certain objects only.
fn named(verbs: &[&str], group: &str, resource: &str, names: &[&str]) -> PolicyRule {
    PolicyRule { resource_names: owned(names), ..on(verbs, group, &[resource]) }
}

fn urls(verbs: &[&str], urls: &[&str]) -> PolicyRule {
    let mut urls = owned(urls);
    urls.sort();
    PolicyRule { verbs: owned(verbs), non_resource_urls: urls, ..PolicyRule::default() }
}

/// The right to report events.
fn events() -> PolicyRule {
    on_groups(&["create", "update", "patch"], &[CORE, EVENTS], &["events"])
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {LABEL: "rbac-defaults"},
            "annotations": {AUTO_UPDATE: "true"},
        },
    })
}

fn with_rules(mut role: Value, rules: &[PolicyRule]) -> Value {
    role["rules"] = rules.iter().map(PolicyRule::to_value).collect();
    role
}

fn cluster_role(name: &str, rules: &[PolicyRule]) -> Value {
    with_rules(object("ClusterRole", name), rules)
}

fn role(namespace: &str, name: &str, rules: &[PolicyRule]) -> Value {
    let mut role = with_rules(object("Role", name), rules);
    role["metadata"]["namespace"] = namespace.into();
    role
}

enum BootstrapSubject<'a> {
    User(&'a str),
    Group(&'a str),
    /// In `kube-system`.
    ServiceAccount(&'a str),
}

impl BootstrapSubject<'_> {
    fn to_value(&self) -> Value {
        match self {
            Self::User(name) => json!({"kind": "User", "apiGroup": GROUP, "name": name}),
            Self::Group(name) => json!({"kind": "Group", "apiGroup": GROUP, "name": name}),
            Self::ServiceAccount(name) => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": KUBE_SYSTEM})
            }
        }
    }
}

/// Binds the cluster role of the same name.
fn cluster_role_binding(name: &str, subjects: &[BootstrapSubject<'_>]) -> Value {
    bind(object("ClusterRoleBinding", name), "ClusterRole", name, subjects)
}

fn role_binding(
    namespace: &str,
    name: &str,
    role: &str,
    subjects: &[BootstrapSubject<'_>],
) -> Value {
    let mut binding = bind(object("RoleBinding", name), "Role", role, subjects);
    binding["metadata"]["namespace"] = namespace.into();
    binding
}

fn bind(mut binding: Value, kind: &str, role: &str, subjects: &[BootstrapSubject<'_>]) -> Value {
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    if !subjects.is_empty() {
        binding["subjects"] = subjects.iter().map(BootstrapSubject::to_value).collect();
    }
    binding
}

#[cfg(test)]
mod tests;
