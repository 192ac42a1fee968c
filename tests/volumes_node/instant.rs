//! All disks of a guest that writes are captured at one instant, also if the server is killed
//! meanwhile; and a clone of it is another machine with the same data.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::lab::{self, CLAIMS, Lab, VMIS, VMS};
use crate::harness::{Shell, disk_of_image, eventually, poll};

const SNAPSHOTS: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
const RESTORES: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores";
const CLONES: &str = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const DISKS: [&str; 3] = ["one", "two", "three"];

/// A Linux with three disks.
fn three_disks(root: &std::path::Path) -> String {
    let disks = DISKS.map(|name| {
        let serial = name.to_uppercase();
        format!("          - {{name: {name}, disk: {{bus: virtio}}, serial: {serial}}}\n")
    });
    let volumes = DISKS.map(|name| {
        format!("      - {{name: {name}, persistentVolumeClaim: {{claimName: {name}}}}}\n")
    });
    let files = "          - {name: data, disk: {bus: virtio}, serial: DATA}\n";
    let claim = "      - {name: data, persistentVolumeClaim: {claimName: data}}\n";
    lab::linux(root)
        .replace(files, &(disks.concat() + files))
        .replace(claim, &(volumes.concat() + claim))
}

/// Puts an empty file system onto a volume.
fn write_files(lab: &Lab, volume: &str) {
    let image = lab.node.sheaf.scratch("files.img");
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let mut tool = Command::new("mke2fs");
    tool.args(["-q", "-F", "-t", "ext4"]).arg(&image);
    assert!(tool.status().expect("mke2fs is installed").success());
    lab.write_image(volume, &image);
}

/// The content of a file in the file system on a volume.
fn file_on(lab: &Lab, claim: &str, name: &str) -> String {
    let image = lab.node.sheaf.scratch("read.img");
    lab.read_image(&lab.until_bound(claim), &image);
    let mut tool = Command::new("debugfs");
    let output = tool.args(["-R", &format!("cat {name}")]).arg(&image).output();
    let output = output.expect("debugfs is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Has the guest's agent write down when it freezes and thaws file systems.
fn note_freezing(shell: &mut Shell) {
    let lines = [
        "printf '#!/bin/sh\\necho $1 >>/run/froze\\n' >/run/hook; chmod 755 /run/hook",
        "port=$(grep -l org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name)",
        "port=/dev/$(basename $(dirname $port))",
        "killall qemu-ga; while pidof qemu-ga; do sleep 0.1; done",
        "qemu-ga -d -m virtio-serial -p $port -t /run -F/run/hook",
    ];
    shell.run(&lines.join("; "));
    shell.sees("pidof qemu-ga >/dev/null && echo yes", "yes");
}

fn reference(kind: &str, name: &str) -> Value {
    let group = if kind == "VirtualMachine" { "kubevirt.io" } else { "snapshot.kubevirt.io" };
    json!({"apiGroup": group, "kind": kind, "name": name})
}

fn ask(lab: &Lab, name: &str) {
    let snapshot = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot", "metadata": {"name": name},
        "spec": {"source": reference("VirtualMachine", "a")}});
    lab.node.sheaf.http().post(SNAPSHOTS, &snapshot).ok();
}

#[track_caller]
fn until_taken(lab: &Lab, name: &str) {
    let path = format!("{SNAPSHOTS}/{name}");
    poll(&format!("{name} is taken"), || {
        let found = lab.node.sheaf.http().get(&path).json();
        if found["status"]["readyToUse"] == true { Ok(()) } else { Err(found.to_string()) }
    });
}

/// The number at the beginning of a volume.
fn number(lab: &Lab, claim: &str) -> u64 {
    let volume = lab.until_bound(claim);
    lab.want(&volume, Some("one"));
    lab.until_served(&volume);
    let file = lab.node.sheaf.scratch(claim);
    let from = format!("if=nbd+unix:///?socket={}", lab.socket(&volume).display());
    let mut tool = Command::new("qemu-img");
    tool.args(["dd", "-f", "raw", "-O", "raw", "bs=512", "count=1", &from]);
    tool.arg(format!("of={}", file.display()));
    assert!(tool.status().expect("qemu-img is installed").success());
    lab.want(&volume, None);
    lab.until_state(&volume, "detached");
    let bytes = std::fs::read(file).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_matches('\0')
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{claim} begins with {text:?}"))
}

