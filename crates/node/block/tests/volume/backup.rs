//! The record of a volume is restored from a backup in which other replicas are in sync.

use block::run::lab::{LabRequest, salvage};

use crate::killed::wait_for_end;
use crate::lab::{Lab, MIB, qemu_io};

impl Lab {
    fn kill_replica(&self, index: usize) {
        let pid = self.replica_pid(index);
        self.ask(&LabRequest::KillReplica { index });
        wait_for_end(pid);
    }
}

#[test]
fn a_replica_that_left_the_set_since_the_backup_is_not_served_as_current() {
    let mut lab = Lab::start(16 * MIB, 2, &[]);
    let record = lab.volume_dir().join("record.json");
    lab.kill_replica(1);
    qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.wait_in_sync(1);
    let backup = std::fs::read(&record).unwrap();
    lab.ask(&LabRequest::StartReplica { index: 1 });
    lab.wait_in_sync(2);
    lab.kill_replica(0);
    qemu_io(&lab, &["write -P 2 0 1M", "flush"]);
    lab.wait_in_sync(1);
    lab.stop();
    std::fs::write(&record, &backup).unwrap();
    let said = lab.fail(&[]);
    assert!(said.contains("left the in-sync set"), "{said}");
    assert!(said.contains("salvage"), "{said}");
    // The replica that has the later writes can be chosen, and nothing is lost.
    let salvaged = salvage(&lab.volume_dir(), 1, true).unwrap();
    assert!(salvaged.stale.is_none(), "{salvaged:?}");
    lab.resume();
    qemu_io(&lab, &["read -P 2 0 1M"]);
    lab.wait_in_sync(2);
    qemu_io(&lab, &["read -P 2 0 1M"]);
    lab.stop();
    lab.compare_replicas();
}
