//! Machines of many shapes on a real QEMU: every bus, modes of disks, devices, firmware. The
//! guest of one sector boots from whatever its disk is on, and says so.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Node, assert_has, poll};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const GUESTS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances";

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

/// A machine with one disk, with changes to the disk, the domain and the rest.
fn machine(node: &Node, name: &str, disk: &Value, domain: &Value, rest: &Value) -> Value {
    let mut root = json!({"name": "root", "disk": {"bus": "virtio"}});
    let image = node.disk(&format!("{name}.img"));
    merge(&mut root, disk);
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "domain": {"memory": {"guest": "16Mi"}, "devices": {"disks": [root]}},
        "volumes": [{"name": "root", "hostDisk": {"path": image, "type": "Disk"}}],
    });
    merge(&mut spec["domain"], domain);
    merge(&mut spec, rest);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": spec}},
    })
}

/// Objects are merged, and items of lists are added.
fn merge(object: &mut Value, changes: &Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(list), Value::Array(more)) => list.extend(more.iter().cloned()),
        (object, changes) => *object = changes.clone(),
    }
}

fn folder(node: &Node, name: &str) -> PathBuf {
    let vmi = node.until(&at(VMIS, name), "/status/phase", "Running");
    let uid = vmi["metadata"]["uid"].as_str().unwrap();
    node.sheaf.data().join("agent/vmis").join(uid)
}

#[track_caller]
fn boots(node: &Node, name: &str, times: u32) {
    says(node, name, &format!("boot {times}"));
}

#[track_caller]
fn says(node: &Node, name: &str, part: &str) {
    let log = folder(node, name).join("serial.log");
    poll(&format!("{name} says {part:?}"), || {
        let said = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        if said.contains(part) { Ok(()) } else { Err(said) }
    });
}

/// The command line that the machine runs with.
fn line(node: &Node, name: &str) -> String {
    let folder = folder(node, name).display().to_string();
    let lines = node.processes().into_iter().map(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero()));
        String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ")
    });
    lines.into_iter().find(|line| line.contains(&folder)).unwrap_or_default()
}

#[test]
fn a_guest_boots_from_every_bus_and_in_every_mode() {
    let node = Node::start();
    let none = json!({});
    let modes = json!({
        "cache": "writethrough", "io": "threads", "dedicatedIOThread": true, "serial": "MODES",
        "blockSize": {"custom": {"logical": 512, "physical": 4096}}, "errorPolicy": "report",
        "bootOrder": 1,
    });
    let shapes = [
        ("sata", json!({"disk": {"bus": "sata"}}), none.clone(), "ide-hd"),
        (
            "scsi",
            json!({"disk": {"bus": "scsi"}, "cache": "none", "io": "native"}),
            none.clone(),
            "scsi-hd",
        ),
        ("usb", json!({"disk": {"bus": "usb"}}), none.clone(), "usb-storage"),
        ("modes", modes, json!({"ioThreadsPolicy": "shared"}), "\"physical_block_size\":4096"),
        (
            "cores",
            none.clone(),
            json!({"cpu": {"sockets": 2, "cores": 2, "model": "host-model"}}),
            "-smp 4,",
        ),
    ];
    for (name, disk, domain, _) in &shapes {
        let machine = machine(&node, name, disk, domain, &none);
        node.sheaf.http().post(VMS, &machine).ok();
    }
    for (name, _, _, part) in &shapes {
        boots(&node, name, 1);
        assert_has(line(&node, name), part);
        node.sheaf.http().delete(&at(VMS, name)).ok();
    }
    node.until_empty();
}

#[test]
fn machines_have_devices_firmware_and_disks_that_they_share() {
    let node = Node::start();
    let none = json!({});
    let devices = json!({"cpu": {"cores": 1}, "devices": {
        "rng": {}, "watchdog": {"name": "dog", "i6300esb": {"action": "reset"}},
        "sound": {"name": "sound", "model": "ich9"},
        "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
    }});
    let efi = json!({
        "memory": {"guest": "128Mi"}, "devices": {"tpm": {"persistent": true}},
        "firmware": {"bootloader": {"efi": {"secureBoot": false, "persistent": true}}},
    });
    let secure = json!({
        "memory": {"guest": "128Mi"}, "features": {"smm": {"enabled": true}},
        "firmware": {"bootloader": {"efi": {"secureBoot": true}}},
    });
    let shared = node.sheaf.scratch("shared.img");
    // The first user creates it.
    let disk = json!({"name": "shared", "disk": {"bus": "virtio"}, "shareable": true});
    let source = json!({"path": shared, "type": "DiskOrCreate", "capacity": "1Mi", "shared": true});
    let sharing = json!({"devices": {"disks": [disk]}});
    let volume = json!({"volumes": [{"name": "shared", "hostDisk": source}]});
    let shapes = [
        // Firmware is slow under emulation: nothing else runs beside it.
        ("efi", efi, none.clone(), "tpm-crb"),
        ("secure", secure, none.clone(), "driver=cfi.pflash01,property=secure,value=on"),
        ("devices", devices, none.clone(), "i6300esb"),
        ("one", sharing.clone(), volume.clone(), "shared.img"),
        ("two", sharing, volume, "shared.img"),
    ];
    for (name, domain, rest, _) in &shapes {
        let machine = machine(&node, name, &none, domain, rest);
        node.sheaf.http().post(VMS, &machine).ok();
        match *name {
            // EFI cannot start from this disk, and its firmware says so.
            "efi" | "secure" => says(&node, name, "BdsDxe: "),
            "one" => {
                node.until(&at(VMIS, name), "/status/phase", "Running");
                assert_eq!(fs::metadata(&shared).unwrap().len(), 1 << 20);
            }
            _ => {}
        }
    }
    for (name, _, _, part) in &shapes {
        assert_has(line(&node, name), part);
        if !matches!(*name, "efi" | "secure") {
            boots(&node, name, 1);
        }
    }
    let state = node.sheaf.data().join("agent/state/default.efi");
    let variables = fs::metadata(state.join("nvram.fd")).unwrap();
    let strategy = |strategy: &str| {
        let patch = json!({"spec": {"runStrategy": strategy}});
        node.sheaf.http().merge(&at(VMS, "efi"), &patch).ok();
    };
    strategy("Halted");
    node.until(&at(VMS, "efi"), "/status/printableStatus", "Stopped");
    assert!(state.join("tpm").is_dir(), "the TPM is kept while its machine is off");
    strategy("Always");
    assert_has(line(&node, "efi"), &state.join("nvram.fd").display().to_string());
    assert_eq!(fs::metadata(state.join("nvram.fd")).unwrap().len(), variables.len());
}

#[test]
fn a_machine_that_starts_paused_waits_for_a_word() {
    let node = Node::start();
    let none = json!({});
    let paused = machine(&node, "a", &none, &none, &json!({"startStrategy": "Paused"}));
    node.sheaf.http().post(VMS, &paused).ok();
    node.until(&at(VMS, "a"), "/status/printableStatus", "Paused");
    assert_eq!(node.said(), "");
    let go = node.sheaf.http().put(&format!("{}/unpause", at(GUESTS, "a")), &none);
    assert_eq!(go.status, 200, "{}", go.text());
    boots(&node, "a", 1);
    node.until(&at(VMS, "a"), "/status/printableStatus", "Running");
}
