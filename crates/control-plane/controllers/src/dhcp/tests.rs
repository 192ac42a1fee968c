//! Machines, pools and what becomes of their addresses.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::machine::{self, ConfigChange};
use super::plan::{DhcpChange, DhcpState, plan};
use crate::object::{name, text};

const MAC: &str = "02:00:00:00:00:01";
const OTHER: &str = "02:00:00:00:00:02";

fn named(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"),
        "resourceVersion": "1"}})
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn pool() -> Value {
    let spec = json!({"networkName": "default/lan", "ipv4Config": {"cidr": "10.0.0.0/29",
        "serverIP": "10.0.0.1", "router": "10.0.0.6",
        "pool": {"start": "10.0.0.1", "end": "10.0.0.5", "exclude": ["10.0.0.3"]}}});
    with(named("default", "pool"), "spec", spec)
}

fn vm(name: &str, macs: &[&str]) -> Value {
    let interfaces: Vec<Value> = (macs.iter().enumerate())
        .map(|(index, mac)| json!({"name": format!("n{index}"), "macAddress": mac, "bridge": {}}))
        .collect();
    let networks: Vec<Value> = (0..macs.len())
        .map(|index| json!({"name": format!("n{index}"), "multus": {"networkName": "default/lan"}}))
        .collect();
    let spec = json!({"template": {"spec": {"networks": networks,
        "domain": {"devices": {"interfaces": interfaces}}}}});
    with(named("n", name), "spec", spec)
}

fn config(vm: &str, entries: &[(&str, Option<&str>)]) -> Value {
    let entries: Vec<Value> = entries
        .iter()
        .map(|(mac, wanted)| match wanted {
            None => json!({"networkName": "default/lan", "macAddress": mac}),
            Some(ip) => json!({"networkName": "default/lan", "macAddress": mac, "ipAddress": ip}),
        })
        .collect();
    with(named("n", vm), "spec", json!({"vmName": vm, "networkConfigs": entries}))
}

fn lan() -> Value {
    let labels = json!({"network.harvesterhci.io/ippool-namespace": "default",
        "network.harvesterhci.io/ippool-name": "pool"});
    let mut network = named("default", "lan");
    network["metadata"]["labels"] = labels;
    network
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *object = patch.clone() };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(key)),
            value => merge(&mut object[key], value),
        }
    }
}

/// Carries out all changes but events, which are given back.
fn settle(state: &mut DhcpState) -> Vec<String> {
    let mut events = Vec::new();
    for change in plan(state, now()) {
        let (objects, key, patch) = match change {
            DhcpChange::Network { key, patch } => (&mut state.networks, key, patch),
            DhcpChange::Pool { key, patch } => (&mut state.pools, key, patch),
            DhcpChange::Config { key, patch } => (&mut state.configs, key, patch),
            DhcpChange::Warn { machine, message } => {
                events.push(format!("{}: {message}", machine.name));
                continue;
            }
        };
        let own = objects.iter_mut().find(|own| name(own) == &*key.name).unwrap();
        merge(own, &patch);
    }
    assert_eq!(plan(state, now()), [], "a second time changes nothing");
    events
}

fn condition(object: &Value, kind: &str) -> (String, String) {
    let list = object["status"]["conditions"].as_array().unwrap();
    let own = list.iter().find(|own| own["type"] == kind).unwrap();
    (text(own, "/status").to_owned(), text(own, "/message").to_owned())
}

fn addresses(config: &Value) -> Vec<&str> {
    let list = config["status"]["networkConfigs"].as_array().unwrap();
    list.iter().map(|own| text(own, "/allocatedIPAddress")).collect()
}

