use super::*;

const ON_UPLINK: &str = r#"{"clusterNetwork":"lan","vlan":100,"range":"10.9.0.0/29"}"#;
const OWN: &str = r#"{"range":"10.9.0.0/29"}"#;

fn node(name: &str, host: &str, announced: Option<&str>) -> Value {
    let mut node = json!({"metadata": {"name": name, "annotations": {HOST_ADDRESSES: host}}});
    if let Some(address) = announced {
        node["metadata"]["annotations"][NodeNetwork::Storage.annotation()] = address.into();
    }
    node
}

fn config(ips: &Value) -> Value {
    let names: Vec<&String> = ips.as_object().unwrap().keys().collect();
    json!({"metadata": {"name": "storage-network", "uid": "u"}, "spec": {
        "clusterNetwork": "lan", "vlanID": 100, "mode": "static", "ips": ips,
        "nodeSelector": {"matchExpressions": [
            {"key": HOST_NAME, "operator": "In", "values": names}]}}})
}

fn state(value: &str, config: Option<Value>, nodes: Vec<Value>) -> NetworkState {
    NetworkState {
        network: NodeNetwork::Storage,
        setting: json!({"metadata": {"name": "storage-network"}, "value": value}),
        config,
        nodes,
        used: BTreeSet::new(),
    }
}

/// The addresses that nodes are to announce, and the condition.
fn decided(state: &NetworkState) -> (Vec<String>, String) {
    let plan = plan(state, Timestamp::UNIX_EPOCH);
    let key = NodeNetwork::Storage.annotation();
    let nodes = plan
        .nodes
        .iter()
        .map(|(node, patch)| format!("{node} {}", patch["metadata"]["annotations"][key]));
    let condition = plan.setting.map(|patch| patch["status"]["conditions"][0].clone());
    let condition = condition.unwrap_or_default();
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    (nodes.collect(), format!("{} {}: {}", text("status"), text("reason"), text("message")))
}

#[test]
fn nodes_use_addresses_that_their_hosts_have_once_all_have_one() {
    let nodes = vec![node("a", "192.0.2.1,10.9.0.3", None), node("b", "192.0.2.2", None)];
    let (announced, condition) = decided(&state(OWN, None, nodes));
    assert_eq!(announced, Vec::<String>::new(), "b could not reach a there");
    assert_eq!(
        condition,
        "False In Progress: b: its host has no address in 10.9.0.0/29, and the setting names no \
         clusterNetwork to create an interface on"
    );
    let mut witness = node("w", "192.0.2.9", None);
    witness["metadata"]["labels"] = json!({WITNESS_ROLE: "true"});
    let nodes = vec![node("a", "10.9.0.3,10.9.0.2", None), node("b", "10.9.0.4", None), witness];
    let complete = state(OWN, None, nodes);
    assert_eq!(decided(&complete).0, ["a \"10.9.0.2\"", "b \"10.9.0.4\""], "the lowest of two");
    assert!(plan(&complete, Timestamp::UNIX_EPOCH).config.is_none());
    let nodes =
        vec![node("a", "10.9.0.2", Some("10.9.0.2")), node("b", "10.9.0.4", Some("10.9.0.4"))];
    assert_eq!(decided(&state(OWN, None, nodes)), (vec![], "True Completed: ".to_owned()));
}

#[test]
fn nodes_without_an_address_get_an_interface() {
    let nodes = vec![node("a", "10.9.0.1", None), node("b", "", None), node("c", "", None)];
    let new = state(ON_UPLINK, None, nodes);
    let Some(ConfigChange::Create(created)) = plan(&new, Timestamp::UNIX_EPOCH).config else {
        panic!("no interface is requested")
    };
    let ips = json!({"b": "10.9.0.2/29", "c": "10.9.0.3/29"});
    let expected = config(&ips);
    assert_eq!(created["spec"]["ips"], ips);
    assert_eq!(created["spec"]["nodeSelector"], expected["spec"]["nodeSelector"]);
    let (announced, condition) = decided(&new);
    assert_eq!(announced, Vec::<String>::new());
    assert!(
        condition.contains("b: waiting for its address 10.9.0.2 on lan-br.100; c: "),
        "{condition}"
    );

    let nodes =
        vec![node("a", "10.9.0.1", None), node("b", "10.9.0.2", None), node("c", "10.9.0.3", None)];
    let there = state(ON_UPLINK, Some(expected.clone()), nodes);
    assert_eq!(decided(&there).0, ["a \"10.9.0.1\"", "b \"10.9.0.2\"", "c \"10.9.0.3\""]);
    assert!(plan(&there, Timestamp::UNIX_EPOCH).config.is_none(), "it is as it should be");
}

