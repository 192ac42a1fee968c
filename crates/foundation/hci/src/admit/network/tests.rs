//! Tables of writes to networks and what becomes of them.

use super::super::tests::{Cluster, uuid};
use super::*;

fn cluster() -> Cluster {
    let node = |name: &str, rack: &str| {
        ("", "nodes", json!({"metadata": {"name": name, "labels": {"rack": rack}}}))
    };
    let networks = ["mgmt", "lan", "dmz", "wide"].map(|name| {
        let mtu = if name == "wide" { "9000" } else { "" };
        let metadata = json!({"name": name, "annotations": {UPLINK_MTU_KEY: mtu}});
        let status = json!({"conditions": [{"type": "ready", "status": "True"}]});
        (GROUP, "clusternetworks", json!({"metadata": metadata, "status": status}))
    });
    let mut objects = vec![node("one", "a"), node("two", "a"), node("three", "b")];
    objects.extend(networks);
    objects.push((GROUP, "vlanconfigs", config("lan-a", "lan", &json!({"rack": "a"}), 0)));
    objects.push((
        CNI,
        DEFINITIONS,
        definition("v10", r#"{"type":"bridge","bridge":"lan-br","vlan":10,"mtu":1500}"#),
    ));
    objects.push((
        "kubevirt.io",
        "virtualmachineinstances",
        json!({
            "metadata": {"namespace": "default", "name": "vm1"},
            "spec": {"networks": [{"name": "a", "multus": {"networkName": "v10"}}]},
            "status": {"nodeName": "one"},
        }),
    ));
    objects.push((
        "kubevirt.io",
        "virtualmachines",
        json!({
            "metadata": {"namespace": "default", "name": "vm2"},
            "spec": {"template": {"spec": {
                "networks": [{"name": "a", "multus": {"networkName": "default/v11"}}]}}},
        }),
    ));
    Cluster(objects)
}

fn config(name: &str, network: &str, selector: &Value, mtu: i32) -> Value {
    json!({
        "metadata": {"name": name, "labels": {CLUSTER_NETWORK_KEY: network}},
        "spec": {"clusterNetwork": network, "nodeSelector": selector,
            "uplink": {"nics": ["eth1"], "linkAttributes": {"mtu": mtu}}},
    })
}

fn definition(name: &str, text: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "labels": {CLUSTER_NETWORK_KEY: "lan"}},
        "spec": {"config": text},
    })
}