#[test]
fn a_machine_has_a_configuration_of_its_interfaces() {
    let pools = [pool()];
    let Some(ConfigChange::Create(made)) = machine::plan(&vm("vm", &[MAC]), None, &pools, None)
    else {
        panic!("none is made")
    };
    assert_eq!(made["spec"], config("vm", &[(MAC, None)])["spec"]);
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("VirtualMachine"), &json!("uid-vm")));
    assert_eq!(made["metadata"]["labels"]["harvesterhci.io/vmName"], "vm");

    // Networks without a pool, and machines that go, have none.
    assert_eq!(machine::plan(&vm("vm", &[MAC]), None, &[], None), None);
    let mut going = vm("vm", &[MAC]);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(machine::plan(&going, None, &pools, None), None);

    // Nor has one on a network of another namespace, where it cannot run.
    let mut foreign = vm("vm", &[MAC]);
    foreign["spec"]["template"]["spec"]["networks"][0]["multus"]["networkName"] = json!("m/lan");
    let mut theirs = pool();
    theirs["spec"]["networkName"] = json!("m/lan");
    assert_eq!(machine::plan(&foreign, None, &[theirs.clone()], None), None);
    foreign["metadata"]["namespace"] = json!("m");
    assert!(machine::plan(&foreign, None, &[theirs], None).is_some());

    // An address that was wished for stays when another is added.
    let mut old = config("vm", &[(MAC, Some("10.0.0.5"))]);
    old["metadata"]["ownerReferences"] = made["metadata"]["ownerReferences"].clone();
    let change = machine::plan(&vm("vm", &[MAC, OTHER]), None, &pools, Some(&old));
    let Some(ConfigChange::Patch(patch)) = change else { panic!("{change:?}") };
    let wanted = config("vm", &[(MAC, Some("10.0.0.5")), (OTHER, None)]);
    assert_eq!(patch["spec"]["networkConfigs"], wanted["spec"]["networkConfigs"]);
    assert_eq!(patch["metadata"]["resourceVersion"], "1");
    assert_eq!(machine::plan(&vm("vm", &[MAC]), None, &pools, Some(&old)), None);

    // One that was made before its machine is adopted; one of another machine is not touched.
    let early = config("vm", &[(MAC, Some("10.0.0.5"))]);
    let change = machine::plan(&vm("vm", &[MAC]), None, &pools, Some(&early));
    let Some(ConfigChange::Patch(patch)) = change else { panic!("{change:?}") };
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "uid-vm");
    let mut foreign = early.clone();
    foreign["spec"]["vmName"] = json!("other");
    let change = machine::plan(&vm("vm", &[MAC]), None, &pools, Some(&foreign));
    assert!(matches!(change, Some(ConfigChange::Foreign(_))), "{change:?}");
}

#[test]
fn the_instance_reports_a_mac_address_that_the_machine_does_not() {
    let machine = vm("vm", &[""]);
    assert!(machine::lacks_mac(&machine) && !machine::lacks_mac(&vm("vm", &[MAC])));
    let vmi = json!({"status": {"interfaces": [{"name": "n0", "mac": MAC}]}});
    let change = machine::plan(&machine, Some(&vmi), &[pool()], None);
    let Some(ConfigChange::Create(made)) = change else { panic!("{change:?}") };
    assert_eq!(made["spec"]["networkConfigs"][0]["macAddress"], MAC);
    assert_eq!(machine::plan(&machine, None, &[pool()], None), None);
}

