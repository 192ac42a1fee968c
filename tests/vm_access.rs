//! How people and probes get into a guest, and the content of its config drive: a real Linux.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Node, PASSWORD, Shell, Socket, disk_of_image, poll};

const VMI: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
const GUEST: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
const OTHER: &str = "another-one";

fn machine(node: &Node) -> String {
    let disk = node.sheaf.scratch("root.img");
    disk_of_image(&disk);
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: passwords}}
stringData: {{root: {PASSWORD}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: a}}
spec:
  runStrategy: Always
  template:
    metadata: {{labels: {{app: access}}}}
    spec:
      hostname: drive
      readinessProbe: {{tcpSocket: {{port: 22}}, periodSeconds: 1, failureThreshold: 1}}
      domain:
        memory: {{guest: 512Mi}}
        devices:
          clientPassthrough: {{}}
          disks:
          - {{name: root, disk: {{bus: virtio}}}}
          - {{name: seed, disk: {{bus: virtio}}}}
          - {{name: cd, cdrom: {{bus: scsi}}}}
          interfaces: [{{name: default, masquerade: {{}}, ports: [{{port: 22}}]}}]
      networks: [{{name: default, pod: {{}}}}]
      accessCredentials:
      - userPassword:
          source: {{secret: {{secretName: passwords}}}}
          propagationMethod: {{qemuGuestAgent: {{}}}}
      volumes:
      - {{name: root, hostDisk: {{path: {disk}, type: Disk}}}}
      - {{name: cd, secret: {{secretName: passwords, volumeLabel: secrets}}}}
      - name: seed
        cloudInitConfigDrive:
          userData: \"#cloud-config\\npassword: {PASSWORD}\\nruncmd:\\n- touch /etc/configured\\n\"
          networkData: '{{\"links\": []}}'
",
        disk = disk.display()
    )
}

#[test]
fn a_guest_is_configured_by_a_config_drive_and_reached_through_its_ports() {
    let node = Node::networked("shfaccess", "10.213.8.0/24");
    node.kubectl().apply(&machine(&node));
    node.until(VMI, "/status/phase", "Running");
    let mut shell = Shell::login(&node, "a");
    the_drive_says_who_it_is(&node, &mut shell);
    let read = "mount -o ro /dev/sr0 /mnt && cat /mnt/root; umount /mnt";
    shell.sees(read, PASSWORD);
    its_port_is_its_readiness(&node, &mut shell);
    a_service_leads_to_it(&node, &mut shell);
    a_port_forward_leads_to_it(&node);
    a_policy_decides_whom_it_reaches(&node, &mut shell);
    clients_lend_it_their_usb_devices(&node);
    its_dependencies_are_reported(&node);
    a_password_changes_while_it_runs(&node, &mut shell);
    node.kubectl().run("delete vm a");
    node.until_empty();
}

fn the_drive_says_who_it_is(node: &Node, shell: &mut Shell) {
    assert_eq!(shell.run("hostname"), "drive");
    shell.sees("ls /etc/configured", "/etc/configured");
    let read = |file: &str| {
        format!(
            "mount -o ro $(findfs LABEL=config-2) /mnt && cat /mnt/openstack/latest/{file}; \
             umount /mnt"
        )
    };
    let meta: Value = serde_json::from_str(&shell.run(&read("meta_data.json"))).unwrap();
    let vmi = node.sheaf.http().get(VMI).ok();
    let uuid = &vmi["spec"]["domain"]["firmware"]["uuid"];
    assert_eq!(meta, json!({"instance_id": "a.default", "hostname": "drive", "uuid": uuid}));
    assert!(shell.run(&read("user_data")).starts_with("#cloud-config\npassword:"));
    assert_eq!(shell.run(&read("network_data.json")), "{\"links\": []}");
}

fn its_port_is_its_readiness(node: &Node, shell: &mut Shell) {
    let until = |status: &str| {
        poll(&format!("readiness is {status}"), || {
            let vmi = node.sheaf.http().get(VMI).ok();
            let all = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
            match all.iter().find(|each| each["type"] == "Ready") {
                Some(ready) if ready["status"] == status => Ok(()),
                _ => Err(vmi["status"]["conditions"].to_string()),
            }
        });
    };
    until("True");
    // From the node itself, as from any other client.
    let vmi = node.sheaf.http().get(VMI).ok();
    let address = vmi["status"]["interfaces"][0]["ipAddress"].as_str().unwrap();
    let address: SocketAddr = format!("{address}:22").parse().unwrap();
    assert_eq!(greeting(address).unwrap(), *b"SSH-2.0-");
    shell.run("killall dropbear");
    until("False");
    shell.run("dropbear -R -p 22");
    until("True");
}

