//! A storage process and a QEMU that were taken over: files of root, of the platform and of other
//! guests are out of their reach.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::eventually;
use crate::volumes_node::lab::{Lab, VMIS, machine};

/// A field of the status of a process.
fn status(pid: Pid, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    found.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

fn user_of(pid: Pid) -> u32 {
    status(pid, "Uid").split('\t').next().unwrap().parse().unwrap()
}

/// Names in a directory, as root in the mount namespace of a process.
fn names(pid: Pid, dir: &Path) -> BTreeSet<String> {
    let root = PathBuf::from(format!("/proc/{}/root", pid.as_raw_nonzero()));
    let entries = fs::read_dir(root.join(dir.strip_prefix("/").unwrap())).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Gives everything below a directory to root, as an earlier version had it.
fn give_to_root(dir: &Path) {
    assert!(Command::new("chown").args(["-hR", "0:0"]).arg(dir).status().unwrap().success());
}

#[test]
fn the_storage_process_has_neither_rights_of_root_nor_its_files() {
    let mut lab = Lab::start();
    let volume = lab.claim("data", "16Mi");
    lab.want(&volume, Some("one"));
    lab.until_served(&volume);
    lab.io(&volume, &["write -P 7 0 64k"]);
    let process = lab.node.storage().unwrap();
    let user = user_of(process);
    assert_ne!(user, 0);
    assert_eq!(status(process, "NoNewPrivs"), "1");
    assert_eq!(status(process, "Seccomp"), "2");
    // Only locked memory and the blocks that file systems reserve.
    let kept = u64::from_str_radix(&status(process, "CapEff"), 16).unwrap();
    assert_eq!(kept & !(1 << 14 | 1 << 24), 0, "{kept:x}");
    let data = lab.node.sheaf.data();
    let secret = data.join("state.db");
    let read = Command::new("setpriv")
        .args([&format!("--reuid={user}"), "--clear-groups", "cat"])
        .arg(&secret)
        .output()
        .unwrap();
    assert!(!read.status.success(), "the database can be read");
    let replicas = data.join("storage/disk/replicas");
    assert_eq!(fs::metadata(&replicas).unwrap().uid(), user);

    // The files of a version that stored as root, among them links of an attacker.
    lab.node.sheaf.kill();
    kill_process(process, Signal::KILL).unwrap();
    eventually("the process is gone", || lab.node.storage().is_none());
    give_to_root(&replicas);
    symlink(&secret, replicas.join("planted")).unwrap();
    lchown(replicas.join("planted"), Some(user), Some(user)).unwrap();
    lab.node.sheaf.begin();
    lab.until_served(&volume);
    lab.io(&volume, &["read -P 7 0 64k"]);
    assert_eq!(user_of(lab.node.storage().unwrap()), user);
    assert_eq!(fs::metadata(&replicas).unwrap().uid(), user);
    assert_eq!(fs::metadata(&secret).unwrap().uid(), 0, "a link was followed");
    fs::remove_file(replicas.join("planted")).unwrap();
}

#[test]
fn a_guests_qemu_sees_nothing_of_the_node_and_of_other_guests() {
    let lab = Lab::start();
    for (claim, name) in [("root", "a"), ("other", "b")] {
        let volume = lab.claim(claim, "16Mi");
        lab.write_pulse(&volume);
        lab.node.kubectl().apply(&machine(name, claim, "Always"));
        lab.node.until(&format!("{VMIS}/{name}"), "/status/phase", "Running");
    }
    let data = lab.node.sheaf.data();
    for process in lab.node.processes() {
        assert_eq!(names(process, &data), ["agent", "storage"].map(str::to_owned).into());
        assert_eq!(names(process, &data.join("storage")), BTreeSet::from(["nbd".to_owned()]));
        assert_eq!(names(process, &data.join("agent")), BTreeSet::from(["vmis".to_owned()]));
        assert_eq!(names(process, &data.join("agent/vmis")).len(), 1);
        assert_eq!(status(process, "NoNewPrivs"), "1");
        assert_eq!(status(process, "Seccomp"), "2");
        assert!(status(process, "NSpid").ends_with("\t1"), "it is not alone");
    }
}
