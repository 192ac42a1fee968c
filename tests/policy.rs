//! Admission policies: rules and changes written as expressions.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, poll};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/judged/configmaps";

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A namespace of the test's own, in which no controller writes any longer.
fn judged(sheaf: &Sheaf) -> Http {
    let http = sheaf.http();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "judged"}});
    http.post("/api/v1/namespaces", &namespace).ok();
    poll("the namespace is furnished", || {
        let reply = http.get(&format!("{CONFIG_MAPS}/kube-root-ca.crt"));
        if reply.status == 200 { Ok(()) } else { Err(reply.text()) }
    });
    http
}

fn constraints() -> Value {
    json!({
        "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE"],
        }],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "judged"}},
    })
}

fn policy(kind: &str, name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["matchConstraints"] = constraints();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

fn binding(kind: &str, policy: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["policyName"] = policy.into();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": format!("{policy}-binding")}, "spec": spec,
    })
}

fn validating(http: &Http, name: &str, spec: Value, bound: Value) -> Value {
    let bound = binding("ValidatingAdmissionPolicyBinding", name, bound);
    http.post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &bound).ok();
    let object = policy("ValidatingAdmissionPolicy", name, spec);
    http.post(&format!("{POLICIES}/validatingadmissionpolicies"), &object).ok()
}

fn mutating(http: &Http, name: &str, spec: Value) {
    let mut spec = spec;
    if spec.get("reinvocationPolicy").is_none() {
        spec["reinvocationPolicy"] = "Never".into();
    }
    let bound = binding("MutatingAdmissionPolicyBinding", name, json!({}));
    http.post(&format!("{POLICIES}/mutatingadmissionpolicybindings"), &bound).ok();
    let object = policy("MutatingAdmissionPolicy", name, spec);
    http.post(&format!("{POLICIES}/mutatingadmissionpolicies"), &object).ok();
}

fn forget(http: &Http, plural: &str, name: &str) {
    http.delete(&format!("{POLICIES}/{plural}/{name}")).ok();
}

#[test]
fn a_policy_denies_with_its_own_words_and_reason() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let rules = json!([
        {"expression": "variables.size <= 3", "reason": "Forbidden",
         "messageExpression": "'too many: ' + string(variables.size)"},
        {"expression": "!has(object.data.secret)", "message": "no secrets here"},
        {"expression": "request.operation != 'UPDATE' || oldObject.data.size() >= 1"},
    ]);
    let variables = json!([{"name": "size", "expression": "object.data.size()"}]);
    validating(
        &http,
        "small",
        json!({"validations": rules, "variables": variables}),
        json!({"validationActions": ["Deny"]}),
    );
    http.post(CONFIG_MAPS, &config_map("fine", json!({"a": "1"}))).ok();
    let many = json!({"a": "1", "b": "2", "c": "3", "d": "4"});
    let reply = http.post(CONFIG_MAPS, &config_map("many", many.clone()));
    let why = "ValidatingAdmissionPolicy 'small' with binding 'small-binding' denied request: too many: 4";
    assert_eq!(reply.refused(403), format!("configmaps \"many\" is forbidden: {why}"));
    assert_eq!(reply.json()["reason"], "Forbidden");
    assert_eq!(reply.json()["details"]["causes"], json!([{"message": why}]));
    let reply = http.merge(&format!("{CONFIG_MAPS}/fine"), &json!({"data": {"secret": "x"}}));
    assert_has(reply.refused(422), "denied request: no secrets here");
    assert_eq!(reply.json()["reason"], "Invalid");
    // Another namespace is not meant.
    http.post("/api/v1/namespaces/kube-system/configmaps", &config_map("many", many)).ok();
    forget(&http, "validatingadmissionpolicies", "small");
    http.merge(&format!("{CONFIG_MAPS}/fine"), &json!({"data": {"secret": "x"}})).ok();
}

#[test]
fn actions_warn_and_take_note_where_they_should_not_deny() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    validating(
        &http,
        "gentle",
        json!({
            "validations": [{"expression": "object.metadata.name != 'odd'"}],
            "auditAnnotations": [{"key": "who", "valueExpression": "request.userInfo.username"}],
        }),
        json!({"validationActions": ["Warn", "Audit"]}),
    );
    let reply = http.post(CONFIG_MAPS, &config_map("odd", json!({})));
    reply.ok();
    assert_eq!(
        reply.warnings(),
        [
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'gentle' with binding 'gentle-binding': failed expression: object.metadata.name != 'odd'\""
        ]
    );
}

