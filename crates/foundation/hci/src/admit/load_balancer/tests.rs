//! Tables of load balancers and pools, and what becomes of them.

use serde_json::{Value, json};

use super::super::tests::{Cluster, uuid};
use super::super::{Write, complete, validate};
use super::{GROUP, NETWORKS};

/// The refusal without the name of the webhook, or nothing.
fn judged(
    resource: &str,
    object: Option<&Value>,
    old: Option<&Value>,
    cluster: &Cluster,
) -> String {
    let metadata = &object.or(old).unwrap()["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let write = Write {
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
    };
    let refusal = validate(&write).err();
    refusal.map_or_else(String::new, |refusal| {
        assert_eq!(refusal.code, 422);
        refusal.message.split_once(" denied the request: ").unwrap().1.to_owned()
    })
}

fn balancer(spec: Value) -> Value {
    json!({"metadata": {"namespace": "default", "name": "lb"}, "spec": spec})
}

fn pool(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[test]
fn load_balancers_are_completed() {
    let mut object = balancer(json!({"healthCheck": {"port": 80, "periodSeconds": 5}}));
    let cluster = Cluster(vec![(
        "",
        "namespaces",
        json!({"metadata": {"name": "default",
            "annotations": {"field.cattle.io/projectId": "local:p-1"}}}),
    )]);
    let given = object.clone();
    let write = Write {
        group: GROUP,
        resource: "loadbalancers",
        namespace: "default",
        name: "lb",
        object: Some(&given),
        old: None,
        trusted: false,
        objects: &cluster,
        writer: &cluster,
        uuid: &uuid,
    };
    complete(&write, &mut object).unwrap();
    assert_eq!(
        object["spec"],
        json!({"workloadType": "vm", "ipam": "pool", "healthCheck": {"port": 80,
            "successThreshold": 2, "failureThreshold": 2, "periodSeconds": 5, "timeoutSeconds": 1}}),
    );
    let (namespace, project) =
        ("loadbalancer.harvesterhci.io/namespace", "loadbalancer.harvesterhci.io/project");
    assert_eq!(
        object["metadata"]["annotations"],
        json!({namespace: "default", project: "local/p-1"}),
    );
    let mut object = balancer(json!({"workloadType": "cluster"}));
    complete(&write, &mut object).unwrap();
    assert_eq!(object["spec"], json!({"workloadType": "cluster", "ipam": "pool"}));
    assert_eq!(object["metadata"]["annotations"][project], "local/p-1");
    // The project of another tenant is not to be had by its name.
    let apart = Cluster(Vec::new());
    for (objects, expected) in [(&cluster, json!("local/p-1")), (&apart, Value::Null)] {
        let mut object = balancer(json!({}));
        object["metadata"]["annotations"] = json!({project: "local/p-2"});
        complete(&Write { objects, ..write }, &mut object).unwrap();
        assert_eq!(object["metadata"]["annotations"][project], expected);
    }
}

#[test]
fn listeners_and_health_checks_have_rules() {
    let listener = |name: &str, port: i32, backend: i32| json!({"name": name, "port": port, "backendPort": backend, "protocol": "TCP"});
    let web = || listener("web", 80, 8080);
    let prefix = "create loadbalancer default/lb failed";
    for (spec, message) in [
        (json!({"listeners": [web()]}), ""),
        (json!({"workloadType": "cluster"}), ""),
        (json!({}), ": the loadbalancer needs to have at least one listener"),
        (json!({"listeners": [web(), web()]}), ": listener has duplicate name web"),
        (
            json!({"listeners": [web(), listener("b", 80, 81)]}),
            ": listener b has duplicate port TCP:80 with listener web",
        ),
        (
            json!({"listeners": [web(), listener("b", 81, 8080)]}),
            ": listener b has duplicate backend port TCP:8080 with listener web",
        ),
        (json!({"listeners": [listener("a", 0, 80)]}), ": listener port 0 must >= 1"),
        (
            json!({"listeners": [listener("a", 80, 65536)]}),
            ": listener backend port 65536 must <= 65535",
        ),
        (
            json!({"listeners": [web()], "healthCheck": {"port": 9}}),
            " with healthyCheck: healthcheck port 9 is not in listener backend port list",
        ),
        (
            json!({"listeners": [web()], "healthCheck": {"port": 8080, "periodSeconds": -1}}),
            " with healthyCheck: healthcheck PeriodSeconds should > 0",
        ),
    ] {
        let expected =
            if message.is_empty() { String::new() } else { format!("{prefix}{message}") };
        let object = balancer(spec);
        let judged = judged("loadbalancers", Some(&object), None, &Cluster(Vec::new()));
        assert_eq!(judged, expected, "{object}");
    }
    let old = balancer(json!({"ipam": "pool", "workloadType": "vm", "listeners": [web()]}));
    let new = balancer(json!({"ipam": "dhcp", "workloadType": "vm", "listeners": [web()]}));
    assert_eq!(
        judged("loadbalancers", Some(&new), Some(&old), &Cluster(Vec::new())),
        "update loadbalancer default/lb failed: can't change the IPAM from pool to dhcp"
    );
}

#[test]
fn pools_do_not_overlap() {
    let other = json!({
        "ranges": [{"subnet": "10.1.0.0/24"}],
        "selector": {"priority": 7, "scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]},
    });
    let network = json!({"metadata": {"namespace": "default", "name": "vlan1"}});
    let cluster = Cluster(vec![
        (GROUP, "ippools", pool("other", other)),
        (NETWORKS, "network-attachment-definitions", network),
    ]);
    let near =
        |selector: Value| json!({"ranges": [{"subnet": "10.2.0.0/24"}], "selector": selector});
    for (spec, message) in [
        (near(json!({})), ""),
        (near(json!({"network": "default/vlan1"})), ""),
        (near(json!({"network": "default/vlan2"})), "invalid network default/vlan2"),
        (near(json!({"network": "vlan1"})), "invalid network vlan1"),
        (json!({"ranges": []}), "range can't be empty"),
        (
            json!({"ranges": [{"subnet": "10.2.0.0/33"}]}),
            "invalid CIDR address: 10.2.0.0/33, a valid example is 192.168.1.0/24",
        ),
        (
            json!({"ranges": [{"subnet": "10.2.0.0/24"},
                {"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.5"}]}),
            "there are overlaps between range 10.2.0.1-10.2.0.254 and 10.2.0.5-10.2.0.254",
        ),
        (
            json!({"ranges": [{"subnet": "10.1.0.128/25"}]}),
            "the ranges 10.1.0.129-10.1.0.254 overlap with other pools",
        ),
        (
            near(json!({"scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]})),
            "there is already a global IP pool: other",
        ),
        (
            near(json!({"priority": 7, "scope": [{"namespace": "a"},
                {"project": "*", "namespace": "*", "guestCluster": "*"}]})),
            "the priority can't be the same as the pool other",
        ),
    ] {
        let expected = if message.is_empty() {
            String::new()
        } else {
            format!("can't create IP pool new because {message}")
        };
        let object = pool("new", spec);
        assert_eq!(judged("ippools", Some(&object), None, &cluster), expected, "{object}");
    }
}

#[test]
fn addresses_that_are_used_keep_their_pool() {
    let mut used = pool("new", json!({"ranges": [{"subnet": "10.2.0.0/24"}]}));
    used["status"] = json!({"allocated": {"10.2.0.9": "default/lb"}});
    let pools = (GROUP, "ippools", used.clone());
    let cluster = Cluster(vec![pools.clone(), (GROUP, "loadbalancers", balancer(json!({})))]);
    assert_eq!(
        judged("ippools", None, Some(&used), &cluster),
        "can't delete pool before releasing all the allocated IP"
    );
    let mut smaller = used.clone();
    smaller["spec"] = json!({"ranges": [{"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.20"}]});
    assert_eq!(
        judged("ippools", Some(&smaller), Some(&used), &cluster),
        "can't update IP pool new because allocated IP 10.2.0.9 is excluded"
    );
    // The load balancer is gone, and its address is released next.
    assert_eq!(judged("ippools", None, Some(&used), &Cluster(vec![pools])), "");
    used["status"] = json!({"allocated": {}});
    assert_eq!(judged("ippools", None, Some(&used), &cluster), "");
}
