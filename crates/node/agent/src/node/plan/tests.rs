use std::net::Ipv4Addr;

use super::super::facts::{Cpu, Findings, HostFileSystem, HostMemory};
use super::*;
use crate::host::GuestIsolation;
use crate::network::NetworkShortcoming;

/// A node of which a support bundle says nothing.
#[derive(Debug)]
struct NoFiles;

impl crate::NodeFiles for NoFiles {
    fn files(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

fn config() -> Config {
    Config {
        node_name: "n1".into(),
        data_dir: "/d".into(),
        addresses: vec![Ipv4Addr::new(192, 0, 2, 1).into()],
        version: "0.1.0".into(),
        kubernetes_version: "v1.37.0".into(),
        network: crate::Network::User,
        import_allow: Vec::new(),
        cluster_ranges: Vec::new(),
        has_proxy: false,
        role: NodeRole::Management,
        labels: vec![("rack".into(), "a1".into())],
        annotations: vec![],
        wire: crate::NodeWire::default(),
        host_disk_paths: Vec::new(),
        max_image_size: u64::MAX,
        report: std::sync::Arc::new(NoFiles),
    }
}

#[test]
fn a_witness_offers_nothing_and_is_ready() {
    let config = Config { role: NodeRole::Witness, ..config() };
    let node = birth(&config, &facts(), Timestamp::UNIX_EPOCH);
    let labels = node["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels["kubevirt.io/schedulable"], "false");
    for key in labels.keys() {
        assert!(!key.contains("node.kubevirt.io/") && !key.contains("node-role"), "{key}");
    }
    assert_eq!(node["status"]["allocatable"]["pods"], "0");
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let status = |kind: &str| {
        let own = conditions.iter().find(|own| own["type"] == kind).unwrap();
        (own["status"].as_str().unwrap(), own["reason"].as_str().unwrap())
    };
    assert_eq!(status("Ready"), ("True", "KubeletReady"));
    assert_eq!(status("Virtualization"), ("False", "Witness"));
    assert_eq!(status("GuestNetwork"), ("False", "Witness"));
    assert_eq!(status("GuestIsolation"), ("False", "Witness"));
}

fn facts() -> HostFacts {
    HostFacts {
        cpu: Cpu {
            count: 4,
            vendor: "GenuineIntel".into(),
            model: "Xeon".into(),
            features: vec!["vmx".into()],
        },
        memory: HostMemory {
            total: 8 << 30,
            available: 4 << 30,
            huge_pages: vec![(2 << 20, 1 << 30), (1 << 30, 0)],
        },
        disk: HostFileSystem { total: 100 << 30, free: 50 << 30 },
        findings: Findings {
            virtualization: Virtualization::Emulated {
                qemu: "7.2.22".into(),
                why: "no /dev/kvm".into(),
            },
            network: None,
            isolation: Some(GuestIsolation::Refused { why: "no root".into() }),
        },
        ..HostFacts::default()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

#[test]
fn a_node_that_is_up_to_date_is_not_written() {
    let node = birth(&config(), &facts(), at(0));
    assert_eq!(patches(&config(), &facts(), &node, at(100)), NodePatches::default());
}

#[test]
fn the_heartbeat_travels_with_writes_and_causes_none() {
    let beat = |patch: Option<Value>| {
        patch.map(|patch| patch["metadata"]["annotations"][HEARTBEAT].clone())
    };
    let born = birth(&config(), &facts(), at(0));
    assert_eq!(born["metadata"]["annotations"][HEARTBEAT], rfc3339(at(0)));
    let (mut bare, mut relabelled, mut odd) = (born.clone(), born.clone(), born.clone());
    bare["metadata"]["annotations"].as_object_mut().unwrap().remove(HEARTBEAT);
    relabelled["metadata"]["labels"]["kubevirt.io/schedulable"] = "false".into();
    odd["metadata"]["labels"] = json!({});
    odd["metadata"]["annotations"][HEARTBEAT] = "yesterday".into();
    let grown = HostFacts { cpu: Cpu { count: 8, ..facts().cpu }, ..facts() };
    let minute = || Some(json!(rfc3339(at(60))));
    for (node, facts, second, metadata, status) in [
        (&born, facts(), 600, None, None),
        (&bare, facts(), 60, minute(), None),
        (&relabelled, facts(), 60, minute(), None),
        (&relabelled, facts(), 59, Some(Value::Null), None),
        (&odd, facts(), 60, minute(), None),
        (&born, grown, 60, None, minute()),
    ] {
        let written = patches(&config(), &facts, node, at(second));
        assert_eq!((beat(written.metadata), beat(written.status)), (metadata, status));
    }
}

#[test]
fn others_learn_the_network_of_the_guests_unless_there_is_none() {
    let network = crate::Network::Nat {
        bridge: "sheaf0".parse().unwrap(),
        cidr: "10.52.0.0/24".parse().unwrap(),
        host_tcp: std::collections::BTreeSet::new(),
    };
    let (user, nat) = (config(), Config { network, ..config() });
    let mut failed = facts();
    failed.findings.network = Some(NetworkShortcoming::Unavailable("no rights".into()));
    for (config, facts, expected) in [
        (&user, facts(), Value::Null),
        (&nat, facts(), json!("10.52.0.0/24")),
        (&nat, failed, Value::Null),
    ] {
        let node = birth(config, &facts, at(0));
        assert_eq!(node["metadata"]["annotations"][NETWORK], expected);
    }
}

#[test]
fn a_worker_does_not_say_what_it_is_to_the_cluster() {
    let roles = |config: &Config| {
        let node = birth(config, &facts(), at(0));
        let labels = node["metadata"]["labels"].as_object().unwrap().clone();
        labels.keys().filter(|key| key.starts_with("node-role")).count()
    };
    assert_eq!(roles(&config()), 1);
    assert_eq!(roles(&Config { role: NodeRole::Worker, ..config() }), 0);
}

#[test]
fn labels_of_the_machine_are_given_once() {
    let mut node = birth(&config(), &facts(), at(0));
    assert_eq!(node["metadata"]["labels"]["rack"], "a1");
    node["metadata"]["labels"]["rack"] = "b2".into();
    assert_eq!(patches(&config(), &facts(), &node, at(1)).metadata, None);
    // As the control plane makes the Node of a machine that joins.
    let made = json!({"metadata": {"name": "n", "labels": {}}});
    let labels = patches(&config(), &facts(), &made, at(1)).metadata.unwrap();
    assert_eq!(labels["metadata"]["labels"]["rack"], "a1");
}

#[test]
fn the_cpu_manager_follows_what_was_asked_for() {
    let mut node = birth(&config(), &facts(), at(0));
    assert_eq!(node["metadata"]["labels"][cpu_manager::LABEL], "true");
    let request = CpuPolicy::None.request();
    let asked = &request["metadata"]["annotations"][cpu_manager::STATUS];
    node["metadata"]["annotations"][cpu_manager::STATUS] = asked.clone();
    let patch = patches(&config(), &facts(), &node, at(1)).metadata.unwrap();
    let done = cpu_manager::completed(&node).unwrap();
    let expected = json!({"metadata": {"labels": {cpu_manager::LABEL: "false"},
        "annotations": {cpu_manager::STATUS: done}}});
    assert_eq!(patch, expected);
    node["metadata"]["labels"][cpu_manager::LABEL] = "false".into();
    node["metadata"]["annotations"][cpu_manager::STATUS] = done.into();
    assert_eq!(patches(&config(), &facts(), &node, at(2)).metadata, None);
}

#[test]
fn fields_of_other_writers_stay() {
    let mut node = birth(&config(), &facts(), at(0));
    node["metadata"]["labels"]["zone"] = "a".into();
    node["spec"] = json!({"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]});
    node["status"]["capacity"]["example.com/gpu"] = "2".into();
    node["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"type": "NetworkUnavailable", "status": "False"}));
    assert_eq!(patches(&config(), &facts(), &node, at(100)), NodePatches::default());
}

#[test]
fn a_change_of_the_host_is_written_and_nothing_else() {
    let node = birth(&config(), &facts(), at(0));
    let mut now = facts();
    now.findings.virtualization = Virtualization::Kvm { qemu: "7.2.22".into() };
    let NodePatches { metadata, status } = patches(&config(), &now, &node, at(50));
    assert_eq!(
        metadata.unwrap(),
        json!({"metadata": {"labels": {
            "node.sheaf.io/accelerator": "kvm",
            "cpu-model.node.kubevirt.io/host-passthrough": "true",
            "cpu-feature.node.kubevirt.io/vmx": "true",
        }}})
    );
    let status = status.unwrap();
    assert_eq!(status["status"]["capacity"], json!({"devices.kubevirt.io/kvm": "1k"}));
    let conditions = status["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|each| each["type"] == "Ready").unwrap();
    assert_eq!(ready["lastHeartbeatTime"], rfc3339(at(0)));
    let virtualization = conditions.iter().find(|each| each["type"] == "Virtualization").unwrap();
    // The status is as true as before: only the reason is new.
    assert_eq!(virtualization["lastTransitionTime"], rfc3339(at(0)));
    assert_eq!(virtualization["reason"], "Kvm");
    assert!(status["status"].get("nodeInfo").is_none());
}

#[test]
fn labels_of_a_lost_feature_are_removed() {
    let mut before = facts();
    before.findings.virtualization = Virtualization::Kvm { qemu: "7.2.22".into() };
    let node = birth(&config(), &before, at(0));
    let patch = patches(&config(), &facts(), &node, at(1)).metadata.unwrap();
    assert_eq!(patch["metadata"]["labels"]["cpu-feature.node.kubevirt.io/vmx"], Value::Null);
    assert!(patch["metadata"]["labels"].get("kubernetes.io/hostname").is_none());
}

#[test]
fn a_host_without_qemu_says_what_is_missing_and_takes_no_guests() {
    let mut facts = facts();
    facts.findings.virtualization =
        Virtualization::Missing { what: "install qemu-system-x86".into() };
    let node = birth(&config(), &facts, at(0));
    assert_eq!(node["metadata"]["labels"]["kubevirt.io/schedulable"], "false");
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|each| each["type"] == "Virtualization").unwrap();
    assert_eq!(
        (&found["status"], &found["message"]),
        (&json!("False"), &json!("install qemu-system-x86"))
    );
}

#[test]
fn pressure_is_reported() {
    let mut facts = facts();
    facts.memory.available = 50 << 20;
    facts.disk.free = 1 << 30;
    let node = birth(&config(), &facts, at(0));
    for (kind, want) in [
        ("MemoryPressure", "True"),
        ("DiskPressure", "True"),
        ("PIDPressure", "False"),
        ("Ready", "True"),
    ] {
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|each| each["type"] == kind).unwrap();
        assert_eq!(found["status"], want, "{kind}");
    }
}

#[test]
fn capacity_is_what_the_host_has_and_allocatable_what_guests_may_use() {
    let node = birth(&config(), &facts(), at(0));
    let capacity = &node["status"]["capacity"];
    assert_eq!(capacity["memory"], "8388608Ki");
    assert_eq!(node["status"]["allocatable"]["memory"], "7864320Ki");
    assert_eq!(
        (&capacity["hugepages-2Mi"], &capacity["hugepages-1Gi"]),
        (&json!("1024Mi"), &json!("0"))
    );
    assert_eq!(allocatable_memory(1 << 30), (1 << 30) - (256 << 20));
}
