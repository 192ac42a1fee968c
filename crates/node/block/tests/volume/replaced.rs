//! Replicas whose files are missing or damaged beyond repair, in volumes that other replicas serve:
//! the volume goes on, the status says what is wrong, and another replica takes the place.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use block::ids::ReplicaId;
use block::run::AdminRequest;
use block::run::lab::LabRequest;
use block::storage::NewReplica;
use block::store::ReplicaFault;

use crate::cluster::Cluster;
use crate::lab::{Lab, MIB, read_replica};
use crate::node::{Node, PATIENCE};
use crate::storage::qemu_io;

const SIZE: u64 = 16 * MIB;

fn zero(path: &Path) {
    let len = fs::metadata(path).unwrap().len();
    fs::write(path, vec![0; usize::try_from(len).unwrap()]).unwrap();
}

type Harm = (&'static str, fn(&Path));

/// Ways to make a replica one that cannot be opened.
const FATAL: [Harm; 5] = [
    ("the super block is zeroed", |dir| zero(&dir.join("super"))),
    ("the log is zeroed", |dir| zero(&dir.join("log"))),
    ("the log is removed", |dir| fs::remove_file(dir.join("log")).unwrap()),
    ("the data is removed", |dir| fs::remove_file(dir.join("L0.data")).unwrap()),
    ("everything is removed", |dir| fs::remove_dir_all(dir).unwrap()),
];

fn put_aside(lab: &Lab) -> usize {
    let entries = fs::read_dir(lab.volume_dir()).unwrap().map(|it| it.unwrap().file_name());
    entries.filter(|name| name.to_string_lossy().starts_with("unusable-")).count()
}

#[test]
fn a_replica_that_cannot_be_opened_is_replaced_while_the_volume_is_served() {
    let mut lab = Lab::start(SIZE, 3, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 16M", "flush"]);
    for (round, (what, damage)) in FATAL.iter().enumerate() {
        let (index, value) = (round % 3, round + 2);
        let dir = lab.volume_dir().join(format!("replica-{index}"));
        let pid = lab.replica_pid(index);
        lab.ask(&LabRequest::KillReplica { index });
        crate::killed::wait_for_end(pid);
        damage(&dir);
        // Data written meanwhile is part of the copy.
        let write = format!("write -P {value} {round}M 1M");
        crate::lab::qemu_io(&lab, &[&write, "flush"]);
        lab.ask(&LabRequest::StartReplica { index });
        lab.wait_in_sync(3);
        let start = Instant::now();
        while put_aside(&lab) > 0 {
            assert!(start.elapsed() < PATIENCE, "{what}: damaged files stay\n{}", lab.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let shadow: Vec<String> =
        (0..FATAL.len()).map(|round| format!("read -P {} {round}M 1M", round + 2)).collect();
    let mut shadow: Vec<&str> = shadow.iter().map(String::as_str).collect();
    shadow.push("read -P 1 5M 11M");
    crate::lab::qemu_io(&lab, &shadow);
    lab.stop();
    lab.compare_replicas();
}

#[test]
fn the_last_good_replica_is_not_replaced() {
    let lab = Lab::start(SIZE, 2, &[]);
    crate::lab::qemu_io(&lab, &["write -P 1 0 4M", "flush"]);
    let damage = |index: usize| {
        let pid = lab.replica_pid(index);
        lab.ask(&LabRequest::KillReplica { index });
        crate::killed::wait_for_end(pid);
        zero(&lab.volume_dir().join(format!("replica-{index}")).join("super"));
    };
    damage(0);
    damage(1);
    // The other one was given up meanwhile: this one is all there is.
    let said = lab.try_ask(&LabRequest::StartReplica { index: 1 }).unwrap_err();
    assert!(said.contains("cannot be replaced"), "{said}");
    assert!(lab.volume_dir().join("replica-1/L0.data").exists(), "its data is kept");
}

fn wait_fault(node: &Node, replica: ReplicaId) -> (Option<ReplicaFault>, String) {
    let start = Instant::now();
    loop {
        let status = node.client().status().unwrap();
        let found = status.replicas.iter().find(|it| it.replica == replica).unwrap();
        if let Some(error) = &found.error {
            return (found.fault, error.clone());
        }
        assert!(start.elapsed() < PATIENCE, "no fault is reported: {status:?}\n{}", node.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Replaces a replica that cannot be used, as the agents and the controller do.
fn replace(cluster: &mut Cluster, node: usize, name: &str) {
    let (volume, old, new) = (cluster.volume, cluster.replicas[node], ReplicaId::random());
    let dir = cluster.nodes[node].dir().join(name);
    let mut client = cluster.nodes[node].client();
    let request = NewReplica {
        volume,
        replica: new,
        size: SIZE,
        dir: Some(dir),
        existing: false,
        base: None,
    };
    client.create_replica(request).unwrap();
    let at = (node > 0).then(|| cluster.nodes[node].address());
    let mut engine = cluster.nodes[0].client();
    engine.volume(volume, AdminRequest::AddReplica { replica: new, at, node: None }).unwrap();
    engine.volume(volume, AdminRequest::DropReplica { replica: old }).unwrap();
    cluster.nodes[0].wait_in_sync(volume, 3);
    // Only now: before, it might have been the last to have something.
    client.remove_replica(old).unwrap();
    cluster.replicas[node] = new;
}

#[test]
fn a_storage_process_says_which_replicas_it_cannot_open_and_the_others_serve() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let mut cluster = Cluster::start(dir.path(), SIZE);
    let volume = cluster.volume;
    cluster.answer_records(0);
    cluster.nodes[0].client().attach(cluster.attachment(0, &socket)).unwrap();
    cluster.nodes[0].wait_in_sync(volume, 3);
    qemu_io(&socket, &["write -P 1 0 16M", "flush"]);
    let files = |cluster: &Cluster, node: usize| {
        let id = cluster.replicas[node].to_string();
        cluster.nodes[node].dir().join("replicas").join(id)
    };

    // Its process ends, and the next one cannot open it.
    cluster.nodes[1].kill();
    zero(&files(&cluster, 1).join("log"));
    cluster.nodes[1].resume();
    let (fault, why) = wait_fault(&cluster.nodes[1], cluster.replicas[1]);
    assert_eq!(fault, Some(ReplicaFault::Damaged), "{why}");
    qemu_io(&socket, &["read -P 1 0 16M", "write -P 2 0 1M", "flush"]);
    replace(&mut cluster, 1, "second");

    // The process goes on, and finds out when the next engine comes.
    cluster.nodes[0].client().detach(volume).unwrap();
    fs::remove_dir_all(files(&cluster, 2)).unwrap();
    cluster.nodes[0].client().attach(cluster.attachment(0, &socket)).unwrap();
    let (fault, why) = wait_fault(&cluster.nodes[2], cluster.replicas[2]);
    assert_eq!(fault, Some(ReplicaFault::Missing), "{why}");
    qemu_io(&socket, &["read -P 2 0 1M", "read -P 1 1M 15M", "write -P 3 8M 1M", "flush"]);
    // Asked for what is there, it says so again and makes nothing.
    let existing = NewReplica {
        volume,
        replica: cluster.replicas[2],
        size: SIZE,
        dir: None,
        existing: true,
        base: None,
    };
    let said = cluster.nodes[2].client().create_replica(existing).unwrap_err().to_string();
    assert!(said.contains("cannot open the replica"), "{said}");
    replace(&mut cluster, 2, "third");

    qemu_io(&socket, &["read -P 2 0 1M", "read -P 1 1M 7M", "read -P 3 8M 1M", "read -P 1 9M 7M"]);
    cluster.nodes[0].client().detach(volume).unwrap();
    let places = ["replicas", "second", "third"];
    let contents: Vec<Vec<u8>> = (0..3)
        .map(|node| {
            let place = cluster.nodes[node].dir().join(places[node]);
            let own = if node == 0 { files(&cluster, 0) } else { place };
            read_replica(&own, SIZE)
        })
        .collect();
    assert!(contents.iter().all(|it| *it == contents[0]), "replicas differ at rest");
}
