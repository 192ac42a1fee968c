//! Tables of pools and configurations, and what becomes of them.

use serde_json::{Value, json};

use super::super::tests::{Cluster, uuid};
use super::super::{Write, complete, validate};
use super::{CNI, CONFIGS, DEFINITIONS, GROUP, POOLS};

fn write<'a>(
    resource: &'a str,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
    cluster: &'a Cluster,
) -> Write<'a> {
    let metadata = &object.or(old).unwrap()["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    Write {
        group: GROUP,
        resource,
        namespace: text("namespace"),
        name: text("name"),
        object,
        old,
        trusted: false,
        objects: cluster,
        writer: cluster,
        uuid: &uuid,
    }
}

/// The refusal without the name of the webhook, or nothing.
fn judged(
    resource: &str,
    object: Option<&Value>,
    old: Option<&Value>,
    cluster: &Cluster,
) -> String {
    let refusal = validate(&write(resource, object, old, cluster)).err();
    refusal.map_or_else(String::new, |refusal| {
        assert_eq!(refusal.code, 422);
        refusal.message.split_once(" denied the request: ").unwrap().1.to_owned()
    })
}

fn cluster() -> Cluster {
    let named =
        |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}});
    let mut taken = named("default", "taken");
    taken["spec"]["networkName"] = json!("default/used");
    let mut config = named("n", "vm");
    config["spec"]["networkConfigs"] = json!([{"networkName": "default/used"}]);
    Cluster(vec![
        (CNI, DEFINITIONS, named("default", "lan")),
        (CNI, DEFINITIONS, named("default", "used")),
        (CNI, DEFINITIONS, named("secret", "lan")),
        (GROUP, POOLS, taken),
        (GROUP, CONFIGS, config),
        (
            "networking.k8s.io",
            "servicecidrs",
            json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.43.0.0/16", "fd00::/108"]}}),
        ),
    ])
}

fn pool(change: &[(&str, Value)]) -> Value {
    let mut object = json!({
        "metadata": {"namespace": "default", "name": "p"},
        "spec": {"networkName": "default/lan", "ipv4Config": {"cidr": "10.0.0.0/24",
            "serverIP": "10.0.0.2", "router": "10.0.0.1",
            "pool": {"start": "10.0.0.10", "end": "10.0.0.20"}}},
    });
    for (field, value) in change {
        let place = match *field {
            "networkName" => &mut object["spec"],
            "start" | "end" | "exclude" => &mut object["spec"]["ipv4Config"]["pool"],
            "allocated" => &mut object["status"]["ipv4"],
            _ => &mut object["spec"]["ipv4Config"],
        };
        place[*field] = value.clone();
    }
    object
}

#[test]
fn new_pools_are_completed() {
    let cluster = cluster();
    let mut object = json!({"metadata": {"namespace": "default", "name": "p"},
        "spec": {"networkName": "default/lan", "ipv4Config": {"cidr": "10.0.0.0/24"}}});
    let given = object.clone();
    complete(&write(POOLS, Some(&given), None, &cluster), &mut object).unwrap();
    assert_eq!(
        object["spec"]["ipv4Config"],
        json!({"cidr": "10.0.0.0/24", "serverIP": "10.0.0.1",
            "pool": {"start": "10.0.0.1", "end": "10.0.0.254"}})
    );
    let mut object = pool(&[("cidr", json!("10.0.0.0/31")), ("serverIP", json!(""))]);
    let given = object.clone();
    let refused = complete(&write(POOLS, Some(&given), None, &cluster), &mut object).unwrap_err();
    assert!(refused.message.ends_with("fail to assign ip for dhcp server"), "{refused:?}");
}