#[test]
fn addresses_are_recorded_shown_and_released() {
    let mut node = json!({"metadata": {"name": "one"}});
    let mut state = DhcpState {
        pools: vec![pool()],
        configs: vec![config("a", &[(MAC, None)]), config("b", &[(OTHER, Some("10.0.0.5"))])],
        machines: vec![vm("a", &[MAC]), vm("b", &[OTHER])],
        networks: vec![named("default", "lan")],
        nodes: vec![node.clone()],
    };
    assert_eq!(settle(&mut state), [""; 0]);
    assert_eq!(
        state.pools[0]["status"]["ipv4"],
        json!({"allocated": {"10.0.0.1": "RESERVED", "10.0.0.3": "EXCLUDED", "10.0.0.2": MAC,
            "10.0.0.5": OTHER}, "used": 2, "available": 1})
    );
    assert_eq!(addresses(&state.configs[0]), ["10.0.0.2"]);
    assert_eq!(addresses(&state.configs[1]), ["10.0.0.5"]);
    assert_eq!(condition(&state.configs[0], "Allocated").0, "True");
    assert_eq!(state.networks[0], lan());
    for (kind, expected) in [
        ("Registered", "True"),
        ("CacheReady", "True"),
        ("AgentReady", "False"),
        ("Stopped", "False"),
    ] {
        assert_eq!(condition(&state.pools[0], kind).0, expected, "{kind}");
    }
    // That requests are answered is not claimed before a node reports it.
    assert!(condition(&state.pools[0], "AgentReady").1.contains("no node answers DHCP requests"));
    node["metadata"]["annotations"] = json!({"sheaf.io/dhcp-server": "ready"});
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    state.nodes = vec![node.clone()];
    settle(&mut state);
    assert_eq!(condition(&state.pools[0], "AgentReady").0, "False");
    node["status"]["conditions"][0]["status"] = json!("True");
    state.nodes = vec![node];
    settle(&mut state);
    assert_eq!(condition(&state.pools[0], "AgentReady").0, "True");

    // Both stay where they are when a third comes and the first goes.
    state.configs.push(config("c", &[("02:00:00:00:00:03", None)]));
    settle(&mut state);
    assert_eq!(addresses(&state.configs[2]), ["10.0.0.4"]);
    state.configs.remove(0);
    settle(&mut state);
    let record = state.pools[0]["status"]["ipv4"]["allocated"].clone();
    assert_eq!(record["10.0.0.2"], Value::Null);
    assert_eq!(
        (&record["10.0.0.5"], state.pools[0]["status"]["ipv4"]["used"].as_u64()),
        (&json!(OTHER), Some(2))
    );
    // The label goes with the pool.
    state.pools.clear();
    settle(&mut state);
    assert_eq!(state.networks[0]["metadata"]["labels"], json!({}));
}

