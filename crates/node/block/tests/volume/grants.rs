//! Nodes with valid certificates: which of them a replica answers, over real TLS connections, and
//! certificates that are replaced under running processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::grant::{ReplicaGrant, ReplicaGrants};
use block::ids::{Generation, ReplicaId, VolumeId};
use block::repl::control::Record;
use block::repl::control::{ControlPlane as _, MemoryControl};
use block::repl::engine::Notice;
use block::storage::{
    Attachment, NewReplica, Question, RecordAnswer, RecordPlace, RecordQuestion, ReplicaAt,
};

use crate::node::{Node, PATIENCE};
use crate::wire::{Authority, Running, becomes_active, engine, replica};

const SIZE: u64 = 16 << 20;

fn grant(nodes: &[&str], generation: u64) -> ReplicaGrant {
    let nodes = nodes.iter().map(|it| (*it).to_owned()).collect();
    ReplicaGrant { nodes, generation: Generation(generation) }
}

/// Says which nodes a replica of a running shard is for.
fn set(running: &Running, id: ReplicaId, granted: ReplicaGrant) {
    let mut grants = ReplicaGrants::default();
    grants.set(id, granted);
    running.handle.with(move |shard| shard.set_grants(grants)).unwrap();
}

fn refused(running: &Running) -> u64 {
    running.handle.with(|shard| shard.refused_engines()).unwrap()
}

#[track_caller]
fn wait(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_with_a_valid_certificate_opens_only_replicas_that_are_granted_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Authority::new();
    let (volume, id) = (VolumeId::random(), ReplicaId::random());
    let (running, address) = replica(&dir.path().join("r"), volume, id, Some(cluster.node("r")));
    let short = Duration::from_millis(100);
    running.handle.with(move |shard| shard.expect_grant_within(short)).unwrap();
    set(&running, id, grant(&["a"], 0));
    let places = || vec![(id, address)];
    // Not named: refused, and counted.
    let socket = dir.path().join("b.sock");
    let (intruder, notices) = engine(&socket, volume, places(), Some(cluster.node("b")));
    assert!(!becomes_active(&notices), "b is not named");
    wait("a refusal", || refused(&running) > 0);
    drop(intruder);
    // Named.
    let socket = dir.path().join("a.sock");
    let (_engine, notices) = engine(&socket, volume, places(), Some(cluster.node("a")));
    assert!(becomes_active(&notices), "a is named");
}

#[test]
fn a_replica_without_a_grant_is_closed_and_a_new_engine_gets_in_with_its_grant() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Authority::new();
    let (volume, id) = (VolumeId::random(), ReplicaId::random());
    let (running, address) = replica(&dir.path().join("r"), volume, id, Some(cluster.node("r")));
    set(&running, ReplicaId::random(), grant(&["a"], 0));
    let socket = dir.path().join("a.sock");
    let (_engine, notices) = engine(&socket, volume, vec![(id, address)], Some(cluster.node("a")));
    // Faster than the grant: it waits, and is let in by it without another try.
    let waiting = || running.handle.with(|shard| shard.waiting_engines()).unwrap();
    wait("an engine to wait", || !waiting().is_empty());
    assert_eq!(waiting(), [(id, "a".to_owned())]);
    set(&running, id, grant(&["a"], 0));
    assert!(becomes_active(&notices));
    assert_eq!(refused(&running), 0);
    assert!(waiting().is_empty());
}

#[test]
fn what_is_granted_no_more_is_closed_and_an_engine_that_was_superseded_stays_out() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Authority::new();
    let (volume, id) = (VolumeId::random(), ReplicaId::random());
    let (running, address) = replica(&dir.path().join("r"), volume, id, Some(cluster.node("r")));
    set(&running, id, grant(&["a"], 0));
    let socket = dir.path().join("a.sock");
    let (_engine, notices) = engine(&socket, volume, vec![(id, address)], Some(cluster.node("a")));
    assert!(becomes_active(&notices));
    set(&running, id, grant(&["b"], 0));
    wait("the connection to be closed", || refused(&running) > 0);
    // Another engine was served meanwhile, with a newer generation.
    set(&running, id, grant(&["a", "b"], 9));
    let start = Instant::now();
    loop {
        match notices.recv_timeout(PATIENCE) {
            Ok(Notice::Fenced { by }) => break assert_eq!(by, Generation(9)),
            Ok(_) => assert!(start.elapsed() < PATIENCE),
            Err(error) => panic!("the old engine was not fenced: {error}"),
        }
    }
}

/// Two storage processes with certificates; volumes of the first have a replica on each.
struct Pair {
    nodes: [Node; 2],
}

impl Pair {
    fn start(dir: &Path, authority: &Authority) -> Self {
        let node = |at: usize| {
            let own = dir.join(format!("n{at}"));
            authority.write_node(&own.join("pki"), &format!("n{at}"));
            Node::start_secured(&own.join("s"), &own.join("pki"))
        };
        Self { nodes: [node(0), node(1)] }
    }

