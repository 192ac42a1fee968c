//! Machines before and after.

use super::super::tests::{Cluster, uuid};
use super::*;

fn machine(annotations: Value, domain: Value) -> Value {
    json!({
        "metadata": {
            "namespace": "default", "name": "web", "annotations": annotations,
            "labels": {"harvesterhci.io/creator": "harvester"},
        },
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"domain": domain}}},
    })
}

fn settings(pairs: &[(&str, &str)]) -> Cluster {
    let setting = |(name, value): &(&str, &str)| {
        let object = json!({"metadata": {"name": name}, "value": value});
        ("harvesterhci.io", "settings", object)
    };
    Cluster(pairs.iter().map(setting).collect())
}

fn completed(machine: &Value, old: Option<&Value>, cluster: &Cluster) -> Result<Value, Refusal> {
    let write = Write {
        group: "kubevirt.io",
        resource: "virtualmachines",
        namespace: "default",
        name: "web",
        object: None,
        old,
        trusted: false,
        objects: cluster,
        writer: cluster,
        uuid: &uuid,
    };
    let mut machine = machine.clone();
    complete(&write, &mut machine).map(|()| machine)
}

#[test]
fn requests_follow_limits_and_the_overcommit() {
    let limits = json!({"resources": {"limits": {"cpu": 2, "memory": "3Gi"}}});
    let mut dedicated = limits.clone();
    dedicated["cpu"] = json!({"dedicatedCpuPlacement": true});
    let mut devices = limits.clone();
    devices["devices"] = json!({"gpus": [{"name": "g"}]});
    let reserved = json!({"harvesterhci.io/reservedMemory": "1Gi"});
    for (about, annotations, domain, set, expected) in [
        ("defaults", json!({}), &limits, vec![], ("200m", "2Gi", "3Gi")),
        (
            "setting",
            json!({}),
            &limits,
            vec![("overcommit-config", r#"{"cpu":100,"memory":200}"#)],
            ("2", "1536Mi", "3Gi"),
        ),
        ("dedicated", json!({}), &dedicated, vec![], ("2", "3Gi", "3Gi")),
        ("devices", json!({}), &devices, vec![], ("200m", "3Gi", "3Gi")),
        ("reserved", reserved, &limits, vec![], ("200m", "2Gi", "2Gi")),
        (
            "no ratio",
            json!({}),
            &limits,
            vec![("additional-guest-memory-overhead-ratio", "0")],
            ("200m", "2Gi", "2972Mi"),
        ),
    ] {
        let done = completed(&machine(annotations, domain.clone()), None, &settings(&set)).unwrap();
        let domain = &done["spec"]["template"]["spec"]["domain"];
        let requests = &domain["resources"]["requests"];
        let found = [&requests["cpu"], &requests["memory"], &domain["memory"]["guest"]];
        let (cpu, memory, guest) = expected;
        assert_eq!(found, [cpu, memory, guest], "{about}");
    }
}

#[test]
fn requests_of_a_machine_change_only_with_its_size() {
    let domain = json!({
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"memory": "1Gi"}},
    });
    let old = machine(json!({}), domain);
    let same = completed(&old, Some(&old), &settings(&[])).unwrap();
    let resources = |vm: &Value| vm["spec"]["template"]["spec"]["domain"]["resources"].clone();
    assert_eq!(resources(&same)["requests"], json!({"memory": "1Gi"}));
    let mut grown = old.clone();
    grown["spec"]["template"]["spec"]["domain"]["resources"]["limits"]["memory"] = "3Gi".into();
    let grown = completed(&grown, Some(&old), &settings(&[])).unwrap();
    assert_eq!(resources(&grown)["requests"], json!({"cpu": "100m", "memory": "2Gi"}));
}

