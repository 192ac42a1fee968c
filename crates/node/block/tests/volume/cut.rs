//! Nodes that cannot be reached, and disks that are full, while a client writes and verifies.

use std::path::Path;

use crate::cluster::{Cluster, Wire, finish, verifier};
use crate::lab::{Lab, MIB, qemu_io, tool};
use crate::node::Node;
use crate::odd::Small;

fn in_sync(node: &Node, volume: block::ids::VolumeId, count: usize) {
    node.wait(volume, &format!("{count} in sync"), |state| {
        state.status.as_ref().is_some_and(|status| {
            let has = |it: &&block::run::MemberStatus| it.state.is_recorded();
            status.replicas.iter().filter(has).count() == count
        })
    });
}

#[test]
fn a_node_that_is_cut_off_is_left_behind_and_catches_up() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let mut cluster = Cluster::start(dir.path(), 64 * MIB);
    let volume = cluster.volume;
    let wire = Wire::to(cluster.nodes[2].address());
    let mut attachment = cluster.attachment(0, &socket);
    attachment.replicas[2].at = Some(wire.address());
    cluster.answer_records(0);
    cluster.nodes[0].client().attach(attachment).unwrap();
    cluster.nodes[0].wait_in_sync(volume, 3);
    let fio = verifier(&socket, "16m", 14);
    in_sync(&cluster.nodes[0], volume, 3);
    wire.cut();
    in_sync(&cluster.nodes[0], volume, 2);
    wire.mend();
    finish(fio);
    cluster.nodes[0].wait_in_sync(volume, 3);
    cluster.nodes[0].client().detach(volume).unwrap();
    cluster.nodes.iter_mut().for_each(Node::stop);
    cluster.compare(64 * MIB);
}

#[test]
fn a_node_whose_disk_is_full_is_left_behind_and_catches_up_when_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let small = Small::new("24m");
    // The third node has its directory on the small disk.
    std::os::unix::fs::symlink(small.0.path(), dir.path().join("n2")).unwrap();
    let socket = dir.path().join("v.sock");
    let mut cluster = Cluster::start(dir.path(), 64 * MIB);
    let volume = cluster.volume;
    cluster.answer_records(0);
    cluster.nodes[0].client().attach(cluster.attachment(0, &socket)).unwrap();
    cluster.nodes[0].wait_in_sync(volume, 3);
    // More than the small disk has room for; the client must not notice.
    finish(verifier(&socket, "40m", 8));
    in_sync(&cluster.nodes[0], volume, 2);
    grow(small.0.path(), "200m");
    cluster.nodes[0].wait_in_sync(volume, 3);
    cluster.nodes[0].client().detach(volume).unwrap();
    cluster.nodes.iter_mut().for_each(Node::stop);
    cluster.compare(64 * MIB);
    drop(cluster);
    drop(small);
}

fn grow(mount: &Path, size: &str) {
    tool("mount", &["-o", &format!("remount,size={size}"), mount.to_str().unwrap()]);
}

/// Longhorn's replicas differ after this, with nothing having failed.
#[test]
fn overlapping_writes_leave_all_replicas_alike() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    let uri = lab.uri();
    for (block, offset) in [("4k", "0"), ("12k", "2k")] {
        tool(
            "fio",
            &[
                "--name=overlap",
                "--ioengine=nbd",
                &format!("--uri={uri}"),
                "--rw=randwrite",
                &format!("--bs={block}"),
                &format!("--blockalign={}", if block == "4k" { "4k" } else { "1k" }),
                &format!("--offset={offset}"),
                "--size=128k",
                "--norandommap",
                "--randrepeat=0",
                "--iodepth=32",
                "--time_based",
                "--runtime=3",
            ],
        );
    }
    qemu_io(&lab, &["flush"]);
    lab.stop_in_sync();
    lab.compare_replicas();
}
