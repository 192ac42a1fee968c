use std::collections::BTreeSet;

use super::super::objects;
use crate::rbac::policy::{AccessTarget, Attributes, RbacPolicy, ResourceRequest};
use crate::rbac::rule::PolicyRule;
use crate::user::{AUTHENTICATED, CONTROLLER_USERS, CONTROLLERS, PLATFORM, User};

fn controller(name: &str) -> User {
    let name = match name {
        "" => CONTROLLERS.to_owned(),
        name => format!("system:sheaf-controller:{name}"),
    };
    User::new(name, [PLATFORM, AUTHENTICATED])
}

fn may(
    policy: &RbacPolicy,
    user: &User,
    verb: &str,
    (group, path): (&str, &str),
    namespace: &str,
) -> bool {
    let (resource, subresource) = path.split_once('/').unwrap_or((path, ""));
    let request =
        ResourceRequest { group, version: "v1", resource, subresource, namespace, name: "x" };
    policy
        .authorize(user, &Attributes { verb, target: AccessTarget::Resource(request) })
        .is_allowed()
}

#[test]
fn controllers_may_do_what_they_are_there_for() {
    let policy = RbacPolicy::build(&objects());
    for (name, verb, group, path, namespace) in [
        ("", "watch", "any.example.com", "things", ""),
        ("", "update", "coordination.k8s.io", "leases", "kube-system"),
        ("alarms", "get", "", "secrets", "kube-system"),
        ("garbage", "delete", "any.example.com", "things", "n"),
        ("namespaces", "deletecollection", "any.example.com", "things", "n"),
        ("namespaces", "update", "", "namespaces/finalize", ""),
        ("quotas", "list", "any.example.com", "things", "n"),
        ("roles", "escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("projects", "bind", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("autoscaling", "update", "any.example.com", "things/scale", "n"),
        ("certificates", "patch", "", "secrets", "kube-system"),
        ("tokens", "update", "", "secrets", "n"),
        ("machines", "create", "kubevirt.io", "virtualmachineinstances", "n"),
        ("storage", "delete", "longhorn.io", "volumes", "longhorn-system"),
        ("storage", "patch", "kubevirt.io", "virtualmachines/status", "n"),
        ("projects", "create", "", "namespaces", ""),
    ] {
        assert!(may(&policy, &controller(name), verb, (group, path), namespace), "{name} {path}");
    }
}

#[test]
fn controllers_may_not_do_what_others_are_there_for() {
    let policy = RbacPolicy::build(&objects());
    for (name, verb, group, path, namespace) in [
        ("", "delete", "", "pods", "n"),
        ("", "update", "coordination.k8s.io", "leases", "n"),
        ("", "get", "", "secrets", "n"),
        ("alarms", "get", "", "secrets", "n"),
        ("garbage", "create", "", "pods", "n"),
        ("garbage", "list", "", "secrets", "n"),
        ("namespaces", "create", "", "pods", "n"),
        ("quotas", "get", "", "secrets", "n"),
        ("roles", "create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
        ("projects", "create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
        ("autoscaling", "update", "apps", "deployments", "n"),
        ("certificates", "patch", "", "secrets", "n"),
        ("certificates", "list", "", "secrets", "kube-system"),
        ("tokens", "create", "", "secrets", "n"),
        ("tokens", "create", "", "serviceaccounts/token", "n"),
        ("machines", "delete", "", "secrets", "n"),
        ("machines", "list", "", "secrets", "n"),
        ("machines", "update", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("storage", "list", "", "secrets", "n"),
        ("storage", "delete", "kubevirt.io", "virtualmachines", "n"),
        ("operations", "get", "", "secrets", "n"),
    ] {
        assert!(!may(&policy, &controller(name), verb, (group, path), namespace), "{name} {path}");
    }
}

/// Wildcards and rights that lead to others, over all roles of controllers.
#[test]
fn few_controllers_have_far_reaching_rights() {
    let rules = |user: &str| {
        let mut rules = Vec::new();
        for role in objects() {
            let is_role = role["kind"] == "ClusterRole" || role["kind"] == "Role";
            if is_role && role["metadata"]["name"] == user {
                rules.extend(PolicyRule::list(&role));
            }
        }
        rules
    };
    let (mut wild, mut leading, mut secrets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for user in CONTROLLER_USERS {
        let short = user.rsplit(':').next().unwrap();
        for rule in rules(user) {
            assert!(!rule.verbs.iter().any(|verb| verb == "*"), "{user}: {rule:?}");
            let has = |resource: &str| rule.resources.iter().any(|own| own == resource);
            for verb in &rule.verbs {
                if has("*") {
                    wild.insert(format!("{short} {verb}"));
                }
                if ["impersonate", "escalate", "bind"].contains(&verb.as_str()) {
                    leading.insert(format!("{short} {verb}"));
                }
                if has("secrets") {
                    secrets.insert(format!("{short} {verb}"));
                }
            }
        }
    }
    let set = |expected: &[&str]| expected.iter().map(|text| (*text).to_owned()).collect();
    let expected: BTreeSet<String> = set(&[
        "garbage delete",
        "garbage get",
        "garbage patch",
        "namespaces delete",
        "namespaces deletecollection",
        "namespaces list",
        "quotas list",
        "sheaf-controllers list",
        "sheaf-controllers watch",
    ]);
    assert_eq!(wild, expected);
    assert_eq!(leading, set(&["projects bind", "projects escalate", "roles escalate"]));
    let expected: BTreeSet<String> = set(&[
        "alarms get",
        "certificates get",
        "certificates patch",
        "machines create",
        "machines get",
        "storage create",
        "storage delete",
        "storage get",
        "storage patch",
        "tokens delete",
        "tokens get",
        "tokens list",
        "tokens update",
        "tokens watch",
    ]);
    assert_eq!(secrets, expected);
}
