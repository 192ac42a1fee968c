use serde_json::{Value, json};

use super::*;
use crate::command::table;

fn instance(name: &str, network: &Value, interfaces: &Value) -> VirtualMachineInstance {
    let object = json!({"metadata": {"name": name, "namespace": "tenant"},
        "spec": {"domain": {"devices": {}}, "networks": [network]},
        "status": {"interfaces": interfaces}});
    serde_json::from_value(object).unwrap()
}

fn allocations() -> Allocations {
    let office = json!({"name": "lan", "multus": {"networkName": "office"}});
    let reports = |mac: &str, addresses: &[&str]| {
        json!([
            {"name": "lan", "mac": mac, "ipAddress": addresses.first(), "ipAddresses": addresses},
            {"interfaceName": "docker0", "ipAddress": "172.17.0.1"},
        ])
    };
    let config = json!({"metadata": {"namespace": "tenant", "name": "off"},
        "spec": {"vmName": "off", "networkConfigs": []},
        "status": {"networkConfigs": [{"networkName": "tenant/office", "state": "Allocated",
            "macAddress": "02:00:00:00:00:09", "allocatedIPAddress": "192.168.100.9"}]}});
    let pool = json!({"metadata": {"namespace": "tenant", "name": "p"},
        "spec": {"networkName": "tenant/office", "ipv4Config": {"cidr": "192.168.100.0/24",
            "serverIP": "192.168.100.2", "pool": {"start": "192.168.100.2", "end": "192.168.100.200"}}},
        "status": {"ipv4": {"used": 2, "available": 9, "allocated": {
            "192.168.100.2": "RESERVED", "192.168.100.5": "EXCLUDED",
            "192.168.100.9": "02:00:00:00:00:09", "192.168.100.10": "02:00:00:00:00:10"}}}});
    let balancer = json!({"metadata": {"namespace": "tenant", "name": "front"},
        "spec": {"listeners": []},
        "status": {"allocatedAddress": {"ipPool": "services", "ip": "192.0.2.200"}}});
    Allocations {
        instances: vec![
            instance(
                "web",
                &json!({"name": "default", "pod": {}}),
                &json!([{"name": "default", "mac": "02:00:00:00:00:01", "ipAddress": "10.52.0.17",
                    "ipAddresses": ["10.52.0.17", "fe80::1"]}]),
            ),
            instance("a", &office, &reports("02:00:00:00:00:0A", &["192.168.100.7", "fd00::7"])),
            instance("b", &office, &reports("02:00:00:00:00:0b", &["192.168.100.7"])),
        ],
        pools: vec![serde_json::from_value(pool).unwrap()],
        configs: vec![serde_json::from_value(config).unwrap()],
        load_balancers: vec![serde_json::from_value(balancer).unwrap()],
    }
}

fn shown(namespace: Option<&str>, network: Option<&str>) -> String {
    table::align(&rows(&allocations().entries(), namespace, network))
}

#[test]
fn every_address_is_listed_with_its_users() {
    assert_eq!(
        shown(None, None),
        "\
NETWORK         ADDRESS          MAC                                    USED BY                      STATE
guest           10.52.0.17       02:00:00:00:00:01                      tenant/web                   in use
pool services   192.0.2.200      -                                      load balancer tenant/front   allocated
tenant/office   192.168.100.2    -                                      -                            reserved
tenant/office   192.168.100.5    -                                      -                            excluded
tenant/office   192.168.100.7    02:00:00:00:00:0a, 02:00:00:00:00:0b   tenant/a, tenant/b           CONFLICT
tenant/office   192.168.100.9    02:00:00:00:00:09                      tenant/off                   allocated
tenant/office   192.168.100.10   02:00:00:00:00:10                      -                            allocated
tenant/office   fd00::7          02:00:00:00:00:0a                      tenant/a                     in use
"
    );
}

#[test]
fn a_namespace_or_a_network_can_be_chosen() {
    assert_eq!(shown(Some("other"), None).lines().count(), 1);
    assert_eq!(shown(Some("tenant"), None).lines().count(), 9);
    assert_eq!(shown(None, Some(GUEST_NETWORK)).lines().count(), 2);
    assert_eq!(shown(Some("tenant"), Some("tenant/office")).lines().count(), 7);
}

#[test]
fn an_excluded_address_that_a_machine_uses_is_a_conflict() {
    let mut allocations = allocations();
    let office = json!({"name": "lan", "multus": {"networkName": "tenant/office"}});
    let status = json!([{"name": "lan", "ipAddress": "192.168.100.5"}]);
    allocations.instances = vec![instance("thief", &office, &status)];
    let rows = rows(&allocations.entries(), None, None);
    let row = rows.iter().find(|row| row[1] == "192.168.100.5").unwrap();
    assert_eq!((row[3].as_str(), row[4].as_str()), ("tenant/thief", "CONFLICT"));
}