    /// Makes a volume; gives its replicas.
    fn volume(&self, volume: VolumeId) -> [ReplicaId; 2] {
        let ids = [ReplicaId::random(), ReplicaId::random()];
        for (node, replica) in self.nodes.iter().zip(ids) {
            let (dir, existing, base) = (None, false, None);
            let new = NewReplica { volume, replica, size: SIZE, dir, existing, base };
            node.client().create_replica(new).unwrap();
        }
        ids
    }

    fn attach(&self, volume: VolumeId, ids: [ReplicaId; 2], socket: &Path) {
        let at = |node: usize| (node != 0).then(|| self.nodes[node].address());
        let replicas = ids.iter().enumerate().map(|(node, id)| ReplicaAt {
            id: *id,
            at: at(node),
            node: None,
        });
        let attachment = Attachment {
            volume,
            node: "n0".to_owned(),
            replicas: replicas.collect(),
            nbd: Some(socket.to_owned()),
            nbd_tcp: None,
            vhost: None,
            record: RecordPlace::Asked,
            encrypted: false,
            standby: false,
        };
        self.nodes[0].client().attach(attachment).unwrap();
    }

    /// Answers the questions of the first node, for several volumes.
    fn answer_records(&self, records: BTreeMap<VolumeId, Arc<MemoryControl>>) {
        let client = self.nodes[0].client();
        client.set_timeout(None).unwrap();
        std::thread::spawn(move || {
            let answer = |question: &Question| {
                let record = &records[&question.volume];
                match &question.question {
                    RecordQuestion::Read => {
                        record.read().map_or(RecordAnswer::Unavailable, RecordAnswer::Read)
                    }
                    RecordQuestion::Swap { expect, record: new } => record
                        .compare_and_swap(*expect, new)
                        .map_or(RecordAnswer::Unavailable, RecordAnswer::Swapped),
                    RecordQuestion::Passphrase => RecordAnswer::Unavailable,
                }
            };
            let _ = client.serve_records(answer);
        });
    }
}

fn record(ids: [ReplicaId; 2]) -> Arc<MemoryControl> {
    Arc::new(MemoryControl::new(Record::new(ids)))
}

#[test]
fn replaced_certificates_are_used_by_new_connections_of_running_processes() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let pair = Pair::start(dir.path(), &old);
    let volumes = [VolumeId::random(), VolumeId::random()];
    let ids = volumes.map(|volume| pair.volume(volume));
    let records = volumes.into_iter().zip(ids.map(record)).collect();
    pair.answer_records(records);
    pair.attach(volumes[0], ids[0], &dir.path().join("first.sock"));
    pair.nodes[0].wait_in_sync(volumes[0], 2);
    // One end has certificates of another authority: new connections fail, the old one goes on.
    new.write_node(&dir.path().join("n1/pki"), "n1");
    pair.attach(volumes[1], ids[1], &dir.path().join("second.sock"));
    pair.nodes[0].wait_in_sync(volumes[1], 1);
    let connected = |volume: VolumeId| {
        let state = pair.nodes[0].state(volume).and_then(|it| it.status);
        state.map_or(0, |it| {
            it.replicas.iter().filter(|it| it.state == block::run::MemberState::InSync).count()
        })
    };
    assert_eq!(connected(volumes[0]), 2);
    // Then the other end has them too.
    new.write_node(&dir.path().join("n0/pki"), "n0");
    pair.nodes[0].wait_in_sync(volumes[1], 2);
    assert_eq!(connected(volumes[0]), 2, "{}", pair.nodes[0].log());
    // Files that are no certificates change nothing.
    std::fs::write(dir.path().join("n0/pki/cert.pem"), "nonsense").unwrap();
    std::fs::write(dir.path().join("n1/pki/cert.pem"), "nonsense").unwrap();
    pair.nodes[0].client().detach(volumes[1]).unwrap();
    pair.attach(volumes[1], ids[1], &dir.path().join("second.sock"));
    pair.nodes[0].wait_in_sync(volumes[1], 2);
}

#[test]
fn grants_outlive_a_storage_process_and_end_with_a_supervisor_that_knows_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut pair = Pair::start(dir.path(), &Authority::new());
    let volume = VolumeId::random();
    let ids = pair.volume(volume);
    pair.answer_records(BTreeMap::from([(volume, record(ids))]));
    let granted = BTreeMap::from([(ids[1], grant(&["n7"], 0))]);
    pair.nodes[1].client().grant_replicas(granted.clone()).unwrap();
    pair.nodes[1].kill();
    pair.nodes[1].resume();
    let status = pair.nodes[1].client().status().unwrap();
    assert!(status.knows_grants);
    assert_eq!(status.replicas[0].grant.as_ref(), granted.get(&ids[1]));
    pair.attach(volume, ids, &dir.path().join("a.sock"));
    let refused = || pair.nodes[1].client().status().unwrap().refused_engines;
    wait("a refusal", || refused() > 0);
    pair.nodes[0].wait_in_sync(volume, 1);
    // A program from before there were grants supervises it: every node of the cluster is let in.
    let client = pair.nodes[1].client();
    client.set_timeout(None).unwrap();
    std::thread::spawn(move || client.serve_records(|_| RecordAnswer::Unavailable));
    pair.nodes[0].wait_in_sync(volume, 2);
    assert_eq!(pair.nodes[1].client().status().unwrap().replicas[0].grant, None);
}
