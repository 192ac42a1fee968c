//! The storage process of a node: asked by its supervisor, killed under its clients.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use block::ids::{ReplicaId, VolumeId};
use block::run::{AdminReply, AdminRequest};
use block::storage::{Attachment, ReplicaAt};

use crate::cluster::{Cluster, Running, finish, reconnecting, uri, verifier};
use crate::lab::{MIB, read_replica, tool};
use crate::node::{Node, PATIENCE, alone};

pub(crate) fn qemu_io(socket: &Path, commands: &[&str]) -> String {
    let uri = uri(socket);
    let mut args = vec!["-f", "raw", &uri];
    commands.iter().for_each(|command| args.extend(["-c", command]));
    let said = tool("qemu-io", &args);
    assert!(!said.contains("failed"), "{commands:?}: {said}");
    said
}

#[test]
fn a_volume_is_made_served_changed_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, data) = (dir.path().join("v.sock"), dir.path().join("d"));
    let mut node = Node::start(&data, None);
    let volume = node.volume(16 * MIB, &socket);
    let mut client = node.client();
    // Everything may be repeated.
    client.create(volume, 16 * MIB).unwrap();
    client.attach(alone(volume, &socket)).unwrap();
    qemu_io(&socket, &["write -P 1 0 1M", "flush"]);
    let snapshot =
        AdminRequest::Snapshot { name: "a".into(), created: 1, labels: Default::default() };
    let reply = client.volume(volume, snapshot).unwrap();
    assert!(matches!(reply, AdminReply::Snapshot { .. }), "{reply:?}");
    qemu_io(&socket, &["write -P 2 0 1M", "flush"]);
    client.volume(volume, AdminRequest::Resize { size: 32 * MIB }).unwrap();
    assert_eq!(tool("nbdinfo", &["--size", &uri(&socket)]).trim(), (32 * MIB).to_string());
    // After a clean stop and a start it is as it was, on the same socket.
    node.stop();
    assert!(!socket.exists(), "a process that ends takes its sockets along");
    node.resume();
    let mut client = node.client();
    qemu_io(&socket, &["read -P 2 0 1M", "write -P 3 31M 1M"]);
    client.volume(volume, AdminRequest::Revert { name: "a".into() }).unwrap();
    qemu_io(&socket, &["read -P 1 0 1M", "read -P 0 1M 1M"]);
    let said = client.delete(volume).unwrap_err().to_string();
    assert!(said.contains("is attached; detach it first"), "{said}");
    client.detach(volume).unwrap();
    client.detach(volume).unwrap();
    assert!(!socket.exists());
    client.delete(volume).unwrap();
    let left: Vec<_> = std::fs::read_dir(data.join("replicas")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(client.status().unwrap().replicas.is_empty());
    node.stop();
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let node = Node::start(&dir.path().join("d"), None);
    let volume = node.volume(MIB, &socket);
    let other = VolumeId::random();
    let mut client = node.client();
    let refused = |result: Result<(), block::storage::ClientError>, says: &str| {
        let said = result.unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    };
    refused(client.create(other, 0), "a volume has at least one block");
    refused(client.create(other, 4097), "not a multiple of 4096");
    refused(client.create(other, 1 << 60), "larger than 15 TiB");
    refused(client.attach(alone(other, &socket)), "has no record on this node");
    refused(client.detach(other).and_then(|()| client.delete(volume)), "detach it first");
    let relative = Attachment { nbd: Some("v.sock".into()), ..alone(volume, &socket) };
    refused(client.attach(relative), "must be absolute");
    let none = Attachment { nbd: None, ..alone(volume, &socket) };
    refused(client.attach(none), "nbd, nbdTcp or vhost is needed");
    let moved = Attachment { nbd: Some(dir.path().join("w.sock")), ..alone(volume, &socket) };
    refused(client.attach(moved), "attached in another way");
    refused(client.remove_replica(ReplicaId(volume.0)), "which is attached here");
    let twice = vec![ReplicaAt { id: ReplicaId(other.0), at: None, node: None }; 2];
    refused(client.attach(Attachment { replicas: twice, ..alone(other, &socket) }), "named twice");
    let snapshot = AdminRequest::Revert { name: "none".into() };
    refused(client.volume(volume, snapshot).map(drop), "there is no snapshot");
    refused(client.volume(other, AdminRequest::Scrub).map(drop), "is not attached");
    for garbage in ["{\"do\":\"nothing\"}", "GET / HTTP/1.1", "{\"do\":\"delete\"}", "[[[["] {
        let mut stream = UnixStream::connect(node.dir().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{garbage}\n").as_bytes()).unwrap();
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said).unwrap();
        assert!(said.contains("this is no request"), "{said}");
    }
    let status = client.status().unwrap();
    assert_eq!((status.volumes.len(), status.replicas.len()), (1, 1), "{status:?}");
    qemu_io(&socket, &["write -P 1 0 1M", "read -P 1 0 1M"]);
}

