//! A real Linux in a machine: the effects of changes to its object on its kernel, its shell and
//! its agent, with the clients' own protocols.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{FIND, Node, PASSWORD, Shell, Socket, disk_of_image, link, poll};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/a";
const VMI: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
const GUEST: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
const MACHINE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/a";

/// A machine with what a guest can be given at its start, and room for what comes later.
fn machine(node: &Node) -> String {
    let disk = node.sheaf.scratch("root.img");
    disk_of_image(&disk);
    format!(
        "
apiVersion: v1
kind: ConfigMap
metadata: {{name: words}}
data: {{greeting: hello}}
---
apiVersion: v1
kind: Secret
metadata: {{name: keys}}
stringData: {{one: ssh-ed25519 AAAA one}}
---
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
    metadata: {{labels: {{color: blue}}}}
    spec:
      hostname: penguin
      readinessProbe: {{exec: {{command: [cat, /etc/ready]}}, periodSeconds: 1, timeoutSeconds: 10}}
      domain:
        cpu: {{sockets: 1, maxSockets: 2}}
        memory: {{guest: 1Gi, maxGuest: 2Gi}}
        devices:
          rng: {{}}
          disks:
          - {{name: root, disk: {{bus: virtio}}, serial: ROOTDISK}}
          - {{name: seed, disk: {{bus: virtio}}}}
          - {{name: words, disk: {{bus: scsi}}, serial: WORDS}}
          - {{name: about, disk: {{bus: virtio}}, serial: ABOUT}}
          - {{name: account, disk: {{bus: virtio}}, serial: ACCOUNT}}
          - {{name: empty, disk: {{bus: virtio}}, serial: EMPTY}}
          - {{name: cd, cdrom: {{bus: scsi}}}}
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      accessCredentials:
      - sshPublicKey:
          source: {{secret: {{secretName: keys}}}}
          propagationMethod: {{qemuGuestAgent: {{users: [root]}}}}
      - userPassword:
          source: {{secret: {{secretName: passwords}}}}
          propagationMethod: {{qemuGuestAgent: {{}}}}
      volumes:
      - {{name: root, hostDisk: {{path: {disk}, type: Disk}}}}
      - name: seed
        cloudInitNoCloud: {{userData: \"#cloud-config\\npassword: {PASSWORD}\\n\"}}
      - {{name: words, configMap: {{name: words}}}}
      - name: about
        downwardAPI: {{fields: [{{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}]}}
      - {{name: account, serviceAccount: {{serviceAccountName: default}}}}
      - {{name: empty, emptyDisk: {{capacity: 8Mi}}}}
",
        disk = disk.display()
    )
}

struct Test {
    node: Node,
    shell: Shell,
    lan: Lan,
}

/// A bridge of the host that goes with the test.
struct Lan(&'static str);

impl Lan {
    fn new(name: &'static str) -> Self {
        // A run that was killed leaves it.
        let _ = Command::new("ip").args(["link", "delete", name]).output();
        ip(&format!("link add {name} type bridge"));
        ip(&format!("link set {name} up"));
        Self(name)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        ip(&format!("link delete {}", self.0));
    }
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).status().unwrap();
    assert!(done.success() || std::thread::panicking(), "ip {line} failed");
}

impl Test {
    fn begin() -> Self {
        let node = Node::networked("shfguest", "10.213.7.0/24");
        let lan = Lan::new("shflan");
        node.kubectl().apply(&machine(&node));
        node.until(VMI, "/status/phase", "Running");
        let shell = Shell::login(&node, "a");
        Self { node, shell, lan }
    }

    fn patch(&self, patch: &Value) {
        self.node.sheaf.http().merge(VMS, patch).ok();
    }

    fn json_patch(&self, patch: &Value) {
        let http = self.node.sheaf.http();
        http.patch(VMS, "application/json-patch+json", patch.to_string()).ok();
    }

    /// The condition of this type of the instance.
    fn condition(&self, kind: &str) -> Value {
        let vmi = self.node.sheaf.http().get(VMI).ok();
        let all = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|each| each["type"] == kind).unwrap_or_default()
    }

    #[track_caller]
    fn until_condition(&self, kind: &str, status: &str) {
        poll(&format!("{kind} is {status}"), || {
            let condition = self.condition(kind);
            if condition["status"] == status { Ok(()) } else { Err(condition.to_string()) }
        });
    }

    /// Waits for a volume to be attached, and answers the guest's name for it.
    #[track_caller]
    fn until_ready(&self, volume: &str) -> String {
        poll(&format!("{volume} is ready"), || {
            let vmi = self.node.sheaf.http().get(VMI).ok();
            let all = vmi["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
            let status = all.iter().find(|each| each["name"] == volume).cloned();
            match status.filter(|status| status["phase"] == "Ready") {
                Some(status) => Ok(status["target"].as_str().unwrap_or_default().to_owned()),
                None => Err(vmi["status"]["volumeStatus"].to_string()),
            }
        })
    }

    fn claim(&self, name: &str, size: &str) {
        self.node.kubectl().apply(&format!(
            "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{storageClassName: local, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}
"
        ));
    }

    fn put(&self, act: &str, options: &Value) {
        let reply = self.node.sheaf.http().put(&format!("{GUEST}/{act}"), options);
        assert!(reply.status < 300, "{act}: {}", reply.text());
    }
}

#[test]
fn a_linux_guest_sees_what_its_object_says() {
    let mut test = Test::begin();
    it_has_what_it_started_with(&mut test);
    its_agent_answers(&mut test);
    disks_come_grow_and_go(&mut test);
    media_and_interfaces_come_and_go(&mut test);
    processors_and_memory_grow(&mut test);
    its_ports_are_reached(&mut test);
    it_is_frozen_paused_and_rebooted(&mut test);
    it_outlives_the_server_with_its_lease(&mut test);
    a_reboot_ends_it_where_its_policy_says_so(&mut test);
    test.node.kubectl().run("delete vm a");
    test.node.until_empty();
}

fn it_has_what_it_started_with(test: &mut Test) {
    let shell = &mut test.shell;
    assert_eq!(shell.run("hostname"), "penguin");
    shell.sees("cat /sys/block/vda/serial", "ROOTDISK");
    let read = |serial: &str, file: &str| {
        format!("{FIND}; mount -o ro /dev/$(disk {serial}) /mnt && cat /mnt/{file}; umount /mnt")
    };
    assert_eq!(shell.run(&read("WORDS", "greeting")), "hello");
    assert!(shell.run(&read("ABOUT", "labels")).contains("color=\"blue\""));
    assert_eq!(shell.run(&read("ACCOUNT", "namespace")), "default");
    let size = format!("{FIND}; cat /sys/block/$(disk EMPTY)/size");
    assert_eq!(shell.run(&size), (8 << 11).to_string());
    let vmi = test.node.sheaf.http().get(VMI).ok();
    let address = vmi["status"]["interfaces"][0]["ipAddress"].as_str().unwrap().to_owned();
    let own = "ip -4 -o addr show eth0 | sed 's/.*inet \\([0-9.]*\\).*/\\1/'";
    test.shell.sees(own, &address);
}

fn its_agent_answers(test: &mut Test) {
    test.until_condition("AgentConnected", "True");
    test.until_condition("AccessCredentialsSynchronized", "True");
    test.shell.sees("cat ~root/.ssh/authorized_keys", "ssh-ed25519 AAAA one");
    // A secret that changes reaches the guest without a restart.
    test.node.sheaf.http().merge(
        "/api/v1/namespaces/default/secrets/keys",
        &json!({"stringData": {"one": "ssh-ed25519 AAAA two"}}),
    );
    test.shell.sees("cat ~root/.ssh/authorized_keys", "ssh-ed25519 AAAA two");
    test.until_condition("Ready", "False");
    test.shell.run("touch /etc/ready");
    test.until_condition("Ready", "True");
    let http = test.node.sheaf.http();
    let info = http.get(&format!("{GUEST}/guestosinfo")).ok();
    assert_eq!(info["os"]["id"], "sheaf-guest");
    assert_eq!(info["hostname"], "penguin");
    let systems = http.get(&format!("{GUEST}/filesystemlist")).ok();
    assert_eq!(systems["items"][0]["mountPoint"], "/");
    let users = http.get(&format!("{GUEST}/userlist")).ok();
    assert!(users["items"].is_array(), "{users}");
}

fn disks_come_grow_and_go(test: &mut Test) {
    let http = test.node.sheaf.http();
    test.claim("more", "16Mi");
    let options = json!({
        "name": "more",
        "disk": {"disk": {"bus": "scsi"}, "serial": "MORE"},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "more"}},
    });
    let added = http.put(&format!("{MACHINE}/addvolume"), &options);
    assert_eq!(added.status, 202, "{}", added.text());
    test.until_ready("more");
    let size = format!("{FIND}; cat /sys/block/$(disk MORE)/size");
    test.shell.sees(&size, &(16 << 11).to_string());
    let larger = json!({"spec": {"resources": {"requests": {"storage": "32Mi"}}}});
    http.merge("/api/v1/namespaces/default/persistentvolumeclaims/more", &larger).ok();
    test.shell.sees(&size, &(32 << 11).to_string());
    let gone = http.put(&format!("{MACHINE}/removevolume"), &json!({"name": "more"}));
    assert_eq!(gone.status, 202, "{}", gone.text());
    test.shell.sees(&format!("{FIND}; disk MORE"), "");

    // The same by changing the machine.
    test.claim("other", "4Mi");
    test.json_patch(&json!([
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value":
            {"name": "other", "persistentVolumeClaim": {"claimName": "other", "hotpluggable": true}}},
        {"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value":
            {"name": "other", "disk": {"bus": "virtio"}, "serial": "OTHER"}},
    ]));
    test.until_ready("other");
    test.shell.sees(&format!("{FIND}; cat /sys/block/$(disk OTHER)/size"), &(4 << 11).to_string());
}

