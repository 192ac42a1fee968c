//! Faults around running machines: processes that die or hang, hosts that lose power, and missing
//! parts when a machine is to start.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Node, assert_has, eventually, poll};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

fn machine(node: &Node, name: &str, strategy: &str) -> Value {
    let disk = node.disk(&format!("{name}.img"));
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {"metadata": {"annotations": {}}, "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {"memory": {"guest": "16Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            }},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "hostDisk": {"path": disk, "type": "Disk"}}],
        }}},
    })
}

fn create(node: &Node, machine: &Value) {
    node.sheaf.http().post(VMS, machine).ok();
}

fn running(node: &Node, name: &str) -> Value {
    node.until(&at(VMIS, name), "/status/phase", "Running")
}

/// The process that runs on the disk of this machine.
fn process(node: &Node, name: &str) -> Pid {
    let disk = node.sheaf.scratch(&format!("{name}.img")).display().to_string();
    let uses = |process: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero()));
        String::from_utf8_lossy(&line.unwrap_or_default()).contains(&disk)
    };
    node.processes().into_iter().find(uses).unwrap_or_else(|| panic!("{name} has no process"))
}

fn condition(object: &Value, kind: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|each| each["type"] == kind).cloned()
}

/// Waits until the explanation of a machine contains all of `parts`.
#[track_caller]
fn until_why(node: &Node, name: &str, parts: &[&str]) {
    poll(&format!("{name} is explained with {parts:?}"), || {
        let text = why(node, name);
        if parts.iter().all(|part| text.contains(part)) { Ok(()) } else { Err(text) }
    });
}

fn why(node: &Node, name: &str) -> String {
    node.sheaf.run(&format!("vm why {name}"))
}

#[test]
fn the_run_strategy_decides_after_the_death_of_a_guest() {
    let node = Node::start();
    let http = node.sheaf.http();
    for (name, strategy) in [("r", "RerunOnFailure"), ("m", "Manual"), ("o", "Once")] {
        create(&node, &machine(&node, name, strategy));
    }
    let start = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/m/start";
    http.put(start, &json!({}));
    let first = running(&node, "r")["metadata"]["uid"].clone();
    running(&node, "m");
    running(&node, "o");
    for name in ["r", "m", "o"] {
        kill_process(process(&node, name), Signal::KILL).unwrap();
    }
    for name in ["m", "o"] {
        node.until(&at(VMIS, name), "/status/phase", "Failed");
    }
    eventually("what failed is run again", || {
        let vmi = http.get(&at(VMIS, "r")).json();
        vmi["metadata"]["uid"] != first && vmi["status"]["phase"] == "Running"
    });
    assert_eq!(node.processes().len(), 1);
    for name in ["m", "o"] {
        assert_eq!(http.get(&at(VMIS, name)).json()["status"]["phase"], "Failed");
    }
}

#[test]
fn a_guest_that_stands_still_is_noticed_and_comes_back() {
    let mut node = Node::start();
    node.sheaf.provokes("QEMU does not answer");
    create(&node, &machine(&node, "a", "Always"));
    let before = running(&node, "a");
    node.until_said("boot 1");
    let process = process(&node, "a");
    let ready = |status: &str| {
        poll(&format!("the machine is ready: {status}"), || {
            let vmi = node.sheaf.http().get(&at(VMIS, "a")).json();
            match condition(&vmi, "Ready") {
                Some(ready) if ready["status"] == status => Ok(ready),
                _ => Err(vmi.to_string()),
            }
        })
    };
    kill_process(process, Signal::STOP).unwrap();
    assert_eq!(ready("False")["reason"], "GuestNotResponding");
    until_why(&node, "a", &["a: Running, not ready", "error: QEMU does not respond"]);
    kill_process(process, Signal::CONT).unwrap();
    ready("True");
    let after = running(&node, "a");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "it is the same run");
    poll("both changes are recorded", || {
        let events = node.kubectl().run("get events -o jsonpath={.items[*].reason}");
        let reasons: Vec<&str> = events.split_whitespace().collect();
        let both =
            ["GuestNotResponding", "GuestResponding"].iter().all(|own| reasons.contains(own));
        if both { Ok(()) } else { Err(events) }
    });
    // A stopped process ends all the same when it is asked to.
    kill_process(process, Signal::STOP).unwrap();
    node.sheaf.http().delete(&at(VMS, "a")).ok();
    node.until_empty();
}

