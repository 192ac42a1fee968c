//! An etcd of a test's own: one member or several, with or without TLS.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::port::ReservedPort;
use super::wait::{eventually, poll};

pub(crate) struct Etcd {
    directory: TempDir,
    members: Vec<Member>,
    secure: bool,
}

struct Member {
    name: String,
    client: ReservedPort,
    peer: ReservedPort,
    /// Where it says how it is, without TLS.
    health: ReservedPort,
    process: Option<Child>,
}

impl Etcd {
    /// One member.
    pub(crate) fn start() -> Self {
        Self::with(1, false)
    }

    /// Three members.
    pub(crate) fn cluster() -> Self {
        Self::with(3, false)
    }

    /// Three members that show certificates and want to see one.
    pub(crate) fn secure_cluster() -> Self {
        Self::with(3, true)
    }

    fn with(count: usize, secure: bool) -> Self {
        let directory = super::server::directory();
        if secure {
            write_certificates(directory.path());
        }
        let mut etcd = Self { directory, members: members(count), secure };
        etcd.begin();
        etcd
    }

    /// Starts what does not run and waits until all of it answers.
    pub(crate) fn begin(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].process.is_none() {
                let process = self.spawn(&self.members[index]);
                self.members[index].process = Some(process);
            }
        }
        for member in &self.members {
            eventually("etcd is healthy", || {
                ask(member.health.number(), "/health").is_some_and(|text| text.contains("\"true\""))
            });
        }
    }

    fn spawn(&self, member: &Member) -> Child {
        let (client, peer) = (self.url(member), peer_url(member));
        let cluster = self.members.iter().map(|one| format!("{}={}", one.name, peer_url(one)));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(self.directory.path().join(&member.name))
            .args(["--name", &member.name, "--initial-cluster", &cluster])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args([
                "--listen-metrics-urls",
                &format!("http://127.0.0.1:{}", member.health.number()),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if self.secure {
            let [ca, certificate, key] = self.files();
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        command.spawn().expect("etcd can be started; `scripts/setup test` installs it")
    }

    /// `kill -9` for every member.
    pub(crate) fn kill(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }

    /// `kill -9` for the one that leads, which there must be soon.
    pub(crate) fn kill_leader(&mut self) {
        let leader = poll("etcd has a leader", || {
            let leads = |member: &Member| member.process.is_some() && member.leads();
            self.members.iter().position(leads).ok_or_else(|| "there is no leader".to_owned())
        });
        self.members[leader].kill();
    }

    /// Drops the history of a cluster of one, up to the present, as its administrator may.
    pub(crate) fn compact(&self) {
        let member = &self.members[0];
        // The gateway speaks JSON; a key that is not there names the present revision.
        let read = post(member.client.number(), "/v3/kv/range", r#"{"key": "AA=="}"#);
        let revision = read.split("\"revision\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let revision = revision.unwrap_or_else(|| panic!("etcd reports its revision: {read}"));
        let body = format!(r#"{{"revision": "{revision}", "physical": true}}"#);
        let done = post(member.client.number(), "/v3/kv/compaction", &body);
        assert!(done.contains(" 200 "), "{done}");
    }

    pub(crate) fn endpoints(&self) -> String {
        self.members.iter().map(|member| self.url(member)).collect::<Vec<_>>().join(",")
    }

    /// Arguments with which a server uses it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments =
            vec!["--store=etcd".to_owned(), format!("--etcd-endpoints={}", self.endpoints())];
        if self.secure {
            let options = ["--etcd-cafile", "--etcd-certfile", "--etcd-keyfile"];
            let pairs = options.iter().zip(self.files());
            arguments.extend(pairs.map(|(option, file)| format!("{option}={}", file.display())));
        }
        arguments
    }

    fn url(&self, member: &Member) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", member.client.number())
    }

    /// Certificate authority, certificate and key; members and clients share them.
    fn files(&self) -> [PathBuf; 3] {
        ["ca.pem", "etcd.pem", "etcd-key.pem"].map(|name| self.directory.path().join(name))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Member {
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn leads(&self) -> bool {
        ask(self.health.number(), "/metrics")
            .is_some_and(|text| text.contains("\netcd_server_is_leader 1\n"))
    }
}

fn peer_url(member: &Member) -> String {
    format!("http://127.0.0.1:{}", member.peer.number())
}

fn members(count: usize) -> Vec<Member> {
    // etcd cannot choose its own ports.
    let member = |index| Member {
        name: format!("member{index}"),
        client: ReservedPort::new(),
        peer: ReservedPort::new(),
        health: ReservedPort::new(),
        process: None,
    };
    (0..count).map(member).collect()
}

fn write_certificates(directory: &Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "etcd of a test");
    let certificate = authority.self_signed(&authority_key).unwrap();
    std::fs::write(directory.join("ca.pem"), certificate.pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(directory.join("etcd.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.join("etcd-key.pem"), key.serialize_pem()).unwrap();
}

/// The answer of a plain HTTP server, if it answers.
fn ask(port: u16, path: &str) -> Option<String> {
    exchange(port, &format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n"))
}

fn post(port: u16, path: &str, body: &str) -> String {
    let head = format!("POST {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {}", body.len());
    exchange(port, &format!("{head}\r\n\r\n{body}")).expect("etcd answers")
}

fn exchange(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}