fn media_and_interfaces_come_and_go(test: &mut Test) {
    test.claim("medium", "2Mi");
    test.json_patch(&json!([
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value":
            {"name": "cd", "persistentVolumeClaim": {"claimName": "medium", "hotpluggable": true}}},
    ]));
    test.until_ready("cd");
    let read = "dd if=/dev/sr0 bs=2k count=1 2>/dev/null | wc -c";
    test.shell.sees(read, "2048");
    let vm = test.node.sheaf.http().get(VMS).ok();
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let index = volumes.iter().position(|volume| volume["name"] == "cd").unwrap();
    let path = format!("/spec/template/spec/volumes/{index}");
    test.json_patch(&json!([{"op": "remove", "path": path}]));
    test.shell.sees(read, "0");

    let bridge = test.lan.0;
    let config = json!({"cniVersion": "0.3.1", "type": "bridge", "bridge": bridge}).to_string();
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lan"}, "spec": {"config": config},
    });
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
    test.node.sheaf.http().post(path, &definition).ok();
    test.json_patch(&json!([
        {"op": "add", "path": "/spec/template/spec/networks/-", "value":
            {"name": "lan", "multus": {"networkName": "lan"}}},
        {"op": "add", "path": "/spec/template/spec/domain/devices/interfaces/-", "value":
            {"name": "lan", "bridge": {}, "macAddress": "02:00:00:00:12:34"}},
    ]));
    let find = "cat /sys/class/net/*/address | grep -c 02:00:00:00:12:34";
    test.shell.sees(find, "1");
    it_gets_an_address_of_a_pool(test);
    let state = json!([{"op": "add", "value": "absent",
        "path": "/spec/template/spec/domain/devices/interfaces/1/state"}]);
    test.json_patch(&state);
    test.shell.sees(find, "0");
}

