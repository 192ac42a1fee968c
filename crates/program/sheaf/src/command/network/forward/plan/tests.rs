use clap::Parser as _;

use super::*;
use crate::cli::{Cli, Command, ForwardCommand, NetworkCommand};
use crate::command::table;

fn wanted(line: &str) -> NewForwardArgs {
    let line = format!("sheaf network forward create {line}");
    let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
    match parsed.command {
        Command::Network(NetworkCommand::Forward(ForwardCommand::Create(wanted))) => wanted,
        other => panic!("{other:?}"),
    }
}

fn machine(spec: Value) -> VirtualMachineInstanceSpec {
    serde_json::from_value(spec).unwrap()
}

fn guest() -> VirtualMachineInstanceSpec {
    machine(json!({"domain": {"devices": {}}}))
}

fn cluster() -> Cluster {
    let node = |name: &str, address: &str| {
        json!({"metadata": {"name": name, "annotations": {
                "sheaf.io/host-addresses": format!("{address},203.0.113.1"),
                "sheaf.io/guest-network": "10.52.0.0/24", STORAGE_PORT: "10270"}},
            "status": {"addresses": [{"type": "Hostname", "address": name},
                    {"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}})
    };
    let other = json!({"metadata": {"namespace": "tenant", "name": "front"},
        "spec": {"externalIPs": ["192.0.2.1"], "ports": [{"port": 8080, "protocol": "TCP"}]}});
    let api = json!({"metadata": {}, "addressType": "IPv4", "endpoints": [],
        "ports": [{"port": 6443}]});
    Cluster {
        nodes: [node("n1", "192.0.2.1"), node("n2", "192.0.2.2")]
            .map(|node| serde_json::from_value(node).unwrap())
            .into(),
        services: vec![serde_json::from_value(other).unwrap()],
        api: Some(serde_json::from_value(api).unwrap()),
    }
}

#[test]
fn a_port_forward_is_a_service_that_selects_one_machine() {
    let wanted = wanted("ssh --to web --port 2222:22 --port 53/udp -n tenant");
    let new = plan(&wanted, &guest(), &cluster()).unwrap();
    assert_eq!(
        new.service,
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "ssh", "namespace": "tenant"},
            "spec": {"type": "ClusterIP", "externalIPs": ["192.0.2.1", "192.0.2.2"],
                "selector": {"vm.kubevirt.io/name": "web"},
                "ports": [
                    {"name": "tcp-2222", "port": 2222, "targetPort": 22, "protocol": "TCP"},
                    {"name": "udp-53", "port": 53, "targetPort": 53, "protocol": "UDP"},
                ]},
        })
    );
    assert!(new.notes.is_empty(), "{:?}", new.notes);
}

#[test]
fn nodes_that_carry_out_no_services_are_left_out() {
    let mut cluster = cluster();
    let condition = json!({"type": GUEST_NETWORK, "status": "False"});
    let status = cluster.nodes[0].status.as_mut().unwrap();
    status.conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
    let wanted = wanted("ssh --to web --port 2222:22");
    let new = plan(&wanted, &guest(), &cluster).unwrap();
    assert_eq!(new.service["spec"]["externalIPs"], json!(["192.0.2.2"]));
    let labels = [(WITNESS_ROLE.to_owned(), "true".to_owned())];
    cluster.nodes[1].metadata.labels = Some(labels.into());
    let refused = plan(&wanted, &guest(), &cluster).unwrap_err();
    assert_eq!(refused, ForwardRefusal::NoAddress);
}

#[test]
fn addresses_that_no_node_has_are_allowed_with_a_note() {
    let wanted = wanted("ssh --to web --port 22 --address 198.51.100.7");
    let new = plan(&wanted, &guest(), &cluster()).unwrap();
    assert_eq!(new.service["spec"]["externalIPs"], json!(["198.51.100.7"]));
    assert!(new.notes[0].contains("no node has the address 198.51.100.7"), "{:?}", new.notes);
}

#[test]
fn ports_of_hosts_and_of_other_services_are_refused() {
    for (line, expected) in [
        (
            "--port 22",
            "22 is the port of the SSH server on 192.0.2.1; forward another port, for \
                       example 20022:22/tcp",
        ),
        ("--port 6443:443", "6443 is the port of the API server"),
        ("--port 10250", "10250 is the port of the node's agent"),
        ("--port 10270", "10270 is the port of the storage process"),
        ("--port 2380", "2380 is the port of etcd"),
        ("--port 22 --address 203.0.113.1", "22 is the port of the SSH server on 203.0.113.1"),
        ("--port 8080:80", "8080 of 192.0.2.1 is forwarded by service tenant/front already"),
        ("--port 80 --port 80:81", "80 is given twice"),
    ] {
        let wanted = wanted(&format!("new --to web {line}"));
        let refused = plan(&wanted, &guest(), &cluster()).unwrap_err().to_string();
        assert!(refused.contains(expected), "{line}: {refused}");
    }
    for line in ["--port 22/udp", "--port 8080/udp", "--port 8080 --address 192.0.2.2"] {
        let wanted = wanted(&format!("new --to web {line}"));
        assert!(plan(&wanted, &guest(), &cluster()).is_ok(), "{line}");
    }
}

#[test]
fn a_machine_without_the_guest_network_is_refused() {
    let office = json!([{"name": "lan", "multus": {"networkName": "office"}}]);
    for spec in [
        json!({"domain": {"devices": {}}, "networks": office}),
        json!({"domain": {"devices": {"autoattachPodInterface": false}}}),
    ] {
        let refused = plan(&wanted("new --to web --port 80"), &machine(spec), &cluster());
        assert_eq!(refused.unwrap_err(), ForwardRefusal::NotOnGuestNetwork("web".into()));
    }
    let none = plan(&wanted("new --to web --port 80"), &guest(), &Cluster::default());
    assert_eq!(none.unwrap_err(), ForwardRefusal::NoAddress);
}

#[test]
fn the_list_says_where_connections_lead() {
    let service = |name: &str, selector: Value, addresses: Value| -> Service {
        let object = json!({"metadata": {"namespace": "tenant", "name": name},
            "spec": {"externalIPs": addresses, "selector": selector,
                "ports": [{"port": 2222, "targetPort": 22}, {"port": 53, "targetPort": 53,
                    "protocol": "UDP"}]}});
        serde_json::from_value(object).unwrap()
    };
    let machine = |name: &str| json!({MACHINE: name});
    let services = [
        service("ready", machine("web"), json!(["192.0.2.1", "192.0.2.2"])),
        service("starting", machine("db"), json!(["192.0.2.1"])),
        service("stale", machine("gone"), json!(["192.0.2.1"])),
        service("several", json!({"app": "web"}), json!(["192.0.2.1"])),
        service("inside", machine("web"), json!([])),
    ];
    let slice = |name: &str, ready: bool| -> EndpointSlice {
        let object = json!({"metadata": {"namespace": "tenant", "labels": {SERVICE_NAME: name}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.52.0.17"],
                "conditions": {"ready": ready}}]});
        serde_json::from_value(object).unwrap()
    };
    let slices = [slice("ready", true), slice("starting", false)];
    let machines = ["web", "db"].map(|name| ("tenant".to_owned(), name.to_owned())).into();
    let forwards: Vec<_> = services.iter().filter_map(PortForward::read).collect();
    assert_eq!(
        table::align(&rows(&forwards, &slices, &machines, true)),
        "\
NAME              ADDRESSES             PORTS                MACHINE   STATE
tenant/ready      192.0.2.1,192.0.2.2   2222:22/tcp,53/udp   web       to 10.52.0.17
tenant/starting   192.0.2.1             2222:22/tcp,53/udp   db        machine is not ready
tenant/stale      192.0.2.1             2222:22/tcp,53/udp   gone      no such machine
"
    );
}
