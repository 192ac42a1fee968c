//! A server under measurement: started, watched through /proc, stopped.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::{Child, Command};

use crate::client::Client;

/// A running `sheaf server`.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) client: Client,
    /// From exec to the first success of `/readyz`.
    pub(crate) started_in: Duration,
}

/// Runs a program that must succeed.
pub(crate) async fn tool(program: &str, arguments: &[&str]) -> Result<()> {
    let done = Command::new(program).args(arguments).output().await;
    let done = done.with_context(|| format!("cannot run {program}; is it installed?"))?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program} {}: {complaint}", arguments.join(" "));
    Ok(())
}

/// One of the guests in `tests/guests`, as a disk of 1 MiB.
pub(crate) async fn assemble(guest: &str) -> Result<Vec<u8>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/guests");
    let dir = tempfile::tempdir()?;
    let source = sources.join(format!("{guest}.S"));
    let (object, image) = (dir.path().join("guest.o"), dir.path().join("guest"));
    let text = |path: &Path| path.display().to_string();
    tool("as", &["--32", &text(&source), "-o", &text(&object)]).await?;
    let link = ["-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"];
    tool("ld", &[&link[..], &[&text(&object), "-o", &text(&image)]].concat()).await?;
    let mut guest = std::fs::read(image)?;
    guest.resize(1 << 20, 0);
    Ok(guest)
}

/// Removes the bridge of a node that has ended.
pub(crate) fn remove_bridge(bridge: &str) {
    let table = format!("sheaf_{bridge}");
    let commands: [&[&str]; 4] = [
        &["ip", "link", "del", bridge],
        &["nft", "delete", "table", "inet", &table],
        &["nft", "delete", "table", "bridge", &table],
        &["nft", "delete", "table", "bridge", &format!("{table}_seen")],
    ];
    for command in commands {
        let _ = std::process::Command::new(command[0]).args(&command[1..]).output();
    }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// A control plane alone.
    pub(crate) async fn start(binary: &Path, dir: &Path, more: &[String]) -> Result<Self> {
        let more = [&["--no-agent".to_owned()], more].concat();
        Self::node(binary, dir, &more).await
    }

    /// A whole node.
    pub(crate) async fn node(binary: &Path, dir: &Path, more: &[String]) -> Result<Self> {
        let port = free_port()?;
        let begun = Instant::now();
        let child = Command::new(binary)
            .args(["server", "--log-level", "warn", "--data-dir"])
            .arg(dir)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(more)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let kubeconfig = dir.join("admin.kubeconfig");
        let limit = Duration::from_secs(60);
        while begun.elapsed() < limit {
            // The port is in the file once this server, not an earlier one, has written it.
            let text = std::fs::read_to_string(&kubeconfig).unwrap_or_default();
            if text.contains(&format!(":{port}"))
                && let Ok(client) = Client::from_kubeconfig(&text)
                && client.get("/readyz").await.is_ok_and(|(code, _)| code == 200)
            {
                return Ok(Self { child, client, started_in: begun.elapsed() });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("the server was not ready after {limit:?}")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// Resident memory in MB.
    pub(crate) fn memory(&self) -> f64 {
        memory(self.pid())
    }

    /// CPU time used so far, user and system.
    pub(crate) fn cpu(&self) -> Duration {
        cpu(self.pid())
    }

    pub(crate) async fn stop(mut self) -> Result<Duration> {
        let begun = Instant::now();
        let pid = self.pid().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        self.child.wait().await?;
        Ok(begun.elapsed())
    }
}

/// Resident memory of a process, in MB.
pub(crate) fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    kilobytes.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

/// CPU time that a process has used so far, user and system.
pub(crate) fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(") ").next().unwrap_or("");
    let ticks = after.split(' ').skip(11).take(2).filter_map(|it| it.parse::<u64>().ok());
    // The kernel counts in ticks of 10 ms.
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

pub(crate) fn kill(pid: u32) {
    let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
}

/// The processes that name a directory in their command lines.
pub(crate) fn processes_with(dir: &Path) -> Result<Vec<u32>> {
    let dir = dir.to_string_lossy().into_owned();
    let names = |arguments: &[String]| arguments.iter().any(|each| each.contains(&dir));
    let all = processes()?.into_iter().filter(|(_, arguments)| names(arguments));
    Ok(all.map(|(pid, _)| pid).collect())
}

/// All processes, with their command lines.
pub(crate) fn processes() -> Result<Vec<(u32, Vec<String>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let words = line.split(|byte| *byte == 0);
        let mut words: Vec<String> =
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        words.pop();
        found.push((pid, words));
    }
    Ok(found)
}

/// An etcd of our own, for measuring on top of it.
#[derive(Debug)]
pub(crate) struct Etcd {
    _child: Child,
    _dir: tempfile::TempDir,
    pub(crate) url: String,
}

impl Etcd {
    pub(crate) async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let url = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start etcd; is it installed?")?;
        let etcd = Self { _child: child, _dir: dir, url };
        // The first election takes most of a second, which must not be counted as the server's.
        etcd.connect().await?;
        Ok(etcd)
    }

    /// A client, once there is a leader that answers.
    pub(crate) async fn connect(&self) -> Result<etcd_client::Client> {
        let begun = Instant::now();
        loop {
            if let Ok(mut client) = etcd_client::Client::connect([&self.url], None).await
                && client.get("/", None).await.is_ok()
            {
                return Ok(client);
            }
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(30), "etcd did not come up");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The arguments that make a server use it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        ["--store", "etcd", "--etcd-endpoints", &self.url].map(str::to_owned).to_vec()
    }
}
