//! Authentication and authorization of users.

use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::harness::{Http, Sheaf, assert_has, eventually};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The user that the server sees: name and groups.
fn whoami(http: &Http) -> (String, Vec<String>) {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let review = http.post(REVIEWS, &review).ok();
    let user = &review["status"]["userInfo"];
    let groups = user["groups"].as_array().into_iter().flatten();
    let groups = groups.map(|group| group.as_str().unwrap().to_owned()).collect();
    (user["username"].as_str().unwrap().to_owned(), groups)
}

fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules})
}

fn binding(kind: &str, name: &str, role: (&str, &str), user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// The administrator, acting as another user.
fn acting(sheaf: &Sheaf, user: &str) -> Http {
    sheaf.http().with("impersonate-user", user)
}

#[test]
fn the_administrator_is_a_master() {
    let sheaf = Sheaf::start();
    let (name, groups) = whoami(&sheaf.http());
    assert_eq!(name, "system:admin");
    assert!(groups.contains(&"system:masters".to_owned()), "{groups:?}");
    assert!(groups.contains(&"system:authenticated".to_owned()), "{groups:?}");
}

#[test]
fn only_its_owner_may_read_the_kubeconfig() {
    use std::os::unix::fs::PermissionsExt as _;
    let sheaf = Sheaf::start();
    let mode = std::fs::metadata(sheaf.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(sheaf.run("kubeconfig"), std::fs::read_to_string(sheaf.kubeconfig()).unwrap());
    assert_eq!(sheaf.run("kubeconfig --path").trim(), sheaf.kubeconfig().to_str().unwrap());
}

#[test]
fn a_certificate_names_its_user_and_groups() {
    let sheaf = Sheaf::start();
    let file = sheaf.scratch("jane.kubeconfig");
    std::fs::write(&file, sheaf.run("kubeconfig --user jane --group dev --group ops")).unwrap();
    let jane = Http::from_kubeconfig(&file);
    let (name, groups) = whoami(&jane);
    assert_eq!(name, "jane");
    assert_eq!(groups, ["dev", "ops", "system:authenticated"]);
    assert_has(
        jane.get("/api/v1/nodes").refused(403),
        "nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
    );
}

#[test]
fn a_token_can_be_made_used_and_revoked_while_the_server_runs() {
    let sheaf = Sheaf::start();
    let token = sheaf.run("user token create --user robot --group machines");
    let robot = sheaf.bearer(token.trim());
    eventually("the token is known", || {
        robot.get("/version").status == 200 && robot.get(REVIEWS).status != 401
    });
    let (name, groups) = whoami(&robot);
    assert_eq!(
        (name.as_str(), groups.as_slice()),
        ("robot", &["machines".to_owned(), "system:authenticated".to_owned()][..])
    );
    assert_has(sheaf.run("user token list"), "robot");
    // The former spelling.
    sheaf.run("token revoke --user robot");
    eventually("the token is refused", || robot.get("/api/v1/namespaces").status == 401);
    assert_has(robot.get("/api/v1/namespaces").refused(401), "Unauthorized");
}

#[test]
fn an_account_token_lives_as_long_as_its_account() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let uid = http.post(accounts, &account).ok()["metadata"]["uid"].clone();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3600},
    });
    let issued = http.post(&format!("{accounts}/robot/token"), &request).ok();
    let token = issued["status"]["token"].as_str().unwrap();
    let (name, groups) = whoami(&sheaf.bearer(token));
    assert_eq!(name, "system:serviceaccount:default:robot");
    assert_eq!(
        groups,
        ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    );
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviewed = http.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).ok();
    assert_eq!(reviewed["status"]["authenticated"], true);
    assert_eq!(reviewed["status"]["user"]["uid"], uid);
    let mut elsewhere = review.clone();
    elsewhere["spec"]["audiences"] = json!(["vault"]);
    let elsewhere = http.post("/apis/authentication.k8s.io/v1/tokenreviews", &elsewhere).ok();
    assert_ne!(elsewhere["status"]["authenticated"], true);
    http.delete(&format!("{accounts}/robot")).ok();
    assert_eq!(sheaf.bearer(token).get("/api/v1/namespaces").status, 401);
    let reviewed = http.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).ok();
    assert_ne!(reviewed["status"]["authenticated"], true);
    let short = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 1},
    });
    http.post(accounts, &account).ok();
    let refused = http.post(&format!("{accounts}/robot/token"), &short).refused(422);
    assert_has(refused, "may not specify a duration less than 10 minutes");
}