/// Brings a snapshot back as another machine, and checks the content of its disks.
fn judge(lab: &Lab, snapshot: &str, check: impl FnOnce(&Lab)) {
    let http = lab.node.sheaf.http();
    let restore = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineRestore", "metadata": {"name": snapshot},
        "spec": {"target": reference("VirtualMachine", snapshot),
            "volumeRestorePolicy": "PrefixTargetName", "virtualMachineSnapshotName": snapshot}});
    http.post(RESTORES, &restore).ok();
    let path = format!("{RESTORES}/{snapshot}");
    eventually("it is restored", || http.get(&path).ok()["status"]["complete"] == true);
    let found = DISKS.map(|disk| number(lab, &format!("{snapshot}-{disk}")));
    let [first, second, third] = found;
    // The guest writes to one after the other, and waits for each.
    assert!(first >= second && second >= third && third + 1 >= first, "torn: {found:?}");
    assert!(third > 0, "nothing was written: {found:?}");
    check(lab);
    http.delete(&format!("{VMS}/{snapshot}")).ok();
    http.delete(&format!("{SNAPSHOTS}/{snapshot}")).ok();
}

#[test]
fn disks_that_are_written_to_are_captured_at_one_instant() {
    let mut lab = Lab::start();
    for disk in DISKS {
        lab.claim(disk, "16Mi");
    }
    let files = lab.claim("data", "16Mi");
    write_files(&lab, &files);
    let disk = lab.node.sheaf.scratch("root.img");
    disk_of_image(&disk);
    lab.node.kubectl().apply(&three_disks(&disk));
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    let mut shell = Shell::login(&lab.node, "a");
    shell.run(
        "echo 'i=0; while :; do i=$((i+1)); echo $i >/tmp/n; truncate -s 512 /tmp/n; \
         for d in $*; do dd if=/tmp/n of=/dev/$d bs=512 oflag=direct conv=notrunc 2>/dev/null \
         || echo bad >>/tmp/bad; done; done' >/tmp/count",
    );
    let devices: Vec<String> = ["ONE", "TWO", "THREE"]
        .iter()
        .map(|serial| shell.run(&format!("{}; disk {serial}", lab::FIND)))
        .collect();
    shell.run(&format!("sh /tmp/count {} >/dev/null 2>&1 &", devices.join(" ")));
    let round =
        |shell: &mut Shell| shell.run("head -c 20 /tmp/n").trim_matches('\0').parse::<u64>();
    eventually("the guest counts", || round(&mut shell).is_ok_and(|count| count > 3));

    note_freezing(&mut shell);
    lab.until_agent_answers("a");
    shell.run(&format!("{}; mount -t ext4 /dev/$(disk DATA) /mnt", lab::FIND));
    assert_eq!(shell.run("grep -c ' /mnt ' /proc/mounts"), "1");
    // The guest does not write it to its disk of its own accord for half a minute.
    shell.run("echo 5 >/mnt/before; sync; echo 7 >/mnt/late");
    ask(&lab, "calm");
    until_taken(&lab, "calm");
    eventually("the guest is thawed", || shell.run("cat /run/froze") == "freeze\nthaw");
    poll("both are recorded", || {
        let events = lab.node.sheaf.http().get(EVENTS).ok().to_string();
        let wanted = ["4 disks were captured at one instant", "its file systems were frozen"];
        if wanted.iter().all(|part| events.contains(part)) { Ok(()) } else { Err(events) }
    });
    judge(&lab, "calm", |lab| {
        assert_eq!(file_on(lab, "calm-data", "late"), "7\n", "the snapshot has what was frozen");
    });
    shell.run("umount /mnt");
    // The server dies at some moment of it.
    for (name, millis) in [("early", 15), ("later", 60), ("late", 120)] {
        ask(&lab, name);
        std::thread::sleep(Duration::from_millis(millis));
        lab.node.sheaf.kill();
        lab.node.sheaf.begin();
        until_taken(&lab, name);
        shell = Shell::attach(&lab.node, "a");
        let before = round(&mut shell).unwrap_or_default();
        eventually("the guest goes on", || round(&mut shell).is_ok_and(|now| now > before));
        judge(&lab, name, |_| ());
    }
    assert_eq!(shell.run("cat /tmp/bad 2>/dev/null"), "");
    let vmi = lab.node.sheaf.http().get(&format!("{VMIS}/a")).ok();
    assert!(!vmi["status"]["conditions"].to_string().contains("Paused"), "{vmi}");
    lab.node.sheaf.http().delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    for disk in DISKS.iter().chain(&["data"]) {
        lab.node.sheaf.http().delete(&format!("{CLAIMS}/{disk}")).ok();
    }
    lab.until_nothing_is_left();
}

