use super::*;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch]}
- {level: None, nonResourceURLs: ["/healthz*", "/version"]}
- level: RequestResponse
  resources: [{group: "", resources: ["pods"]}]
  omitManagedFields: false
- {level: Metadata, resources: [{group: "", resources: ["pods/log", "pods/status"]}]}
- level: None
  resources: [{group: "", resources: ["configmaps"], resourceNames: ["controller-leader"]}]
- level: Request
  resources: [{group: "", resources: ["configmaps"]}]
  namespaces: ["kube-system"]
- {level: Metadata, resources: [{group: apps, resources: ["*/scale"]}], omitStages: [ResponseStarted]}
- {level: Request, userGroups: ["ops"]}
- {level: Metadata, resources: [{group: ""}, {group: extensions}]}
"#;

fn of<'a>(path: &'a str) -> AuditTarget<'a> {
    let parts: Vec<&str> = path.split(' ').collect();
    match parts[..] {
        [group, resource, subresource, namespace, name] => {
            AuditTarget::Resource { group, resource, subresource, namespace, name }
        }
        _ => AuditTarget::Path(path),
    }
}

#[test]
fn a_request_is_ignored_only_if_no_user_could_be_logged() {
    let policy = AuditPolicy::parse(POLICY).unwrap();
    for (verb, target, expected) in [
        ("get", "/healthz/etcd", true),
        ("get", "/metrics", false),
        ("watch", " services   ", false),
        ("get", " configmaps  n controller-leader", true),
        ("get", " configmaps  n other", false),
        ("create", " pods  n ", false),
        ("get", "batch jobs  n ", false),
    ] {
        assert_eq!(policy.ignores(verb, of(target)), expected, "{verb} {target}");
    }
    let mut known = policy.clone();
    known.rules.retain(|rule| rule.user_groups.is_empty());
    assert!(known.ignores("get", of("batch jobs  n ")), "no rule is for it");
}

#[test]
fn the_first_rule_that_fits_decides() {
    let policy = AuditPolicy::parse(POLICY).unwrap();
    let none: [&str; 0] = [];
    for (user, groups, verb, target, expected) in [
        ("system:kube-proxy", &none[..], "watch", " services   ", AuditLevel::None),
        ("system:kube-proxy", &none, "list", " services   ", AuditLevel::Metadata),
        ("jane", &none, "get", "/healthz/etcd", AuditLevel::None),
        ("jane", &none, "get", "/version/", AuditLevel::None),
        ("jane", &none, "create", " pods  n ", AuditLevel::RequestResponse),
        ("jane", &none, "get", " pods log n p", AuditLevel::Metadata),
        ("jane", &none, "get", " pods exec n p", AuditLevel::Metadata),
        ("jane", &none, "update", " configmaps  kube-system controller-leader", AuditLevel::None),
        ("jane", &none, "update", " configmaps  kube-system other", AuditLevel::Request),
        ("jane", &none, "update", " configmaps  n other", AuditLevel::Metadata),
        ("jane", &none, "update", "apps deployments scale n d", AuditLevel::Metadata),
        ("jane", &none, "update", "apps deployments  n d", AuditLevel::None),
        ("jane", &["ops"], "update", "apps deployments  n d", AuditLevel::Request),
        ("jane", &["ops"], "get", "/metrics", AuditLevel::Request),
    ] {
        let user = User::new(user, groups.iter().copied());
        let target = if target == "/version/" { of("/version") } else { of(target) };
        let verdict = policy.judge(&PolicyInput { user: &user, verb, target });
        assert_eq!(verdict.level, expected, "{} {verb} {target:?}", user.name);
        assert!(!verdict.wants(AuditStage::RequestReceived));
    }
}

#[test]
fn stages_and_managed_fields_are_left_out_by_rule_or_by_policy() {
    let policy = AuditPolicy::parse(POLICY).unwrap();
    let user = User::new("jane", Vec::<String>::new());
    let judge =
        |target| policy.judge(&PolicyInput { user: &user, verb: "update", target: of(target) });
    let scale = judge("apps deployments scale n d");
    assert!(!scale.wants(AuditStage::ResponseStarted) && scale.wants(AuditStage::ResponseComplete));
    assert!(scale.omit_managed_fields && !judge(" pods  n p").omit_managed_fields);
}

#[test]
fn a_wrong_policy_says_where() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    for (text, expected) in [
        (
            "kind: Policy\nrules: [{level: None}]".to_owned(),
            "apiVersion and kind are \" Policy\", must be audit.k8s.io/v1 and Policy",
        ),
        (format!("{head}rules: []"), "rules: a policy needs at least one rule"),
        (
            format!("{head}rules: [{{level: None, nonResourceURLs: [healthz]}}]"),
            "rules[0].nonResourceURLs: non-resource URL rules must begin with a '/' character",
        ),
        (
            format!("{head}rules: [{{level: None, nonResourceURLs: [/a], namespaces: [n]}}]"),
            "rules[0].nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs",
        ),
        (format!("{head}rules: [{{level: Some}}]"), "the policy is not readable"),
    ] {
        assert_eq!(AuditPolicy::parse(&text).unwrap_err().to_string(), expected, "{text}");
    }
}
