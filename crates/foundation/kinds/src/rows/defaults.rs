use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::row;

fn check(plural: &str, mut object: Value, expect: Expect) {
    (row(plural).strategy.default)(&mut object);
    expect.assert_eq(&object.to_string());
}

#[test]
fn text_in_a_secret_becomes_data() {
    check(
        "secrets",
        json!({"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"b": "new"}}),
        expect![[r#"{"data":{"a":"YQ==","b":"bmV3"},"type":"Opaque"}"#]],
    );
}

#[test]
fn a_service_is_filled_in() {
    check(
        "services",
        json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
        expect![[
            r#"{"spec":{"externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"NodePort"}}"#
        ]],
    );
}

#[test]
fn a_namespace_carries_its_name_as_a_label() {
    check(
        "namespaces",
        json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "other"}}}),
        expect![[
            r#"{"metadata":{"labels":{"kubernetes.io/metadata.name":"a"},"name":"a"},"status":{"phase":"Active"}}"#
        ]],
    );
    let mut object = json!({"metadata": {"name": "a"}});
    (row("namespaces").strategy.prepare_create)(&mut object);
    assert_eq!(object["spec"]["finalizers"], json!(["kubernetes"]));
}

#[test]
fn webhooks_are_filled_in() {
    check(
        "mutatingwebhookconfigurations",
        json!({"webhooks": [{"rules": [{}], "clientConfig": {"service": {}}}]}),
        expect![[
            r#"{"webhooks":[{"clientConfig":{"service":{"port":443}},"failurePolicy":"Fail","matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"reinvocationPolicy":"Never","rules":[{"scope":"*"}],"timeoutSeconds":10}]}"#
        ]],
    );
}

#[test]
fn a_definition_names_itself() {
    check(
        "customresourcedefinitions",
        json!({"spec": {"names": {"kind": "Cup"}, "versions": [{"name": "v1", "storage": true}]}}),
        expect![[
            r#"{"spec":{"conversion":{"strategy":"None"},"names":{"kind":"Cup","listKind":"CupList","singular":"cup"},"versions":[{"name":"v1","storage":true}]},"status":{"storedVersions":["v1"]}}"#
        ]],
    );
}

#[test]
fn limits_of_containers_follow_from_each_other() {
    check(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
        expect![[
            r#"{"spec":{"limits":[{"default":{"cpu":"2"},"defaultRequest":{"cpu":"2","memory":"1Mi"},"max":{"cpu":"2"},"min":{"memory":"1Mi"},"type":"Container"}]}}"#
        ]],
    );
}

#[test]
fn a_job_marks_its_pods() {
    let mut object = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {}});
    (row("jobs").strategy.default)(&mut object);
    (row("jobs").strategy.prepare_create)(&mut object);
    expect![[r#"{"matchLabels":{"batch.kubernetes.io/controller-uid":"u"}}"#]]
        .assert_eq(&object["spec"]["selector"].to_string());
    expect![[r#"{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}"#]]
        .assert_eq(&object["spec"]["template"]["metadata"]["labels"].to_string());
}
