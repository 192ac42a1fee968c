//! Damage in a snapshot that no replica can repair: it is reported by name, and goes with the
//! snapshot.

use std::fs;
use std::os::unix::fs::FileExt as _;

use block::ids::SnapshotId;
use block::repl::engine::{ScrubResult, SnapshotDamage};
use block::run::{AdminReply, AdminRequest, VolumeStatus};

use crate::lab::{Lab, MIB};

fn snapshot(lab: &Lab, name: &str) -> SnapshotId {
    let (name, labels) = (name.to_owned(), Default::default());
    let reply = lab.admin(AdminRequest::Snapshot { name, created: 1, labels });
    let AdminReply::Snapshot { id } = reply else { panic!("no snapshot: {reply:?}") };
    id
}

fn scrub(lab: &Lab) -> ScrubResult {
    lab.admin(AdminRequest::Scrub);
    lab.wait("the scrub to end", |status| {
        status.scrubbed_bytes.is_none() && status.last_scrub.is_some()
    });
    status(lab).last_scrub.unwrap()
}

fn status(lab: &Lab) -> VolumeStatus {
    match lab.admin(AdminRequest::Status) {
        AdminReply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn damage_that_no_replica_can_repair_is_reported_until_the_snapshot_goes() {
    let mut lab = Lab::start(16 * MIB, 2, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 4M", "flush"]);
    let damaged = snapshot(&lab, "s");
    crate::lab::qemu_io(&lab, &["write -P 2 0 4M", "flush"]);
    let whole = snapshot(&lab, "t");
    lab.stop();
    // Two neighbouring blocks on both replicas, and another one on the first.
    for index in 0..2_u64 {
        let path = lab.volume_dir().join(format!("replica-{index}")).join("L0.data");
        let data = fs::File::options().write(true).open(path).unwrap();
        data.write_all_at(&[7; 8192], MIB).unwrap();
        if index == 0 {
            data.write_all_at(&[7; 4096], 2 * MIB).unwrap();
        }
    }
    lab.resume();
    lab.wait_in_sync(2);
    assert_eq!(status(&lab).last_scrub, None, "no scrub has been made since it was attached");
    let found = scrub(&lab);
    let mut replicas: Vec<_> = found.damage.iter().map(|it| it.replica).collect();
    replicas.sort();
    replicas.dedup();
    assert_eq!(replicas.len(), 2, "{found:?}");
    for SnapshotDamage { snapshot, bytes, ranges, .. } in &found.damage {
        let ranges: Vec<_> = ranges.iter().map(|it| (it.offset, it.length)).collect();
        assert_eq!((*snapshot, *bytes, ranges), (damaged, 8192, vec![(MIB, 8192)]));
        assert_ne!(*snapshot, whole);
    }
    // The guest sees nothing of it, and the next scrub finds the same.
    crate::lab::qemu_io(&lab, &["read -P 2 0 4M"]);
    assert_eq!(scrub(&lab).damage, found.damage);
    lab.admin(AdminRequest::DeleteSnapshot { name: "s".to_owned() });
    lab.wait("nothing to be left of it", |status| {
        status.last_scrub.as_ref().is_some_and(|it| it.damage.is_empty())
    });
    lab.stop();
}
