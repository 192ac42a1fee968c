//! Metadata that is damaged on disk under a process that serves it: a scrub finds it, and memory or
//! the other replicas repair it.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::ids::{ReplicaId, SnapshotId};
use block::repl::engine::{ReplicaMetadata, ScrubResult};
use block::run::lab::{LabReply, LabRequest};
use block::run::{AdminReply, AdminRequest, MemberState};
use block::store::files::Directory;
use block::store::{Depth, MetadataFault, ReplicaFault, Severity, View, check};

use crate::cluster::Cluster;
use crate::lab::{Lab, MIB, qemu_io, read_view};
use crate::node::PATIENCE;

const SIZE: u64 = 16 * MIB;

/// A volume with a snapshot, which has pages of maps that were written and read in this session.
fn volume(replicas: usize) -> (Lab, SnapshotId) {
    let lab = Lab::start(SIZE, replicas, &[]);
    qemu_io(&lab, &["write -P 1 0 8M", "flush"]);
    let (name, labels) = ("s".to_owned(), Default::default());
    let reply = lab.admin(AdminRequest::Snapshot { name, created: 1, labels });
    let AdminReply::Snapshot { id } = reply else { panic!("no snapshot: {reply:?}") };
    qemu_io(&lab, &["write -P 2 0 4M", "flush", "read -P 2 0 4M", "read -P 1 4M 4M"]);
    lab.wait_in_sync(replicas);
    (lab, id)
}

fn replica_dir(lab: &Lab, index: usize) -> PathBuf {
    lab.volume_dir().join(format!("replica-{index}"))
}

fn replica_id(lab: &Lab, index: usize) -> ReplicaId {
    match lab.ask(&LabRequest::Status) {
        LabReply::Status { replicas, .. } => replicas[index].id,
        other => panic!("not a status: {other:?}"),
    }
}

