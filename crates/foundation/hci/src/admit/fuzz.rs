//! Thousands of objects that make no sense: every rule answers, and none panics.
//!
//! As in the server, only objects whose lists and objects are where the schema has them reach the
//! rules that fill in fields.

use schema::{Schema, has_shape};
use serde_json::{Value, json};

use super::tests::{Cluster, Tenant, uuid};
use super::{Write, complete, concerns, validate};

const COUNT: usize = 40_000;

/// Group, plural and an object that is good.
fn templates() -> Vec<(&'static str, &'static str, Value)> {
    let harvester = "harvesterhci.io";
    let network = crate::network::GROUP;
    let balancer = crate::address_pool::GROUP;
    let meta =
        |name: &str| json!({"name": name, "namespace": "default", "annotations": {"a": "b"}});
    vec![
        (
            harvester,
            "virtualmachineimages",
            json!({"metadata": meta("i"), "spec": {
            "displayName": "x", "sourceType": "download", "url": "http://h/x",
            "pvcName": "c", "pvcNamespace": "default", "checksum": "", "retry": 3,
            "storageClassParameters": {"numberOfReplicas": "1"},
            "securityParameters": {"cryptoOperation": "encrypt", "sourceImageName": "i",
                "sourceImageNamespace": "default"}}}),
        ),
        (
            "policy.networking.k8s.io",
            "clusternetworkpolicies",
            json!({"metadata": {"name": "p"}, "spec": {"tier": "Admin", "priority": 1,
            "subject": {"namespaces": {"matchLabels": {"a": "b"}}},
            "ingress": [{"action": "Deny", "from": [{"pods": {"podSelector": {"matchExpressions": [
                {"key": "a", "operator": "In", "values": ["b"]}]}}}]}],
            "egress": [{"action": "Accept", "to": [{"networks": ["10.0.0.0/8"]}]}]}}),
        ),
        (harvester, "keypairs", json!({"metadata": meta("k"), "spec": {"publicKey": "ssh-rsa A"}})),
        (
            "",
            "nodes",
            json!({"metadata": {"name": "n", "labels": {"cpumanager": "true"}, "annotations":
            {"harvesterhci.io/cpu-manager-update-status": "{\"policy\":\"none\"}"}},
            "spec": {"unschedulable": true, "taints": [{"key": "a", "effect": "NoExecute"}]}}),
        ),
        (
            harvester,
            "volumeremoterestores",
            json!({"metadata": meta("r"), "spec": {"type": "lh", "from": "default/b"}}),
        ),
        (
            harvester,
            "settings",
            json!({"metadata": {"name": "overcommit-config"},
            "value": "{\"cpu\":200}", "default": ""}),
        ),
        (
            harvester,
            "settings",
            json!({"metadata": {"name": "storage-network"}, "value":
            "{\"vlan\":100,\"clusterNetwork\":\"c\",\"range\":\"10.0.0.0/24\"}"}),
        ),
        (
            harvester,
            "settings",
            json!({"metadata": {"name": "backup-target"}, "value":
            "{\"type\":\"nfs\",\"endpoint\":\"nfs://h:/x\"}"}),
        ),
        (
            harvester,
            "addons",
            json!({"metadata": meta("descheduler"), "spec": {"enabled": true,
            "valuesContent": "a: b", "chart": "c", "version": "1", "repo": "r"}}),
        ),
        (
            harvester,
            "resourcequotas",
            json!({"metadata": meta("default-resource-quota"), "spec": {
            "snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 1,
                "vmTotalSnapshotSizeQuota": {"vm": 1}}}}),
        ),
        (
            harvester,
            "virtualmachinetemplates",
            json!({"metadata": meta("t"),
            "spec": {"defaultVersionId": "default/v", "description": "d"}}),
        ),
        (
            harvester,
            "virtualmachinetemplateversions",
            json!({"metadata": meta("v"), "spec": {
            "templateId": "default/t", "imageId": "default/i", "keyPairIds": ["default/k"],
            "vm": {"metadata": {"annotations": {"harvesterhci.io/volumeClaimTemplates": "[{}]"}},
                "spec": {"template": {"spec": {"domain": {"devices": {
                    "disks": [{"name": "d"}], "interfaces": [{"name": "n", "macAddress": "m"}]}},
                    "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}}}}}}),
        ),
        (
            harvester,
            "virtualmachinebackups",
            json!({"metadata": meta("b"), "spec": {
            "type": "backup", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
                "name": "m"}}, "status": {"readyToUse": true, "volumeBackups": [{"name": "x"}]}}),
        ),
        (
            harvester,
            "virtualmachinerestores",
            json!({"metadata": meta("r"), "spec": {
            "newVM": true, "target": {"kind": "VirtualMachine", "name": "m2"},
            "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "default"}}),
        ),
        (
            harvester,
            "schedulevmbackups",
            json!({"metadata": meta("s"), "spec": {
            "cron": "0 0 * * *", "retain": 2, "maxFailure": 1, "suspend": false,
            "vmbackup": {"type": "snapshot", "source": {"name": "m"}}}}),
        ),
        (
            harvester,
            "supportbundles",
            json!({"metadata": meta("sb"), "spec": {"description": "d"}}),
        ),
        (harvester, "upgrades", json!({"metadata": meta("u"), "spec": {"version": "v1"}})),
        (harvester, "versions", json!({"metadata": meta("v1"), "spec": {"isoURL": "http://h"}})),
        (network, "clusternetworks", json!({"metadata": {"name": "c"}})),
        (
            network,
            "vlanconfigs",
            json!({"metadata": {"name": "v"}, "spec": {
            "clusterNetwork": "c", "nodeSelector": {"a": "b"}, "uplink": {"nics": ["eth1"],
                "linkAttributes": {"mtu": 1500}, "bondOptions": {"mode": "active-backup"}}}}),
        ),
        (
            network,
            "ippools",
            json!({"metadata": meta("p"), "spec": {"networkName": "default/n",
            "ipv4Config": {"serverIP": "10.0.0.2", "cidr": "10.0.0.0/24", "router": "10.0.0.1",
                "dns": ["1.1.1.1"], "pool": {"start": "10.0.0.5", "end": "10.0.0.9",
                    "exclude": ["10.0.0.6"]}}}}),
        ),
        (
            network,
            "linkmonitors",
            json!({"metadata": {"name": "l"}, "spec": {
            "targetLinkRule": {"typeRule": "device", "nameRule": "eth"}}}),
        ),
        (
            network,
            "hostnetworkconfigs",
            json!({"metadata": {"name": "h"}, "spec": {
            "clusterNetwork": "c", "vlanID": 5, "mode": "static",
            "hostIPs": {"n": "10.0.0.5/24"}}}),
        ),
        (
            "k8s.cni.cncf.io",
            "network-attachment-definitions",
            json!({"metadata": {"name": "n",
            "namespace": "default", "labels": {"network.harvesterhci.io/type": "L2VlanNetwork"},
            "annotations": {"network.harvesterhci.io/route": "{\"mode\":\"auto\"}"}},
            "spec": {"config": "{\"type\":\"bridge\",\"bridge\":\"c-br\",\"vlan\":5}"}}),
        ),
        (
            "k8s.cni.cncf.io",
            "multi-networkpolicies",
            json!({"metadata": {"name": "p", "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/policy-for": "default/lan,other"}},
            "spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": 80, "endPort": 90, "protocol": "TCP"}],
                "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}]}}),
        ),
        (
            balancer,
            "loadbalancers",
            json!({"metadata": meta("lb"), "spec": {
            "workloadType": "vm", "ipam": "pool", "listeners": [{"name": "a", "port": 80,
                "protocol": "TCP", "backendPort": 80}], "backendServerSelector": {"a": ["b"]},
            "healthCheck": {"port": 80, "timeoutSeconds": 1}}}),
        ),
        (
            balancer,
            "ippools",
            json!({"metadata": {"name": "p"}, "spec": {"ranges": [
            {"subnet": "192.168.7.0/24", "rangeStart": "192.168.7.2", "rangeEnd": "192.168.7.9",
                "gateway": "192.168.7.1"}], "selector": {"network": "default/n", "scope": [
            {"namespace": "*", "project": "*", "guestCluster": "*"}]}}}),
        ),
        (
            "longhorn.io",
            "volumes",
            json!({"metadata": meta("v"), "spec": {"size": "1073741824",
            "numberOfReplicas": 1, "frontend": "blockdev", "nodeSelector": ["a"]}}),
        ),
        (
            "longhorn.io",
            "nodes",
            json!({"metadata": meta("n"), "spec": {"disks": {"d": {
            "path": "/x", "tags": ["a"], "storageReserved": 1, "allowScheduling": true}},
            "tags": ["t"]}}),
        ),
        (
            "longhorn.io",
            "settings",
            json!({"metadata": meta("default-replica-count"), "value": "2"}),
        ),
        (
            "longhorn.io",
            "recurringjobs",
            json!({"metadata": meta("j"), "spec": {
            "task": "snapshot", "cron": "0 0 * * *", "retain": 1, "concurrency": 1,
            "groups": ["default"], "labels": {"a": "b"}}}),
        ),
        (
            "management.cattle.io",
            "projects",
            json!({"metadata": {"name": "p",
            "namespace": "local"}, "spec": {"resourceQuota": {"limit": {"limitsCpu": "2"}},
            "namespaceDefaultResourceQuota": {"limit": {"limitsCpu": "1"}}}}),
        ),
    ]
}

/// Values that fields do not expect.
fn odd_values() -> Vec<Value> {
    let texts = [
        "",
        "x",
        "a/b",
        "../..",
        "\0",
        "é",
        "{",
        "{}",
        "[]",
        "null",
        "[{}]",
        "{\"a\":[]}",
        "9999999999999999Gi",
        "-1Gi",
        "NaN",
        "default/",
        "/",
        "default/x/y",
        "http://",
        "http://[",
        "2006-13-45T00:00:00Z",
        "*",
        "1.2.3.4/99",
        "::/0",
        "0.0.0.0/0",
        "* * * * * *",
        "255.255.255.255",
        "18446744073709551616",
    ];
    let mut values: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    values.extend([
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!([]),
        json!({}),
        json!([null]),
        json!([[]]),
        json!({"a": null}),
        json!({"": ""}),
        json!(["a", "a"]),
        json!("x".repeat(300)),
    ]);
    values
}

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound.max(1)
    }
}

/// Changes one value somewhere in a document.
fn change(value: &mut Value, odd: &[Value], numbers: &mut Numbers) {
    let is_here = numbers.below(6) == 0;
    match value {
        Value::Object(fields) if !is_here && !fields.is_empty() => {
            let key = fields.keys().nth(numbers.below(fields.len())).cloned().unwrap_or_default();
            match numbers.below(12) {
                0 => drop(fields.remove(&key)),
                1 => drop(
                    fields.insert(["spec", "x", "", "name"][numbers.below(4)].into(), json!(1)),
                ),
                _ => change(fields.get_mut(&key).expect("it has this key"), odd, numbers),
            }
        }
        Value::Array(items) if !is_here && !items.is_empty() => {
            let index = numbers.below(items.len());
            match numbers.below(8) {
                0 => drop(items.remove(index)),
                1 => items.push(odd[numbers.below(odd.len())].clone()),
                _ => change(&mut items[index], odd, numbers),
            }
        }
        _ => *value = odd[numbers.below(odd.len())].clone(),
    }
}

fn schema_of(definitions: &[Value], group: &str, plural: &str) -> Option<Schema> {
    let spec = definitions.iter().map(|own| &own["spec"]);
    let mut own = spec.filter(|spec| spec["group"] == group && spec["names"]["plural"] == plural);
    schema::parse(&own.next()?["versions"][0]["schema"]["openAPIV3Schema"]).ok()
}

#[test]
fn broken_objects_are_judged() {
    let (templates, odd) = (templates(), odd_values());
    let definitions: Vec<Value> = crate::definitions().collect();
    let cluster = Cluster(templates.clone());
    let mut numbers = Numbers(17);
    let (mut refused, mut admitted) = (0, 0);
    let schemas: Vec<Option<Schema>> =
        templates.iter().map(|own| schema_of(&definitions, own.0, own.1)).collect();
    for _ in 0..COUNT {
        let index = numbers.below(templates.len());
        let (group, resource, good) = &templates[index];
        assert!(concerns(group, resource), "{group}/{resource} has no rules");
        let mut object = good.clone();
        for _ in 0..=numbers.below(3) {
            change(&mut object, &odd, &mut numbers);
        }
        // The server sees to these.
        let is_map = |field: &str| {
            let map = &object["metadata"][field];
            let texts = map.as_object().is_some_and(|own| own.values().all(Value::is_string));
            map.is_null() || texts
        };
        if !object["metadata"].is_object() || !is_map("labels") || !is_map("annotations") {
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let namespace = good["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut write = Write {
            group,
            resource,
            namespace,
            name: &name,
            object: None,
            old: (numbers.below(2) == 0).then_some(good),
            trusted: false,
            objects: &cluster,
            writer: if numbers.below(2) == 0 { &cluster } else { &Tenant },
            uuid: &uuid,
        };
        if schemas[index].as_ref().is_some_and(|schema| !has_shape(&object, schema)) {
            continue;
        }
        let completed = complete(&write, &mut object);
        write.object = Some(&object);
        match completed.and_then(|()| validate(&write)) {
            Ok(()) => admitted += 1,
            Err(refusal) => {
                assert!(!refusal.message.is_empty(), "{write:?}");
                refused += 1;
            }
        }
        write.object = None;
        let _ = validate(&write);
    }
    assert!(refused > 3000 && admitted > 3000, "{refused} refused, {admitted} admitted");
}
