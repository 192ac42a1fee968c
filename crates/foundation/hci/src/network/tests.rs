use serde_json::json;

use super::*;

fn config(text: &str) -> NetworkConfig {
    NetworkConfig::read(&json!({"spec": {"config": text}})).unwrap()
}

#[test]
fn networks_are_distinguished_by_their_vlans() {
    for (text, kind, vlans) in [
        (r#"{"type":"bridge","bridge":"lan-br","vlan":100}"#, Some("L2VlanNetwork"), &[100][..]),
        (r#"{"bridge":"lan-br"}"#, Some("UntaggedNetwork"), &[]),
        (r#"{"type":"bridge","vlan":0,"vlanTrunk":[]}"#, Some("UntaggedNetwork"), &[]),
        (
            r#"{"type":"bridge","vlanTrunk":[{"minID":10,"maxID":12},{"id":5}]}"#,
            Some("L2VlanTrunkNetwork"),
            &[5, 10, 11, 12],
        ),
        (r#"{"type":"kube-ovn","provider":"a.b.ovn"}"#, Some("OverlayNetwork"), &[]),
        (r#"{"type":"macvlan"}"#, None, &[]),
    ] {
        let read = config(text);
        assert_eq!(read.network_type().map(NetworkType::label), kind, "{text}");
        assert_eq!(read.vlans().unwrap(), BTreeSet::from_iter(vlans.iter().copied()), "{text}");
    }
}

#[test]
fn vlans_that_make_no_sense_are_refused_in_the_words_of_harvester() {
    for (text, message) in [
        (r#"{"vlan":4095}"#, "vlan 4095 is out of range [0 .. 4094]"),
        (r#"{"vlan":-1}"#, "vlan -1 is out of range [0 .. 4094]"),
        (r#"{"vlan":5,"vlanTrunk":[{"id":6}]}"#, "vlan can only be 0 when vlanTrunk is set"),
        (r#"{"vlanTrunk":[{"id":0}]}"#, "incorrect trunk id parameter 0"),
        (r#"{"vlanTrunk":[{"minID":0,"maxID":3}]}"#, "incorrect trunk minID parameter 0"),
        (r#"{"vlanTrunk":[{"minID":1,"maxID":5000}]}"#, "incorrect trunk maxID parameter 5000"),
        (
            r#"{"vlanTrunk":[{"minID":9,"maxID":3}]}"#,
            "minID 9 is greater than maxID 3 in trunk parameter",
        ),
        (
            r#"{"vlanTrunk":[{"minID":9}]}"#,
            "minID and maxID should be configured simultaneously, maxID is missing",
        ),
        (r#"{"vlanTrunk":[{}]}"#, "all fields in this VlanTrunk are empty"),
    ] {
        assert_eq!(config(text).vlans().unwrap_err().to_string(), message);
    }
}

#[test]
fn names_are_those_that_clients_compute() {
    assert_eq!((bridge_of("lan").as_str(), bond_of("lan").as_str()), ("lan-br", "lan-bo"));
    assert_eq!(
        (network_of("lan-br"), network_of("-br"), network_of("br0")),
        (Some("lan"), None, None)
    );
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    let long = status_name("lan", &"n".repeat(80));
    assert_eq!((long.len(), status_name("lan", "one").len()), (63, 16));
}

#[test]
fn a_node_follows_the_oldest_config_of_each_network() {
    let made = |name: &str, network: &str, time: &str, selector: Value| -> VlanConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": time},
            "spec": {"clusterNetwork": network, "nodeSelector": selector, "uplink": {"nics": []}},
        }))
        .unwrap()
    };
    let configs = [
        made("new", "lan", "2026-02-01T00:00:00Z", json!({})),
        made("old", "lan", "2026-01-01T00:00:00Z", json!({"rack": "a"})),
        made("dmz", "dmz", "2026-01-01T00:00:00Z", json!({"rack": "b"})),
        made("mgmt", "mgmt", "2026-01-01T00:00:00Z", json!({})),
    ];
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let names = |labels: &BTreeMap<String, String>| {
        let chosen = followed(&configs, labels).into_iter();
        chosen.map(|(_, config)| config.metadata.name.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names(&labels(&[("rack", "a")])), ["old"]);
    assert_eq!(names(&labels(&[("rack", "b")])), ["dmz", "new"]);
    assert_eq!(names(&labels(&[])), ["new"]);
    assert!(names(&labels(&[(WITNESS_KEY, "true"), ("rack", "a")])).is_empty());
}