#[test]
fn anonymous_users_see_health_and_version_only() {
    let sheaf = Sheaf::start();
    let anonymous = sheaf.anonymous();
    for open in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(anonymous.get(open).status, 200, "{open}");
    }
    let refused = anonymous.get("/api/v1/namespaces").refused(403);
    assert_has(refused, "User \"system:anonymous\" cannot list resource \"namespaces\"");
    assert_has(anonymous.get("/metrics").refused(403), "cannot get path \"/metrics\"");
    assert_has(sheaf.bearer("nonsense").get("/api/v1/namespaces").refused(401), "Unauthorized");
    assert_has(sheaf.bearer("a.b.c").get("/version").refused(401), "Unauthorized");
}

#[test]
fn impersonation_needs_the_right_to_it() {
    let sheaf = Sheaf::start();
    let jane =
        acting(&sheaf, "jane").with("impersonate-group", "dev").with("impersonate-extra-team", "a");
    let (name, groups) = whoami(&jane);
    assert_eq!(name, "jane");
    assert_eq!(groups, ["dev", "system:authenticated"]);
    let token = sheaf.run("token create --user robot");
    let robot = sheaf.bearer(token.trim()).with("impersonate-user", "system:admin");
    eventually("the token is known", || robot.get("/version").status != 401);
    assert_has(
        robot.get("/api/v1/namespaces").refused(403),
        "users \"system:admin\" is forbidden: User \"robot\" cannot impersonate resource \"users\"",
    );
    let only_group = sheaf.http().with("impersonate-group", "dev").get("/api/v1/namespaces");
    assert!(matches!(only_group.status, 400 | 403 | 500), "{}", only_group.text());
}

#[test]
fn rights_follow_roles_at_once() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let jane = acting(&sheaf, "jane");
    let maps = "/api/v1/namespaces/default/configmaps";
    jane.get(maps).refused(403);
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]},
    ]);
    http.post(&format!("{RBAC}/namespaces/default/roles"), &role("Role", "reader", rules)).ok();
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    http.post(&bindings, &binding("RoleBinding", "jane", ("Role", "reader"), "jane")).ok();
    jane.get(maps).ok();
    jane.get("/api/v1/namespaces/kube-system/configmaps").refused(403);
    jane.get("/api/v1/configmaps").refused(403);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    assert_has(jane.post(maps, &map).refused(403), "cannot create resource \"configmaps\"");
    // Allowed: the error is the missing secret, not a missing right.
    jane.get("/api/v1/namespaces/default/secrets/mine").refused(404);
    jane.get("/api/v1/namespaces/default/secrets/other").refused(403);
    http.delete(&format!("{bindings}/jane")).ok();
    jane.get(maps).refused(403);
}

#[test]
fn users_cannot_grant_rights_that_they_do_not_have() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]);
    http.post(&format!("{RBAC}/namespaces/default/roles"), &role("Role", "clerk", rules)).ok();
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    http.post(&bindings, &binding("RoleBinding", "clerk", ("Role", "clerk"), "clerk")).ok();
    let clerk = acting(&sheaf, "clerk");
    let rule =
        |verbs: Value| json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    let roles = format!("{RBAC}/namespaces/default/roles");
    clerk.post(&roles, &role("Role", "fair", rule(json!(["get"])))).ok();
    let refused =
        clerk.post(&roles, &role("Role", "greedy", rule(json!(["get", "delete"])))).refused(403);
    assert_has(refused, "is attempting to grant RBAC permissions not currently held");
    let refused = clerk
        .post(&bindings, &binding("RoleBinding", "up", ("ClusterRole", "cluster-admin"), "clerk"));
    assert_has(refused.refused(403), "is attempting to grant RBAC permissions not currently held");
    let mut changed = http.get(&format!("{bindings}/clerk")).ok();
    changed["roleRef"]["name"] = json!("other");
    assert_has(
        http.put(&format!("{bindings}/clerk"), &changed).refused(422),
        "roleRef: Invalid value",
    );
}

