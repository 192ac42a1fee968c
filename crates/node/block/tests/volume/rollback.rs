//! A replica's directory is replaced by an older copy of itself: its content is not used, and
//! it is rebuilt.

use std::path::PathBuf;

use block::run::AdminRequest;
use block::run::lab::{LabRequest, salvage};

use crate::harm::replace;
use crate::killed::wait_for_end;
use crate::lab::{Lab, MIB, qemu_io};

impl Lab {
    fn replica_dir(&self, index: usize) -> PathBuf {
        self.volume_dir().join(format!("replica-{index}"))
    }

    fn copy_replica(&self, index: usize) -> PathBuf {
        let to = self.dir.path().join(format!("copy-{index}"));
        replace(&self.replica_dir(index), &to);
        to
    }

    /// Reads often enough that every replica is asked, before and after everything is compared.
    fn check_everywhere(&self, replicas: usize, read: &str) {
        for _ in 0..10 {
            qemu_io(self, &[read]);
        }
        self.wait_in_sync(replicas);
        self.admin(AdminRequest::Scrub);
        self.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
        qemu_io(self, &[read]);
    }
}

#[test]
fn a_copy_from_before_a_clean_stop_is_found_whichever_replica_it_is() {
    for old in 0..3 {
        let mut lab = Lab::start(16 * MIB, 3, &[]);
        qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
        lab.stop();
        let copied = lab.copy_replica(old);
        lab.resume();
        qemu_io(&lab, &["write -P 2 0 1M", "flush"]);
        lab.stop();
        replace(&copied, &lab.replica_dir(old));
        lab.resume();
        assert!(lab.log().contains("StaleReplica"), "replica {old}: {}", lab.log());
        lab.check_everywhere(3, "read -P 2 0 1M");
        lab.stop();
        lab.compare_replicas();
    }
}

#[test]
fn a_copy_from_before_unflushed_writes_is_found() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.stop();
    let copied = lab.copy_replica(2);
    lab.resume();
    qemu_io(&lab, &["write -P 2 0 1M"]);
    lab.kill_all(3);
    replace(&copied, &lab.replica_dir(2));
    lab.resume();
    lab.check_everywhere(3, "read -P 2 0 1M");
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn a_copy_that_was_made_while_the_volume_was_served_is_found() {
    for old in 0..2 {
        let mut lab = Lab::start(16 * MIB, 2, &[]);
        qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
        let copied = lab.copy_replica(old);
        qemu_io(&lab, &["write -P 2 0 1M", "flush"]);
        lab.kill_all(2);
        replace(&copied, &lab.replica_dir(old));
        lab.resume();
        lab.check_everywhere(2, "read -P 2 0 1M");
        lab.stop();
        lab.compare_replicas();
    }
}

#[test]
fn a_replica_that_returns_as_an_older_copy_gets_everything() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    let copied = lab.copy_replica(1);
    qemu_io(&lab, &["write -P 2 0 1M", "flush"]);
    let pid = lab.replica_pid(1);
    lab.ask(&LabRequest::KillReplica { index: 1 });
    wait_for_end(pid);
    replace(&copied, &lab.replica_dir(1));
    lab.ask(&LabRequest::StartReplica { index: 1 });
    lab.check_everywhere(3, "read -P 2 0 1M");
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn the_only_replica_is_not_served_when_it_is_an_older_copy_until_it_is_salvaged() {
    let mut lab = Lab::start(16 * MIB, 1, &[]);
    qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.stop();
    let copied = lab.copy_replica(0);
    lab.resume();
    qemu_io(&lab, &["write -P 2 0 1M", "flush"]);
    lab.stop();
    replace(&copied, &lab.replica_dir(0));
    let said = lab.fail(&[]);
    assert!(said.contains("older than writes that were acknowledged"), "{said}");
    assert!(said.contains("salvage"), "{said}");
    let salvaged = salvage(&lab.volume_dir(), 0, false).unwrap();
    assert!(salvaged.stale.is_some(), "{salvaged:?}");
    lab.resume();
    qemu_io(&lab, &["read -P 1 0 1M"]);
    lab.stop();
}

#[test]
fn a_record_from_an_old_backup_makes_no_replica_stale() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.stop();
    let record = lab.volume_dir().join("record.json");
    let backup = std::fs::read(&record).unwrap();
    let copied = lab.copy_replica(0);
    for _ in 0..3 {
        lab.resume();
        qemu_io(&lab, &["write -P 2 0 1M", "flush"]);
        lab.stop();
    }
    std::fs::write(&record, &backup).unwrap();
    lab.resume();
    assert!(!lab.log().contains("StaleReplica"), "{}", lab.log());
    lab.check_everywhere(3, "read -P 2 0 1M");
    lab.stop();
    // Nor does it make a stale one good.
    std::fs::write(&record, &backup).unwrap();
    replace(&copied, &lab.replica_dir(0));
    lab.resume();
    assert!(lab.log().contains("StaleReplica"), "{}", lab.log());
    lab.check_everywhere(3, "read -P 2 0 1M");
    lab.stop();
    lab.compare_replicas();
}