#[test]
fn machines_come_back_in_their_order_after_a_power_cut() {
    let mut node = Node::start();
    node.sheaf.provokes("guest cannot be started yet");
    for (name, order, delay) in [("web", "2", "0"), ("db", "1", "4"), ("any", "", "0")] {
        let mut machine = machine(&node, name, "Always");
        if !order.is_empty() {
            machine["spec"]["template"]["metadata"]["annotations"] =
                json!({"sheaf.io/start-order": order, "sheaf.io/start-delay": delay});
        }
        create(&node, &machine);
    }
    // Not meant to run, and so not to be waited for.
    create(&node, &machine(&node, "off", "Halted"));
    let names = ["web", "db", "any"];
    let before = names.map(|name| running(&node, name)["metadata"]["uid"].clone());

    node.sheaf.kill();
    for process in node.processes() {
        kill_process(process, Signal::KILL).unwrap();
    }
    // The agent's record of a previous boot of the host.
    fs::write(node.sheaf.data().join("agent/boot"), "an earlier boot\n").unwrap();
    node.sheaf.begin();

    let waiting = poll("a machine says whom it waits for", || {
        let vmi = node.sheaf.http().get(&at(VMIS, "web")).json();
        match condition(&vmi, "Synchronized") {
            Some(found) if found["reason"] == "WaitingForStartOrder" => Ok(found),
            _ => Err(vmi.to_string()),
        }
    });
    assert_has(waiting["message"].as_str().unwrap(), "default/db starts first");
    until_why(&node, "web", &["default/db"]);
    poll("the first one is back", || {
        let vmi = node.sheaf.http().get(&at(VMIS, "db")).json();
        let back = vmi["metadata"]["uid"] != before[1] && vmi["status"]["phase"] == "Running";
        if back { Ok(()) } else { Err(vmi.to_string()) }
    });
    // A restarted server neither starts machines again nor forgets those that wait.
    node.sheaf.kill();
    node.sheaf.begin();
    let mut started = Vec::new();
    for (name, before) in names.iter().zip(&before) {
        let vmi = poll(&format!("{name} is back"), || {
            let vmi = node.sheaf.http().get(&at(VMIS, name)).json();
            let back = vmi["metadata"]["uid"] != *before && vmi["status"]["phase"] == "Running";
            if back { Ok(vmi) } else { Err(vmi.to_string()) }
        });
        let times = vmi["status"]["phaseTransitionTimestamps"].as_array().unwrap();
        let time = times.iter().find(|each| each["phase"] == "Running").unwrap();
        let time = time["phaseTransitionTimestamp"].as_str().unwrap();
        started.push((time.parse::<jiff::Timestamp>().unwrap(), *name));
    }
    let time = |name: &str| started.iter().find(|each| each.1 == name).unwrap().0.as_second();
    assert!(time("web") - time("db") >= 4 - 1, "its delay was waited for: {started:?}");
    assert!(time("any") >= time("web"), "{started:?}");
    assert_eq!(node.processes().len(), 3);
    assert_eq!(node.sheaf.http().get(&at(VMIS, "off")).status, 404);
}

#[test]
fn a_guest_that_fails_its_liveness_probe_is_started_again() {
    let node = Node::networked("shflive", "10.213.9.0/24");
    let mut deaf = machine(&node, "deaf", "Always");
    deaf["spec"]["template"]["spec"]["livenessProbe"] = json!({
        "tcpSocket": {"port": 22}, "periodSeconds": 1, "failureThreshold": 2,
    });
    create(&node, &deaf);
    let first = running(&node, "deaf")["metadata"]["uid"].clone();
    poll("it is another instance", || {
        let vmi = node.sheaf.http().get(&at(VMIS, "deaf")).json();
        let uid = &vmi["metadata"]["uid"];
        if uid.is_string() && *uid != first { Ok(()) } else { Err(vmi.to_string()) }
    });
    poll("the failure is recorded", || {
        let events = node.kubectl().run("get events");
        if events.contains("Liveness probe failed: ") { Ok(()) } else { Err(events) }
    });
    node.sheaf.http().delete(&at(VMS, "deaf")).ok();
    node.until_empty();
}