/// The first bytes from the server at an address.
fn greeting(address: SocketAddr) -> std::io::Result<[u8; 8]> {
    let limit = Duration::from_secs(120);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting)?;
    Ok(greeting)
}

/// From the node and from the guest itself, by address, by node port and by name.
fn a_service_leads_to_it(node: &Node, shell: &mut Shell) {
    let http = node.sheaf.http();
    let ports = json!([{"name": "ssh", "port": 2222, "targetPort": 22}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "access"},
        "spec": {"type": "NodePort", "selector": {"app": "access"}, "ports": ports}});
    let services = "/api/v1/namespaces/default/services";
    let service = http.post(services, &service).ok();
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    let node_port = &service["spec"]["ports"][0]["nodePort"];
    // Before that, packets to the address would leave the node.
    poll("the node knows the way", || {
        let list = ["list", "map", "inet", "sheaf_shfaccess_services", "services"];
        let output = Command::new("nft").args(list).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains(address) { Ok(()) } else { Err(text) }
    });
    for target in [format!("{address}:2222"), format!("10.213.8.1:{node_port}")] {
        poll(&format!("{target} answers the node"), || {
            let said = greeting(target.parse().unwrap()).map_err(|error| error.to_string())?;
            if said == *b"SSH-2.0-" { Ok(()) } else { Err(format!("{said:?}")) }
        });
        let (host, port) = target.split_once(':').unwrap();
        let ask = format!("nc -w 10 {host} {port} </dev/null | head -c 7");
        shell.sees(&ask, "SSH-2.0");
    }
    let resolve = "nslookup access.default.svc.cluster.local 10.213.8.1 2>&1";
    shell.sees(&format!("{resolve} | grep -q {address} && echo found"), "found");
    http.delete(&format!("{services}/access")).ok();
    shell.sees(&format!("{resolve} | grep -q NXDOMAIN && echo gone"), "gone");
}

