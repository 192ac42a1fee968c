//! A guest moves with disks that are files of its node: container images and an empty disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Wire, token};
use super::migrate::{MIGRATIONS, VMIS, counter, migrate, until_on, until_over};
use crate::harness::{
    Node, PASSWORD, Shell, assemble, assert_has, disk_of_image, eventually, poll,
};
use crate::volume::registry::Registry;

const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";

/// The disk of the guest that counts.
fn counting_disk(path: &Path) {
    let mut disk = assemble("migrate");
    disk.resize(4 << 20, 0);
    fs::write(path, disk).unwrap();
}

/// The layer of a container image with a disk.
fn layer(node: &Node, make: fn(&Path)) -> Vec<u8> {
    let tree = node.sheaf.scratch("tree");
    fs::create_dir_all(tree.join("disk")).unwrap();
    make(&tree.join("disk/disk.img"));
    let layer = node.sheaf.scratch("layer.tar.gz");
    let mut pack = Command::new("tar");
    pack.arg("-czf").arg(&layer).arg("-C").arg(&tree).arg("disk");
    assert!(pack.status().unwrap().success());
    fs::read(layer).unwrap()
}

/// A machine with disks that no other node has.
fn machine(image: &str) -> Value {
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]}]}}]);
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
    "spec": {"runStrategy": "Always", "template": {"spec": {
        "terminationGracePeriodSeconds": 1,
        "affinity": {"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "domain": {"memory": {"guest": "16Mi"}, "devices": {
            "disks": [
                {"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1},
                {"name": "scratch", "disk": {"bus": "virtio"}},
                {"name": "drivers", "cdrom": {"bus": "sata"}},
                {"name": "seed", "disk": {"bus": "virtio"}}],
            "interfaces": [{"name": "default", "masquerade": {}}]}},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": image}},
            {"name": "scratch", "emptyDisk": {"capacity": "32Mi"}},
            {"name": "drivers", "containerDisk": {"image": image}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}}],
    }}}})
}

/// Blocks of the file of the root disk on a node.
fn root_blocks(node: &Node) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let folders = node.folders().into_iter();
    let files: Vec<PathBuf> = folders.map(|path| path.join("vm/overlay-root.qcow2")).collect();
    let file = files.iter().find(|file| file.exists());
    let file = file.ok_or_else(|| io::Error::other(format!("no root disk in {files:?}")))?;
    Ok(fs::metadata(file)?.blocks())
}

