//! A real etcd, started for one test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::port::ReservedPort;
use crate::world::until;

pub(crate) struct EtcdServer {
    name: String,
    data: PathBuf,
    port: ReservedPort,
    /// Where it would listen to be out of reach.
    other_port: ReservedPort,
    peer_port: ReservedPort,
    /// All members with their peer addresses.
    members: String,
    extra: Vec<String>,
    process: Option<Child>,
}

impl EtcdServer {
    /// Starts a cluster of one.
    pub(crate) async fn start(directory: &Path, extra: &[String]) -> Self {
        let [mut server] = Self::plan(directory, extra);
        server.restart().await;
        server
    }

    pub(crate) async fn start_three(directory: &Path) -> [Self; 3] {
        let mut servers = Self::plan(directory, &[]);
        servers.iter_mut().for_each(Self::spawn);
        for server in &mut servers {
            server.ready().await;
        }
        servers
    }

    fn plan<const COUNT: usize>(directory: &Path, extra: &[String]) -> [Self; COUNT] {
        let mut servers = std::array::from_fn(|number| {
            let [port, other_port, peer_port] = [(); 3].map(|()| ReservedPort::new());
            let (name, extra) = (format!("member{number}"), extra.to_vec());
            let (data, members) = (directory.join(&name), String::new());
            Self { name, data, port, other_port, peer_port, members, extra, process: None }
        });
        let member = |server: &Self| format!("{}={}", server.name, server.peer());
        let members: Vec<String> = servers.iter().map(member).collect();
        servers.iter_mut().for_each(|server| server.members = members.join(","));
        servers
    }

    pub(crate) fn endpoint(&self) -> String {
        let tls = self.extra.iter().any(|argument| argument.starts_with("--cert-file"));
        format!("{}://127.0.0.1:{}", if tls { "https" } else { "http" }, self.port.number())
    }

    fn peer(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer_port.number())
    }

    /// Ends it without warning, as a power cut would.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Makes the next start listen elsewhere, or where it was before.
    pub(crate) fn swap_port(&mut self) {
        std::mem::swap(&mut self.port, &mut self.other_port);
    }

    pub(crate) async fn restart(&mut self) {
        self.spawn();
        self.ready().await;
    }

    async fn ready(&mut self) {
        until("etcd to listen", async || {
            let status = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(status.is_none(), "etcd ended with {status:?}");
            tokio::net::TcpStream::connect(("127.0.0.1", self.port.number())).await.is_ok()
        })
        .await;
    }

    fn spawn(&mut self) {
        let (client, peer) = (self.endpoint(), self.peer());
        let process = Command::new("/usr/bin/etcd")
            .arg("--data-dir")
            .arg(&self.data)
            .args(["--name", &self.name, "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.members])
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("these tests need /usr/bin/etcd");
        self.process = Some(process);
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}
