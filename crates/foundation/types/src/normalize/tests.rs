use serde_json::json;

use crate::Kind;

use super::*;

fn normal(api_version: &str, kind: &str, mut value: Value) -> (Value, Vec<String>) {
    let unknown = Kind::of(api_version, kind).unwrap().normalize(&mut value).unwrap();
    (value, unknown)
}

fn refused(api_version: &str, kind: &str, mut value: Value) -> String {
    Kind::of(api_version, kind).unwrap().normalize(&mut value).unwrap_err().to_string()
}

#[test]
fn unknown_fields_are_dropped_and_reported_with_their_paths() {
    let (value, unknown) = normal(
        "v1",
        "Pod",
        json!({
            "metadata": {"name": "p", "labels": {"a": "b"}, "colour": "red"},
            "spec": {"containers": [{"name": "c"}, {"name": "d", "bar": 1, "env": [{"name": "e", "x": {}}]}], "foo": 1},
        }),
    );
    assert_eq!(
        unknown,
        ["metadata.colour", "spec.containers[1].bar", "spec.containers[1].env[0].x", "spec.foo"]
    );
    assert_eq!(
        value,
        json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [
                {"name": "c", "resources": {}},
                {"name": "d", "resources": {}, "env": [{"name": "e"}]},
            ]},
            "status": {},
        })
    );
}

#[test]
fn nulls_and_empty_optional_values_go_and_pointers_stay() {
    let (value, unknown) = normal(
        "apps/v1",
        "Deployment",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "d", "namespace": "", "creationTimestamp": null, "labels": {},
                "finalizers": [], "generation": 0, "deletionGracePeriodSeconds": 0,
            },
            "spec": {"replicas": 0, "paused": false, "selector": null,
                     "template": {"spec": {"containers": null, "hostNetwork": false}}},
            "status": null,
        }),
    );
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(
        value,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "deletionGracePeriodSeconds": 0},
            "spec": {"replicas": 0, "strategy": {}, "template": {"metadata": {}, "spec": {}}},
            "status": {},
        })
    );
}

#[test]
fn quantities_times_and_base64_become_canonical() {
    let (value, _) = normal(
        "v1",
        "PersistentVolumeClaim",
        json!({"spec": {"resources": {"requests": {"storage": "1024Mi", "a": 0.5, "b": 2, "c": null}}},
               "metadata": {"creationTimestamp": "2020-01-01T02:00:00.5+02:00"}}),
    );
    assert_eq!(
        value["spec"]["resources"]["requests"],
        json!({"storage": "1Gi", "a": "500m", "b": "2", "c": "0"})
    );
    assert_eq!(value["metadata"]["creationTimestamp"], "2020-01-01T00:00:00Z");
    let (value, _) = normal("v1", "Secret", json!({"data": {"k": "YW\nJj", "empty": ""}}));
    assert_eq!(value["data"], json!({"k": "YWJj", "empty": ""}));
    let (value, _) = normal(
        "coordination.k8s.io/v1",
        "Lease",
        json!({"spec": {"renewTime": "2020-01-01T01:00:00.123456+01:00"}}),
    );
    assert_eq!(value["spec"]["renewTime"], "2020-01-01T00:00:00.123456Z");
}

#[test]
fn wrong_types_are_refused_in_go_s_words() {
    let check = |kind, value, expected: &str| assert_eq!(refused("v1", kind, value), expected);
    check(
        "ConfigMap",
        json!({"data": "text"}),
        "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
    );
    check(
        "ConfigMap",
        json!({"metadata": {"labels": {"a": 1}}}),
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
    );
    check(
        "Pod",
        json!({"spec": {"containers": [{"env": [{"name": "a", "value": true}]}]}}),
        "json: cannot unmarshal bool into Go struct field EnvVar.spec.containers.env.value of type string",
    );
    check(
        "Pod",
        json!({"spec": {"containers": {}}}),
        "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
    );
    check(
        "Service",
        json!({"spec": {"ports": [{"port": 80.5}]}}),
        "json: cannot unmarshal number 80.5 into Go struct field ServicePort.spec.ports.port of type int32",
    );
    check(
        "Service",
        json!({"spec": {"ports": [{"port": 3_000_000_000u64}]}}),
        "json: cannot unmarshal number 3000000000 into Go struct field ServicePort.spec.ports.port of type int32",
    );
    check(
        "Service",
        json!({"spec": {"ports": [{"targetPort": true}]}}),
        "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
    );
    check(
        "Pod",
        json!({"spec": {"volumes": [{"configMap": {"items": [{"key": 1}]}}], "restartPolicy": []}}),
        "json: cannot unmarshal array into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
    );
    check(
        "Pod",
        json!({"spec": {"volumes": [{"configMap": {"items": [{"key": 1}]}}]}}),
        "json: cannot unmarshal number into Go struct field KeyToPath.spec.volumes.VolumeSource.configMap.items.key of type string",
    );
    check("Secret", json!({"data": {"k": "a b="}}), "illegal base64 data at input byte 1");
    check("Secret", json!({"data": {"k": "abcde"}}), "illegal base64 data at input byte 4");
    check(
        "ConfigMap",
        json!([]),
        "json: cannot unmarshal array into Go value of type v1.ConfigMap",
    );
    check(
        "PersistentVolumeClaim",
        json!({"spec": {"resources": {"requests": {"storage": "much"}}}}),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
}

#[test]
fn schemas_of_definitions_may_be_booleans_lists_or_objects() {
    let spec = json!({"spec": {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Cluster",
    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object",
        "default": {"any": [null, 1]},
        "enum": [null, "x"],
        "properties": {"a": {"type": "array", "items": {"type": "string", "bogus": 1}},
                       "b": {"additionalProperties": true, "nullable": false}},
    }}}]}});
    let (value, unknown) = normal("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec);
    let schema = "spec.versions[0].schema.openAPIV3Schema";
    assert_eq!(unknown, [format!("{schema}.properties.a.items.bogus")]);
    assert_eq!(
        value["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        json!({
            "type": "object", "default": {"any": [null, 1]}, "enum": [null, "x"],
            "properties": {"a": {"type": "array", "items": {"type": "string"}},
                           "b": {"additionalProperties": true}},
        })
    );
}

#[test]
fn a_normal_object_stays_as_it_is() {
    let mut value = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
    let kind = Kind::of("v1", "Namespace").unwrap();
    kind.normalize(&mut value).unwrap();
    let once = value.clone();
    kind.normalize(&mut value).unwrap();
    assert_eq!(value, once);
}

#[test]
fn an_applied_part_owns_only_what_it_says() {
    let kind = Kind::of("apps/v1", "Deployment").unwrap();
    let applied = json!({"spec": {"replicas": 0, "template": {"spec": {"hostNetwork": false}}}});
    let mut value = applied.clone();
    kind.normalize_applied(&mut value).unwrap();
    assert_eq!(value, applied);
    kind.normalize(&mut value).unwrap();
    assert_ne!(value, applied);
}
