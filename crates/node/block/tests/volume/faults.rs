//! Processes that die, stop and come back while clients write.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, MIB, qemu_io, tool};
use block::run::MemberState;
use block::run::lab::LabRequest;
use rustix::process::{Pid, Signal, kill_process};

/// fio, writing and verifying in the background.
fn writer(lab: &Lab, seconds: u32, name: &str) -> Child {
    writer_at(lab, seconds, name, 32)
}

fn writer_at(lab: &Lab, seconds: u32, name: &str, depth: u32) -> Child {
    let mut fio = Command::new("timeout");
    fio.args(["150", "fio", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--size=24m"]);
    fio.args([
        format!("--iodepth={depth}").as_str(),
        "--fsync=128",
        "--time_based",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ]);
    fio.arg(format!("--name={name}")).arg(format!("--uri={}", lab.uri()));
    fio.arg(format!("--runtime={seconds}")).arg("--output-format=terse");
    fio.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    fio.spawn().unwrap_or_else(|error| panic!("cannot run fio: {error}"))
}

fn finish(fio: Child) {
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "fio: {} {said}", output.status);
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Whether the volume has taken writes since: for a fault to fall into the middle of them.
fn wait_for_writes(lab: &Lab) {
    let data = |lab: &Lab| {
        let path = lab.volume_dir().join("replica-0").join("L0.data");
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(path).map_or(0, |it| it.blocks())
    };
    let start = Instant::now();
    while data(lab) < 2048 {
        assert!(start.elapsed() < Duration::from_secs(300), "no writes arrive: {}", lab.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_replica_that_is_killed_catches_up_while_clients_write() {
    let mut lab = Lab::start(64 * MIB, 3, &[]);
    let fio = writer(&lab, 8, "kill");
    wait_for_writes(&lab);
    lab.ask(&LabRequest::KillReplica { index: 1 });
    lab.wait("the dead one to leave", |status| {
        status.replicas.iter().filter(|it| it.state == MemberState::InSync).count() == 2
            && status.epoch.0 > 1
    });
    lab.ask(&LabRequest::StartReplica { index: 1 });
    finish(fio);
    lab.wait_in_sync(3);
    assert!(lab.log().contains("Delta"), "only what changed is copied: {}", lab.log());
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn a_replica_that_hangs_is_left_behind_and_comes_back() {
    let mut lab = Lab::start(64 * MIB, 3, &[]);
    let fio = writer(&lab, 14, "stop");
    wait_for_writes(&lab);
    let pid = lab.replica_pid(2);
    signal(pid, Signal::STOP);
    lab.wait("the silent one to leave", |status| {
        status.replicas.iter().filter(|it| it.state.is_recorded()).count() == 2
    });
    signal(pid, Signal::CONT);
    finish(fio);
    lab.wait_in_sync(3);
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn replicas_agree_after_the_engine_was_killed() {
    let mut lab = Lab::start(64 * MIB, 3, &[]);
    let mut fio = writer_at(&lab, 60, "engine", 64);
    wait_for_writes(&lab);
    lab.kill_engine();
    let _ = fio.kill();
    let _ = fio.wait();
    lab.resume();
    let uri = lab.uri();
    let image = lab.dir.path().join("first");
    let image = image.to_str().unwrap();
    tool("nbdcopy", &[&uri, image]);
    // Longhorn answers from whichever replica comes first, and they differ.
    for _ in 1..6 {
        tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]);
    }
    lab.wait_in_sync(3);
    lab.stop();
    let content = lab.compare_replicas();
    assert!(content == std::fs::read(image).unwrap(), "what was read is what the replicas hold");
}

#[test]
fn flushed_data_outlives_everything_being_killed() {
    for (replicas, how) in [(3, &[][..]), (1, &["in-process"])] {
        let mut lab = Lab::start(64 * MIB, replicas, how);
        qemu_io(&lab, &["write -P 5 0 32M", "flush", "write -P 6 32M 1M"]);
        let pids: Vec<u32> = (0..replicas).map(|index| lab.replica_pid(index)).collect();
        lab.kill_engine();
        for pid in pids {
            let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL);
        }
        // A dying process must not be taken for a running one.
        for index in 0..replicas {
            let socket = lab.volume_dir().join(format!("replica-{index}.sock"));
            let start = Instant::now();
            while std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                assert!(start.elapsed() < Duration::from_secs(300), "a replica does not die");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        lab.resume();
        qemu_io(&lab, &["read -P 5 0 32M"]);
        lab.wait_in_sync(replicas);
        lab.stop();
        lab.compare_replicas();
    }
}

#[test]
fn an_empty_replica_takes_the_place_of_another() {
    let mut lab = Lab::start(64 * MIB, 3, &[]);
    qemu_io(&lab, &["write -P 1 0 16M", "flush"]);
    lab.admin(block::run::AdminRequest::Snapshot {
        name: "one".into(),
        created: 1,
        labels: Default::default(),
    });
    qemu_io(&lab, &["write -P 2 8M 16M", "flush"]);
    let fio = writer(&lab, 4, "rebuild");
    lab.ask(&LabRequest::RebuildReplica { index: 0 });
    finish(fio);
    lab.wait_in_sync(3);
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn the_last_replica_may_die_and_come_back() {
    let mut lab = Lab::start(64 * MIB, 1, &[]);
    qemu_io(&lab, &["write -P 1 0 4M", "flush", "write -P 2 4M 4M"]);
    lab.ask(&LabRequest::KillReplica { index: 0 });
    lab.ask(&LabRequest::StartReplica { index: 0 });
    // Answered writes survive the end of the process, flushed or not.
    qemu_io(&lab, &["read -P 1 0 4M", "read -P 2 4M 4M"]);
    lab.stop();
}