#[test]
fn a_clone_of_a_running_machine_boots_beside_it() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let root = lab.claim("root", "16Mi");
    lab.write_pulse(&root);
    let machine = lab::machine("a", "root", "Always")
        .replace("metadata: {name: a}", "metadata: {name: a, labels: {keep: x, drop: z}}")
        .replace("masquerade: {}}", "masquerade: {}, macAddress: '02:00:00:00:00:01'}");
    lab.node.kubectl().apply(&machine);
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");

    let clone = |name: &str, source: Value, rest: Value| {
        let mut spec = json!({"source": source, "target": reference("VirtualMachine", name)});
        for (key, value) in rest.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
            "metadata": {"name": format!("to-{name}")}, "spec": spec})
    };
    let same = clone("a", reference("VirtualMachine", "a"), json!({}));
    let refused = http.post(CLONES, &same);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let changes = json!({"labelFilters": ["*", "!drop"], "newSMBiosSerial": "S-1",
        "newMacAddresses": {"default": "02:00:00:00:00:02"},
        "patches": [r#"{"op": "add", "path": "/metadata/labels/mine", "value": "yes"}"#]});
    http.post(CLONES, &clone("b", reference("VirtualMachine", "a"), changes)).ok();
    ask(&lab, "monday");
    until_taken(&lab, "monday");
    let of = reference("VirtualMachineSnapshot", "monday");
    http.post(CLONES, &clone("c", of, json!({}))).ok();
    for name in ["b", "c"] {
        let path = format!("{CLONES}/to-{name}");
        poll(&format!("{name} is cloned"), || {
            let found = http.get(&path).json();
            if found["status"]["phase"] == "Succeeded" { Ok(()) } else { Err(found.to_string()) }
        });
    }
    let vm = http.get(&format!("{VMS}/b")).ok();
    assert_eq!(vm["metadata"]["labels"], json!({"keep": "x", "mine": "yes"}));
    let domain = &vm["spec"]["template"]["spec"]["domain"];
    assert_eq!(domain["devices"]["interfaces"][0]["macAddress"], "02:00:00:00:00:02");
    assert_eq!(domain["firmware"]["serial"], "S-1");
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
    for name in ["b", "c"] {
        http.merge(&format!("{VMS}/{name}"), &json!({"spec": {"runStrategy": "Always"}})).ok();
        lab.node.until(&format!("{VMIS}/{name}"), "/status/phase", "Running");
    }
    assert_eq!(lab.node.processes().len(), 3);
    eventually("what was made on the way is gone", || {
        let left = http.get(SNAPSHOTS).ok()["items"].as_array().unwrap().len();
        left == 1 && http.get(RESTORES).ok()["items"] == json!([])
    });

    for name in ["b", "c", "a"] {
        http.delete(&format!("{VMS}/{name}")).ok();
    }
    lab.node.until_empty();
    eventually("clones go with their machines", || http.get(CLONES).ok()["items"] == json!([]));
    http.delete(&format!("{SNAPSHOTS}/monday")).ok();
    http.delete(&format!("{CLAIMS}/root")).ok();
    lab.until_nothing_is_left();
}

#[test]
fn a_machine_that_was_captured_with_its_memory_goes_on_where_it_was() {
    let mut lab = Lab::start();
    lab.node.sheaf.provokes("guest clock not set after a restore from memory");
    let http = lab.node.sheaf.http();
    let root = lab.claim("root", "16Mi");
    lab.write_pulse(&root);
    lab.node.kubectl().apply(&lab::machine("a", "root", "Always"));
    lab.node.until_said("boot 1");
    let snapshot = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot", "metadata": {"name": "awake"},
        "spec": {"source": reference("VirtualMachine", "a"), "memory": true}});
    http.post(SNAPSHOTS, &snapshot).ok();
    until_taken(&lab, "awake");
    let memory = lab.node.sheaf.data().join("agent/memory");
    let files = || std::fs::read_dir(&memory).into_iter().flatten().count();
    assert_eq!(files(), 2, "the memory, and whose it is");
    http.delete(&format!("{VMIS}/a")).ok();
    lab.node.until_said("boot 2");
    let halt = |strategy: &str| {
        let patch = json!({"spec": {"runStrategy": strategy}});
        http.merge(&format!("{VMS}/a"), &patch).ok();
    };
    halt("Halted");
    lab.node.until_empty();

    let restore = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineRestore", "metadata": {"name": "back"},
        "spec": {"target": reference("VirtualMachine", "a"),
            "virtualMachineSnapshotName": "awake"}});
    http.post(RESTORES, &restore).ok();
    let path = format!("{RESTORES}/back");
    eventually("it is restored", || http.get(&path).ok()["status"]["complete"] == true);
    halt("Always");
    lab.node.until_said("..");
    let said = lab.node.said();
    assert!(!said.contains("boot"), "the guest did not go on: {said}");
    // Its clock is behind, and this guest has no agent that could set it.
    poll("the time that was not set is reported", || {
        let events = http.get(EVENTS).ok().to_string();
        if events.contains("GuestClockNotSet") { Ok(()) } else { Err(events) }
    });
    // Once only: the next start finds the disk as it was then, and boots.
    http.delete(&format!("{VMIS}/a")).ok();
    lab.node.until_said("boot 2");

    http.delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    http.delete(&format!("{SNAPSHOTS}/awake")).ok();
    http.delete(&format!("{CLAIMS}/root")).ok();
    lab.until_nothing_is_left();
    eventually("no memory is left", || files() == 0);
}
