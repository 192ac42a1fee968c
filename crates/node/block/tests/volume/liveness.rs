//! Service while replicas are away, missing or damaged, and how soon it resumes.

use std::path::PathBuf;
use std::time::Instant;

use block::run::lab::{LabReply, LabRequest};
use block::run::{AdminReply, AdminRequest};
use rustix::process::{Pid, Signal, kill_process};

use crate::killed::wait_for_end;
use crate::lab::{Lab, MIB, qemu_io};
use crate::nbd::Client;

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn replica_dir(lab: &Lab, index: usize) -> PathBuf {
    lab.volume_dir().join(format!("replica-{index}"))
}

fn errors(lab: &Lab) -> Vec<Option<String>> {
    match lab.ask(&LabRequest::Status) {
        LabReply::Status { replicas, .. } => replicas.into_iter().map(|it| it.error).collect(),
        other => panic!("not a status: {other:?}"),
    }
}

/// Writes, flushes and reads through a connection that was made before, and prints how long it took.
/// The client waits for a minute; the bound that matters is the simulator's, since a busy machine
/// says nothing about it.
fn goes_on(client: &mut Client, value: u8, since: Instant, what: &str) {
    let data = vec![value; 1 << 20];
    client.write(0, &data).unwrap();
    let written = since.elapsed();
    client.flush().unwrap();
    assert_eq!(client.read(0, 1 << 20).unwrap(), data, "{what}");
    eprintln!("{what}: written after {written:?}, flushed and read after {:?}", since.elapsed());
}

#[test]
fn two_replicas_that_restarted_go_on_when_the_third_dies() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    let mut client = Client::connect(&lab.socket()).unwrap();
    for round in 1..4 {
        client.write(0, &vec![round; 1 << 20]).unwrap();
        client.flush().unwrap();
        let pids: Vec<u32> = (0..3).map(|index| lab.replica_pid(index)).collect();
        signal(pids[0], Signal::KILL);
        signal(pids[1], Signal::KILL);
        pids[..2].iter().for_each(|pid| wait_for_end(*pid));
        lab.ask(&LabRequest::StartReplica { index: 0 });
        lab.ask(&LabRequest::StartReplica { index: 1 });
        signal(pids[2], Signal::KILL);
        let killed = Instant::now();
        assert_eq!(client.read(0, 1 << 20).unwrap(), vec![round; 1 << 20]);
        goes_on(&mut client, round + 10, killed, "two restarted, and the third was killed");
        wait_for_end(pids[2]);
        lab.ask(&LabRequest::StartReplica { index: 2 });
        lab.wait_in_sync(3);
    }
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn writes_reads_and_snapshots_go_on_while_a_replica_is_gone_or_silent() {
    let mut lab = Lab::start(16 * MIB, 3, &[]);
    let mut client = Client::connect(&lab.socket()).unwrap();
    for (round, sent) in (1u8..).zip([Signal::KILL, Signal::STOP, Signal::KILL, Signal::STOP]) {
        client.write(0, &vec![round; 1 << 20]).unwrap();
        let pid = lab.replica_pid(1);
        signal(pid, sent);
        let since = Instant::now();
        if round > 2 {
            let (name, labels) = (format!("s{round}"), Default::default());
            let request = AdminRequest::Snapshot { name, created: 1, labels };
            assert!(matches!(lab.admin(request), AdminReply::Snapshot { .. }));
            eprintln!("{sent:?}: snapshot after {:?}", since.elapsed());
        }
        // The replica is still gone or silent.
        goes_on(&mut client, round + 10, since, &format!("{sent:?}"));
        if sent == Signal::STOP {
            signal(pid, Signal::CONT);
        } else {
            wait_for_end(pid);
            lab.ask(&LabRequest::StartReplica { index: 1 });
        }
        lab.wait_in_sync(3);
    }
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn replicas_end_with_the_process_that_started_them() {
    let mut lab = Lab::start(16 * MIB, 2, &[]);
    let pids: Vec<u32> = (0..2).map(|index| lab.replica_pid(index)).collect();
    lab.kill_engine();
    pids.iter().for_each(|pid| wait_for_end(*pid));
    lab.resume();
    lab.stop();
}

#[test]
fn a_replica_that_is_missing_or_damaged_is_replaced_and_never_served() {
    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 4] = [
        ("missing", |dir| std::fs::remove_dir_all(dir).unwrap()),
        ("without super blocks", |dir| std::fs::write(dir.join("super"), [0; 4096]).unwrap()),
        ("without data", |dir| std::fs::remove_file(dir.join("L0.data")).unwrap()),
        ("without a log", |dir| std::fs::remove_file(dir.join("log")).unwrap()),
    ];
    for (what, damage) in damages {
        let mut lab = Lab::start(16 * MIB, 3, &[]);
        qemu_io(&lab, &["write -P 3 0 1M", "flush"]);
        lab.stop();
        for index in 0..3 {
            damage(&replica_dir(&lab, index));
            lab.resume();
            for _ in 0..5 {
                qemu_io(&lab, &["read -P 3 0 1M"]);
            }
            lab.wait_in_sync(3);
            assert!(errors(&lab).iter().all(Option::is_none), "{what}: {:?}", errors(&lab));
            lab.stop();
            lab.compare_replicas();
        }
    }
}

#[test]
fn a_volume_whose_replicas_are_all_gone_says_so() {
    let mut lab = Lab::start(16 * MIB, 2, &[]);
    lab.stop();
    for index in 0..2 {
        std::fs::remove_dir_all(replica_dir(&lab, index)).unwrap();
    }
    let said = lab.fail(&[]);
    assert!(said.contains("replica-0"), "{said}");
}