#[test]
fn the_rest_of_a_machine_is_filled_in() {
    let domain = json!({
        "cpu": {"sockets": 2}, "resources": {"limits": {"memory": "1Gi"}},
        "devices": {"interfaces": [{"name": "a"}, {"name": "b", "macAddress": "02:00:00:00:00:01"}]},
    });
    let cluster = settings(&[("default-vm-termination-grace-period-seconds", "30")]);
    let done = completed(&machine(json!({}), domain), None, &cluster).unwrap();
    let spec = &done["spec"]["template"]["spec"];
    let cpu = json!({"cores": 1, "sockets": 2, "threads": 1, "maxSockets": 2});
    assert_eq!(spec["domain"]["cpu"], cpu);
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    let interfaces = &spec["domain"]["devices"]["interfaces"];
    assert_eq!(interfaces[0]["macAddress"], "5e:0c:9d:3a:1b:2c");
    assert_eq!(interfaces[1]["macAddress"], "02:00:00:00:00:01");
    assert!(spec.get("affinity").is_none(), "{spec}");
}

#[test]
fn interfaces_that_a_machine_had_keep_their_address() {
    let with = |names: &[&str]| {
        let interfaces: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let devices = json!({"interfaces": interfaces});
        machine(json!({}), json!({"memory": {"guest": "1Gi"}, "devices": devices}))
    };
    let done = completed(&with(&["a", "b"]), Some(&with(&["a"])), &settings(&[])).unwrap();
    let interfaces = &done["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"];
    assert_eq!(interfaces[0], json!({"name": "a"}));
    assert!(interfaces[1]["macAddress"].is_string());
}

#[test]
fn too_little_memory_is_refused() {
    let domain = json!({"resources": {"limits": {"memory": "9Mi"}}});
    let refusal = completed(&machine(json!({}), domain), None, &settings(&[])).unwrap_err();
    assert_eq!(refusal.code, 422);
    assert!(refusal.message.contains("guest memory is under the minimum requirement (10 Mi)"));
}

#[test]
fn a_stopped_machine_starts_as_it_ran_before() {
    let domain = json!({"memory": {"guest": "1Gi"}});
    for (annotation, before, now, expected) in [
        ("Manual", "Halted", "Always", "Manual"),
        ("", "Halted", "Always", "RerunOnFailure"),
        ("Manual", "Always", "Once", "Once"),
        ("Manual", "Always", "Halted", "Halted"),
    ] {
        let annotations = json!({"harvesterhci.io/vmRunStrategy": annotation});
        let with = |strategy: &str| {
            let mut vm = machine(annotations.clone(), domain.clone());
            vm["spec"]["runStrategy"] = strategy.into();
            vm
        };
        let done = completed(&with(now), Some(&with(before)), &settings(&[])).unwrap();
        assert_eq!(done["spec"]["runStrategy"], expected, "{annotation} {before} {now}");
    }
}

#[test]
fn machines_go_to_nodes_with_their_networks() {
    let definition = json!({"metadata": {
        "namespace": "default", "name": "lan",
        "labels": {"network.harvesterhci.io/clusternetwork": "fast"},
    }});
    let cluster = Cluster(vec![("k8s.cni.cncf.io", "network-attachment-definitions", definition)]);
    let mut vm = machine(json!({}), json!({"memory": {"guest": "1Gi"}}));
    vm["spec"]["template"]["spec"]["networks"] =
        json!([{"name": "default", "pod": {}}, {"name": "n", "multus": {"networkName": "lan"}}]);
    let done = completed(&vm, None, &cluster).unwrap();
    let path = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let wanted =
        json!({"key": "network.harvesterhci.io/fast", "operator": "In", "values": ["true"]});
    assert_eq!(done.pointer(path), Some(&json!([{"matchExpressions": [wanted]}])));
    // Without the network, its rule goes too, and other rules stay.
    let mut moved = done.clone();
    moved["spec"]["template"]["spec"]["networks"] = json!([]);
    assert_eq!(completed(&moved, Some(&done), &cluster).unwrap().pointer(path), None);
    let own = json!({"key": "zone", "operator": "Exists"});
    *moved.pointer_mut(path).unwrap() = json!([{"matchExpressions": [own, wanted]}]);
    let kept = completed(&moved, Some(&done), &cluster).unwrap();
    assert_eq!(kept.pointer(path), Some(&json!([{"matchExpressions": [own]}])));
}

#[test]
fn machines_of_others_are_left_alone() {
    let mut vm = machine(json!({}), json!({"resources": {"limits": {"memory": "1Gi"}}}));
    vm["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(completed(&vm, None, &settings(&[])).unwrap(), vm);
}
