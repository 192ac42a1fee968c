use serde_json::json;

use super::*;

fn objects() -> Vec<Value> {
    let meta = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
    let role_ref = |kind: &str, name: &str| json!({"kind": kind, "name": name, "apiGroup": GROUP});
    vec![
        json!({"kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]}),
        json!({"kind": "ClusterRole", "metadata": {"name": "healthy"}, "rules": [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}]}),
        json!({"kind": "Role", "metadata": meta("writer", "ns1"), "rules": [
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments", "*/scale"]}]}),
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "readers"},
            "roleRef": role_ref("ClusterRole", "reader"),
            "subjects": [{"kind": "Group", "name": "staff"}, {"kind": "User", "name": "root"}]}),
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "health"},
            "roleRef": role_ref("ClusterRole", "healthy"),
            "subjects": [{"kind": "Group", "name": "staff"},
                         {"kind": "ServiceAccount", "name": "robot", "namespace": "ns2"},
                         {"kind": "ServiceAccount", "name": "homeless"}]}),
        json!({"kind": "RoleBinding", "metadata": meta("writers", "ns1"),
            "roleRef": role_ref("Role", "writer"),
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}, {"kind": "User", "name": "alice"}]}),
        json!({"kind": "RoleBinding", "metadata": meta("local-readers", "ns1"),
            "roleRef": role_ref("ClusterRole", "reader"),
            "subjects": [{"kind": "User", "name": "bob"}]}),
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "dangling"},
            "roleRef": role_ref("ClusterRole", "gone"),
            "subjects": [{"kind": "User", "name": "carol"}]}),
        json!({"kind": "RoleBinding", "metadata": meta("dangling", "ns1"),
            "roleRef": role_ref("Role", "gone"),
            "subjects": [{"kind": "User", "name": "carol"}]}),
    ]
}

fn policy() -> RbacPolicy {
    RbacPolicy::build(&objects())
}

/// `group/resource[/sub]` in a namespace, or a path beginning with a slash.
fn ask<'a>(verb: &'a str, what: &'a str, namespace: &'a str) -> Attributes<'a> {
    let target = match what.strip_prefix('/') {
        Some(_) => AccessTarget::Path(what),
        None => {
            let mut parts = what.splitn(3, '/');
            let mut part = || parts.next().unwrap_or_default();
            let (group, resource, subresource) = (part(), part(), part());
            let request = ResourceRequest {
                group,
                resource,
                subresource,
                namespace,
                ..ResourceRequest::default()
            };
            AccessTarget::Resource(request)
        }
    };
    Attributes { verb, target }
}

fn core<'a>(verb: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
    let request = ResourceRequest { resource, namespace, ..ResourceRequest::default() };
    Attributes { verb, target: AccessTarget::Resource(request) }
}

#[test]
fn decisions_follow_the_bindings() {
    let policy = policy();
    let staff = User::new("sue", ["staff"]);
    let alice = User::new("alice", [""; 0]);
    let bob = User::new("bob", [""; 0]);
    let robot = User::service_account("ns1", "robot", "");
    let other_robot = User::service_account("ns2", "robot", "");
    let homeless = User::service_account("", "homeless", "");
    for (user, attributes, allowed) in [
        (&staff, core("get", "pods", "ns1"), true),
        (&staff, core("list", "pods", ""), true),
        (&staff, core("delete", "pods", "ns1"), false),
        (&staff, ask("get", "/healthz", ""), true),
        (&staff, ask("get", "/api/v1", ""), true),
        (&staff, ask("get", "/metrics", ""), false),
        (&staff, ask("post", "/healthz", ""), false),
        (&alice, ask("create", "apps/deployments", "ns1"), true),
        (&alice, ask("create", "apps/deployments", "ns2"), false),
        (&alice, ask("create", "apps/deployments", ""), false),
        (&alice, ask("update", "apps/replicasets/scale", "ns1"), true),
        (&alice, ask("update", "apps/replicasets", "ns1"), false),
        (&bob, core("get", "pods", "ns1"), true),
        (&bob, core("get", "pods", "ns2"), false),
        (&robot, ask("create", "apps/deployments", "ns1"), true),
        (&robot, ask("get", "/healthz", ""), false),
        (&other_robot, ask("get", "/healthz", ""), true),
        (&other_robot, ask("create", "apps/deployments", "ns1"), false),
        (&homeless, ask("get", "/healthz", ""), false),
    ] {
        let decision = policy.authorize(user, &attributes);
        assert_eq!(decision.is_allowed(), allowed, "{} {attributes:?}", user.name);
    }
}

