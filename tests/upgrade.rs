//! Upgrades of a node that runs a guest on a replicated volume: to another program and back, and
//! programs that do not work.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use crate::harness::{Node, assert_has, binary, poll};
use crate::volumes_node::lab::{Lab, VMIS, machine};

/// The same program with another digest: bytes after the end of a program are not read.
pub(crate) fn other_program(dir: &Path) -> PathBuf {
    let path = dir.join("sheaf-new");
    fs::copy(binary(), &path).unwrap();
    let mut bytes = fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut bytes, b"another build").unwrap();
    path
}

/// A program that passes its preflight checks and fails to start as a server.
fn broken_program(dir: &Path) -> PathBuf {
    let path = dir.join("sheaf-broken");
    let script = format!(
        "#!/bin/sh\ncase $1 in preflight|version) exec {} \"$@\";; esac\necho broken >&2\nexit 3\n",
        binary().display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The file that a process was started from.
pub(crate) fn program_of(pid: Pid) -> PathBuf {
    fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).unwrap()
}

fn is_stored(path: &Path) -> bool {
    path.parent().is_some_and(|dir| dir.ends_with("programs"))
}

#[test]
fn a_node_runs_a_new_program_and_goes_back_while_its_guest_runs() {
    let mut lab = Lab::on(Node::listening("127.0.57.1"));
    let volume = lab.claim("root", "16Mi");
    lab.write_pulse(&volume);
    lab.node.kubectl().apply(&machine("a", "root", "Always"));
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");
    let guest = lab.node.processes();
    let folder = tempfile::tempdir().unwrap();
    let new = other_program(folder.path());
    let printed = lab.node.sheaf.run(&format!("upgrade --binary {} --dry-run", new.display()));
    assert_has(&printed, "nodes are upgraded in this order, one at a time");

    let printed = lab.node.sheaf.run(&format!("upgrade --binary {}", new.display()));
    assert_has(&printed, "with the new program");
    assert_has(&printed, "restarts its storage process with the new program");
    assert_has(&printed, "all nodes are upgraded; undo it: sheaf upgrade abort");
    assert!(is_stored(&program_of(lab.node.sheaf.pid())), "the process is the same one");
    assert!(is_stored(&program_of(lab.node.storage().unwrap())));
    assert_eq!(lab.node.processes(), guest, "the guest goes on");
    assert_has(lab.node.sheaf.run("upgrade status"), "Succeeded");

    // A server that is started from the installed file hands over.
    lab.node.sheaf.kill();
    lab.node.sheaf.begin();
    assert!(is_stored(&program_of(lab.node.sheaf.pid())));
    lab.until_served(&volume);

    let printed = lab.node.sheaf.run("upgrade abort");
    assert_has(&printed, "all nodes have gone back");
    let installed = fs::canonicalize(binary()).unwrap();
    assert_eq!(program_of(lab.node.sheaf.pid()), installed);
    assert_eq!(program_of(lab.node.storage().unwrap()), installed);
    assert_eq!(lab.node.processes(), guest, "the guest goes on");
    // Its disk is the same one.
    lab.until_served(&volume);
    lab.node.sheaf.http().delete(&format!("{VMIS}/a")).ok();
    lab.node.until_said("boot 2");
    let refused = lab.node.sheaf.command("upgrade finalize");
    assert_has(String::from_utf8_lossy(&refused.stderr), "has not completed");
}

#[test]
fn a_program_that_does_not_work_is_not_kept() {
    let mut lab = Lab::on(Node::listening("127.0.57.2"));
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "not a program").unwrap();
    lab.node.sheaf.provokes("cannot use a program");
    let refused = lab.node.sheaf.command(&format!("upgrade --binary {}", text.display()));
    assert_has(String::from_utf8_lossy(&refused.stderr), "does not run on this machine");
    assert_has(lab.node.sheaf.run("upgrade abort"), "all nodes have gone back");
    let installed = fs::canonicalize(binary()).unwrap();
    assert_eq!(program_of(lab.node.sheaf.pid()), installed);

    lab.node.sheaf.provokes("trial of the new program failed");
    let broken = broken_program(folder.path());
    let refused = lab.node.sheaf.command(&format!("upgrade --binary {}", broken.display()));
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_has(&complaint, "the new program ended (exit status: 3)");
    assert_has(&complaint, "the program before runs again");
    assert_eq!(program_of(lab.node.sheaf.pid()), installed);
    let http = lab.node.sheaf.http();
    poll("the server answers", || match http.get("/readyz").status {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    // Another one replaces the failed upgrade.
    let new = other_program(folder.path());
    let printed = lab.node.sheaf.run(&format!("upgrade --binary {}", new.display()));
    assert_has(&printed, "all nodes are upgraded");
    assert_has(lab.node.sheaf.run("upgrade finalize"), "the upgrade is final");
    let refused = lab.node.sheaf.command("upgrade abort");
    assert_has(String::from_utf8_lossy(&refused.stderr), "is final; nothing was changed");
}
