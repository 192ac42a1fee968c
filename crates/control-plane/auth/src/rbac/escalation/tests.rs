use serde_json::json;

use super::*;

fn rule(value: Value) -> PolicyRule {
    PolicyRule::list(&json!({"rules": [value]})).remove(0)
}

fn on(verbs: &[&str], groups: &[&str], resources: &[&str]) -> PolicyRule {
    rule(json!({"verbs": verbs, "apiGroups": groups, "resources": resources}))
}

fn paths(verbs: &[&str], urls: &[&str]) -> PolicyRule {
    rule(json!({"verbs": verbs, "nonResourceURLs": urls}))
}

fn named(names: &[&str]) -> PolicyRule {
    rule(
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names}),
    )
}

#[test]
fn coverage_is_judged_part_by_part() {
    let none: &[&str] = &[];
    for (case, held, wanted, missing) in [
        ("same", vec![on(&["get"], &[""], &["pods"])], vec![on(&["get"], &[""], &["pods"])], none),
        (
            "two rules together",
            vec![on(&["get"], &[""], &["pods"]), on(&["list"], &[""], &["pods"])],
            vec![on(&["get", "list"], &[""], &["pods"])],
            none,
        ),
        (
            "a verb short",
            vec![on(&["get"], &[""], &["pods"])],
            vec![on(&["get", "list"], &[""], &["pods"])],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#],
        ),
        (
            "stars cover",
            vec![on(&["*"], &["*"], &["*"])],
            vec![on(&["get"], &["apps"], &["x/scale"])],
            none,
        ),
        (
            "stars are not covered",
            vec![on(&["get"], &["apps"], &["x"])],
            vec![on(&["*"], &["*"], &["*"])],
            &[r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#],
        ),
        (
            "subresource star",
            vec![on(&["get"], &[""], &["*/scale"])],
            vec![on(&["get"], &[""], &["x/scale"])],
            none,
        ),
        (
            "subresource star is narrow",
            vec![on(&["get"], &[""], &["*/scale"])],
            vec![on(&["get"], &[""], &["x"])],
            &[r#"{APIGroups:[""], Resources:["x"], Verbs:["get"]}"#],
        ),
        (
            "resource is not its subresource",
            vec![on(&["get"], &[""], &["x"])],
            vec![on(&["get"], &[""], &["x/scale"])],
            &[r#"{APIGroups:[""], Resources:["x/scale"], Verbs:["get"]}"#],
        ),
        (
            "all names cover some",
            vec![on(&["get"], &[""], &["pods"])],
            vec![named(&["a", "b"])],
            none,
        ),
        (
            "some names do not cover all",
            vec![named(&["a"])],
            vec![on(&["get"], &[""], &["pods"])],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        ),
        (
            "a name short",
            vec![named(&["a"])],
            vec![named(&["a", "b"])],
            &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#],
        ),
        (
            "path prefix",
            vec![paths(&["get"], &["/apis/*"])],
            vec![paths(&["get"], &["/apis/x", "/apis/x/*"])],
            none,
        ),
        (
            "path beyond prefix",
            vec![paths(&["get"], &["/apis/*"])],
            vec![paths(&["get"], &["/apis"])],
            &[r#"{NonResourceURLs:["/apis"], Verbs:["get"]}"#],
        ),
        (
            "star path is not covered by a prefix",
            vec![paths(&["*"], &["/a*"])],
            vec![paths(&["get"], &["*"])],
            &[r#"{NonResourceURLs:["*"], Verbs:["get"]}"#],
        ),
    ] {
        let found: Vec<String> =
            covers(&held, &wanted).iter().map(PolicyRule::compact_text).collect();
        assert_eq!(found, missing, "{case}");
    }
}

/// alice holds `get pods` everywhere and `list pods` in ns1; eve may escalate, bob may bind.
fn policy() -> RbacPolicy {
    let binding =
        |kind: &str, name: &str, namespace: &str, role_kind: &str, role: &str, user: &str| {
            json!({"kind": kind, "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"kind": role_kind, "name": role, "apiGroup": GROUP},
            "subjects": [{"kind": "User", "name": user}]})
        };
    let cluster_role = |name: &str, rules: &[PolicyRule]| {
        let rules: Vec<Value> = rules.iter().map(PolicyRule::to_value).collect();
        json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    };
    RbacPolicy::build(&[
        cluster_role("reader", &[on(&["get"], &[""], &["pods"])]),
        cluster_role("lister", &[on(&["list"], &[""], &["pods"])]),
        cluster_role("escalator", &[on(&["escalate"], &[GROUP], &["clusterroles", "roles"])]),
        cluster_role("admin", &full_authority()),
        cluster_role(
            "binder",
            &[rule(json!({"verbs": ["bind"], "apiGroups": [GROUP],
            "resources": ["clusterroles"], "resourceNames": ["admin"]}))],
        ),
        binding("ClusterRoleBinding", "1", "", "ClusterRole", "reader", "alice"),
        binding("RoleBinding", "2", "ns1", "ClusterRole", "lister", "alice"),
        binding("ClusterRoleBinding", "3", "", "ClusterRole", "escalator", "eve"),
        binding("ClusterRoleBinding", "4", "", "ClusterRole", "binder", "bob"),
        binding("ClusterRoleBinding", "5", "", "ClusterRole", "admin", "root"),
        binding("ClusterRoleBinding", "6", "", "ClusterRole", "gone", "carol"),
    ])
}

fn user(name: &str) -> User {
    User::new(name, ["system:authenticated", "staff"])
}

fn role(kind: &str, rules: &[PolicyRule]) -> Value {
    let rules: Vec<Value> = rules.iter().map(PolicyRule::to_value).collect();
    json!({"kind": kind, "metadata": {"name": "new"}, "rules": rules})
}

#[test]
fn a_role_may_grant_only_what_its_writer_holds() {
    let both = role("Role", &[on(&["get", "list"], &[""], &["pods"])]);
    let check =
        |name: &str, namespace: &str| check_role(&user(name), &policy(), namespace, &both, None);
    assert_eq!(check("alice", "ns1"), Ok(()));
    assert!(check("alice", "ns2").is_err());
    assert_eq!(check("eve", "ns2"), Ok(()));
    assert_eq!(check("root", "ns2"), Ok(()));
    assert!(check("bob", "ns1").is_err());
    let master = User::new("m", [MASTERS]);
    assert_eq!(check_role(&master, &policy(), "ns1", &both, None), Ok(()));
}

#[test]
fn a_refused_role_lists_what_is_missing() {
    let wanted = role(
        "ClusterRole",
        &[on(&["get", "list", "watch"], &[""], &["pods", "nodes"]), paths(&["get"], &["/x"])],
    );
    let error = check_role(&user("alice"), &policy(), "", &wanted, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        concat!(
            r#"user "alice" (groups=["system:authenticated" "staff"]) is attempting to grant RBAC permissions not currently held:"#,
            "\n",
            r#"{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list" "watch"]}"#,
            "\n",
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
            "\n",
            r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
        )
    );
    let error = check_role(&user("carol"), &policy(), "", &wanted, None).unwrap_err();
    let end = r#"; resolution errors: [clusterrole.rbac.authorization.k8s.io "gone" not found]"#;
    assert!(error.to_string().ends_with(end), "{error}");
}

#[test]
fn aggregation_takes_the_right_to_everything() {
    let mut sum = role("ClusterRole", &[]);
    sum["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let check = |name: &str, new: &Value, old: Option<&Value>| {
        check_role(&user(name), &policy(), "", new, old)
    };
    assert_eq!(check("alice", &sum, None), Err(EscalationError::AggregationRule));
    assert_eq!(check("root", &sum, None), Ok(()));
    // Taking the aggregation away is a change to it as well.
    let plain = role("ClusterRole", &[]);
    assert_eq!(check("alice", &plain, Some(&sum)), Err(EscalationError::AggregationRule));
}

#[test]
fn helping_an_object_to_be_deleted_needs_no_rights() {
    let old = role("ClusterRole", &full_authority());
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["orphan"]);
    assert_eq!(check_role(&user("alice"), &policy(), "", &new, Some(&old)), Ok(()));
    new["metadata"]["labels"] = json!({"a": "b"});
    assert!(check_role(&user("alice"), &policy(), "", &new, Some(&old)).is_err());
}

#[test]
fn a_binding_may_grant_only_what_its_writer_holds() {
    let binding = |kind: &str, role: &str| {
        json!({"kind": kind, "metadata": {"name": "new"},
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": GROUP}})
    };
    let check = |name: &str, namespace: &str, role: &str| {
        let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
        check_binding(&user(name), &policy(), namespace, &binding(kind, role), None)
    };
    assert_eq!(check("alice", "", "reader"), Ok(()));
    assert_eq!(check("alice", "ns1", "lister"), Ok(()));
    assert!(matches!(check("alice", "", "lister"), Err(EscalationError::NotHeld { .. })));
    assert!(matches!(check("alice", "", "admin"), Err(EscalationError::NotHeld { .. })));
    assert_eq!(check("bob", "", "admin"), Ok(()));
    assert_eq!(check("bob", "ns1", "admin"), Ok(()));
    assert!(check("bob", "", "reader").is_err());
    // The right to write any role is no right to bind one.
    assert!(check("eve", "", "admin").is_err());
    assert_eq!(
        check("alice", "", "gone").unwrap_err().to_string(),
        r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#
    );
}

mod property {
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    use super::*;

    fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
        subsequence(of, 0..=2).prop_map(|texts| texts.into_iter().map(str::to_owned).collect())
    }

    fn any_rule() -> impl Strategy<Value = PolicyRule> {
        (
            some(&["get", "list", "*"]),
            some(&["", "apps", "*"]),
            some(&["pods", "pods/status", "*/status", "nodes/status", "*"]),
            some(&["a", "b"]),
            some(&["/x", "/x/*", "/x/y", "*"]),
        )
            .prop_map(
                |(verbs, api_groups, resources, resource_names, non_resource_urls)| PolicyRule {
                    verbs,
                    api_groups,
                    resources,
                    resource_names,
                    non_resource_urls,
                },
            )
    }

    fn every_request() -> Vec<Attributes<'static>> {
        let mut requests = Vec::new();
        for verb in ["get", "list", "other"] {
            for path in ["/x", "/x/y", "/x/z", "/other"] {
                requests.push(Attributes { verb, target: AccessTarget::Path(path) });
            }
            for group in ["", "apps", "other"] {
                for resource in ["pods", "nodes", "other"] {
                    for (subresource, name) in ["", "status", "other"]
                        .into_iter()
                        .flat_map(|sub| ["", "a", "b"].map(|name| (sub, name)))
                    {
                        let request = ResourceRequest {
                            group,
                            resource,
                            subresource,
                            name,
                            ..ResourceRequest::default()
                        };
                        requests.push(Attributes { verb, target: AccessTarget::Resource(request) });
                    }
                }
            }
        }
        requests
    }

    proptest! {
        #[test]
        fn covered_rules_allow_nothing_new(
            held in prop::collection::vec(any_rule(), 0..4),
            wanted in prop::collection::vec(any_rule(), 0..3),
        ) {
            let missing = covers(&held, &wanted);
            for request in every_request() {
                let allows = |rules: &[PolicyRule]| rules.iter().any(|rule| rule.allows(&request));
                if allows(&wanted) {
                    prop_assert!(allows(&held) || allows(&missing), "{request:?}");
                }
            }
        }
    }
}
