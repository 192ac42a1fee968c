//! Networks as tables, and the objects that commands make.

use clap::Parser as _;
use expect_test::expect;

use super::*;
use crate::cli::{Cli, Command, NetworkCommand};

fn network(name: &str, config: &Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"config": config.to_string()},
    })
}

fn node(name: &str, ready: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"network.harvesterhci.io/lan": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn instance(namespace: &str, name: &str, network: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"networks": [{"name": "default", "pod": {}},
            {"name": "second", "multus": {"networkName": network}}]},
        "status": {"nodeName": "n1", "interfaces": [
            {"name": "default", "ipAddress": "10.52.0.7"},
            {"name": "second", "mac": "02:00:00:00:00:01", "ipAddress": "10.1.0.7",
                "ipAddresses": ["10.1.0.7", "fd00::7"]}]},
    })
}

#[test]
fn networks_are_shown_with_their_nodes_and_machines() {
    let networks = [
        network("office", &json!({"type": "bridge", "bridge": "lan-br", "vlan": 100, "mtu": 1500})),
        network(
            "routers",
            &json!({"type": "bridge", "bridge": "lan-br", "vlan": 0,
                "vlanTrunk": [{"minID": 100, "maxID": 110}, {"id": 5}]}),
        ),
        network("own", &json!({"type": "bridge", "bridge": "br0"})),
    ];
    let nodes = [node("n1", "True"), node("n2", "Unknown")];
    let instances = [
        instance("default", "a", "office"),
        instance("tenant", "b", "default/office"),
        instance("tenant", "c", "office"),
    ];
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(networks.iter().map(|own| NetworkView::new(own, &nodes, &instances).row(false)));
    expect![[r"
        NAME      TYPE                 VLAN        CLUSTER NETWORK   MTU    NODES       MACHINES
        office    L2VlanNetwork        100         lan               1500   1/2 ready   2
        routers   L2VlanTrunkNetwork   100-110,5   lan               -      1/2 ready   0
        own       UntaggedNetwork      -           -                 -      0/0 ready   0
    "]]
    .assert_eq(&table::align(&rows));
    expect![[r"
        Network          default/office
        Type             L2VlanNetwork
        VLAN             100
        Cluster network  lan
        Bridge           lan-br
        MTU              1500
        Nodes            n1, n2 (not ready)

        MACHINE     NODE   MAC                 ADDRESSES
        default/a   n1     02:00:00:00:00:01   10.1.0.7, fd00::7
        tenant/b    n1     02:00:00:00:00:01   10.1.0.7, fd00::7
    "]]
    .assert_eq(&NetworkView::new(&networks[0], &nodes, &instances).description());
}

#[test]
fn flags_become_the_configuration_of_a_network() {
    for (flags, expected) in [
        ("--vlan 100", Ok(json!({"vlan": 100}))),
        ("--type vlan --vlan 100", Ok(json!({"vlan": 100}))),
        ("--type untagged", Ok(json!({"vlan": 0}))),
        ("--trunk 100-110,5", Ok(json!({"vlanTrunk": [{"minID": 100, "maxID": 110}, {"id": 5}]}))),
        ("", Err("add --vlan ID, --trunk IDS, or --type untagged")),
        ("--type vlan", Err("--type vlan needs --vlan ID")),
        ("--type trunk", Err("--type trunk needs --trunk IDS")),
        ("--type untagged --vlan 5", Err("--vlan is for networks of --type vlan")),
        ("--type vlan --trunk 5", Err("--trunk is for networks of --type trunk")),
    ] {
        let line = format!("sheaf network create office --cluster-network lan {flags}");
        let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Network(NetworkCommand::Create(wanted)) = parsed.command else {
            panic!("{line} is another command");
        };
        match (definition(&wanted), expected) {
            (Ok(made), Ok(expected)) => {
                let config: Value = serde_json::from_str(text(&made, "/spec/config")).unwrap();
                assert_eq!(config["bridge"], "lan-br");
                for (key, value) in expected.as_object().unwrap() {
                    assert_eq!(&config[key], value, "{line}");
                }
                assert!(NetworkConfig::read(&made).unwrap().vlans().is_ok(), "{line}");
            }
            (made, expected) => {
                let failure = made.map_err(|failure| failure.to_string()).unwrap_err();
                assert_eq!(Some(failure.as_str()), expected.err(), "{line}");
            }
        }
    }
}