fn scrub(lab: &Lab) -> ScrubResult {
    lab.admin(AdminRequest::Scrub);
    lab.wait("the scrub to end", |status| {
        status.scrubbed_bytes.is_none() && status.last_scrub.is_some()
    });
    match lab.admin(AdminRequest::Status) {
        AdminReply::Status(status) => status.last_scrub.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Writes into a file that a process has open.
fn overwrite(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
}

fn damage_everything(dir: &Path) {
    // Zeroed, truncated, swapped and foreign, each under a process that has the file open.
    overwrite(&dir.join("super"), |bytes| bytes.fill(0));
    overwrite(&dir.join("log"), |bytes| bytes.fill(0x55));
    overwrite(&dir.join("recent"), |bytes| bytes.truncate(700));
    overwrite(&dir.join("sums"), |bytes| bytes.fill(7));
    overwrite(&dir.join("L0.map"), |bytes| bytes.fill(0));
    overwrite(&dir.join("L1.map"), |bytes| {
        let half = bytes.len() / 2;
        bytes.rotate_left(half);
    });
    overwrite(&dir.join("L0.idx"), Vec::clear);
    let foreign = fs::read(dir.join("L0.data")).unwrap();
    overwrite(&dir.join("L1.idx"), |bytes| *bytes = foreign[..bytes.len()].to_vec());
}

/// The offline check has nothing to say but notes, and head and snapshot are as they were written.
fn assert_whole(lab: &Lab, index: usize, snapshot: SnapshotId) {
    let dir = replica_dir(lab, index);
    let report = check(&mut Directory::read_only(&dir), Depth::Data, &mut |_| {});
    let notes = report.findings.iter().all(|it| it.severity() == Severity::Note);
    assert!(notes, "replica {index}: {report}\n{}", lab.log());
    let (four, eight) = (4 << 20, 8 << 20);
    let head = read_view(&dir, SIZE, View::Head);
    assert!(head[..four].iter().all(|byte| *byte == 2), "replica {index}");
    assert!(head[four..eight].iter().all(|byte| *byte == 1), "replica {index}");
    assert!(head[eight..].iter().all(|byte| *byte == 0), "replica {index}");
    let old = read_view(&dir, SIZE, View::Snapshot(snapshot));
    assert!(old[..eight].iter().all(|byte| *byte == 1), "replica {index}");
}

#[test]
fn a_scrub_repairs_metadata_of_replicas_that_are_served_from_their_memory() {
    for replicas in [1, 3] {
        let (mut lab, snapshot) = volume(replicas);
        assert_eq!(scrub(&lab).metadata, [], "nothing is damaged yet");
        // Of all replicas: without their memory nothing would be left.
        (0..replicas).for_each(|index| damage_everything(&replica_dir(&lab, index)));
        let found = scrub(&lab);
        let mut damaged: Vec<ReplicaId> = found.metadata.iter().map(|it| it.replica).collect();
        damaged.sort();
        let mut all: Vec<ReplicaId> = (0..replicas).map(|it| replica_id(&lab, it)).collect();
        all.sort();
        assert_eq!(damaged, all, "{found:?}\n{}", lab.log());
        for ReplicaMetadata { report, .. } in &found.metadata {
            assert!(report.repaired >= 8, "{report:?}");
            assert!(report.left.is_empty() && report.lost_pages == 0, "{report:?}");
        }
        assert_eq!(found.bad_blocks, 0, "no block was lost");
        assert_eq!(scrub(&lab).metadata, [], "and it stays repaired");
        qemu_io(&lab, &["read -P 2 0 4M", "read -P 1 4M 4M"]);
        lab.stop_in_sync();
        (0..replicas).for_each(|index| assert_whole(&lab, index, snapshot));
    }
}

#[test]
fn metadata_that_a_scrub_repaired_survives_a_kill() {
    let (mut lab, snapshot) = volume(1);
    damage_everything(&replica_dir(&lab, 0));
    assert_eq!(scrub(&lab).metadata.len(), 1);
    lab.kill_all(1);
    lab.resume();
    qemu_io(&lab, &["read -P 2 0 4M", "read -P 1 4M 4M"]);
    lab.stop();
    assert_whole(&lab, 0, snapshot);
}

#[test]
fn a_replica_whose_file_is_gone_is_rebuilt_from_the_others() {
    for file in ["L0.data", "L1.map", "super"] {
        let (mut lab, snapshot) = volume(3);
        fs::remove_file(replica_dir(&lab, 0).join(file)).unwrap();
        let before = replica_id(&lab, 0);
        scrub(&lab);
        lab.wait("the replica to leave", |status| {
            status.replicas.iter().any(|it| it.id == before && !it.state.is_recorded())
        });
        qemu_io(&lab, &["read -P 2 0 4M", "read -P 1 4M 4M"]);
        // As its supervisor does with files that cannot be opened.
        let pid = lab.replica_pid(0);
        lab.ask(&LabRequest::KillReplica { index: 0 });
        crate::killed::wait_for_end(pid);
        lab.ask(&LabRequest::StartReplica { index: 0 });
        assert_ne!(replica_id(&lab, 0), before, "another one is in its place");
        lab.wait_in_sync(3);
        qemu_io(&lab, &["read -P 2 0 4M", "read -P 1 4M 4M"]);
        lab.stop();
        (0..3).for_each(|index| assert_whole(&lab, index, snapshot));
    }
}

#[test]
fn the_only_replica_reports_a_file_that_is_gone_and_serves_on() {
    let (lab, _) = volume(1);
    fs::remove_file(replica_dir(&lab, 0).join("L0.data")).unwrap();
    for _ in 0..2 {
        let found = scrub(&lab);
        let [ReplicaMetadata { replica, report }] = &found.metadata[..] else {
            panic!("{found:?}")
        };
        assert_eq!(*replica, replica_id(&lab, 0));
        let left: Vec<_> = report.left.iter().map(|it| (it.file.as_str(), it.fault)).collect();
        assert_eq!(left, [("L0.data", MetadataFault::Missing)]);
        qemu_io(&lab, &["read -P 2 0 4M", "read -P 1 4M 4M"]);
    }
}

#[test]
fn a_storage_process_reports_a_replica_whose_file_is_gone_as_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let cluster = Cluster::start(dir.path(), SIZE);
    cluster.answer_records(0);
    cluster.nodes[0].client().attach(cluster.attachment(0, &socket)).unwrap();
    cluster.nodes[0].wait_in_sync(cluster.volume, 3);
    crate::storage::qemu_io(&socket, &["write -P 1 0 8M", "flush"]);
    let replica = cluster.replicas[2];
    let files = cluster.nodes[2].dir().join("replicas").join(replica.to_string());
    fs::remove_file(files.join("L0.map")).unwrap();
    cluster.nodes[0].client().volume(cluster.volume, AdminRequest::Scrub).unwrap();
    let is_out = |id, state: MemberState| id == replica && !state.is_recorded();
    cluster.nodes[0].wait(cluster.volume, "the replica to leave", |state| {
        let status = state.status.as_ref();
        status.is_some_and(|it| it.replicas.iter().any(|it| is_out(it.id, it.state)))
    });
    let start = Instant::now();
    let fault = || cluster.nodes[2].client().status().unwrap().replicas[0].fault;
    while fault() != Some(ReplicaFault::Damaged) {
        assert!(start.elapsed() < PATIENCE, "{:?}: {}", fault(), cluster.nodes[2].log());
        std::thread::sleep(Duration::from_millis(20));
    }
    crate::storage::qemu_io(&socket, &["read -P 1 0 8M", "read -P 0 8M 8M"]);
}