#[test]
fn roles_are_aggregated() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    http.post(&bindings, &binding("RoleBinding", "v", ("ClusterRole", "view"), "jane")).ok();
    let jane = acting(&sheaf, "jane");
    eventually("a viewer sees config maps", || {
        jane.get("/api/v1/namespaces/default/configmaps").status == 200
    });
    jane.get("/api/v1/namespaces/default/secrets").refused(403);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    jane.get(widgets).refused(403);
    let rules =
        json!([{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"]}]);
    let mut more = role("ClusterRole", "widget-view", rules);
    more["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    http.post(&format!("{RBAC}/clusterroles"), &more).ok();
    // Allowed now; there is no such kind.
    eventually("a viewer sees widgets", || jane.get(widgets).status == 404);
}

#[test]
fn the_default_roles_are_there() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    for name in ["cluster-admin", "admin", "edit", "view", "system:discovery", "system:basic-user"]
    {
        http.get(&format!("{RBAC}/clusterroles/{name}")).ok();
    }
    let binding = http.get(&format!("{RBAC}/clusterrolebindings/cluster-admin")).ok();
    assert_eq!(binding["subjects"][0]["name"], "system:masters");
}

/// A version adds rights to its roles; clusters of the version before get them at the next start.
#[test]
fn roles_of_the_platform_get_back_what_they_lack() {
    let mut sheaf = Sheaf::start();
    let path = |name: &str| format!("{RBAC}/clusterroles/{name}");
    let rules = |sheaf: &Sheaf, name: &str| sheaf.http().get(&path(name)).ok()["rules"].clone();
    let (edit, driver) = ("harvesterhci.io:edit", "harvesterhci.io:csi-driver");
    let complete = rules(&sheaf, edit);
    let mut older = sheaf.http().get(&path(edit)).ok();
    older["rules"].as_array_mut().unwrap().remove(0);
    sheaf.http().put(&path(edit), &older).ok();
    // An administrator who wants fewer rights says so.
    let mut reduced = sheaf.http().get(&path(driver)).ok();
    let opt_out = "rbac.authorization.kubernetes.io/autoupdate";
    reduced["metadata"]["annotations"] = json!({opt_out: "false"});
    reduced["rules"] = json!([]);
    sheaf.http().put(&path(driver), &reduced).ok();
    sheaf.kill();
    sheaf.begin();
    // As upstream does, one rule is added for each missing right.
    let rights = |rules: &Value| -> BTreeSet<String> {
        let of = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_default();
        let mut rights = BTreeSet::new();
        for rule in rules.as_array().unwrap() {
            for resource in of(rule, "resources") {
                rights.insert(format!("{} {resource} {}", rule["apiGroups"], rule["verbs"]));
            }
        }
        rights
    };
    assert_eq!(rights(&rules(&sheaf, edit)), rights(&complete));
    assert_eq!(rules(&sheaf, driver), json!([]));
}

#[test]
fn reviews_answer_for_others() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let ask = |user: &str, groups: Value| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups,
                     "resourceAttributes": {"verb": "delete", "resource": "nodes"}},
        });
        let answer = http.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).ok();
        answer["status"]["allowed"].as_bool().unwrap()
    };
    assert!(ask("x", json!(["system:masters"])));
    assert!(!ask("x", json!([])));
    let rules = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"},
    });
    let rules = http.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &rules).ok();
    assert!(!rules["status"]["resourceRules"].as_array().unwrap().is_empty());
    assert_eq!(rules["status"]["incomplete"], false);
}

#[test]
fn a_secret_with_a_token_is_filled_in() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    eventually("the default account is there", || {
        http.get("/api/v1/namespaces/default/serviceaccounts/default").status == 200
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "legacy", "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    http.post("/api/v1/namespaces/default/secrets", &secret).ok();
    eventually("it has a token", || {
        let live = http.get("/api/v1/namespaces/default/secrets/legacy").ok();
        live["data"]["token"].is_string() && live["data"]["ca.crt"].is_string()
    });
}

#[test]
fn a_pod_gets_its_account_and_nothing_that_is_not_there() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let made = http.post(pods, &pod).ok();
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"].as_array().unwrap().len(), 1);
    assert_eq!(nulls(&made, "pod"), [""; 0], "{made}");

    // Fields that admission added must not count as a change of immutable fields.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = http.merge(&format!("{pods}/p"), &label).ok();
    assert_eq!(labelled["metadata"]["labels"]["a"], "b");
}

/// Where an object holds nulls.
fn nulls(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Null => vec![path.to_owned()],
        Value::Array(list) => {
            let inner = list.iter().enumerate();
            inner.flat_map(|(at, item)| nulls(item, &format!("{path}[{at}]"))).collect()
        }
        Value::Object(map) => {
            map.iter().flat_map(|(key, item)| nulls(item, &format!("{path}.{key}"))).collect()
        }
        _ => Vec::new(),
    }
}