#[test]
fn user_data_that_the_guest_will_not_read_is_reported() {
    let mut node = Node::start();
    node.sheaf.provokes("user data is wrong");
    let mut broken = machine(&node, "broken", "Always");
    let spec = &mut broken["spec"]["template"]["spec"];
    let add = |list: &mut Value, item: Value| list.as_array_mut().unwrap().push(item);
    add(&mut spec["domain"]["devices"]["disks"], json!({"name": "seed", "disk": {}}));
    let text = "#cloud-config\nusers: [root\npassword: hidden\n";
    let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": text}});
    add(&mut spec["volumes"], seed);
    create(&node, &broken);
    running(&node, "broken");
    node.until_said("boot 1");
    let event = poll("the mistake is reported", || {
        let events = node.kubectl().run("get events");
        match events.lines().find(|line| line.contains("InvalidUserData")) {
            Some(line) => Ok(line.to_owned()),
            None => Err(events),
        }
    });
    assert_has(&event, "volume seed will be ignored by the guest: it is not YAML");
    assert!(!event.contains("hidden"), "{event}");
}

/// Huge pages of the host for as long as a test runs.
struct HugePages(String);

impl HugePages {
    const PATH: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    fn reserve(count: u64) -> Self {
        let number = || fs::read_to_string(Self::PATH).unwrap().trim().parse::<u64>().unwrap();
        let before = number();
        let pages = Self(before.to_string());
        poll("the host has huge pages left", || {
            // Memory that was long in use must be put together first.
            let _ = fs::write("/proc/sys/vm/compact_memory", "1");
            fs::write(Self::PATH, (before + count).to_string()).map_err(|why| why.to_string())?;
            if number() >= before + count { Ok(()) } else { Err(number().to_string()) }
        });
        pages
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(Self::PATH, &self.0);
    }
}

#[test]
fn a_guest_mirrors_the_memory_nodes_of_its_own_processors() {
    let _pages = HugePages::reserve(8);
    let node = Node::start();
    let mut near = machine(&node, "near", "Always");
    let domain = &mut near["spec"]["template"]["spec"]["domain"];
    domain["memory"] = json!({"guest": "16Mi", "hugepages": {"pageSize": "2Mi"}});
    domain["cpu"] = json!({"cores": 1, "dedicatedCpuPlacement": true,
        "numa": {"guestMappingPassthrough": {}}});
    create(&node, &near);
    running(&node, "near");
    node.until_said("boot 1");
    let process = process(&node, "near").as_raw_nonzero();
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    assert_has(&line, "-numa node,nodeid=0,memdev=memory0,cpus=0");
    assert_has(&line, "\"host-nodes\":[0]");
    let maps = fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let huge = |line: &&str| {
        let size = line.strip_prefix("Shared_Hugetlb:").or(line.strip_prefix("Private_Hugetlb:"));
        size.is_some_and(|size| size.trim() != "0 kB")
    };
    assert!(maps.lines().any(|line| huge(&line)), "no memory of the guest is in huge pages");
    // The thread of its processor stays where it was put.
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let pinned = tasks.filter(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        allowed.is_some_and(|list| list.trim().parse::<u32>().is_ok())
    });
    assert!(pinned.count() > 0, "no thread has a processor of its own");
}