#[test]
fn the_report_of_a_node_says_why_its_interface_is_missing() {
    let mut config = config(&json!({"b": "10.9.0.2/29"}));
    config["status"] = json!({"nodeStatus": {"b": {"conditions": [
        {"type": "ready", "status": "False", "message": "no card is usable"}]}}});
    let (_, condition) = decided(&state(ON_UPLINK, Some(config), vec![node("b", "", None)]));
    assert!(condition.ends_with("on lan-br.100 (no card is usable)"), "{condition}");
}

#[test]
fn a_node_that_joins_later_does_not_take_the_address_of_others_away() {
    let config = config(&json!({"a": "10.9.0.1/29"}));
    let nodes = vec![node("a", "10.9.0.1", Some("10.9.0.1")), node("b", "", None)];
    let state = state(ON_UPLINK, Some(config), nodes);
    assert_eq!(decided(&state).0, Vec::<String>::new());
    let Some(ConfigChange::Patch { patch, .. }) = plan(&state, Timestamp::UNIX_EPOCH).config else {
        panic!("b gets no interface")
    };
    assert_eq!(patch["spec"]["ips"], json!({"a": "10.9.0.1/29", "b": "10.9.0.2/29"}));
}

#[test]
fn an_address_that_a_host_has_no_more_is_not_announced() {
    let nodes = vec![node("a", "", Some("10.9.0.1")), node("b", "10.9.0.2", Some("10.9.0.2"))];
    assert_eq!(decided(&state(OWN, None, nodes)).0, ["a null"]);
}

#[test]
fn a_full_range_is_reported() {
    let value = r#"{"clusterNetwork":"lan","vlan":100,"range":"10.9.0.0/30"}"#;
    let nodes = ["a", "b", "c"].map(|name| node(name, "", None));
    let (_, condition) = decided(&state(value, None, nodes.to_vec()));
    assert!(condition.contains("c: no address of 10.9.0.0/30 is free"), "{condition}");
}

#[test]
fn interfaces_go_after_the_last_use_of_their_addresses() {
    let own = config(&json!({"a": "10.9.0.1/29"}));
    let elsewhere = r#"{"clusterNetwork":"lan","vlan":200,"range":"10.9.0.0/29"}"#;
    for value in ["", elsewhere] {
        let announced = vec![node("a", "10.9.0.1", Some("10.9.0.1"))];
        let first = state(value, Some(own.clone()), announced);
        assert!(first.is_withdrawing());
        assert_eq!(decided(&first).0, ["a null"], "{value}");
        assert!(plan(&first, Timestamp::UNIX_EPOCH).config.is_none(), "agents do not know yet");
        let mut used = state(value, Some(own.clone()), vec![node("a", "10.9.0.1", None)]);
        used.used = BTreeSet::from(["10.9.0.1".parse().unwrap()]);
        let (_, condition) = decided(&used);
        assert_eq!(condition, "False In Progress: addresses are still in use: 10.9.0.1", "{value}");
        assert!(plan(&used, Timestamp::UNIX_EPOCH).config.is_none());
        used.used.clear();
        let change = plan(&used, Timestamp::UNIX_EPOCH).config;
        assert!(matches!(change, Some(ConfigChange::Delete(_))), "{value}");
    }
    let off = state("", None, vec![node("a", "10.9.0.1", None)]);
    assert_eq!(decided(&off).1, "False : ");
}

#[test]
fn a_value_that_cannot_be_read_changes_nothing() {
    let own = config(&json!({"a": "10.9.0.1/29"}));
    let nodes = vec![node("a", "10.9.0.1", Some("10.9.0.1"))];
    let state = state(r#"{"range":"x"}"#, Some(own), nodes);
    let (announced, condition) = decided(&state);
    assert_eq!(announced, Vec::<String>::new());
    assert!(condition.starts_with("False Invalid: range \"x\""), "{condition}");
    assert!(plan(&state, Timestamp::UNIX_EPOCH).config.is_none());
}