#[test]
fn parameters_configure_a_policy() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let spec = json!({
        "paramKind": kind,
        "validations": [{"expression": "params == null || size(object.data) <= int(params.data.most)"}],
        "matchConditions": [{"name": "other", "expression": "!has(object.data.most)"}],
    });
    let reference = json!({
        "name": "limits", "namespace": "judged", "parameterNotFoundAction": "Deny",
    });
    validating(
        &http,
        "limited",
        spec,
        json!({"paramRef": reference, "validationActions": ["Deny"]}),
    );
    let refused = http.post(CONFIG_MAPS, &config_map("early", json!({"a": "1"}))).refused(422);
    assert_has(
        refused,
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
    );
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    http.post(elsewhere, &config_map("limits", json!({"most": "9"}))).ok();
    let limits = config_map("limits", json!({"most": "1"}));
    // While there are no parameters nothing can be written there but by taking the policy away.
    forget(&http, "validatingadmissionpolicybindings", "limited-binding");
    http.post(CONFIG_MAPS, &limits).ok();
    let bound = binding(
        "ValidatingAdmissionPolicyBinding",
        "limited",
        json!({"paramRef": reference, "validationActions": ["Deny"]}),
    );
    http.post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &bound).ok();
    http.post(CONFIG_MAPS, &config_map("one", json!({"a": "1"}))).ok();
    http.post(CONFIG_MAPS, &config_map("two", json!({"a": "1", "b": "2"}))).refused(422);
    // Selected parameters must all be satisfied; none is none if that is allowed.
    forget(&http, "validatingadmissionpolicybindings", "limited-binding");
    let reference = json!({
        "selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Allow",
    });
    let bound = binding(
        "ValidatingAdmissionPolicyBinding",
        "limited",
        json!({"paramRef": reference, "validationActions": ["Deny"]}),
    );
    http.post(&format!("{POLICIES}/validatingadmissionpolicybindings"), &bound).ok();
    http.post(CONFIG_MAPS, &config_map("two", json!({"a": "1", "b": "2"}))).ok();
    http.merge(
        &format!("{CONFIG_MAPS}/limits"),
        &json!({"metadata": {"labels": {"limits": "yes"}}}),
    )
    .ok();
    http.post(CONFIG_MAPS, &config_map("three", json!({"a": "1", "b": "2"}))).refused(422);
}

#[test]
fn expressions_that_fail_are_handled_by_the_failure_policy() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let rules = json!([{"expression": "object.data.absent == 'x'"}]);
    let deny = json!({"validationActions": ["Deny"]});
    validating(&http, "broken", json!({"validations": rules}), deny.clone());
    assert_has(
        http.post(CONFIG_MAPS, &config_map("a", json!({"b": "c"}))).refused(422),
        "denied request: expression 'object.data.absent == 'x'' resulted in error: no such key: absent",
    );
    forget(&http, "validatingadmissionpolicies", "broken");
    let costly = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, \
        [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, \
        [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))";
    validating(&http, "costly", json!({"validations": [{"expression": costly}]}), deny.clone());
    assert_has(
        http.post(CONFIG_MAPS, &config_map("a", json!({}))).refused(422),
        "resulted in error: operation cancelled: actual cost limit exceeded",
    );
    forget(&http, "validatingadmissionpolicies", "costly");
    let spec = json!({"validations": rules, "failurePolicy": "Ignore"});
    validating(&http, "lenient", spec, deny);
    http.post(CONFIG_MAPS, &config_map("a", json!({"b": "c"}))).ok();
}

#[test]
fn expressions_are_compiled_when_a_policy_is_written() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let path = format!("{POLICIES}/validatingadmissionpolicies");
    for (rule, text) in [
        (
            json!({"expression": "object.a ++"}),
            "spec.validations[0].expression: Invalid value: \"object.a ++\": compilation failed: ERROR: <input>:",
        ),
        (
            json!({"expression": "nothing == 1"}),
            "undeclared reference to 'nothing' (in container '')",
        ),
        (
            json!({"expression": "params.a == 1"}),
            "undeclared reference to 'params' (in container '')",
        ),
        (json!({"expression": "request.nothing == ''"}), "undefined field 'nothing'"),
        (json!({"expression": "1 + 1"}), "must evaluate to bool but got int"),
        (
            json!({"expression": "true", "messageExpression": "1"}),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
    ] {
        let object = policy("ValidatingAdmissionPolicy", "bad", json!({"validations": [rule]}));
        assert_has(http.post(&path, &object).refused(422), text);
    }
    let spec = json!({
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "Object{}"}}],
        "reinvocationPolicy": "Never",
    });
    let object = policy("MutatingAdmissionPolicy", "bad", spec);
    assert_has(
        http.post(&format!("{POLICIES}/mutatingadmissionpolicies"), &object).refused(422),
        "must evaluate to list(JSONPatch) but got Object",
    );
}

