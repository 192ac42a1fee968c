//! A storage process that ends with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use block::ids::{ReplicaId, VolumeId};
use block::run::{Address, MemberState};
use block::storage::{Attachment, Client, RecordPlace, ReplicaAt, VolumeState};

use crate::lab::program;

/// Long enough for a machine that does ten other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Node {
    dir: PathBuf,
    listen: Option<String>,
    /// Further arguments.
    more: Vec<String>,
    child: Option<Child>,
}

impl Node {
    pub(crate) fn start(dir: &Path, listen: Option<&str>) -> Self {
        Self::start_with(dir, listen, Vec::new())
    }

    /// With the certificates of a directory, and a port for other nodes.
    pub(crate) fn start_secured(dir: &Path, certificates: &Path) -> Self {
        let more = vec![format!("certificates={}", certificates.display())];
        Self::start_with(dir, Some("127.0.0.1:0"), more)
    }

    fn start_with(dir: &Path, listen: Option<&str>, more: Vec<String>) -> Self {
        let listen = listen.map(str::to_owned);
        let mut node = Self { dir: dir.to_owned(), listen, more, child: None };
        node.resume();
        // The port that was chosen is kept over restarts.
        if let Some(Address::Tcp(address)) = node.client().status().unwrap().listen {
            node.listen = Some(address.to_string());
        }
        node
    }

    /// On a directory as a power cut left it: the kernel has begun another life.
    pub(crate) fn start_after_power_cut(dir: &Path) -> Self {
        let more = vec![format!("boot={}", VolumeId::random())];
        let mut node = Self { dir: dir.to_owned(), listen: None, more, child: None };
        node.resume();
        node
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn address(&self) -> Address {
        Address::Tcp(self.listen.as_ref().unwrap().parse().unwrap())
    }

    /// Starts the process and waits until it takes requests.
    pub(crate) fn resume(&mut self) {
        std::fs::create_dir_all(self.dir.parent().unwrap()).unwrap();
        let mut command = Command::new(program());
        command.arg("storage").arg(&self.dir).args(&self.listen).args(&self.more);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.with_extension("log"))
            .unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let start = Instant::now();
        while Client::connect(&self.dir).is_err() {
            assert!(start.elapsed() < PATIENCE, "no requests are taken: {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn client(&self) -> Client {
        let client = Client::connect(&self.dir).unwrap();
        client.set_timeout(Some(PATIENCE)).unwrap();
        client
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// As a crash would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// As a supervisor would.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        drop(child.stdin.take());
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > PATIENCE {
                child.kill().unwrap();
                panic!("it does not end: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "a clean end: {}", self.log());
    }

    /// A volume of this node alone, attached.
    pub(crate) fn volume(&self, size: u64, socket: &Path) -> VolumeId {
        let volume = VolumeId::random();
        self.client().create(volume, size).unwrap();
        self.client().attach(alone(volume, socket)).unwrap();
        volume
    }

    pub(crate) fn state(&self, volume: VolumeId) -> Option<VolumeState> {
        let status = self.client().status().ok()?;
        status.volumes.into_iter().find(|it| it.attachment.volume == volume)
    }

    pub(crate) fn wait(&self, volume: VolumeId, what: &str, is: impl Fn(&VolumeState) -> bool) {
        let start = Instant::now();
        loop {
            let state = self.state(volume);
            if state.as_ref().is_some_and(&is) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what}: {state:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn wait_in_sync(&self, volume: VolumeId, count: usize) {
        self.wait(volume, &format!("{count} replicas in sync"), |state| {
            state.status.as_ref().is_some_and(|status| {
                let in_sync =
                    status.replicas.iter().filter(|it| it.state == MemberState::InSync).count();
                status.phase == "active" && in_sync == count && status.unreconciled == 0
            })
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How a volume that only its node knows is attached.
pub(crate) fn alone(volume: VolumeId, socket: &Path) -> Attachment {
    Attachment {
        volume,
        node: "n".to_owned(),
        replicas: vec![ReplicaAt { id: ReplicaId(volume.0), at: None, node: None }],
        nbd: Some(socket.to_owned()),
        nbd_tcp: None,
        vhost: None,
        record: RecordPlace::File,
        encrypted: false,
        standby: false,
    }
}
