//! Files of replicas are damaged at random, while nothing runs and while the volume is served, up to
//! all replicas but one, and every read is compared with a shadow copy of all acknowledged writes.
//!
//! `SHEAF_DAMAGES` asks for more damages than usual, `SHEAF_SEED` for others.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use block::run::lab::LabRequest;
use block::run::{AdminReply, AdminRequest};
use block::store::View;

use crate::campaign::{DamageTime, MOMENTS, Plan, run};
use crate::lab::{Lab, MIB, read_view, try_tool};
use crate::shadow::Violation;

const SIZE: u64 = 16 * MIB;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn plan(replicas: usize, damages: u64) -> Plan {
    let seed = number("SHEAF_SEED").unwrap_or(20_261_120);
    Plan { replicas, seed, damages, moments: &MOMENTS, files: |_| true, how: &[] }
}

fn damages(replicas: usize, usual: u64) {
    let damages = number("SHEAF_DAMAGES").unwrap_or(usual);
    run(plan(replicas, damages)).unwrap_or_else(|Violation(what)| panic!("{what}"));
}

#[test]
fn no_damage_of_the_only_replica_is_read_as_data() {
    damages(1, 12);
}

#[test]
fn damage_of_one_of_two_replicas_is_repaired() {
    damages(2, 12);
}

#[test]
fn damage_of_up_to_two_of_three_replicas_is_repaired() {
    damages(3, 12);
}

#[test]
#[ignore = "takes an hour"]
fn a_thousand_damages_of_one_two_and_three_replicas_are_no_wrong_data() {
    (1..=3).for_each(|replicas| damages(replicas, 1000));
}

/// The test of these tests: a store that does not compare flushed blocks with their checksums after
/// a kill serves wrong data, which the shadow shows.
#[test]
fn a_check_that_is_left_out_is_noticed() {
    let is_data: fn(&str) -> bool = |file| file.ends_with(".data");
    let killed = Plan { moments: &[DamageTime::Killed], files: is_data, ..plan(1, 12) };
    run(killed).unwrap_or_else(|Violation(what)| panic!("{what}"));
    let Err(Violation(what)) = run(Plan { how: &["without=sums"], ..killed }) else {
        panic!("wrong data went unnoticed")
    };
    assert!(what.contains("is read as"), "{what}");
}

#[test]
fn damage_that_only_a_snapshot_shows_is_found_and_repaired() {
    let mut lab = Lab::start(SIZE, 3, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 4M", "flush"]);
    let (name, labels) = ("s".to_owned(), Default::default());
    let reply = lab.admin(AdminRequest::Snapshot { name, created: 1, labels });
    let AdminReply::Snapshot { id } = reply else { panic!("no snapshot") };
    crate::lab::qemu_io(&lab, &["write -P 2 0 4M", "flush"]);
    lab.stop();
    let dir = |index: usize| lab.volume_dir().join(format!("replica-{index}"));
    // A block of one, and the whole map of another.
    let data = fs::File::options().write(true).open(dir(0).join("L0.data")).unwrap();
    data.write_all_at(&[7; 100], 512 << 10).unwrap();
    let map = dir(1).join("L0.map");
    let len = fs::metadata(&map).unwrap().len();
    fs::write(&map, vec![0; usize::try_from(len).unwrap()]).unwrap();
    for index in 0..3 {
        let mut files = block::store::files::Directory::read_only(dir(index));
        let report = block::store::check(&mut files, block::store::Depth::Data, &mut |_| {});
        assert_eq!(report.is_healthy(), index == 2, "replica {index}: {report}");
    }
    lab.resume();
    lab.wait_in_sync(3);
    lab.admin(AdminRequest::Scrub);
    lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    lab.stop();
    let content = lab.compare_replicas();
    assert!(content[..4 << 20].iter().all(|byte| *byte == 2));
    for index in 0..3 {
        let dir = lab.volume_dir().join(format!("replica-{index}"));
        let content = read_view(&dir, SIZE, View::Snapshot(id));
        assert!(content[..4 << 20].iter().all(|byte| *byte == 1), "replica {index}");
        assert!(content[4 << 20..].iter().all(|byte| *byte == 0), "replica {index}");
    }
}

#[test]
fn replicas_that_differ_without_evidence_are_not_served_until_written_again() {
    let mut lab = Lab::start(SIZE, 2, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 1M", "flush"]);
    lab.stop();
    // Another content with good checksums, as no crash leaves it.
    overwrite(&lab.volume_dir().join("replica-0"));
    lab.resume();
    lab.admin(AdminRequest::Scrub);
    lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    lab.wait("a disputed block", |status| {
        status.disputed.iter().map(|it| (it.offset, it.length)).eq([(4096, 4096)])
    });
    for _ in 0..2 {
        let uri = lab.uri();
        let output = try_tool("qemu-io", &["-f", "raw", &uri, "-c", "read 4k 4k"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("read failed"), "{said}");
        crate::lab::qemu_io(&lab, &["read -P 1 0 4k", "read -P 1 8k 1016k"]);
        // The next engine knows it too.
        lab.stop();
        lab.resume();
    }
    crate::lab::qemu_io(&lab, &["write -P 3 4k 4k", "flush", "read -P 3 4k 4k"]);
    lab.wait("no disputed block", |status| status.disputed.is_empty());
    lab.stop();
    lab.resume();
    crate::lab::qemu_io(&lab, &["read -P 3 4k 4k"]);
    lab.stop();
    lab.compare_replicas();
}

/// Writes a block of a replica that is not served, past its volume.
fn overwrite(dir: &Path) {
    use block::store::files::Directory;
    use block::store::{NoBases, OpenOptions, Request, crc, drive, open};
    let mut files = Directory::new(dir);
    let replica = open(&mut files, &mut NoBases, OpenOptions::default()).unwrap();
    let mut driven = drive::Driven::new(replica, &mut files);
    let data = bytes::Bytes::from(vec![2; 4096]);
    let crcs = crc::of_blocks(&data).collect();
    driven.request(Request::Write { offset: 4096, data, crcs, fua: true }).unwrap();
    driven.request(Request::CloseClean).unwrap();
}

#[test]
fn a_map_that_is_damaged_while_it_is_served_heals_from_the_others() {
    let mut lab = Lab::start(SIZE, 3, &[]);
    crate::lab::qemu_io(&lab, &["write -P 5 0 4M", "flush"]);
    lab.stop();
    lab.resume();
    for index in 0..3 {
        let map = lab.volume_dir().join(format!("replica-{index}")).join("L0.map");
        let len = fs::metadata(&map).unwrap().len();
        fs::write(&map, vec![0; usize::try_from(len).unwrap()]).unwrap();
        let pid = lab.replica_pid(index);
        lab.ask(&LabRequest::KillReplica { index });
        crate::killed::wait_for_end(pid);
        lab.ask(&LabRequest::StartReplica { index });
        crate::lab::qemu_io(&lab, &["read -P 5 0 4M"]);
        lab.wait_in_sync(3);
        lab.admin(AdminRequest::Scrub);
        lab.wait("the scrub to end", |status| status.scrubbed_bytes.is_none());
    }
    lab.stop();
    let content = lab.compare_replicas();
    assert!(content[..4 << 20].iter().all(|byte| *byte == 5));
}
