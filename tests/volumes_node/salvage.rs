//! The only replica of a volume is replaced by an older copy of itself: the volume is not attached,
//! the reason is shown where people look, and `sheaf volume salvage` accepts the loss.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::lab::{Lab, VMIS, VMS, longhorn, machine};
use crate::harness::{eventually, poll};

const REASON: &str = "older than writes that were acknowledged";

/// The directory of the only replica.
fn replica_dir(lab: &Lab) -> PathBuf {
    let replicas = lab.node.sheaf.data().join("storage/disk/replicas");
    let all: Vec<_> = std::fs::read_dir(&replicas).unwrap().map(|it| it.unwrap().path()).collect();
    let [only] = &all[..] else { panic!("{all:?}") };
    only.clone()
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let mut tool = Command::new("cp");
    let status = tool.args(["-a", "--sparse=always"]).arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// Attaches the volume for some commands.
fn use_volume(lab: &Lab, volume: &str, commands: &[&str]) {
    lab.want(volume, Some("one"));
    lab.until_served(volume);
    lab.io(volume, commands);
    lab.want(volume, None);
    lab.until_state(volume, "detached");
}

/// Stops the server and the storage process, changes the files of replicas, and starts them again.
fn while_stopped(lab: &mut Lab, change: impl FnOnce()) {
    lab.node.sheaf.terminate();
    eventually("the storage process ends with the server", || lab.node.storage().is_none());
    change();
    lab.node.sheaf.begin();
}

#[test]
fn an_older_copy_of_the_only_replica_is_attached_only_after_it_is_salvaged() {
    let mut lab = Lab::start();
    lab.node.sheaf.provokes(REASON);
    let volume = lab.claim("data", "16Mi");
    lab.write_pulse(&volume);
    use_volume(&lab, &volume, &["write -P 1 4M 4M", "flush"]);
    let (dir, older) = (replica_dir(&lab), lab.node.sheaf.scratch("older"));
    while_stopped(&mut lab, || copy(&dir, &older));
    use_volume(&lab, &volume, &["read -P 1 4M 4M", "write -P 2 4M 4M", "flush"]);
    while_stopped(&mut lab, || copy(&older, &dir));

    lab.node.kubectl().apply(&machine("a", "data", "Always"));
    let said = |command: &str| {
        poll(&format!("`sheaf {command}` names the reason"), || {
            let text = lab.node.sheaf.run(command);
            if text.contains(REASON) { Ok(text) } else { Err(text) }
        })
    };
    said("volume status data");
    let why = said("vm why a");
    assert!(why.contains("`sheaf volume salvage`"), "{why}");
    let shown = said("volume salvage data");
    let replica = lab.node.sheaf.http().get(&longhorn("replicas")).ok();
    let replica = replica["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    for part in [
        &*format!("Replica {replica} becomes the content of the volume."),
        "Lost for good: every acknowledged write that it lacks.",
        "Nothing was changed.",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    // Showing the loss does not accept it.
    said("volume status data");
    let phase = lab.node.sheaf.http().get(&format!("{VMIS}/a")).ok()["status"]["phase"].clone();
    assert_ne!(phase, "Running");

    let accepted = lab.node.sheaf.run("volume salvage data --yes");
    assert!(accepted.contains("Accepted."), "{accepted}");
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");
    lab.node.sheaf.http().delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    lab.until_state(&volume, "detached");
    use_volume(&lab, &volume, &["read -P 1 4M 4M", "write -P 3 4M 4M", "flush"]);
    // From here on it is an ordinary volume again.
    while_stopped(&mut lab, || {});
    use_volume(&lab, &volume, &["read -P 3 4M 4M"]);
}
