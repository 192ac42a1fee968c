//! Services for a supervisor of a storage process: notifications, access for others, secrets.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use block::ids::{ReplicaId, VolumeId};
use block::repl::control::{ControlPlane as _, MemoryControl, Record};
use block::run::AdminRequest;
use block::storage::{
    Attachment, BaseOf, NewReplica, Question, RecordAnswer, RecordPlace, RecordQuestion, ReplicaAt,
    Secret,
};

use crate::lab::{MIB, tool};
use crate::node::{Node, PATIENCE, alone};
use crate::storage::qemu_io;

#[test]
fn a_watcher_is_sent_every_change() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let node = Node::start(&dir.path().join("d"), None);
    let (sender, statuses) = mpsc::channel();
    let watcher = node.client();
    watcher.set_timeout(None).unwrap();
    std::thread::spawn(move || watcher.watch(|status| sender.send(status.clone()).is_ok()));
    let until = |what: &str, is: &dyn Fn(&block::storage::StorageStatus) -> bool| loop {
        let status =
            statuses.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no status: {what}"));
        if is(&status) {
            return;
        }
    };
    until("nothing is there", &|status| status.volumes.is_empty());
    let volume = node.volume(16 * MIB, &socket);
    until("the volume is served", &|status| {
        let served = status.volumes.iter().filter_map(|it| it.status.as_ref());
        served.into_iter().any(|it| it.phase == "active")
    });
    let snapshot =
        AdminRequest::Snapshot { name: "a".into(), created: 1, labels: Default::default() };
    node.client().volume(volume, snapshot).unwrap();
    until("a snapshot is there", &|status| {
        status.volumes[0].status.as_ref().is_some_and(|it| it.snapshots.len() == 1)
    });
    node.client().detach(volume).unwrap();
    until("the volume is released", &|status| status.volumes.is_empty());
}

#[test]
fn a_socket_is_for_whom_it_was_given_to_also_after_a_kill() {
    assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let mut node = Node::start(&dir.path().join("d"), None);
    let volume = node.volume(MIB, &socket);
    let of = |socket: &Path| {
        let found = std::fs::metadata(socket).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    node.wait_in_sync(volume, 1);
    assert_eq!(of(&socket), (0, 0, 0o600));
    node.client().grant(volume, Some(4711), None).unwrap();
    assert_eq!(of(&socket), (4711, 0, 0o600));
    node.kill();
    node.resume();
    node.wait_in_sync(volume, 1);
    assert_eq!(of(&socket), (4711, 0, 0o600));
    node.client().grant(volume, None, Some(4712)).unwrap();
    assert_eq!(of(&socket), (0, 4712, 0o660));
    // A grant also applies when the volume is attached again.
    node.client().detach(volume).unwrap();
    node.client().attach(alone(volume, &socket)).unwrap();
    assert_eq!(of(&socket), (0, 4712, 0o660));
    node.client().grant(volume, None, None).unwrap();
    assert_eq!(of(&socket), (0, 0, 0o600));
    let said = node.client().grant(VolumeId::random(), None, None).unwrap_err().to_string();
    assert!(said.contains("is not attached"), "{said}");
}

/// Knows the record and the passphrase of a volume, as an agent would.
fn answer(node: &Node, replica: ReplicaId, passphrase: &'static str) -> Arc<AtomicBool> {
    let client = node.client();
    client.set_timeout(None).unwrap();
    let record = MemoryControl::new(Record::new([replica]));
    let away = Arc::new(AtomicBool::new(false));
    let is_away = away.clone();
    std::thread::spawn(move || {
        client.serve_records(|question: &Question| match &question.question {
            _ if is_away.load(Ordering::SeqCst) => RecordAnswer::Unavailable,
            RecordQuestion::Passphrase => RecordAnswer::Passphrase(Secret::new(passphrase.into())),
            RecordQuestion::Read => {
                record.read().map_or(RecordAnswer::Unavailable, RecordAnswer::Read)
            }
            RecordQuestion::Swap { expect, record: new } => record
                .compare_and_swap(*expect, new)
                .map_or(RecordAnswer::Unavailable, RecordAnswer::Swapped),
        })
    });
    away
}

#[test]
fn a_process_ends_on_request_while_its_records_are_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("v.sock");
    let mut node = Node::start(&dir.path().join("d"), None);
    let (volume, replica) = (VolumeId::random(), ReplicaId::random());
    let new = NewReplica { volume, replica, size: MIB, dir: None, existing: false, base: None };
    node.client().create_replica(new).unwrap();
    let away = answer(&node, replica, "");
    let attachment = Attachment {
        replicas: vec![ReplicaAt { id: replica, at: None, node: None }],
        record: RecordPlace::Asked,
        ..alone(volume, &socket)
    };
    node.client().attach(attachment).unwrap();
    node.wait_in_sync(volume, 1);
    qemu_io(&socket, &["write -P 7 0 64k"]);
    // While it serves, and while it waits to.
    away.store(true, Ordering::SeqCst);
    node.stop();
    node.resume();
    node.stop();
    node.resume();
    answer(&node, replica, "");
    node.wait_in_sync(volume, 1);
    qemu_io(&socket, &["read -P 7 0 64k"]);
    node.stop();
}