#[test]
fn pools_have_rules() {
    let cluster = cluster();
    let create = "cannot create IPPool default/p because ";
    for (change, expected) in [
        (vec![], ""),
        (vec![("networkName", json!("lan"))], ""),
        (vec![("start", json!("10.0.1.1"))], "start ip 10.0.1.1 is not within subnet"),
        (vec![("router", json!("10.0.0.255"))], "router ip 10.0.0.255 is the same as broadcast ip"),
        (vec![("serverIP", json!("10.0.0.1"))], "server ip 10.0.0.1 is the same as router ip"),
        (
            vec![("networkName", json!("default/none"))],
            "network-attachment-definitions.k8s.cni.cncf.io \"none\" not found in namespace default",
        ),
        (
            vec![("networkName", json!("default/used"))],
            "network default/used has the IPPool default/taken already",
        ),
        (
            vec![
                ("cidr", json!("10.43.7.0/24")),
                ("serverIP", json!("10.43.7.2")),
                ("router", json!("10.43.7.1")),
                ("start", json!("10.43.7.3")),
                ("end", json!("10.43.7.4")),
            ],
            "cidr 10.43.7.0/24 overlaps cluster service cidr 10.43.0.0/16",
        ),
        (
            vec![("ntp", json!(["pool.ntp.org"]))],
            "ntp server \"pool.ntp.org\" is not an IPv4 address, and names are not resolved for \
             machines; use the server's address",
        ),
        (vec![("domainSearch", json!(["a..b"]))], "\"a..b\" is not a domain name"),
        (vec![("leaseTime", json!(1))], "leaseTime 1 must be between 60 and 31536000 seconds"),
    ] {
        let object = pool(&change);
        let expected =
            if expected.is_empty() { String::new() } else { format!("{create}{expected}") };
        assert_eq!(judged(POOLS, Some(&object), None, &cluster), expected, "{object}");
    }
    let old = pool(&[]);
    let new = pool(&[
        ("leaseTime", json!(3600)),
        ("allocated", json!({"10.0.0.2": "02:00:00:00:00:01"})),
    ]);
    assert_eq!(
        judged(POOLS, Some(&new), Some(&old), &cluster),
        "cannot update IPPool default/p because server ip 10.0.0.2 is already occupied"
    );
    assert_eq!(judged(POOLS, Some(&old), Some(&old), &cluster), "");
}

#[test]
fn pools_in_use_stay() {
    let cluster = cluster();
    let used = pool(&[("networkName", json!("default/used"))]);
    assert_eq!(
        judged(POOLS, None, Some(&used), &cluster),
        "cannot delete IPPool default/p because it's still used by VirtualMachineNetworkConfig(s) \
         n/vm, which must be removed at first"
    );
    assert_eq!(judged(POOLS, None, Some(&pool(&[])), &cluster), "");
}

#[test]
fn configurations_name_networks_that_their_namespace_may_use() {
    let cluster = cluster();
    let config = |networks: Value| {
        json!({"metadata": {"namespace": "n", "name": "vm"},
        "spec": {"vmName": "vm", "networkConfigs": networks}})
    };
    let one = |network: &str, mac: &str| json!({"networkName": network, "macAddress": mac});
    let mac = "02:00:00:00:00:01";
    let create = "cannot create VirtualMachineNetworkConfig n/vm because ";
    for (networks, expected) in [
        (json!([one("default/used", mac)]), ""),
        (json!([]), ""),
        (
            json!([one("default/used", mac), one("used", "02-00-00-00-00-01")]),
            "02-00-00-00-00-01 is given twice for network used",
        ),
        (json!([one("default/used", "x")]), "\"x\" is not the MAC address of a network card"),
        (
            json!([one("secret/lan", mac)]),
            "network secret/lan belongs to another namespace; use one of namespace n or of a \
             shared namespace",
        ),
        (
            json!([one("default/none", mac)]),
            "network-attachment-definitions.k8s.cni.cncf.io \"none\" not found in namespace default",
        ),
        (
            json!([one("default/lan", mac)]),
            "network.harvesterhci.io/ippool-namespace label not found: network default/lan has no \
             IPPool",
        ),
    ] {
        let object = config(networks);
        let expected =
            if expected.is_empty() { String::new() } else { format!("{create}{expected}") };
        assert_eq!(judged(CONFIGS, Some(&object), None, &cluster), expected, "{object}");
    }
    let kept = config(json!([one("default/lan", mac)]));
    let paused = json!({"metadata": kept["metadata"], "spec": {"vmName": "vm", "paused": true,
        "networkConfigs": kept["spec"]["networkConfigs"]}});
    assert_eq!(judged(CONFIGS, Some(&paused), Some(&kept), &cluster), "");
}