#[test]
fn a_machine_starts_as_soon_as_what_it_waits_for_is_there() {
    let mut node = Node::start();
    node.sheaf.provokes("guest cannot be started yet");
    let http = node.sheaf.http();
    let with = |name: &str, volume: Value| {
        let mut machine = machine(&node, name, "Always");
        let spec = &mut machine["spec"]["template"]["spec"];
        spec["volumes"].as_array_mut().unwrap().push(volume);
        let disk = json!({"name": "more", "disk": {"bus": "virtio"}});
        spec["domain"]["devices"]["disks"].as_array_mut().unwrap().push(disk);
        machine
    };
    let cloud_init = json!({"secretRef": {"name": "later"}});
    create(&node, &with("s", json!({"name": "more", "cloudInitNoCloud": cloud_init})));
    create(&node, &with("m", json!({"name": "more", "configMap": {"name": "later"}})));
    let claim = json!({"claimName": "later"});
    create(&node, &with("c", json!({"name": "more", "persistentVolumeClaim": claim})));
    let path = node.sheaf.scratch("later.img");
    let host = json!({"path": path, "type": "Disk"});
    create(&node, &with("h", json!({"name": "more", "hostDisk": host})));
    for (name, missing) in [
        ("s", "secret later"),
        ("m", "config map later"),
        ("c", "claim later does not exist"),
        ("h", "host disk"),
    ] {
        poll(&format!("{name} says what it waits for"), || {
            let text = why(&node, name);
            if text.contains(missing) && text.contains("later") { Ok(()) } else { Err(text) }
        });
    }
    assert!(node.processes().is_empty());
    // A secret without the key is not enough, and that is said too.
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": data});
    http.post(SECRETS, &secret(json!({"other": "x"}))).ok();
    poll("the missing key is named", || {
        let text = why(&node, "s");
        if text.contains("has no key userdata") { Ok(()) } else { Err(text) }
    });
    http.merge(&at(SECRETS, "later"), &secret(json!({"userdata": "#cloud-config\n"}))).ok();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"a": "b"}});
    http.post("/api/v1/namespaces/default/configmaps", &map).ok();
    http.post(CLAIMS, &claim_of("later", "1Mi")).ok();
    fs::write(&path, [0; 512]).unwrap();
    for name in ["s", "m", "c", "h"] {
        running(&node, name);
        // The instance runs before its conditions and its machine's status say so.
        poll(&format!("{name} is synchronized"), || {
            let vmi = http.get(&at(VMIS, name)).json();
            if condition(&vmi, "Synchronized").is_none() { Ok(()) } else { Err(vmi.to_string()) }
        });
        until_why(&node, name, &["No problem found."]);
    }
}

fn claim_of(name: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": {"requests": {"storage": size}},
        },
    })
}