#[test]
fn an_encrypted_volume_asks_for_its_passphrase_and_writes_it_nowhere() {
    const PASSPHRASE: &str = "sehr-geheim-4711";
    let dir = tempfile::tempdir().unwrap();
    let (socket, data) = (dir.path().join("v.sock"), dir.path().join("d"));
    let mut node = Node::start(&data, None);
    let (volume, replica) = (VolumeId::random(), ReplicaId::random());
    let size = 16 * MIB + block::crypt::HEADER;
    let new = NewReplica { volume, replica, size, dir: None, existing: false, base: None };
    node.client().create_replica(new).unwrap();
    answer(&node, replica, PASSPHRASE);
    let attachment = Attachment {
        replicas: vec![ReplicaAt { id: replica, at: None, node: None }],
        record: RecordPlace::Asked,
        encrypted: true,
        ..alone(volume, &socket)
    };
    node.client().attach(attachment).unwrap();
    node.wait_in_sync(volume, 1);
    assert_eq!(tool("nbdinfo", &["--size", &crate::cluster::uri(&socket)]).trim(), "16777216");
    qemu_io(&socket, &["write -P 7 0 1M", "flush"]);
    node.kill();
    node.resume();
    // No client has the passphrase: the volume waits.
    let waits = |state: &block::storage::VolumeState| {
        state.error.as_ref().is_some_and(|why| why.contains("passphrase"))
    };
    node.wait(volume, "the volume to wait for its passphrase", waits);
    answer(&node, replica, PASSPHRASE);
    node.wait_in_sync(volume, 1);
    qemu_io(&socket, &["read -P 7 0 1M"]);
    let mut grep = std::process::Command::new("grep");
    let found = grep.args(["-r", "-l", PASSPHRASE]).arg(dir.path()).output().unwrap();
    assert!(found.stdout.is_empty(), "the passphrase is in {:?}", String::from_utf8(found.stdout));
}

#[test]
fn a_clone_shares_a_snapshot_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, second) = (dir.path().join("v.sock"), dir.path().join("w.sock"));
    let node = Node::start(&dir.path().join("d"), None);
    let mut client = node.client();
    let volume = node.volume(64 * MIB, &socket);
    node.wait_in_sync(volume, 1);
    qemu_io(&socket, &["write -P 1 0 8M", "flush"]);
    let snapshot =
        AdminRequest::Snapshot { name: "s".into(), created: 1, labels: Default::default() };
    client.volume(volume, snapshot).unwrap();
    qemu_io(&socket, &["write -P 2 0 1M", "flush"]);
    let clone = VolumeId::random();
    let base = BaseOf::Snapshot { replica: ReplicaId(volume.0), snapshot: "s".into() };
    let new = NewReplica {
        volume: clone,
        replica: ReplicaId(clone.0),
        size: 64 * MIB,
        dir: None,
        existing: false,
        base: Some(base),
    };
    // Twice: an answer may be lost.
    client.create_replica(new.clone()).unwrap();
    client.create_replica(new).unwrap();
    let record = Record::new([ReplicaId(clone.0)]);
    let path = node.dir().join(format!("records/{clone}.json"));
    block::repl::control::FileControl::create(&path, &record).unwrap();
    client.attach(alone(clone, &second)).unwrap();
    node.wait_in_sync(clone, 1);
    qemu_io(&second, &["read -P 1 0 8M", "write -P 3 4M 1M", "flush", "read -P 3 4M 1M"]);
    qemu_io(&socket, &["read -P 2 0 1M", "read -P 1 4M 1M"]);
    let status = client.status().unwrap();
    let used = |id| status.replicas.iter().find(|it| it.replica == id).unwrap().used_bytes.unwrap();
    assert!(used(ReplicaId(clone.0)) <= MIB, "{status:?}");
    // The one below stays for as long as it is needed.
    client.detach(volume).unwrap();
    let said = client.delete(volume).unwrap_err().to_string();
    assert!(said.contains("is the base of replica"), "{said}");
    // Meanwhile the clone gets a copy of its own, and then the other can go.
    let start = std::time::Instant::now();
    while let Err(error) = client.remove_replica(ReplicaId(volume.0)) {
        assert!(start.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    qemu_io(&second, &["read -P 1 0 4M", "read -P 3 4M 1M", "read -P 1 5M 3M"]);
    client.detach(clone).unwrap();
    client.delete(clone).unwrap();
    assert!(client.status().unwrap().replicas.is_empty());
    let left: Vec<_> = std::fs::read_dir(node.dir().join("replicas")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