#[test]
fn types_are_checked_and_the_status_says_what_is_wrong() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let rules = json!([
        {"expression": "object.spec.replicas > 1"},
        {"expression": "object.spec.replicas > '1'", "messageExpression": "'x' + 1"},
        {"expression": "object.spec.notAField == 1"},
    ]);
    let mut object = policy("ValidatingAdmissionPolicy", "typed", json!({"validations": rules}));
    object["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = json!(["apps"]);
    object["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["deployments"]);
    // An expression that is wrong whatever the object is does not get that far.
    assert_has(
        http.post(&format!("{POLICIES}/validatingadmissionpolicies"), &object).refused(422),
        "found no matching overload for '_+_' applied to '(string, int)'",
    );
    object["spec"]["validations"][1].as_object_mut().unwrap().remove("messageExpression");
    let made = http.post(&format!("{POLICIES}/validatingadmissionpolicies"), &object).ok();
    let warnings = made["status"]["typeChecking"]["expressionWarnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[1].expression");
    let text = |at: usize| warnings[at]["warning"].as_str().unwrap();
    assert_has(text(0), "apps/v1, Kind=Deployment: compilation failed: ");
    assert_has(text(0), "found no matching overload for '_>_' applied to '(int, string)'");
    assert_has(text(1), "undefined field 'notAField'");
}

#[test]
fn policies_change_objects() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let merged = json!({"expression":
        "Object{metadata: Object.metadata{labels: {'by': 'policy'}}, data: {'added': object.metadata.name}}"});
    let patched = json!({"expression":
        "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'seen': string(size(object.data))}},
          JSONPatch{op: 'test', path: '/data/a', value: '1'}]"});
    mutating(
        &http,
        "change",
        json!({"mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": merged},
            {"patchType": "JSONPatch", "jsonPatch": patched},
        ]}),
    );
    let made = http.post(CONFIG_MAPS, &config_map("x", json!({"a": "1"}))).ok();
    assert_eq!(made["data"], json!({"a": "1", "added": "x"}));
    assert_eq!(made["metadata"]["labels"], json!({"by": "policy"}));
    assert_eq!(made["metadata"]["annotations"], json!({"seen": "2"}));
    // A patch whose test fails is not applied, and is no failure.
    let made = http.post(CONFIG_MAPS, &config_map("y", json!({"a": "2"}))).ok();
    assert_eq!(made["metadata"].get("annotations"), None);
    forget(&http, "mutatingadmissionpolicies", "change");
    let misnamed = json!({"expression": "Object{data: Object.wrong{a: '1'}}"});
    mutating(
        &http,
        "misnamed",
        json!({"mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": misnamed},
        ]}),
    );
    assert_has(
        http.post(CONFIG_MAPS, &config_map("z", json!({}))).refused(403),
        "policy 'misnamed' with binding 'misnamed-binding' denied request: type mismatch: unexpected type name \"Object.wrong\"",
    );
}

#[test]
fn an_atomic_list_is_not_changed_in_part() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let apply = json!({"expression":
        "Object{subsets: [Object.subsets{ports: [Object.subsets.ports{port: 1}]}]}"});
    let mut object = policy(
        "MutatingAdmissionPolicy",
        "atomic",
        json!({
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": apply}],
            "reinvocationPolicy": "Never",
        }),
    );
    object["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["endpoints"]);
    http.post(&format!("{POLICIES}/mutatingadmissionpolicies"), &object).ok();
    let bound = binding("MutatingAdmissionPolicyBinding", "atomic", json!({}));
    http.post(&format!("{POLICIES}/mutatingadmissionpolicybindings"), &bound).ok();
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"},
        "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}],
    });
    assert_has(
        http.post("/api/v1/namespaces/judged/endpoints", &endpoints).refused(403),
        "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .subsets",
    );
}

#[test]
fn rights_and_namespaces_are_seen_by_expressions() {
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let rules = json!([
        {"expression": "authorizer.requestResource.check('create').allowed()"},
        {"expression": "!authorizer.serviceAccount('default', 'absent').group('').resource('secrets').check('get').allowed()"},
        {"expression": "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'judged'"},
        {"expression": "namespaceObject.status.phase == 'Active'"},
        {"expression": "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'"},
    ]);
    validating(
        &http,
        "reading",
        json!({"validations": rules}),
        json!({"validationActions": ["Deny"]}),
    );
    http.post(CONFIG_MAPS, &config_map("x", json!({}))).ok();
}
