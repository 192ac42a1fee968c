//! An etcd of a test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::wait::eventually;

pub(crate) struct Etcd {
    directory: TempDir,
    ports: [u16; 2],
    process: Option<Child>,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let directory = super::server::directory();
        let mut etcd = Self { directory, ports: free_ports(), process: None };
        etcd.begin();
        etcd
    }

    /// Starts it, again or for the first time, and waits until it answers.
    pub(crate) fn begin(&mut self) {
        let [client, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.directory.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = process.expect("etcd can be started; `scripts/setup test` installs it");
        self.process = Some(process);
        eventually("etcd listens", || {
            let address = (std::net::Ipv4Addr::LOCALHOST, self.ports[0]);
            std::net::TcpStream::connect(address).is_ok()
        });
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// Arguments with which a server uses it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        vec!["--store=etcd".to_owned(), format!("--etcd-endpoints={}", self.endpoint())]
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Two ports that are free now. etcd cannot choose its own.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
