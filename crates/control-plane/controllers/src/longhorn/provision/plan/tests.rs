use super::*;
use crate::longhorn::handle;

fn claim(extra: Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "u", "annotations": {
            "team": "red", ANNOUNCED: hci::DRIVER,
        }},
        "spec": {
            "storageClassName": "longhorn", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    overlay(&mut claim, &extra);
    claim
}

fn class(extra: Value) -> Value {
    let mut class = json!({"metadata": {"name": "longhorn"}, "provisioner": hci::DRIVER});
    overlay(&mut class, &extra);
    class
}

fn overlay(object: &mut Value, extra: &Value) {
    match (object, extra) {
        (Value::Object(object), Value::Object(extra)) => {
            for (key, value) in extra {
                overlay(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, extra) => *object = extra.clone(),
    }
}

#[test]
fn a_claim_gets_a_volume_at_once_or_when_it_is_used() {
    let later = json!({"volumeBindingMode": "WaitForFirstConsumer"});
    let note = |key: &str| json!({"metadata": {"annotations": {key: "one"}}});
    for (claims, classes, expected) in [
        (json!({}), json!({}), ProvisionRequest::Volume),
        (json!({}), later.clone(), ProvisionRequest::Consumer),
        (note(SELECTED_NODE), later.clone(), ProvisionRequest::Volume),
        (note(IMMEDIATE), later, ProvisionRequest::Volume),
        (json!({}), json!({"provisioner": "sheaf.io/local"}), ProvisionRequest::Nothing),
        (json!({"spec": {"volumeName": "v"}}), json!({}), ProvisionRequest::Nothing),
        (
            json!({"metadata": {"annotations": {ANNOUNCED: null}}}),
            json!({}),
            ProvisionRequest::Nothing,
        ),
        (json!({"spec": {"selector": {}}}), json!({}), ProvisionRequest::Nothing),
        (json!({"metadata": {"deletionTimestamp": "t"}}), json!({}), ProvisionRequest::Nothing),
    ] {
        assert_eq!(want(&claim(claims.clone()), &class(classes)), expected, "{claims}");
    }
}

#[test]
fn the_volume_is_as_the_class_says() {
    let parameters =
        json!({"numberOfReplicas": "2", "migratable": "true", "staleReplicaTimeout": "30"});
    let made = backing(&claim(json!({})), &class(json!({"parameters": parameters})), None).unwrap();
    assert_eq!(name(&made), "pvc-u");
    let expected = json!({
        "numberOfReplicas": 2, "staleReplicaTimeout": 30, "migratable": false,
        "accessMode": "rwo", "size": "1073741824", "frontend": "blockdev",
    });
    assert_eq!(made["spec"], expected);
    let shared = claim(json!({"spec": {"accessModes": ["ReadWriteMany"]}}));
    let made = backing(&shared, &class(json!({"parameters": parameters})), None).unwrap();
    assert_eq!(
        (&made["spec"]["accessMode"], &made["spec"]["migratable"]),
        (&json!("rwx"), &json!(true))
    );
}

#[test]
fn nothing_is_made_of_nothing_or_too_small_for_its_content() {
    let content =
        Content { source: "snap://v/s".into(), size: 2 << 30, name: "s".into(), backup_url: None };
    let small = backing(&claim(json!({})), &class(json!({})), Some(&content)).unwrap_err();
    assert_eq!(
        small.to_string(),
        "requested volume size 1073741824 is less than the size 2147483648 for the source s"
    );
    for size in ["0", "9223372036854775807"] {
        let odd = claim(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
        let refused = backing(&odd, &class(json!({})), None).unwrap_err();
        let expected = format!(
            "spec.resources.requests.storage {size:?} is invalid: it must be above 0 and below 8Ei"
        );
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn a_persistent_volume_names_its_driver_its_claim_and_its_secrets() {
    let parameters = json!({
        "numberOfReplicas": "2",
        "csi.storage.k8s.io/node-stage-secret-name": "key-${pvc.name}-${pvc.annotations['team']}",
        "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
    });
    let class = class(json!({"parameters": parameters, "reclaimPolicy": "Retain"}));
    let own = claim(json!({"spec": {"resources": {"requests": {"storage": "1G"}}}}));
    let behind = backing(&own, &class, None).unwrap();
    let made = persistent(&own, &class, &behind);
    let spec = &made["spec"];
    assert_eq!(spec["capacity"]["storage"], "954Mi", "more than was requested is reported");
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(
        (&spec["volumeMode"], &spec["csi"]["fsType"]),
        (&json!("Filesystem"), &json!("ext4"))
    );
    assert_eq!(handle(&made), Some("pvc-u"));
    assert_eq!(spec["csi"]["nodeStageSecretRef"], json!({"name": "key-c-red", "namespace": "n"}));
    assert_eq!(spec["csi"]["volumeAttributes"]["numberOfReplicas"], "2");
    assert!(
        spec["csi"]["volumeAttributes"].get("csi.storage.k8s.io/node-stage-secret-name").is_none()
    );
    assert_eq!(spec["claimRef"]["uid"], "u");
}

#[test]
fn an_unclaimed_volume_is_removed_unless_it_is_to_stay() {
    let volume = |policy: &str, phase: &str, deleting: bool| {
        let time = deleting.then_some("t");
        json!({"metadata": {"deletionTimestamp": time}, "status": {"phase": phase},
            "spec": {"persistentVolumeReclaimPolicy": policy}})
    };
    let there = json!({"metadata": {"name": "v"}});
    let going = json!({"metadata": {"name": "v", "deletionTimestamp": "t"}});
    for (policy, phase, deleting, backing, expected) in [
        ("Delete", "Bound", false, Some(&there), Fate::Keep),
        ("Delete", "Bound", true, Some(&there), Fate::Keep),
        ("Delete", "Released", false, Some(&there), Fate::DeleteBacking),
        ("Delete", "Released", false, Some(&going), Fate::Wait),
        ("Delete", "Released", false, None, Fate::Delete),
        ("Delete", "Released", true, None, Fate::Release),
        ("Delete", "Available", true, Some(&there), Fate::DeleteBacking),
        ("Retain", "Released", false, Some(&there), Fate::Keep),
        ("Retain", "Released", true, Some(&there), Fate::Release),
    ] {
        let case = format!("{policy} {phase} {deleting} {}", backing.is_some());
        assert_eq!(fate(&volume(policy, phase, deleting), backing), expected, "{case}");
    }
}

#[test]
fn a_claim_has_grown_when_its_engine_has() {
    let own = |capacity: &str| {
        claim(json!({
            "spec": {"resources": {"requests": {"storage": "2Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": capacity}},
        }))
    };
    let behind = |size: i64| json!({"spec": {"size": size.to_string()}});
    let engine = |size: i64| Some(json!({"status": {"currentSize": size.to_string()}}));
    const GI: i64 = 1 << 30;
    for (capacity, size, engine, expected) in [
        ("2Gi", 2 * GI, None, ExpansionStep::Nothing),
        ("1Gi", GI, engine(GI), ExpansionStep::Ask { size: 2 * GI }),
        ("1Gi", 2 * GI, engine(GI), ExpansionStep::Wait),
        ("1Gi", 2 * GI, None, ExpansionStep::Wait),
        ("1Gi", 2 * GI, engine(2 * GI), ExpansionStep::Grown { capacity: json!("2Gi") }),
    ] {
        assert_eq!(growth(&own(capacity), &behind(size), engine.as_ref()), expected);
    }
}