#[test]
fn an_allowed_request_names_its_binding() {
    let policy = policy();
    let reason = |user: &User, attributes| match policy.authorize(user, &attributes) {
        Decision::Allow(reason) => reason.to_string(),
        Decision::NoOpinion(reason) => panic!("refused: {reason}"),
    };
    assert_eq!(
        reason(&User::new("sue", ["staff"]), core("get", "pods", "")),
        r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "staff""#
    );
    assert_eq!(
        reason(&User::service_account("ns1", "robot", ""), ask("get", "apps/deployments", "ns1")),
        r#"RBAC: allowed by RoleBinding "writers/ns1" of Role "writer" to ServiceAccount "robot/ns1""#
    );
}

#[test]
fn masters_need_no_binding() {
    let decision =
        RbacPolicy::default().authorize(&User::new("x", [MASTERS]), &ask("get", "/x", ""));
    assert!(decision.is_allowed());
}

#[test]
fn a_missing_role_is_named_in_the_refusal() {
    let carol = User::new("carol", [""; 0]);
    let policy = policy();
    assert_eq!(
        policy.authorize(&carol, &core("get", "pods", "")),
        Decision::NoOpinion(
            r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#.to_owned()
        )
    );
    assert_eq!(
        policy.authorize(&carol, &core("get", "pods", "ns1")),
        Decision::NoOpinion(
            r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]"#
                .to_owned()
        )
    );
    let stranger = User::new("nobody", [""; 0]);
    let refusal = policy.authorize(&stranger, &core("get", "pods", ""));
    assert_eq!(refusal, Decision::NoOpinion(String::new()));
}

#[test]
fn rules_of_a_user_are_split_by_what_they_are_about() {
    let (resources, paths) = policy().rules_for(&User::new("bob", ["staff"]), "ns1");
    // Once through the cluster binding, once through the one of the namespace.
    assert_eq!(resources.len(), 2);
    assert_eq!(resources[0].resources, ["pods"]);
    assert_eq!(paths[0].non_resource_urls, ["/healthz", "/api/*"]);
    let (resources, paths) = policy().rules_for(&User::new("x", [MASTERS]), "ns1");
    assert_eq!((resources[0].verbs[0].as_str(), paths[0].verbs[0].as_str()), ("*", "*"));
}

#[test]
fn a_binding_reached_twice_counts_once() {
    let (rules, errors) = policy().rules(&User::new("root", ["staff"]), "");
    assert_eq!((rules.len(), errors.len()), (2, 0));
}

#[test]
fn refusals_have_the_words_that_clients_know() {
    let alice = User::new("alice", [""; 0]);
    let pods = ResourceRequest { resource: "pods", namespace: "ns1", ..ResourceRequest::default() };
    let scale = ResourceRequest {
        group: "apps",
        resource: "deployments",
        subresource: "scale",
        name: "web",
        ..ResourceRequest::default()
    };
    for (verb, target, reason, expected) in [
        (
            "list",
            AccessTarget::Resource(pods),
            "",
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "ns1""#,
        ),
        (
            "get",
            AccessTarget::Resource(scale),
            "",
            r#"deployments.apps "web" is forbidden: User "alice" cannot get resource "deployments/scale" in API group "apps" at the cluster scope"#,
        ),
        (
            "get",
            AccessTarget::Path("/<b>"),
            "",
            r#"forbidden: User "alice" cannot get path "/&lt;b&gt;""#,
        ),
        (
            "list",
            AccessTarget::Resource(pods),
            "RBAC: broken",
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "ns1": RBAC: broken"#,
        ),
    ] {
        assert_eq!(forbidden_message(&alice, &Attributes { verb, target }, reason), expected);
    }
}