type Judge = fn(&Write<'_>) -> AdmissionResult;

/// The reason of a refusal, or nothing.
fn judged(judge: Judge, object: Option<&Value>, old: Option<&Value>) -> String {
    let cluster = cluster();
    let some = object.or(old).unwrap();
    let write = Write {
        group: GROUP,
        resource: "",
        namespace: text(some, "/metadata/namespace"),
        name: text(some, "/metadata/name"),
        object,
        old,
        trusted: false,
        objects: &cluster,
        writer: &cluster,
        uuid: &uuid,
    };
    let message = judge(&write).map_or_else(|refusal| refusal.message, |()| String::new());
    message.rsplit("denied the request: ").next().unwrap_or_default().to_owned()
}

#[test]
fn cluster_networks_keep_their_limits() {
    let named = |name: &str, mtu: &str| json!({"metadata": {"name": name, "annotations": {UPLINK_MTU_KEY: mtu}}});
    let create = |object: Value| judged(validate_cluster_network, Some(&object), None);
    assert_eq!(create(named("twelve-chars", "")), "");
    assert_eq!(
        create(named("thirteen-char", "")),
        "can't create cluster network thirteen-char because the length of the clusterNetwork name \
         thirteen-char is more than 12"
    );
    assert!(create(named("a", "1500")).ends_with("uplink-mtu can't be added"));
    for (mtu, why) in [
        ("1500", ""),
        ("x", "value x is not an integer"),
        ("100", "value 100 is not in range [0, 576..9000]"),
        ("9000", "clusternetwork has MTU 9000, but the vlanconfigs lan-a has another MTU 1500"),
    ] {
        let (new, old) = (named("lan", mtu), named("lan", ""));
        let answer = judged(validate_cluster_network, Some(&new), Some(&old));
        assert!(answer.ends_with(why) && answer.is_empty() == why.is_empty(), "{mtu}: {answer}");
    }
    for (name, why) in [
        ("mgmt", "can't delete cluster network mgmt because it is not allowed"),
        ("dmz", ""),
        (
            "lan",
            "can't delete cluster network lan because vlanconfig(s) [lan-a] under this \
             clusternetwork are still existing",
        ),
    ] {
        assert_eq!(judged(validate_cluster_network, None, Some(&named(name, ""))), why);
    }
}

#[test]
fn rules_of_link_monitors_are_regular_expressions() {
    let monitor =
        |rule: Value| json!({"metadata": {"name": "m"}, "spec": {"targetLinkRule": rule}});
    let create = |rule| judged(validate_link_monitor, Some(&monitor(rule)), None);
    assert_eq!(create(json!({"typeRule": "device", "nameRule": "lan(-br|-bo)"})), "");
    assert_eq!(create(json!({})), "");
    assert_eq!(
        create(json!({"nameRule": "eth["})),
        "can't create linkMonitor m because error parsing regexp: missing closing ]: `eth[`"
    );
    let old = monitor(json!({}));
    assert_eq!(judged(validate_link_monitor, None, Some(&old)), "");
}

#[test]
fn uplinks_are_for_one_network_and_do_not_overlap() {
    let create = |object: Value| {
        let answer = judged(validate_config, Some(&object), None);
        answer.rsplit(" because ").next().unwrap_or_default().to_owned()
    };
    let rack = |name: &str| json!({"rack": name});
    for (object, why) in [
        (config("x", "lan", &rack("b"), 1500), ""),
        (config("x", "dmz", &json!({}), 0), ""),
        (
            config("x", "mgmt", &json!({}), 0),
            "users can't create vlanConfig for mgmt cluster network",
        ),
        (
            config("x", "none", &json!({}), 0),
            "it refers to a none-existing cluster network none or error \
             clusternetworks.network.harvesterhci.io \"none\" not found",
        ),
        (config("x", "dmz", &json!({}), 100), "the MTU 100 is out of range [0, 576..9000]"),
        (
            config("x", "lan", &rack("b"), 9000),
            "the vlanconfig x MTU 9000 is different with another vlanconfig lan-a MTU 1500, all \
             vlanconfigs on one clusternetwork need to have same MTU",
        ),
        (
            config("x", "lan", &json!({}), 0),
            "it overlaps with other vlanconfigs matching node(s) [one two]",
        ),
    ] {
        assert_eq!(create(object.clone()), why, "{object}");
    }
}

#[test]
fn uplinks_of_running_machines_change_in_place_but_stay() {
    let old = config("lan-a", "lan", &json!({"rack": "a"}), 0);
    let blocked = "it is blocked by VM(s) default/vm1 which must be stopped at first";
    let mut other_cards = old.clone();
    other_cards["spec"]["uplink"]["nics"] = json!(["eth2", "eth3"]);
    let mut other_label = old.clone();
    other_label["metadata"]["labels"][CLUSTER_NETWORK_KEY] = json!("dmz");
    let elsewhere = config("lan-a", "lan", &json!({"rack": "b"}), 0);
    for (new, why) in [
        (Some(&other_cards), ""),
        (
            Some(&other_label),
            "cluster network label dmz is invalid and must not be updated by user",
        ),
        (Some(&elsewhere), blocked),
        (None, blocked),
    ] {
        let answer = judged(validate_config, new, Some(&old));
        assert!(answer.ends_with(why) && answer.is_empty() == why.is_empty(), "{answer}");
    }
}

#[test]
fn a_config_names_its_nodes_and_its_network() {
    let cluster = cluster();
    let mut object = config("x", "dmz", &json!({"rack": "a"}), 0);
    object["metadata"] = json!({"name": "x"});
    let given = object.clone();
    let write = Write {
        group: GROUP,
        resource: "vlanconfigs",
        namespace: "",
        name: "x",
        object: Some(&given),
        old: None,
        trusted: false,
        objects: &cluster,
        writer: &cluster,
        uuid: &uuid,
    };
    complete_config(&write, &mut object);
    assert_eq!(object["metadata"]["labels"][CLUSTER_NETWORK_KEY], "dmz");
    assert_eq!(object["metadata"]["annotations"][MATCHED_NODES_KEY], r#"["one","two"]"#);
    let mut network = definition("n", r#"{"type":"bridge","bridge":"wide-br","vlan":7}"#);
    network["metadata"]["labels"] = json!({});
    complete_definition(&write, &mut network);
    let config = r#"{"type":"bridge","bridge":"wide-br","vlan":7,"mtu":9000}"#;
    assert_eq!(network["spec"]["config"], config);
    let labels = json!({
        "network.harvesterhci.io/clusternetwork": "wide",
        "network.harvesterhci.io/type": "L2VlanNetwork",
        "network.harvesterhci.io/vlan-id": "7",
        "network.harvesterhci.io/ready": "true",
    });
    assert_eq!(network["metadata"]["labels"], labels);
    let mut plain = definition("n", r#"{"type":"bridge","bridge":"br0"}"#);
    let before = plain.clone();
    complete_definition(&write, &mut plain);
    assert_eq!(plain, before, "bridges of a host belong to its administrator");
}

#[test]
fn networks_of_machines_fit_to_their_cluster_network() {
    let create = |config: &str| {
        let answer = judged(validate_definition, Some(&definition("n", config)), None);
        answer.rsplit(" because ").next().unwrap_or_default().to_owned()
    };
    for (config, why) in [
        (r#"{"type":"bridge","bridge":"lan-br","vlan":10}"#, ""),
        (r#"{"type":"macvlan"}"#, ""),
        (r#"{"bridge":"lan-br","vlan":4095}"#, "vlan 4095 is out of range [0 .. 4094]"),
        (r#"{"bridge":"eth0"}"#, "the bridge name eth0 does not include suffix -br"),
        (r#"{"bridge":"dmz-br"}"#, "the nad label lan does not match bridge name dmz"),
        (
            r#"{"bridge":"lan-br","mtu":9000}"#,
            "nad MTU 9000 does not match cluster network MTU 1500",
        ),
    ] {
        assert_eq!(create(config), why, "{config}");
    }
    assert!(create("{").starts_with("failed to unmarshal nad default/n config {"));
    let old = definition("v10", r#"{"type":"bridge","bridge":"lan-br","vlan":10,"mtu":1500}"#);
    for (config, why) in [
        (r#"{"type":"bridge","bridge":"lan-br","vlan":11}"#, "must be stopped at first"),
        (r#"{"type":"","bridge":"lan-br"}"#, "from network type bridge to network type "),
    ] {
        let answer = judged(validate_definition, Some(&definition("v10", config)), Some(&old));
        assert!(answer.ends_with(why), "{answer}");
    }
    let stopped = judged(validate_definition, None, Some(&definition("v11", "{}")));
    assert!(stopped.ends_with("default/vm2 which must remove the related networks and interfaces"));
}