#[test]
fn a_guest_moves_with_disks_that_are_files_of_its_node() {
    let wire = Wire::new("shfmigdsk", "10.199.71");
    let one = Node::management(&wire.here());
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");
    let registry = Registry::start(&one.sheaf.scratch("registry"));
    let image = registry.push("team/count", &layer(&one, counting_disk));
    let http = one.sheaf.http();
    http.post("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &machine(&image)).ok();
    one.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    until_on(&one, "one");
    poll("it can be migrated", || {
        let vmi = http.get(&format!("{VMIS}/a")).ok();
        let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let yes = |own: &Value| own["type"] == "LiveMigratable" && own["status"] == "True";
        let is_block = vmi["status"]["migrationMethod"] == "BlockMigration";
        if is_block && conditions.iter().any(yes) { Ok(()) } else { Err(vmi["status"].to_string()) }
    });
    let first = counter(&one);

    // The CD-ROM has an image that the target cannot pull: the guest stays.
    migrate(&one, "unpulled", &json!({}));
    until_over(&one, "unpulled", "Failed");
    let events = one.sheaf.run("vm why a");
    assert_has(&events, "drivers");
    until_on(&one, "one");
    let second = counter(&one);
    assert!(second > first, "{first} {second}: it was started again");

    // With the image at hand, the changes of the root disk are copied, and all of the empty one.
    let beside = registry.beside(&wire.namespace());
    migrate(&one, "there", &json!({}));
    until_over(&one, "there", "Succeeded");
    until_on(&one, "two");
    let third = counter(&one);
    assert!(third > second, "{second} {third}: it was started again");
    eventually("the source is gone", || one.processes().is_empty());
    let blocks = root_blocks(&two).unwrap();
    assert!(blocks < (2 << 20) / 512, "{blocks} blocks: more than changes were copied");

    // The QEMU of the target is killed on the way: the guest goes on with its own files.
    let limit = |bandwidth: Value| {
        let migrations = json!({"bandwidthPerMigration": bandwidth});
        let patch = json!({"spec": {"configuration": {"migrations": migrations}}});
        http.merge(KUBEVIRT, &patch).ok();
    };
    limit(json!("200Ki"));
    migrate(&one, "killed", &json!({}));
    one.until(&format!("{MIGRATIONS}/killed"), "/status/phase", "Running");
    eventually("the target is there", || one.processes().len() == 1);
    for process in one.processes() {
        kill_process(process, Signal::KILL).unwrap();
    }
    until_over(&one, "killed", "Failed");
    until_on(&one, "two");
    let fourth = counter(&one);
    assert!(fourth > third, "{third} {fourth}: it was started again");

    // The same with the agent of the source: its next process ends what was begun.
    migrate(&one, "restarted", &json!({}));
    one.until(&format!("{MIGRATIONS}/restarted"), "/status/phase", "Running");
    two.sheaf.kill();
    two.sheaf.begin();
    until_over(&one, "restarted", "Failed");
    let fifth = counter(&one);
    assert!(fifth > fourth, "{fourth} {fifth}: it was started again");

    // And back, without a registry.
    limit(Value::Null);
    drop(beside);
    drop(registry);
    migrate(&one, "back", &json!({}));
    until_over(&one, "back", "Succeeded");
    until_on(&one, "one");
    assert!(counter(&one) > fifth);
    eventually("the source is gone", || two.processes().is_empty());
}

#[test]
#[ignore = "takes minutes: make long-test"]
fn a_guest_that_has_grown_moves_and_its_image_is_copied_where_it_cannot_be_pulled() {
    let wire = Wire::new("shfmiggrw", "10.199.72");
    let one = Node::management(&wire.here());
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");
    // Node two cannot reach it.
    let registry = Registry::start(&one.sheaf.scratch("registry"));
    let image = registry.push("team/linux", &layer(&one, disk_of_image));
    let http = one.sheaf.http();
    let mut vm = machine(&image);
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["cpu"] = json!({"sockets": 1, "maxSockets": 2});
    spec["domain"]["memory"] = json!({"guest": "1Gi", "maxGuest": "2Gi"});
    let user = format!("#cloud-config\npassword: {PASSWORD}\n");
    spec["volumes"] = json!([
        {"name": "root", "containerDisk": {"image": image}},
        {"name": "seed", "cloudInitNoCloud": {"userData": user}}]);
    spec["domain"]["devices"]["disks"] = json!([
        {"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}]);
    http.post("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &vm).ok();
    one.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    until_on(&one, "one");
    let mut shell = Shell::login(&one, "a");
    shell.run("dd if=/dev/urandom of=/etc/data bs=64k count=64; sync");
    let sum = shell.run("sha256sum /etc/data");
    let grown = json!({"spec": {"template": {"spec": {"domain": {
        "cpu": {"sockets": 2}, "memory": {"guest": "1280Mi"}}}}}});
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/a";
    http.merge(path, &grown).ok();
    let online = "for c in /sys/devices/system/cpu/cpu*/online; do echo 1 >$c; done; nproc";
    shell.sees(online, "2");
    one.until(&format!("{VMIS}/a"), "/status/memory/guestCurrent", "1280Mi");

    migrate(&one, "there", &json!({}));
    until_over(&one, "there", "Succeeded");
    until_on(&one, "two");
    let mut shell = Shell::attach(&two, "a");
    shell.send("\n");
    shell.sees("nproc", "2");
    assert_eq!(shell.run("echo 3 >/proc/sys/vm/drop_caches; sha256sum /etc/data"), sum);
    let megabytes = shell.run("awk '/MemTotal/{print int($2 / 1024)}' /proc/meminfo");
    assert!(megabytes.parse::<u32>().unwrap() > 1100, "{megabytes} MiB");
    one.until(&format!("{VMIS}/a"), "/status/memory/guestCurrent", "1280Mi");
    // It grows further there.
    let more = json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": "1536Mi"}}}}}});
    http.merge(path, &more).ok();
    one.until(&format!("{VMIS}/a"), "/status/memory/guestCurrent", "1536Mi");
}
