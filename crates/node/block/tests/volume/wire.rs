//! Engines and replicas that meet over a network: with certificates, and with strangers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use block::ids::{EngineId, ReplicaId, VolumeId};
use block::repl::control::{MemoryControl, Record};
use block::repl::engine::{Config, Notice};
use block::run::{Address, Driver, Handle, Listener, Place, Role, Shard, Tls, VolumeOptions};
use block::store::files::Directory;
use block::store::{CreateOptions, create};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use crate::lab::tool;

const SIZE: u64 = 32 << 20;

/// An authority that makes certificates as a cluster's does.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn tls(&self, name: &str, organisation: &str) -> Tls {
        self.tls_trusting(name, organisation, self)
    }

    /// The certificates of a node.
    pub(crate) fn node(&self, name: &str) -> Tls {
        self.tls(&format!("system:node:{name}"), "system:nodes")
    }

    /// Writes the certificates of a node into a directory, in place of those that are there.
    pub(crate) fn write_node(&self, dir: &Path, name: &str) {
        std::fs::create_dir_all(dir).unwrap();
        let (certificate, key) = self.issue(&format!("system:node:{name}"), "system:nodes");
        let files = [("key.pem", &key), ("cert.pem", &certificate), ("ca.pem", &self.pem)];
        for (file, text) in files {
            std::fs::write(dir.join("new"), text).unwrap();
            std::fs::rename(dir.join("new"), dir.join(file)).unwrap();
        }
    }

    fn tls_trusting(&self, name: &str, organisation: &str, trusted: &Self) -> Tls {
        let (pem, key) = self.issue(name, organisation);
        Tls::from_pem(trusted.pem.as_bytes(), pem.as_bytes(), key.as_bytes(), Role::node()).unwrap()
    }

    /// A certificate and its key.
    fn issue(&self, name: &str, organisation: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, organisation);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A shard in a thread of its own, stopped with the test.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(make: impl FnOnce() -> Shard + Send + 'static) -> Running {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut shard = make();
        sender.send(shard.handle()).unwrap();
        shard.run().unwrap();
    });
    Running { handle: receiver.recv().unwrap(), thread: Some(thread) }
}

