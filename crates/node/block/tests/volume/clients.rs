//! Every client that people use.

use crate::lab::{Lab, MIB, qemu_io, tool};
use block::run::lab::LabRequest;
use block::run::{AdminReply, AdminRequest};

#[test]
fn qemu_io_reads_what_it_wrote_down_to_the_sector() {
    for how in [&[][..], &["in-process"], &["threads"]] {
        let mut lab = Lab::start(64 * MIB, 3, how);
        qemu_io(
            &lab,
            &[
                "write -P 1 0 4M",
                "write -P 2 4608 512",
                "write -f -P 3 1536 9k",
                "write -z 1M 1M",
                "discard 2M 1M",
                "flush",
                "read -P 1 0 1536",
                "read -P 3 1536 9k",
                "read -P 1 10752 512",
                "read -P 0 1M 2M",
                "read -P 1 3M 1M",
                "write -P 4 60M 4M",
                "read -P 4 60M 4M",
            ],
        );
        lab.stop_in_sync();
        let content = lab.compare_replicas();
        assert_eq!((content[0], content[1536], content[10752]), (1, 3, 1));
        lab.resume();
        qemu_io(&lab, &["read -P 3 1536 9k", "read -P 4 60M 4M"]);
        lab.stop();
    }
}

#[test]
fn images_go_in_and_out_unchanged() {
    let mut lab = Lab::start(64 * MIB, 2, &[]);
    let image = lab.dir.path().join("image");
    let back = lab.dir.path().join("back");
    let pattern: Vec<u8> =
        (0..64 * MIB).map(|at| if at / 4096 % 3 == 0 { 0 } else { (at / 4099) as u8 }).collect();
    std::fs::write(&image, &pattern).unwrap();
    let (image, back) = (image.to_str().unwrap(), back.to_str().unwrap());
    tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &lab.uri()]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &lab.uri()]);
    tool("nbdcopy", &[&lab.uri(), back]);
    assert!(
        std::fs::read(back).unwrap() == pattern,
        "what nbdcopy took out is what qemu-img put in"
    );
    qemu_io(&lab, &["write -z 0 64M"]);
    tool("nbdcopy", &["--flush", back, &lab.uri()]);
    lab.stop_in_sync();
    assert!(lab.compare_replicas() == pattern, "every replica holds what nbdcopy put in");
}

#[test]
fn the_export_says_what_it_can_do() {
    let lab = Lab::start(64 * MIB, 1, &["in-process"]);
    let said = tool("nbdinfo", &[&lab.uri()]);
    for line in [
        "export-size: 67108864",
        "can_multi_conn: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "is_read_only: false",
        "base:allocation",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    verify(&[], "--bsrange=4k-128k");
}

/// Long writes are carried out by other threads than short ones.
#[test]
fn fio_verifies_long_writes_among_short_ones() {
    for how in [&[][..], &["in-process"], &["in-process", "threads"]] {
        verify(how, "--bsrange=4k-2m");
    }
}

fn verify(how: &'static [&'static str], blocks: &str) {
    let mut lab = Lab::start(64 * MIB, 3, how);
    let uri = format!("--uri={}", lab.uri());
    tool(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            blocks,
            "--size=32m",
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--fsync=64",
            "--output-format=terse",
        ],
    );
    lab.stop_in_sync();
    lab.compare_replicas();
}

#[test]
fn a_snapshot_keeps_what_was_there_and_can_be_returned_to() {
    let mut lab = Lab::start(64 * MIB, 2, &[]);
    qemu_io(&lab, &["write -P 1 0 8M", "flush"]);
    let AdminReply::Snapshot { id } = lab.admin(AdminRequest::Snapshot {
        name: "before".into(),
        created: 1,
        labels: Default::default(),
    }) else {
        panic!("a snapshot has an id")
    };
    qemu_io(&lab, &["write -P 2 1M 1M", "read -P 1 0 1M", "read -P 2 1M 1M"]);
    let twice =
        AdminRequest::Snapshot { name: "before".into(), created: 1, labels: Default::default() };
    let refused = lab.try_ask(&LabRequest::Volume(twice)).unwrap_err();
    assert_eq!(refused, "there is a snapshot \"before\" already");
    lab.admin(AdminRequest::Revert { name: "before".into() });
    qemu_io(&lab, &["read -P 1 0 8M"]);
    lab.admin(AdminRequest::DeleteSnapshot { name: id.to_string() });
    lab.wait("no snapshot to be left", |status| status.snapshots.is_empty());
    qemu_io(&lab, &["read -P 1 0 8M", "write -P 3 0 1M", "read -P 3 0 1M"]);
    lab.stop_in_sync();
    lab.compare_replicas();
}

#[test]
fn a_volume_grows_while_it_is_used() {
    let lab = Lab::start(64 * MIB, 2, &[]);
    qemu_io(&lab, &["write -P 1 63M 1M"]);
    lab.admin(AdminRequest::Resize { size: 96 * MIB });
    qemu_io(
        &lab,
        &["read -P 1 63M 1M", "read -P 0 64M 32M", "write -P 2 95M 1M", "read -P 2 95M 1M"],
    );
    assert!(tool("nbdinfo", &[&lab.uri()]).contains("export-size: 100663296"));
}

#[test]
fn holes_are_distinguished_from_data() {
    let lab = Lab::start(64 * MIB, 2, &[]);
    qemu_io(&lab, &["write -P 1 0 1M", "write -P 1 9M 64k", "write -P 1 16M 1M", "discard 16M 1M"]);
    let said = tool("nbdinfo", &["--map", "--totals", &lab.uri()]);
    let data = said.lines().find(|line| line.contains("data")).unwrap_or_default();
    assert!(data.trim_start().starts_with("1114112"), "1 MiB and 64 KiB hold data: {said}");
    let map = tool("qemu-img", &["map", "--output=json", "-f", "raw", &lab.uri()]);
    assert!(map.contains("\"start\": 9437184, \"length\": 65536"), "{map}");
}
