//! Guests of two nodes are on one network, and keep their addresses on it: real Linux guests.

use std::net::TcpStream;

use serde_json::json;

use super::join::until_ready;
use super::lab::{Switch, token};
use crate::harness::{Node, PASSWORD, Shell, assert_has, disk_of_image, poll};

const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A Linux guest for one node, whose SSH server answers when it is up.
fn machine(node: &Node, name: &str, host: &str) -> String {
    let disk = node.sheaf.scratch("root.img");
    disk_of_image(&disk);
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: {name}}}
spec:
  runStrategy: Always
  template:
    metadata: {{labels: {{guest: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {{kubernetes.io/hostname: {host}}}
      domain:
        memory: {{guest: 256Mi}}
        devices:
          disks:
          - {{name: root, disk: {{bus: virtio}}}}
          - {{name: seed, disk: {{bus: virtio}}}}
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      volumes:
      - {{name: root, hostDisk: {{path: {disk}, type: Disk}}}}
      - name: seed
        cloudInitNoCloud: {{userData: \"#cloud-config\\npassword: {PASSWORD}\\n\"}}
",
        disk = disk.display()
    )
}

/// The address of a machine that runs.
fn address(one: &Node, name: &str) -> String {
    let http = one.sheaf.http();
    poll(&format!("{name} runs and has an address"), || {
        let vmi = http.get(&format!("{VMIS}/{name}")).json();
        let address = vmi["status"]["interfaces"][0]["ipAddress"].as_str();
        let is_running = vmi["status"]["phase"] == "Running";
        address.filter(|_| is_running).map(str::to_owned).ok_or_else(|| vmi["status"].to_string())
    })
}

#[test]
fn guests_of_two_nodes_are_on_one_network() {
    let switch = Switch::new("shfgnet", "10.199.46", 2);
    switch.add_address(2, "10.199.46.77/24");
    let mut one = switch.networked_management(1, "one");
    one.sheaf.begin();
    one.allow_host_disks();
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = switch.networked_outsider(2, &url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");

    one.kubectl().apply(&machine(&one, "a", "one"));
    one.kubectl().apply(&machine(&two, "b", "two"));
    let (of_a, of_b) = (address(&one, "a"), address(&one, "b"));
    assert_ne!(of_a, of_b);
    let ports = json!([{"name": "ssh", "port": 2222, "targetPort": 22}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"},
        "spec": {"selector": {"guest": "b"}, "ports": ports}});
    one.sheaf.http().post(SERVICES, &service).ok();

    // By address, through the service, and by its name.
    let mut shell = Shell::login(&one, "a");
    let greet = |host: &str, port: u16| format!("nc -w 5 {host} {port} </dev/null | head -c 7");
    shell.sees(&greet(&of_b, 22), "SSH-2.0");
    shell.sees(&greet("b.default.svc.cluster.local", 2222), "SSH-2.0");
    let ping =
        |size: u16| format!("ping -c 1 -W 10 -s {size} {of_b} >/dev/null && echo {size} bytes");
    // Small, and larger than one packet of the tunnel.
    shell.sees(&ping(56), "56 bytes");
    shell.sees(&ping(4000), "4000 bytes");

    // Of other hosts, by any of their addresses, a guest reaches the API and ports of services only.
    let host = switch.address(2);
    let other = one.sheaf.http().get("/api/v1/nodes/two").ok();
    let reported = format!("{host},10.199.46.77");
    assert_eq!(other["metadata"]["annotations"]["sheaf.io/host-addresses"], reported);
    let endpoint = other["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap();
    let endpoint = u16::try_from(endpoint).unwrap();
    TcpStream::connect((host.as_str(), endpoint)).expect("the endpoint listens");
    for address in [&host, "10.199.46.77"] {
        let connect = format!("nc -w 5 {address} {endpoint} </dev/null >/dev/null 2>&1");
        shell.sees(&format!("{connect} && echo open || echo closed"), "closed");
        let traced = one.sheaf.command(&format!("network trace a --to {address}:{endpoint}"));
        assert!(!traced.status.success());
        assert_has(String::from_utf8_lossy(&traced.stdout), "is a host of the cluster");
    }

    // A new start on another node, at the same address.
    let stop = json!({"spec": {"runStrategy": "Halted"}});
    one.kubectl().run(&format!("patch vm b --type merge -p {stop}"));
    poll("b is gone", || {
        let found = one.sheaf.http().get(&format!("{VMIS}/b"));
        if found.status == 404 { Ok(()) } else { Err(found.text()) }
    });
    let here = json!({"spec": {"runStrategy": "Always", "template": {"spec": {
        "nodeSelector": {"kubernetes.io/hostname": "one"}}}}});
    one.kubectl().run(&format!("patch vm b --type merge -p {here}"));
    assert_eq!(address(&one, "b"), of_b);
    let vmi = one.sheaf.http().get(&format!("{VMIS}/b")).ok();
    assert_eq!(vmi["status"]["nodeName"], "one");
    shell.sees(&greet(&of_b, 22), "SSH-2.0");

    one.kubectl().run("delete vm a b");
    one.until_empty();
    two.until_empty();
    assert_has(one.sheaf.run("node list"), "two");
}
