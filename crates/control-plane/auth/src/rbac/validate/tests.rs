use serde_json::json;

use super::*;

fn check(errors: Vec<FieldError>, expected: &[&str]) {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[test]
fn rules_name_what_they_are_about() {
    let good = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
    let role = |rules: &[&Value]| json!({"rules": rules});
    check(validate_role(&role(&[&good]), None), &[]);
    check(validate_role(&json!({}), None), &[]);
    check(validate_cluster_role(&role(&[&good, &paths]), None), &[]);
    check(
        validate_role(&role(&[&good, &paths]), None),
        &[
            r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
        ],
    );
    check(
        validate_cluster_role(&role(&[&json!({})]), None),
        &[
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ],
    );
    let mixed = json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]});
    check(
        validate_cluster_role(&role(&[&mixed]), None),
        &[
            r#"rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#,
        ],
    );
}

#[test]
fn an_aggregation_rule_needs_selectors() {
    check(
        validate_cluster_role(&json!({"aggregationRule": {}}), None),
        &[
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
        ],
    );
    let wrong = json!({"aggregationRule": {"clusterRoleSelectors": [
        {"matchExpressions": [{"key": "a", "operator": "Near"}]}]}});
    check(
        validate_cluster_role(&wrong, None),
        &[
            r#"aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator"#,
        ],
    );
    check(validate_cluster_role(&json!({"aggregationRule": null}), None), &[]);
}

fn binding(role: Value, subjects: Value) -> Value {
    json!({"roleRef": role, "subjects": subjects})
}

fn role_ref(kind: &str, name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": name})
}

#[test]
fn bindings_refer_to_roles() {
    for (role, cluster, expected) in [
        (role_ref("Role", "a:b"), false, &[][..]),
        (role_ref("ClusterRole", "a"), false, &[]),
        (role_ref("ClusterRole", "a"), true, &[]),
        (
            role_ref("Role", "a"),
            true,
            &[r#"roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole""#],
        ),
        (
            role_ref("User", "a"),
            false,
            &[
                r#"roleRef.kind: Unsupported value: "User": supported values: "Role", "ClusterRole""#,
            ],
        ),
        (role_ref("Role", ""), false, &["roleRef.name: Required value"]),
        (
            role_ref("Role", "a/b"),
            false,
            &[r#"roleRef.name: Invalid value: "a/b": may not contain '/'"#],
        ),
        (
            json!({"kind": "Role", "name": "a", "apiGroup": "x"}),
            false,
            &[
                r#"roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
            ],
        ),
    ] {
        let validate = if cluster { validate_cluster_role_binding } else { validate_role_binding };
        check(validate(&binding(role, json!([])), None), expected);
    }
}

#[test]
fn subjects_are_users_groups_or_service_accounts() {
    let subject = |kind: &str, name: &str, group: &str, namespace: &str| json!({"kind": kind, "name": name, "apiGroup": group, "namespace": namespace});
    for (subject, cluster, expected) in [
        (subject("User", "any thing", GROUP, ""), false, &[][..]),
        (subject("Group", "system:masters", GROUP, ""), true, &[]),
        (subject("ServiceAccount", "a", "", "ns"), true, &[]),
        (subject("ServiceAccount", "a", "", ""), false, &[]),
        (subject("ServiceAccount", "a", "", ""), true, &["subjects[0].namespace: Required value"]),
        (
            subject("ServiceAccount", "a", GROUP, "ns"),
            true,
            &[
                r#"subjects[0].apiGroup: Unsupported value: "rbac.authorization.k8s.io": supported values: """#,
            ],
        ),
        (subject("User", "", GROUP, ""), false, &["subjects[0].name: Required value"]),
        (
            subject("User", "a", "x", ""),
            false,
            &[
                r#"subjects[0].apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
            ],
        ),
        (
            subject("Robot", "a", "", ""),
            false,
            &[
                r#"subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#,
            ],
        ),
    ] {
        let validate = if cluster { validate_cluster_role_binding } else { validate_role_binding };
        let object = binding(role_ref("ClusterRole", "r"), json!([subject]));
        check(validate(&object, None), expected);
    }
    let wrong = subject("ServiceAccount", "A B", "", "ns");
    let errors = validate_role_binding(&binding(role_ref("Role", "r"), json!([wrong])), None);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].detail.starts_with("a lowercase RFC 1123 subdomain must consist"));
}

#[test]
fn a_binding_keeps_its_role() {
    let old = binding(role_ref("Role", "a"), json!([]));
    let new = binding(role_ref("Role", "b"), json!([]));
    check(validate_role_binding(&old, Some(&old)), &[]);
    check(
        validate_role_binding(&new, Some(&old)),
        &[
            r#"roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"b"}: field is immutable"#,
        ],
    );
}

#[test]
fn api_groups_are_filled_in() {
    let mut object = binding(
        json!({"kind": "Role", "name": "a"}),
        json!([{"kind": "User"}, {"kind": "Group", "apiGroup": ""}, {"kind": "ServiceAccount"}, {"kind": "User", "apiGroup": "x"}]),
    );
    default_binding(&mut object);
    assert_eq!(object["roleRef"], role_ref("Role", "a"));
    assert_eq!(
        object["subjects"],
        json!([
            {"kind": "User", "apiGroup": GROUP},
            {"kind": "Group", "apiGroup": GROUP},
            {"kind": "ServiceAccount"},
            {"kind": "User", "apiGroup": "x"},
        ])
    );
}