#[test]
fn sizes_that_cannot_be_are_refused_or_waited_with() {
    let mut node = Node::start();
    node.sheaf.provokes("guest cannot be started yet");
    let http = node.sheaf.http();
    // Refused at once, with the field.
    for (path, value, field) in [
        ("/domain/memory/guest", json!("0"), "spec.template.spec.domain.memory.guest"),
        ("/domain/memory/guest", json!("-1Gi"), "spec.template.spec.domain.memory.guest"),
    ] {
        let mut machine = machine(&node, "refused", "Always");
        *machine.pointer_mut(&format!("/spec/template/spec{path}")).unwrap() = value;
        let reply = http.post(VMS, &machine);
        assert!(matches!(reply.status, 400 | 422), "{path}: {} {}", reply.status, reply.text());
        assert_has(reply.text(), field);
    }
    // More than any node has: it waits and says so.
    let mut large = machine(&node, "large", "Always");
    large["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("900Ti");
    create(&node, &large);
    poll("it says that there is no room", || {
        let text = why(&node, "large");
        if text.contains("memory") && text.contains("No node") { Ok(()) } else { Err(text) }
    });
    // A disk that is none.
    let mut wide = machine(&node, "wide", "Always");
    let spec = &mut wide["spec"]["template"]["spec"];
    spec["volumes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "e", "emptyDisk": {"capacity": "0"}}));
    spec["domain"]["devices"]["disks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "e", "disk": {}}));
    create(&node, &wide);
    poll("it says which disk cannot be made", || {
        let text = why(&node, "wide");
        if text.contains("volume e: 0 is not a size") { Ok(()) } else { Err(text) }
    });
    assert!(node.processes().is_empty());
    for name in ["large", "wide"] {
        http.delete(&at(VMS, name)).ok();
    }
    node.until_empty();
}

#[test]
fn an_image_that_points_at_the_host_is_only_bytes_to_its_guest() {
    let node = Node::start();
    let disk = node.sheaf.scratch("a.img");
    let machine = machine(&node, "a", "Always");
    // Not imported, so it was not examined before: the guest may see these bytes, no others.
    let made = std::process::Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd"])
        .arg(&disk)
        .arg("1M")
        .status()
        .unwrap();
    assert!(made.success());
    create(&node, &machine);
    running(&node, "a");
    let process = process(&node, "a");
    let open = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).unwrap();
    let open: Vec<_> = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
    assert!(open.contains(&disk), "{open:?}");
    assert!(!open.contains(&Path::new("/etc/passwd").to_path_buf()), "{open:?}");
}

#[test]
fn each_machine_is_locked_in_alone() {
    assert!(rustix::process::geteuid().is_root(), "this test runs as other users: run it as root");
    let node = Node::start();
    create(&node, &machine(&node, "a", "Always"));
    create(&node, &machine(&node, "b", "Always"));
    let (a, b) = (running(&node, "a"), running(&node, "b"));
    let users = ["a", "b"].map(|name| {
        let status = format!("/proc/{}/status", process(&node, name).as_raw_nonzero());
        let status = fs::read_to_string(status).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let users = field("Uid:");
        assert!(users.iter().all(|user| *user == users[0]), "{users:?}");
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert_eq!(field("CapBnd:"), ["0000000000000000"]);
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_eq!(field("Seccomp:"), ["2"], "its system calls are filtered");
        users[0].parse::<u32>().unwrap()
    });
    assert!(users[0] != users[1] && users.iter().all(|user| *user > 1000), "{users:?}");
    for (vmi, name, user) in [(&a, "a", users[0]), (&b, "b", users[1])] {
        assert_eq!(vmi["status"]["runtimeUser"], user);
        let uid = vmi["metadata"]["uid"].as_str().unwrap();
        let pid = process(&node, name).as_raw_nonzero();
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert_has(&groups, &format!("/sheaf/vm-{uid}"));
        assert!(memory_limit(uid) > 16 << 20, "guest and overhead");
        let disk = fs::metadata(node.sheaf.scratch(&format!("{name}.img"))).unwrap();
        assert_eq!((disk.uid(), disk.permissions().mode() & 0o777), (user, 0o600));
        // The other machine's user reaches none of its sockets.
        let folder = node.sheaf.data().join("agent/vmis").join(uid);
        let other = users[usize::from(user == users[0])];
        for socket in ["qmp.sock", "serial.sock", "agent.sock", "vm/vnc.sock", "machine.json"] {
            assert!(!reaches(other, &folder.join(socket)), "{socket} of {name}");
        }
        assert!(!reaches(user, &folder.join("qmp.sock")), "nor does its own guest its monitor");
    }
    assert!(!reaches(users[0], &node.sheaf.data().join("agent/agent.sock")));
    assert!(!reaches(users[0], &node.sheaf.data().join("admin.kubeconfig")));
}

/// The condition about the guest network, once it is there and false.
fn no_guest_network(node: &Node) -> Value {
    poll("the node says which networks it has", || {
        let object = node.sheaf.http().get("/api/v1/nodes/one").json();
        let network = condition(&object, "GuestNetwork");
        network.filter(|network| network["status"] == "False").ok_or_else(|| object.to_string())
    })
}

#[test]
fn a_node_without_root_starts_no_guest_on_a_network_without_a_request() {
    const UNPRIVILEGED: u32 = 65_534;
    let node = Node::unprivileged(UNPRIVILEGED, &[]);
    let network = no_guest_network(&node);
    assert_eq!(network["reason"], "Unavailable");
    assert_has(network["message"].as_str().unwrap(), "root");
    let machine = machine(&node, "a", "Always");
    std::os::unix::fs::chown(node.sheaf.scratch("a.img"), Some(UNPRIVILEGED), None).unwrap();
    create(&node, &machine);
    poll("the instance says why it does not start", || {
        let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/a";
        let vmi = node.sheaf.http().get(path).json().to_string();
        if vmi.contains("--guest-network user") { Ok(()) } else { Err(vmi) }
    });
}

#[test]
fn a_node_without_root_gives_user_mode_networks_if_asked() {
    const UNPRIVILEGED: u32 = 65_534;
    let node = Node::unprivileged(UNPRIVILEGED, &["--guest-network", "user"]);
    assert_eq!(no_guest_network(&node)["reason"], "UserMode");
    let machine = machine(&node, "a", "Always");
    std::os::unix::fs::chown(node.sheaf.scratch("a.img"), Some(UNPRIVILEGED), None).unwrap();
    create(&node, &machine);
    let vmi = running(&node, "a");
    assert_eq!(vmi["status"]["interfaces"][0]["ipAddress"], "10.0.2.15");
    node.until_said("boot 1");
    let owner = fs::metadata(format!("/proc/{}", process(&node, "a").as_raw_nonzero())).unwrap();
    assert_eq!(owner.uid(), UNPRIVILEGED);
    node.sheaf.http().delete(&at(VMS, "a")).ok();
    node.until_empty();
}

/// The memory beyond which a machine gives back first.
fn memory_limit(uid: &str) -> u64 {
    let group = format!("sheaf/vm-{uid}");
    let places = [
        format!("/sys/fs/cgroup/memory/{group}/memory.soft_limit_in_bytes"),
        format!("/sys/fs/cgroup/{group}/memory.high"),
    ];
    let text = places.iter().find_map(|path| fs::read_to_string(path).ok());
    text.expect("it has a group for memory").trim().parse().unwrap()
}

/// Whether this user may open or connect to a path.
fn reaches(user: u32, path: &Path) -> bool {
    let script = "import os,socket,sys\n\
                  os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n\
                  p=sys.argv[2]\n\
                  try:\n  s=socket.socket(socket.AF_UNIX); s.connect(p); print('yes')\n\
                  except OSError:\n  try:\n    open(p,'rb'); print('yes')\n  except OSError: print('no')\n";
    let user = user.to_string();
    let output = std::process::Command::new("python3")
        .args(["-c", script, &user])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim() == "yes"
}

/// How often objects of these kinds were written so far.
fn writes(node: &Node, resources: &[&str]) -> u64 {
    let text = node.sheaf.http().get("/metrics").text();
    let counted = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && ["POST", "PUT", "PATCH"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            && resources.iter().any(|own| line.contains(&format!("resource=\"{own}\"")))
    };
    let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    text.lines().filter(counted).filter_map(count).sum::<f64>() as u64
}

/// The attempts so far, as the event of a failure counts them, and how many events there are.
fn attempts(node: &Node, kind: &str, name: &str) -> (u64, usize) {
    let all = node.sheaf.http().get("/api/v1/namespaces/default/events").ok();
    let about = |own: &&Value| {
        own["involvedObject"]["kind"] == kind
            && own["involvedObject"]["name"] == name
            && own["type"] == "Warning"
    };
    let events: Vec<&Value> = all["items"].as_array().unwrap().iter().filter(about).collect();
    (events.iter().map(|own| own["count"].as_u64().unwrap_or(1)).sum(), events.len())
}

/// The back-off of a failing object is seconds, so its attempts are counted and not the time: each
/// may write its object and its event, and nothing else is written meanwhile.
#[test]
fn an_agent_writes_a_failing_object_once_per_attempt() {
    let mut node = Node::start();
    node.sheaf.provokes("cannot");
    let broken = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "broken"},
        "spec": {"domain": {"memory": {"guest": "16Mi"}, "devices": {
            "disks": [{"name": "root", "disk": {}}]}},
            "volumes": [{"name": "root", "containerDisk": {"image": "127.0.0.1:1/none:1"}}]},
    });
    node.sheaf.http().post(VMIS, &broken).ok();
    let volume = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "broken", "annotations":
            {"cdi.kubevirt.io/storage.bind.immediate.requested": "true"}},
        "spec": {"source": {"http": {"url": "http://127.0.0.1:1/none.img"}},
            "storage": {"resources": {"requests": {"storage": "16Mi"}}}},
    });
    let volumes = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";
    node.sheaf.http().post(volumes, &volume).ok();
    let failing = |least: u64| {
        poll(&format!("there are {least} attempts"), || {
            let (count, events) = attempts(&node, "VirtualMachineInstance", "broken");
            if count >= least { Ok((count, events)) } else { Err(format!("{count}")) }
        })
    };
    let (first, _) = failing(2);
    let kinds = ["virtualmachineinstances", "events", "datavolumes", "persistentvolumeclaims"];
    let before = writes(&node, &kinds);
    let (last, events) = failing(first + 3);
    let written = writes(&node, &kinds) - before;
    assert!(events <= 3, "{events} events of one failure");
    // Two objects fail, each with an event, a status and what the controllers copy of it.
    let most = (last - first + 1) * 12;
    assert!(written <= most, "{written} writes in {} attempts", last - first);
}