/// The node answers the guest's DHCP client from the pool of its network.
fn it_gets_an_address_of_a_pool(test: &mut Test) {
    let group = "/apis/network.harvesterhci.io/v1alpha1/namespaces/default";
    let (pool, config) =
        (format!("{group}/ippools/lan"), format!("{group}/virtualmachinenetworkconfigs/a"));
    let object = json!({
        "apiVersion": "network.harvesterhci.io/v1alpha1", "kind": "IPPool",
        "metadata": {"name": "lan"},
        "spec": {"networkName": "default/lan", "ipv4Config": {
            "cidr": "10.213.8.0/24", "serverIP": "10.213.8.2", "leaseTime": 600,
            "pool": {"start": "10.213.8.50", "end": "10.213.8.60", "exclude": ["10.213.8.50"]}}},
    });
    let http = test.node.sheaf.http();
    http.post(&format!("{group}/ippools"), &object).ok();
    let allocated = "/status/networkConfigs/0/allocatedIPAddress";
    test.node.until(&config, allocated, "10.213.8.51");
    poll("the pool has a server", || {
        let pool = http.get(&pool).ok();
        let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = |own: &Value| own["type"] == "AgentReady" && own["status"] == "True";
        if conditions.iter().any(ready) { Ok(()) } else { Err(pool["status"].to_string()) }
    });
    test.shell.run(
        "printf '#!/bin/busybox sh\\n[ \"$1\" != bound ] || echo $ip $serverid $lease\\n' >/tmp/show; \
         chmod +x /tmp/show",
    );
    let ask = "nic=$(grep -l 02:00:00:00:12:34 /sys/class/net/*/address | cut -d/ -f5); \
               ip link set $nic up; udhcpc -q -f -n -t 20 -T 1 -i $nic -s /tmp/show 2>/dev/null";
    test.shell.sees(ask, "10.213.8.51 10.213.8.2 600");
    // An address of its own choice.
    let wish = json!({"spec": {"networkConfigs": [{"networkName": "default/lan",
        "macAddress": "02:00:00:00:12:34", "ipAddress": "10.213.8.55"}]}});
    http.merge(&config, &wish).ok();
    test.node.until(&config, allocated, "10.213.8.55");
    test.shell.sees(ask, "10.213.8.55 10.213.8.2 600");
    let refused = http.delete(&pool);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("still used by VirtualMachineNetworkConfig(s) default/a"));
}