/// Kills the process under a client so many times, the last time as a supervisor would.
fn killed(rounds: u32) {
    let dir = tempfile::tempdir().unwrap();
    let (socket, front) = (dir.path().join("v.sock"), dir.path().join("front.sock"));
    let mut node = Node::start(&dir.path().join("d"), None);
    let volume = node.volume(64 * MIB, &socket);
    node.wait_in_sync(volume, 1);
    let _daemon = Running(reconnecting(&socket, &front));
    // QEMU waits a second or two before it connects again.
    let fio = verifier(&front, "16m", 3 * rounds);
    for round in 0..rounds {
        // In the middle of whatever it does.
        std::thread::sleep(Duration::from_millis(900 + u64::from(round * 331 % 500)));
        if round + 1 < rounds {
            node.kill()
        } else {
            node.stop()
        }
        node.resume();
        node.wait(volume, "the volume to be served", |state| {
            state.status.as_ref().is_some_and(|it| it.phase == "active")
        });
    }
    finish(fio);
    node.client().detach(volume).unwrap();
    node.stop();
    let replica = node.dir().join("replicas").join(volume.to_string());
    read_replica(&replica, 64 * MIB);
}

#[test]
fn a_guest_does_not_notice_that_its_storage_process_was_killed() {
    killed(4);
}

#[test]
#[ignore = "takes minutes"]
fn a_hundred_kills_of_a_storage_process_lose_nothing() {
    killed(100);
}

#[test]
fn nodes_that_are_killed_come_back_and_agree() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, front) = (dir.path().join("v.sock"), dir.path().join("front.sock"));
    let mut cluster = Cluster::start(dir.path(), 64 * MIB);
    let volume = cluster.volume;
    cluster.answer_records(0);
    cluster.nodes[0].client().attach(cluster.attachment(0, &socket)).unwrap();
    cluster.nodes[0].wait_in_sync(volume, 3);
    let _daemon = Running(reconnecting(&socket, &front));
    let fio = verifier(&front, "16m", 14);
    std::thread::sleep(Duration::from_millis(800));
    // Another node.
    cluster.nodes[2].kill();
    cluster.nodes[0].wait(volume, "the dead node to leave", |state| {
        state
            .status
            .as_ref()
            .is_some_and(|it| it.replicas.iter().filter(|it| it.state.is_recorded()).count() == 2)
    });
    cluster.nodes[2].resume();
    cluster.nodes[0].wait_in_sync(volume, 3);
    // The engine's own, whose agent comes back a little later.
    cluster.nodes[0].kill();
    cluster.nodes[0].resume();
    std::thread::sleep(Duration::from_millis(300));
    cluster.answer_records(0);
    cluster.nodes[0].wait_in_sync(volume, 3);
    finish(fio);
    cluster.nodes[0].client().detach(volume).unwrap();
    // And the volume can go to another node.
    let moved = dir.path().join("w.sock");
    cluster.answer_records(1);
    cluster.nodes[1].client().attach(cluster.attachment(1, &moved)).unwrap();
    cluster.nodes[1].wait_in_sync(volume, 3);
    qemu_io(&moved, &["write -P 7 32M 1M", "flush", "read -P 7 32M 1M"]);
    cluster.nodes[1].client().detach(volume).unwrap();
    cluster.nodes.iter_mut().for_each(Node::stop);
    cluster.compare(64 * MIB);
}
