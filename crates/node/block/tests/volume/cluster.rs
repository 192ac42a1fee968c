//! Three nodes with a volume between them, clients that verify, and a wire that can be cut.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use block::ids::{ReplicaId, VolumeId};
use block::repl::control::{ControlError, ControlPlane as _, MemoryControl, Record};
use block::run::Address;
use block::storage::{
    Attachment, NewReplica, Question, RecordAnswer, RecordPlace, RecordQuestion, ReplicaAt,
};

use crate::lab::read_replica;
use crate::node::{Node, PATIENCE};

pub(crate) fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

/// QEMU's block layer as a guest has it: it connects again and repeats what was not answered.
pub(crate) fn reconnecting(socket: &Path, front: &Path) -> Child {
    let path = socket.display();
    let mut daemon = Command::new("qemu-storage-daemon");
    daemon.arg("--blockdev").arg(format!(
        "driver=nbd,node-name=n,server.type=unix,server.path={path},reconnect-delay=300"
    ));
    daemon.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", front.display()));
    daemon.arg("--export").arg("type=nbd,id=e,node-name=n,name=,writable=on");
    let child = daemon.stdin(Stdio::null()).spawn().expect("qemu-storage-daemon is installed");
    let start = Instant::now();
    while UnixStream::connect(front).is_err() {
        assert!(start.elapsed() < PATIENCE, "qemu-storage-daemon does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes and verifies, 32 at a time.
pub(crate) fn verifier(socket: &Path, size: &str, seconds: u32) -> Child {
    let mut fio = Command::new("timeout");
    fio.arg((seconds * 4 + 600).to_string());
    fio.args(["fio", "--name=v", "--ioengine=nbd", "--rw=randwrite", "--bs=4k"]);
    fio.args(["--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    fio.args(["--time_based", "--fsync=512", "--output-format=terse"]);
    fio.arg(format!("--size={size}")).arg(format!("--runtime={seconds}"));
    fio.arg(format!("--uri={}", uri(socket)));
    fio.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    fio.spawn().unwrap()
}

pub(crate) fn finish(child: Child) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fio: {} {said}", output.status);
}

/// Three nodes, and the record of a volume with a copy on each.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) volume: VolumeId,
    pub(crate) replicas: Vec<ReplicaId>,
    record: Arc<MemoryControl>,
}

impl Cluster {
    /// The nodes have their directories below one.
    pub(crate) fn start(dir: &Path, size: u64) -> Self {
        let node = |at| Node::start(&dir.join(format!("n{at}/s")), Some("127.0.0.1:0"));
        let nodes: Vec<Node> = (0..3).map(node).collect();
        let volume = VolumeId::random();
        let replicas: Vec<ReplicaId> = (0..3).map(|_| ReplicaId::random()).collect();
        for (node, replica) in nodes.iter().zip(&replicas) {
            let new = NewReplica {
                volume,
                replica: *replica,
                size,
                dir: None,
                existing: false,
                base: None,
            };
            node.client().create_replica(new).unwrap();
        }
        let record = Arc::new(MemoryControl::new(Record::new(replicas.iter().copied())));
        Self { nodes, volume, replicas, record }
    }

    /// Answers the questions of a node, as its agent would.
    pub(crate) fn answer_records(&self, node: usize) {
        let (client, record) = (self.nodes[node].client(), self.record.clone());
        client.set_timeout(None).unwrap();
        std::thread::spawn(move || {
            let answer = |question: &Question| match &question.question {
                RecordQuestion::Passphrase => RecordAnswer::Unavailable,
                RecordQuestion::Read => match record.read() {
                    Ok(found) => RecordAnswer::Read(found),
                    Err(_) => RecordAnswer::Unavailable,
                },
                RecordQuestion::Swap { expect, record: new } => {
                    match record.compare_and_swap(*expect, new) {
                        Ok(version) => RecordAnswer::Swapped(version),
                        Err(ControlError::Conflict(now)) => RecordAnswer::Conflict(*now),
                        Err(_) => RecordAnswer::Unavailable,
                    }
                }
            };
            let _ = client.serve_records(answer);
        });
    }

    pub(crate) fn attachment(&self, node: usize, socket: &Path) -> Attachment {
        let at = |at: usize| (at != node).then(|| self.nodes[at].address());
        let replicas = self.replicas.iter().enumerate();
        let replicas = replicas.map(|(index, id)| ReplicaAt { id: *id, at: at(index), node: None });
        Attachment {
            volume: self.volume,
            node: format!("n{node}"),
            replicas: replicas.collect(),
            nbd: Some(socket.to_owned()),
            nbd_tcp: None,
            vhost: None,
            record: RecordPlace::Asked,
            encrypted: false,
            standby: false,
        }
    }

    pub(crate) fn compare(&self, size: u64) {
        let contents: Vec<Vec<u8>> = self
            .nodes
            .iter()
            .zip(&self.replicas)
            .map(|(node, id)| read_replica(&node.dir().join("replicas").join(id.to_string()), size))
            .collect();
        assert!(contents.iter().all(|it| *it == contents[0]), "replicas differ at rest");
    }
}

/// A connection between two nodes that can be made to stop forwarding.
pub(crate) struct Wire {
    cut: Arc<AtomicBool>,
    address: std::net::SocketAddr,
}

impl Wire {
    pub(crate) fn to(target: Address) -> Self {
        let Address::Tcp(target) = target else { panic!("a node listens on TCP") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::new(AtomicBool::new(false));
        let shared = cut.clone();
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(one), Ok(other)) = (stream, TcpStream::connect(target)) else { continue };
                carry(&one, &other, &shared);
                carry(&other, &one, &shared);
            }
        });
        Self { cut, address }
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(self.address)
    }

    /// Nothing arrives any more, and no connection is closed.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }

    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::Release);
    }
}

fn carry(from: &TcpStream, to: &TcpStream, cut: &Arc<AtomicBool>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let cut = cut.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            while cut.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                let _ = to.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    });
}
