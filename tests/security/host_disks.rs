//! Files of the host that a tenant names as a disk of a machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Node, poll};

pub(super) const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub(super) const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const OUTSIDE: &str = "outside of the directories that this node allows for host disks";

pub(super) fn machine(name: &str, disk: &Path) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "domain": {"memory": {"guest": "16Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
            }},
            "volumes": [{"name": "root", "hostDisk": {"path": disk, "type": "Disk"}}],
        }}},
    })
}

/// Waits until a machine is explained with a text.
#[track_caller]
fn until_why(node: &Node, name: &str, part: &str) {
    poll(&format!("{name} is explained with {part:?}"), || {
        let text = node.sheaf.run(&format!("vm why {name}"));
        if text.contains(part) { Ok(()) } else { Err(text) }
    });
}

#[test]
fn a_file_of_the_host_is_no_disk_unless_its_directory_is_allowed() {
    let mut node = Node::without_host_disks();
    node.sheaf.provokes("guest cannot be started yet");
    let database = node.sheaf.data().join("state.db");
    let missing = node.sheaf.scratch("missing.img");
    for (name, path) in [("database", &database), ("missing", &missing)] {
        node.sheaf.http().post(VMS, &machine(name, path)).ok();
        // The same answer whether the file exists or not.
        until_why(&node, name, &format!("{OUTSIDE} (none)"));
        until_why(&node, name, "--host-disk-path");
    }
    assert!(node.processes().is_empty());

    // A file outside stays closed where a directory is allowed, also through a link inside.
    node.sheaf.kill();
    let allowed = node.sheaf.scratch("allowed");
    fs::create_dir(&allowed).unwrap();
    symlink(&database, allowed.join("link.img")).unwrap();
    let directory = allowed.display().to_string();
    let arguments =
        ["--node-name", "one", "--guest-network", "user", "--host-disk-path", &directory];
    node.sheaf.set_arguments(arguments.map(str::to_owned).to_vec());
    node.sheaf.begin();
    let http = node.sheaf.http();
    http.post(VMS, &machine("link", &allowed.join("link.img"))).ok();
    http.post(VMS, &machine("own", &node.disk("allowed/own.img"))).ok();
    node.until(&format!("{VMIS}/own"), "/status/phase", "Running");
    for name in ["database", "link"] {
        until_why(&node, name, OUTSIDE);
    }
    assert_eq!(node.processes().len(), 1);
}