fn processors_and_memory_grow(test: &mut Test) {
    let before: u64 = test.shell.run("awk '/MemTotal/{print $2}' /proc/meminfo").parse().unwrap();
    test.patch(&json!({"spec": {"template": {"spec": {"domain": {
        "cpu": {"sockets": 2}, "memory": {"guest": "1280Mi"},
    }}}}}));
    let online = "for c in /sys/devices/system/cpu/cpu*/online; do echo 1 >$c; done; nproc";
    test.shell.sees(online, "2");
    let grown = format!("awk '/MemTotal/{{print ($2 > {before} + 200000)}}' /proc/meminfo");
    test.shell.sees(&grown, "1");
    test.node.until(VMI, "/status/memory/guestCurrent", "1280Mi");
    let vm = test.node.sheaf.http().get(VMS).ok();
    assert!(!vm["status"]["conditions"].to_string().contains("RestartRequired"), "{vm}");
}

fn its_ports_are_reached(test: &mut Test) {
    let mut ssh = Socket::open(&test.node.sheaf, &format!("{GUEST}/portforward/22")).unwrap();
    ssh.until(b"SSH-2.0-dropbear");
    let mut screen = Socket::open(&test.node.sheaf, &format!("{GUEST}/vnc")).unwrap();
    screen.until(b"RFB 003.008");
    let mut console = Socket::open(&test.node.sheaf, &format!("{GUEST}/console")).unwrap();
    console.send(b"echo over-$((1 + 1))-there\n");
    console.until(b"over-2-there");
    test.shell.until("over-2-there");
    let picture = test.node.sheaf.http().get(&format!("{GUEST}/vnc/screenshot"));
    assert_eq!(&picture.body[..4], b"\x89PNG");
    let refusal = Socket::open(&test.node.sheaf, &format!("{GUEST}/usbredir")).err().unwrap();
    assert!(refusal.contains("Not configured with USB Redirection"), "{refusal}");

    // Hexadecimal survives a terminal.
    let program: String = link("echo").iter().map(|byte| format!("{byte:02x}")).collect();
    test.shell.run("rm -f /tmp/echo");
    for part in program.as_bytes().chunks(400) {
        let part = String::from_utf8_lossy(part);
        test.shell.run(&format!("echo {part} | xxd -r -p >>/tmp/echo"));
    }
    test.shell.run("chmod +x /tmp/echo; /tmp/echo </dev/null >/dev/null 2>&1 &");
    test.shell.sees("netstat -lun | grep -c ':7 '", "1");
    let path = format!("{MACHINE}/portforward/7/udp");
    let mut datagrams = Socket::open(&test.node.sheaf, &path).unwrap();
    for length in [5, 1300] {
        let datagram = vec![b'u'; length];
        datagrams.send(&datagram);
        assert_eq!(datagrams.receive().unwrap(), datagram);
    }
}