/// From another host, at an address of the node.
fn a_port_forward_leads_to_it(node: &Node) {
    let _outside = Outside::start();
    let create = "network forward create ssh --to a --port 2222:22 --address 198.51.100.1";
    assert!(node.sheaf.run(create).starts_with("port forward ssh created"));
    let shown = poll("the forward is ready", || {
        let shown = node.sheaf.run("network forward list");
        if shown.contains("to 10.213.8.") { Ok(shown) } else { Err(shown) }
    });
    let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["ssh", "198.51.100.1", "2222:22/tcp", "a"], "{shown}");
    let ask = format!(
        "netns exec {} busybox nc -w 10 198.51.100.1 2222 </dev/null | head -c 7",
        Outside::NAME
    );
    let answer = || {
        let output = Command::new("sh").args(["-c", &format!("ip {ask}")]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    poll("the other host is answered by the guest", || match answer() {
        said if said == "SSH-2.0" => Ok(()),
        said => Err(said),
    });
    let addresses = node.sheaf.run("network addresses --network guest");
    let row = addresses.lines().find(|line| line.contains("default/a")).unwrap();
    assert!(row.starts_with("guest") && row.ends_with("in use"), "{addresses}");
    node.sheaf.run("network forward delete ssh");
    poll("the port is closed", || match answer() {
        said if said.is_empty() => Ok(()),
        said => Err(said),
    });
}

/// A host beyond the node, with a server at port 7000.
struct Outside {
    server: std::process::Child,
}

impl Outside {
    const NAME: &str = "shfaccess-out";
    const ADDRESS: &str = "198.51.100.2";

    fn start() -> Self {
        let name = Self::NAME;
        let ip = |line: &str| {
            let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
            assert!(output.status.success(), "ip {line}: {output:?}");
        };
        // A run that was killed leaves it behind.
        Self::remove();
        ip(&format!("netns add {name}"));
        ip(&format!("link add shfaccess1 type veth peer name eth0 netns {name}"));
        ip("address add 198.51.100.1/24 dev shfaccess1");
        ip("link set shfaccess1 up");
        ip(&format!("-n {name} address add {}/24 dev eth0", Self::ADDRESS));
        ip(&format!("-n {name} link set eth0 up"));
        let serve = format!("netns exec {name} busybox nc -ll -p 7000 -e echo welcome");
        let server = Command::new("ip").args(serve.split_whitespace()).spawn().unwrap();
        Self { server }
    }

    /// The link is gone at once then, and not only when the kernel gets to the namespace.
    fn remove() {
        let _ = Command::new("ip").args(["link", "del", "shfaccess1"]).output();
        let _ = Command::new("ip").args(["netns", "del", Self::NAME]).output();
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        Self::remove();
    }
}

/// Without a policy, with one that denies all, with one that allows a network, without it again.
fn a_policy_decides_whom_it_reaches(node: &Node, shell: &mut Shell) {
    let outside = Outside::start();
    let ask = format!("nc -w 3 {} 7000 </dev/null 2>/dev/null | grep -c welcome", Outside::ADDRESS);
    shell.sees(&ask, "1");
    let http = node.sheaf.http();
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let deny = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "access"},
        "spec": {"podSelector": {"matchLabels": {"app": "access"}}, "policyTypes": ["Egress"]}});
    http.post(policies, &deny).ok();
    shell.sees(&ask, "0");
    let block = json!({"ipBlock": {"cidr": "198.51.100.0/24"}});
    let allow = json!({"spec": {"egress": [{"to": [block], "ports": [{"port": 7000}]}]}});
    http.merge(&format!("{policies}/access"), &allow).ok();
    shell.sees(&ask, "1");
    let other = json!({"spec": {"egress": [{"to": [block], "ports": [{"port": 7001}]}]}});
    http.merge(&format!("{policies}/access"), &other).ok();
    shell.sees(&ask, "0");
    http.delete(&format!("{policies}/access")).ok();
    shell.sees(&ask, "1");
    drop(outside);
}

/// QEMU greets every client that connects; four can at a time.
fn clients_lend_it_their_usb_devices(node: &Node) {
    let stream = || Socket::open(&node.sheaf, &format!("{GUEST}/usbredir"));
    let mut taken: Vec<Socket> = (0..4).map(|_| stream().unwrap()).collect();
    for client in &mut taken {
        client.until(b"qemu usb-redir guest");
    }
    let refusal = stream().err().unwrap();
    assert!(refusal.contains("are in use"), "{refusal}");
    drop(taken);
    let mut again = poll("a device is free again", stream);
    again.until(b"qemu usb-redir guest");
}

fn its_dependencies_are_reported(node: &Node) {
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/a/objectgraph";
    let graph = node.sheaf.http().get(path).ok();
    assert_eq!(graph["objectReference"]["kind"], "VirtualMachine");
    let children = graph["children"].as_array().unwrap();
    let kinds: Vec<_> =
        children.iter().filter_map(|child| child["objectReference"]["kind"].as_str()).collect();
    assert_eq!(kinds, ["VirtualMachineInstance", "Secret", "Secret"]);
    assert_eq!(children[0]["children"][0]["objectReference"]["kind"], "Pod");
}

fn a_password_changes_while_it_runs(node: &Node, shell: &mut Shell) {
    poll("the agent has set the first password", || {
        let vmi = node.sheaf.http().get(VMI).ok();
        let text = vmi["status"]["conditions"].to_string();
        if text.contains("AccessCredentialsSynchronized") { Ok(()) } else { Err(text) }
    });
    let before = shell.run("grep ^root: /etc/shadow");
    node.sheaf
        .http()
        .merge(
            "/api/v1/namespaces/default/secrets/passwords",
            &json!({"stringData": {"root": OTHER}}),
        )
        .ok();
    poll("the password is another", || {
        let now = shell.run("grep ^root: /etc/shadow");
        if now == before { Err(now) } else { Ok(()) }
    });
    shell.send("exit\n");
    shell.until("login:");
    shell.send("root\n");
    shell.until("assword:");
    shell.send(&format!("{OTHER}\n"));
    shell.until("# ");
    assert_eq!(shell.run("whoami"), "root");
}