#[test]
fn conflicts_and_exhausted_pools_are_reported() {
    let macs: Vec<String> = (1..=4).map(|last| format!("02:00:00:00:00:0{last}")).collect();
    let names = ["a", "b", "c", "d"];
    let mut state = DhcpState {
        pools: vec![pool()],
        configs: names.iter().zip(&macs).map(|(vm, mac)| config(vm, &[(mac, None)])).collect(),
        machines: names.iter().zip(&macs).map(|(own, mac)| vm(own, &[mac])).collect(),
        networks: vec![lan()],
        nodes: vec![],
    };
    let message = "02:00:00:00:00:04 on network default/lan: no more ip addresses left in network \
                default/lan ipam";
    assert_eq!(settle(&mut state), [format!("d: {message}")]);
    assert_eq!(condition(&state.configs[3], "Allocated"), ("False".to_owned(), message.to_owned()));
    assert_eq!(state.configs[3]["status"]["networkConfigs"][0]["state"], "Pending");
    assert_eq!(state.pools[0]["status"]["ipv4"]["available"], 0);

    // A wish for an address of another fails, and the machine keeps its own.
    state.configs[1]["spec"]["networkConfigs"][0]["ipAddress"] = json!("10.0.0.2");
    let events = settle(&mut state);
    assert_eq!(
        events,
        [
            "b: 02:00:00:00:00:02 on network default/lan: designated ip 10.0.0.2 is already allocated"
        ]
    );
    assert_eq!(addresses(&state.configs[1]), ["10.0.0.4"]);

    // A configuration that only claims a MAC address gives way to the machine that has it.
    let mut thief = config("0-thief", &[(macs[0].as_str(), Some("10.0.0.5"))]);
    thief["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    state.configs.insert(0, thief);
    settle(&mut state);
    assert_eq!(addresses(&state.configs[1]), ["10.0.0.2"]);
    assert_eq!(addresses(&state.configs[0]), [""]);
}

#[test]
fn paused_pools_and_configurations_change_nothing() {
    let mut state = DhcpState {
        pools: vec![pool()],
        configs: vec![config("a", &[(MAC, None)])],
        machines: vec![vm("a", &[MAC])],
        networks: vec![lan()],
        nodes: vec![],
    };
    settle(&mut state);
    state.pools[0]["spec"]["paused"] = json!(true);
    state.configs.push(config("b", &[(OTHER, None)]));
    settle(&mut state);
    assert_eq!(condition(&state.pools[0], "Stopped").0, "True");
    let disabled = "ippool default/pool was administratively disabled";
    assert_eq!(condition(&state.pools[0], "CacheReady"), ("False".into(), disabled.into()));
    assert_eq!(
        (addresses(&state.configs[0]), addresses(&state.configs[1])),
        (vec!["10.0.0.2"], vec![""])
    );

    // A paused configuration gives its address back, and gets it again.
    state.pools[0]["spec"]["paused"] = json!(false);
    state.configs.truncate(1);
    state.configs[0]["spec"]["paused"] = json!(true);
    settle(&mut state);
    assert_eq!(condition(&state.configs[0], "Disabled").0, "True");
    assert_eq!(state.pools[0]["status"]["ipv4"]["used"], 0);
    state.configs[0]["spec"]["paused"] = json!(false);
    settle(&mut state);
    assert_eq!(addresses(&state.configs[0]), ["10.0.0.2"]);
}

/// Machines come and go, and writes fail: no address is shown for two interfaces, and none
/// that its pool has not recorded.
#[test]
fn no_address_is_shown_before_it_is_recorded() {
    for seed in 1..=100_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let mut state =
            DhcpState { pools: vec![pool()], networks: vec![lan()], ..DhcpState::default() };
        for step in 0..60 {
            let own = format!("vm{}", below(6));
            let mac = format!("02:00:00:00:00:1{}", below(6));
            state.configs.retain(|config| name(config) != own);
            state.machines.retain(|machine| name(machine) != own);
            if below(3) > 0 {
                let wanted = format!("10.0.0.{}", below(8));
                let wanted = (below(3) == 0).then_some(wanted.as_str());
                state.configs.push(config(&own, &[(&mac, wanted)]));
                state.machines.push(vm(&own, &[&mac]));
            }
            // Any number of writes succeeds before a failure.
            let all = plan(&state, now());
            let done = usize::try_from(below(all.len() as u64 + 2)).unwrap();
            for change in all.into_iter().take(done) {
                let (objects, key, patch) = match change {
                    DhcpChange::Pool { key, patch } => (&mut state.pools, key, patch),
                    DhcpChange::Config { key, patch } => (&mut state.configs, key, patch),
                    DhcpChange::Network { .. } | DhcpChange::Warn { .. } => continue,
                };
                let own = objects.iter_mut().find(|own| name(own) == &*key.name).unwrap();
                merge(own, &patch);
            }
            check_shown(&state, &format!("seed {seed}, step {step}"));
        }
    }
}

fn check_shown(state: &DhcpState, at: &str) {
    let record = &state.pools[0]["status"]["ipv4"]["allocated"];
    let mut shown: BTreeMap<&str, &str> = BTreeMap::new();
    for config in &state.configs {
        for own in config["status"]["networkConfigs"].as_array().into_iter().flatten() {
            let (address, mac) = (text(own, "/allocatedIPAddress"), text(own, "/macAddress"));
            if text(own, "/state") != "Allocated" || record[address] != mac {
                // The remains of a failed write are corrected by the next one.
                continue;
            }
            if let Some(other) = shown.insert(address, mac) {
                assert_eq!(other, mac, "{at}: {address} is shown twice");
            }
        }
    }
    for mark in ["10.0.0.1", "10.0.0.3"] {
        assert!(record[mark].is_null() || !text(&record[mark], "").contains(':'), "{at}");
    }
}