fn it_is_frozen_paused_and_rebooted(test: &mut Test) {
    let none = json!({});
    test.put("freeze", &json!({"unfreezeTimeout": "1m"}));
    test.node.until(VMI, "/status/fsFreezeStatus", "frozen");
    test.put("unfreeze", &none);
    poll("the guest is thawed", || {
        let vmi = test.node.sheaf.http().get(VMI).ok();
        let state = vmi["status"]["fsFreezeStatus"].clone();
        if state.is_null() { Ok(()) } else { Err(state.to_string()) }
    });
    let now = test.shell.run("date -s @1000000000 >/dev/null; date +%s");
    assert!(now.starts_with("10000000"), "the clock is not behind: {now}");
    let before = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    test.put("pause", &none);
    test.until_condition("Paused", "True");
    test.until_condition("Ready", "False");
    test.put("unpause", &none);
    // The guest's agent sets the clock after a pause, during which it stands still.
    test.shell.sees(&format!("[ $(date +%s) -ge {before} ] && echo set"), "set");
    test.until_condition("Ready", "True");
    assert_eq!(test.condition("Paused"), Value::Null);
    test.shell.run("echo kept >~root/kept; sync");
    test.put("softreboot", &none);
    test.shell.enter(PASSWORD);
    assert_eq!(test.shell.run("cat ~root/kept"), "kept");
}

fn it_outlives_the_server_with_its_lease(test: &mut Test) {
    let before = test.node.processes();
    test.node.sheaf.kill();
    test.node.sheaf.begin();
    assert_eq!(test.node.processes(), before);
    test.shell = Shell::attach(&test.node, "a");
    let renew = "udhcpc -q -f -n -t 5 -T 2 -i eth0 -s /bin/lease 2>&1 | grep -c obtained";
    test.shell.sees(renew, "1");
    assert_eq!(test.shell.run("cat ~root/kept"), "kept");
}

fn a_reboot_ends_it_where_its_policy_says_so(test: &mut Test) {
    let uid = |test: &Test| test.node.sheaf.http().get(VMI).json()["metadata"]["uid"].clone();
    let until_another = |test: &Test, before: &Value| {
        poll("there is another instance", || {
            let now = uid(test);
            if now.is_string() && now != *before { Ok(()) } else { Err(now.to_string()) }
        });
        test.until_condition("AgentConnected", "True");
    };
    test.patch(&json!({"spec": {"template": {"spec": {"domain": {"rebootPolicy": "Terminate"}}}}}));
    let before = uid(test);
    let reply = test.node.sheaf.http().put(&format!("{MACHINE}/restart"), &json!({}));
    assert!(reply.status < 300, "restart: {}", reply.text());
    until_another(test, &before);
    // The guest ends instead of starting again, and its machine makes another instance.
    let before = uid(test);
    test.put("softreboot", &json!({}));
    until_another(test, &before);
}
