//! Tests of validation errors and their texts.

use expect_test::expect;
use serde_json::json;

use super::{create, update};

#[test]
fn config_maps_and_secrets() {
    expect![[r#"
        data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        data[twice]: Invalid value: "twice": duplicate of key present in binaryData"#]]
    .assert_eq(&create(
        "configmaps",
        json!({"data": {"a b": "", "twice": ""}, "binaryData": {"twice": ""}}),
    ));
    expect![": Too long: may not be more than 1048576 bytes"]
        .assert_eq(&create("configmaps", json!({"data": {"a": "x".repeat(1_048_577)}})));
    expect![[r#"
        data[tls.crt]: Required value
        data[tls.key]: Required value"#]]
    .assert_eq(&create("secrets", json!({"type": "kubernetes.io/tls"})));
    expect![[
        r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid JSON at line 1 column 2"#
    ]]
    .assert_eq(&create(
        "secrets",
        json!({
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "no"},
        }),
    ));
    expect![[r#"
        type: Invalid value: "b": field is immutable
        immutable: Forbidden: field is immutable when `immutable` is set
        data: Forbidden: field is immutable when `immutable` is set"#]]
    .assert_eq(&update(
        "secrets",
        json!({"type": "a", "immutable": true, "data": {"k": "YQ=="}}),
        json!({"type": "b", "data": {}}),
    ));
}

#[test]
fn services() {
    expect!["spec.ports: Required value"].assert_eq(&create("services", json!({})));
    expect![[r#"
        spec.ports[0].name: Required value
        spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
        spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive
        spec.ports[1].name: Required value
        spec.ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
        spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"#]]
    .assert_eq(&create(
        "services",
        json!({"spec": {"ports": [
            {"port": 0}, {"port": 80, "protocol": "ICMP", "nodePort": 30000},
        ]}}),
    ));
    expect![[r#"spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#]]
        .assert_eq(&create(
            "services",
            json!({"spec": {"clusterIP": "x", "ports": [{"port": 80}]}}),
        ));
    expect![[r#"
        spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#]]
    .assert_eq(&update(
        "services",
        json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]}}),
        json!({"spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "ports": [{"port": 80}]}}),
    ));
    // A client that leaves out what was allocated keeps it.
    expect![""].assert_eq(&update(
        "services",
        json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]}}),
        json!({"spec": {"ports": [{"port": 81}]}}),
    ));
    expect!["spec.externalName: Required value"]
        .assert_eq(&create("services", json!({"spec": {"type": "ExternalName"}})));
}

#[test]
fn claims() {
    expect![[r#"
        spec.accessModes: Required value: at least 1 access mode is required
        spec.resources[storage]: Required value"#]]
    .assert_eq(&create("persistentvolumeclaims", json!({})));
    let claim = |size: &str, phase: &str, class: &str| {
        json!({
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": size}},
            },
            "status": {"phase": phase, "capacity": {"storage": "10Gi"}},
        })
    };
    let kind = "persistentvolumeclaims";
    expect![""].assert_eq(&update(kind, claim("10Gi", "Bound", "a"), claim("20Gi", "Bound", "a")));
    expect![
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]
    .assert_eq(&update(kind, claim("10Gi", "Bound", "a"), claim("5Gi", "Bound", "a")));
    expect!["spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"]
        .assert_eq(&update(kind, claim("10Gi", "Bound", "a"), claim("10Gi", "Bound", "b")));
    expect!["spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"]
        .assert_eq(&update(kind, claim("10Gi", "Pending", "a"), claim("20Gi", "Pending", "a")));
}

#[test]
fn volumes_and_classes() {
    expect![[r#"
        spec.accessModes: Required value
        spec.capacity: Required value
        spec.capacity: Unsupported value: null: supported values: "storage"
        spec: Required value: must specify a volume type"#]]
    .assert_eq(&create("persistentvolumes", json!({})));
    expect![[r#"
        spec.csi.driver: Required value
        spec.csi.volumeHandle: Required value"#]]
    .assert_eq(&create(
        "persistentvolumes",
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": {}}}),
    ));
    expect!["provisioner: Required value"].assert_eq(&create("storageclasses", json!({})));
    expect![[r#"
        parameters: Forbidden: updates to parameters are forbidden.
        provisioner: Forbidden: updates to provisioner are forbidden."#]]
    .assert_eq(&update(
        "storageclasses",
        json!({"provisioner": "x", "parameters": {"a": "1"}}),
        json!({"provisioner": "y", "parameters": {"a": "2"}}),
    ));
}

#[test]
fn quotas_and_limits() {
    expect![[r#"
        spec.hard[apples]: Invalid value: "apples": must be a standard resource type or fully qualified
        spec.hard[apples]: Invalid value: "apples": must be a standard resource for quota
        spec.hard[pods]: Invalid value: "1500m": must be an integer"#]]
    .assert_eq(&create(
        "resourcequotas",
        json!({"spec": {"hard": {"apples": "1", "pods": "1500m", "count/vms.kubevirt.io": "3"}}}),
    ));
    expect![[r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1
spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1
spec.limits[0].default[cpu]: Invalid value: "1": min value 2 is greater than default value 1"#]]
    .assert_eq(&create(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}}),
    ));
}

#[test]
fn webhooks() {
    expect![[r#"
        webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots
        webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun
        webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds
        webhooks[0].clientConfig: Required value: exactly one of url or service is required
        webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"#]]
    .assert_eq(&create(
        "validatingwebhookconfigurations",
        json!({"webhooks": [{"name": "short", "timeoutSeconds": 31}]}),
    ));
    expect![[r#"
        webhooks[0].rules[0].operations: Required value
        webhooks[0].rules[0].apiGroups: Required value
        webhooks[0].rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions
        webhooks[0].rules[0].resources[1]: Invalid value: "a/b": if 'a/*' is present, must not specify a/b
        webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#]]
    .assert_eq(&create(
        "validatingwebhookconfigurations",
        json!({"webhooks": [{
            "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "http://x/"},
            "rules": [{"apiVersions": ["*", "v1"], "resources": ["a/*", "a/b"]}],
        }]}),
    ));
}

#[test]
fn definitions() {
    expect![[r#"
        metadata.name: Invalid value: "wrong": must be spec.names.plural+"."+spec.group
        spec.group: Invalid value: "nodot": should be a domain with at least one dot
        spec.scope: Required value
        spec.versions[0].schema.openAPIV3Schema: Required value
        spec.versions[0].name: Invalid value: "1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.versions: Invalid value: [{"additionalPrinterColumns":[{"jsonPath":"spec","name":"A","type":"text"}],"name":"1"}]: must have exactly one version marked as storage version
        spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string
        spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with .
        spec.names.plural: Required value
        status.storedVersions: Invalid value: []: must have at least one stored version"#]]
    .assert_eq(&create(
        "customresourcedefinitions",
        json!({
            "metadata": {"name": "wrong"},
            "spec": {"group": "nodot", "names": {"kind": "Cup"}, "versions": [{
                "name": "1",
                "additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": "spec"}],
            }]},
        }),
    ));
}

#[test]
fn workloads() {
    let pod = json!({"containers": [{"name": "a", "image": "b"}]});
    expect![[r#"
        spec.selector: Required value
        spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`
        spec.template.spec.containers: Required value"#]]
    .assert_eq(&create("deployments", json!({})));
    expect![[r#"
        spec.template.metadata.labels: Invalid value: {"app":"y"}: `selector` does not match template `labels`"#]]
    .assert_eq(&create(
        "deployments",
        json!({"spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "y"}}, "spec": pod},
        }}),
    ));
    expect![[
        r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#
    ]]
    .assert_eq(&create("jobs", json!({"spec": {"template": {"spec": pod}}})));
    expect![[r#"
        spec.containers[0].volumeMounts[0].name: Not found: "v"
        spec.containers[1].name: Duplicate value: "a""#]]
    .assert_eq(&create(
        "pods",
        json!({"spec": {"containers": [
            {"name": "a", "image": "b", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            {"name": "a", "image": "b"},
        ]}}),
    ));
    expect!["spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"]
        .assert_eq(&update(
            "pods",
            json!({"spec": pod}),
            json!({"spec": {"containers": [{"name": "z", "image": "c"}]}}),
        ));
}

#[test]
fn priority_classes_and_leases() {
    expect!["metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"]
        .assert_eq(&create("priorityclasses", json!({"metadata": {"name": "system-mine"}})));
    for class in crate::system_priority_classes() {
        assert_eq!(create("priorityclasses", class), "");
    }
    expect!["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]
        .assert_eq(&create("leases", json!({"spec": {"leaseDurationSeconds": 0}})));
}

#[test]
fn network_policies_and_ingresses() {
    expect![[r#"spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "10.1.0.0/16": must be a strict subset of `cidr`"#]]
        .assert_eq(&create(
            "networkpolicies",
            json!({"spec": {"ingress": [{"from": [
                {"ipBlock": {"cidr": "192.168.0.0/16", "except": ["10.1.0.0/16"]}},
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
            ]}]}}),
        ));
    expect!["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        .assert_eq(&create("ingresses", json!({})));
}

#[test]
fn kinds_without_a_controller_are_accepted_with_a_warning() {
    for plural in
        ["pods", "deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs"]
    {
        let warnings = (super::row(plural).strategy.warnings)(&json!({}));
        assert_eq!(warnings.len(), 1, "{plural}");
    }
    assert!((super::row("configmaps").strategy.warnings)(&json!({})).is_empty());
}