/// Serves a new replica over TCP.
pub(crate) fn replica(
    dir: &Path,
    volume: VolumeId,
    id: ReplicaId,
    tls: Option<Tls>,
) -> (Running, SocketAddr) {
    std::fs::create_dir_all(dir).unwrap();
    create(&mut Directory::new(dir), &CreateOptions::new(volume, id, SIZE)).unwrap();
    let listener = Listener::bind(&Address::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let Address::Tcp(address) = listener.address().unwrap() else { panic!("not TCP") };
    let dir = dir.to_owned();
    let running = run(move || {
        let mut shard = Shard::new(Driver::Best).unwrap();
        tls.into_iter().for_each(|tls| shard.secure(tls));
        shard.expect_greeting_within(Duration::from_secs(1));
        shard.add_replica(&dir).unwrap();
        shard.listen_for_engines(listener).unwrap();
        shard
    });
    (running, address)
}

/// Serves a volume; gives what happens to it.
pub(crate) fn engine(
    socket: &Path,
    volume: VolumeId,
    replicas: Vec<(ReplicaId, SocketAddr)>,
    tls: Option<Tls>,
) -> (Running, mpsc::Receiver<Notice>) {
    let places = replicas.into_iter().map(|(id, at)| (id, Place::At(Address::Tcp(at))));
    engine_of(socket, volume, places.collect(), tls)
}

/// The same for replicas whose nodes may be known.
fn engine_of(
    socket: &Path,
    volume: VolumeId,
    replicas: Vec<(ReplicaId, Place)>,
    tls: Option<Tls>,
) -> (Running, mpsc::Receiver<Notice>) {
    let (sender, notices) = mpsc::channel();
    let listener = Listener::bind(&Address::Unix(socket.to_owned())).unwrap();
    let running = run(move || {
        let mut shard = Shard::new(Driver::Best).unwrap();
        tls.into_iter().for_each(|tls| shard.secure(tls));
        let record = Record::new(replicas.iter().map(|(id, _)| *id));
        let config = Config {
            open_wait: Duration::from_secs(1),
            ..Config::new(volume, EngineId::random(), "n")
        };
        shard.add_volume(VolumeOptions {
            config,
            replicas,
            control: Box::new(MemoryControl::new(record)),
            name: String::new(),
            listeners: vec![listener],
            guests: Vec::new(),
            encryption: None,
            standby: false,
            notices: Box::new(move |notice| drop(sender.send(notice.clone()))),
        });
        shard
    });
    (running, notices)
}

/// Waits for one of two notices.
pub(crate) fn becomes_active(notices: &mpsc::Receiver<Notice>) -> bool {
    loop {
        match notices.recv_timeout(Duration::from_secs(300)) {
            Ok(Notice::Active { .. }) => return true,
            Ok(Notice::Waiting) => return false,
            Ok(_) => {}
            Err(error) => panic!("nothing happens: {error}"),
        }
    }
}

#[test]
fn nodes_of_a_cluster_share_a_volume_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Authority::new();
    let volume = VolumeId::random();
    let ids = [ReplicaId::random(), ReplicaId::random()];
    let replicas: Vec<(Running, SocketAddr)> = ids
        .iter()
        .map(|id| {
            let tls = cluster.tls("system:node:b", "system:nodes");
            replica(&dir.path().join(id.to_string()), volume, *id, Some(tls))
        })
        .collect();
    let places = ids.iter().copied().zip(replicas.iter().map(|(_, at)| *at)).collect();
    let socket = dir.path().join("nbd.sock");
    let tls = cluster.tls("system:node:a", "system:nodes");
    let (running, notices) = engine(&socket, volume, places, Some(tls));
    assert!(becomes_active(&notices));
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let image = dir.path().join("image");
    let pattern: Vec<u8> = (0..SIZE).map(|at| (at / 4099) as u8).collect();
    std::fs::write(&image, &pattern).unwrap();
    tool("nbdcopy", &["--flush", image.to_str().unwrap(), &uri]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", image.to_str().unwrap(), &uri]);
    drop(running);
}

#[test]
fn who_is_no_node_of_the_cluster_gets_nothing() {
    let (cluster, other) = (Authority::new(), Authority::new());
    let node = || Some(cluster.tls("system:node:a", "system:nodes"));
    for (what, engine_tls, replica_tls) in [
        ("another cluster", Some(other.tls("system:node:a", "system:nodes")), node()),
        (
            "an authority that only the engine trusts",
            Some(other.tls_trusting("system:node:a", "system:nodes", &cluster)),
            node(),
        ),
        ("a user of the cluster", Some(cluster.tls("alice", "system:masters")), node()),
        ("a node in name only", Some(cluster.tls("system:node:a", "admins")), node()),
        ("no certificate", None, node()),
        ("a replica without one", node(), None),
        ("a replica that is a user", node(), Some(cluster.tls("mallory", "people"))),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (volume, id) = (VolumeId::random(), ReplicaId::random());
        let (_replica, address) = replica(&dir.path().join("r"), volume, id, replica_tls);
        let socket = dir.path().join("nbd.sock");
        let (_engine, notices) = engine(&socket, volume, vec![(id, address)], engine_tls);
        assert!(!becomes_active(&notices), "{what}");
    }
}

/// The other node is in the cluster, and may even have been granted a replica of the volume.
#[test]
fn another_node_at_the_address_of_a_replica_is_not_taken_for_the_node_that_has_it() {
    let cluster = Authority::new();
    for (has_it, expected) in [(Some("b"), true), (None, true), (Some("c"), false)] {
        let dir = tempfile::tempdir().unwrap();
        let (volume, id) = (VolumeId::random(), ReplicaId::random());
        let tls = |name: &str| Some(cluster.tls(name, "system:nodes"));
        let (_replica, address) = replica(&dir.path().join("r"), volume, id, tls("system:node:b"));
        let place = Place::of(Some(Address::Tcp(address)), has_it.map(str::to_owned));
        let socket = dir.path().join("nbd.sock");
        let (_engine, notices) =
            engine_of(&socket, volume, vec![(id, place)], tls("system:node:a"));
        assert_eq!(becomes_active(&notices), expected, "{has_it:?}");
    }
}

/// How long until the other end disconnects.
fn hung_up_after(mut stream: TcpStream, send: &[u8]) -> Duration {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = stream.write_all(send);
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return start.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return start.elapsed(),
            Err(error) => panic!("the connection is still there: {error}"),
        }
    }
}

#[test]
fn garbage_and_silence_end_a_connection_and_nothing_else() {
    let cluster = Authority::new();
    for tls in [None, Some(cluster.tls("system:node:b", "system:nodes"))] {
        let dir = tempfile::tempdir().unwrap();
        let (volume, id) = (VolumeId::random(), ReplicaId::random());
        let (_replica, address) = replica(&dir.path().join("r"), volume, id, tls.clone());
        let connect = || TcpStream::connect(address).unwrap();
        // Half a header, a header of nonsense, a request of another protocol, nothing at all.
        for garbage in [&[0x16, 3, 1][..], &[0xff; 200], b"GET / HTTP/1.1\r\n\r\n", &[]] {
            hung_up_after(connect(), garbage);
        }
        // Many that say nothing do not keep an engine out for longer than they may be silent.
        let idle: Vec<TcpStream> = (0..80).map(|_| connect()).collect();
        for stream in idle {
            hung_up_after(stream, &[]);
        }
        let socket = dir.path().join("nbd.sock");
        let (_engine, notices) = engine(&socket, volume, vec![(id, address)], tls);
        assert!(becomes_active(&notices));
    }
}
