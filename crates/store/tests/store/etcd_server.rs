//! A real etcd, started for one test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::world::until;

pub(crate) struct EtcdServer {
    data: PathBuf,
    port: u16,
    /// Where it would listen to be out of reach.
    other_port: u16,
    peer_port: u16,
    extra: Vec<String>,
    process: Child,
}

impl EtcdServer {
    pub(crate) async fn start(directory: &Path, extra: &[String]) -> Self {
        let [port, other_port, peer_port] = free_ports();
        let data = directory.join("etcd");
        let extra = extra.to_vec();
        let process = spawn(&data, port, peer_port, &extra);
        let mut server = Self { data, port, other_port, peer_port, extra, process };
        server.ready().await;
        server
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.port)
    }

    /// Ends it without warning, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Makes the next start listen elsewhere, or where it was before.
    pub(crate) fn swap_port(&mut self) {
        std::mem::swap(&mut self.port, &mut self.other_port);
    }

    pub(crate) async fn restart(&mut self) {
        self.process = spawn(&self.data, self.port, self.peer_port, &self.extra);
        self.ready().await;
    }

    async fn ready(&mut self) {
        until("etcd to listen", async || {
            let status = self.process.try_wait().unwrap();
            assert!(status.is_none(), "etcd ended with {status:?}");
            tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok()
        })
        .await;
    }

    fn scheme(&self) -> &'static str {
        scheme(&self.extra)
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn scheme(extra: &[String]) -> &'static str {
    if extra.iter().any(|argument| argument.starts_with("--cert-file")) { "https" } else { "http" }
}

fn spawn(data: &Path, port: u16, peer_port: u16, extra: &[String]) -> Child {
    let client = format!("{}://127.0.0.1:{port}", scheme(extra));
    let peer = format!("http://127.0.0.1:{peer_port}");
    Command::new("/usr/bin/etcd")
        .arg("--data-dir")
        .arg(data)
        .args(["--name", "one", "--logger", "zap", "--log-level", "error"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}")])
        .args(extra)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("these tests need /usr/bin/etcd")
}

/// Ports that were free a moment ago.
fn free_ports() -> [u16; 3] {
    [(); 3]
        .map(|()| TcpListener::bind("127.0.0.1:0").unwrap())
        .map(|listener| listener.local_addr().unwrap().port())
}
