//! Nodes in network namespaces on a bridge of this machine. Everything ends with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::client::Client;
use crate::process::{cpu, kill, memory, processes, processes_with, tool};
use crate::session::{Session, is_ready};

const BRIDGE: &str = "sbcluster";
const PREFIX: &str = "10.197.7";
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    Worker,
    Management,
}

#[derive(Debug)]
struct Member {
    name: String,
    number: usize,
    /// Arguments that it started with, beside those of every node.
    arguments: Vec<String>,
    server: Child,
    dir: PathBuf,
}

/// The nodes, and an administrator at the first.
#[derive(Debug)]
pub(crate) struct Cluster {
    sheaf: PathBuf,
    members: Vec<Member>,
    pub(crate) session: Session,
    bridge: Bridge,
    dir: TempDir,
}

impl Cluster {
    /// The first node, alone.
    pub(crate) async fn start(sheaf: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        // Machines run as users of their own, who must be able to pass.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(dir.path(), open)?;
        let bridge = Bridge::make().await?;
        bridge.add(1).await?;
        let listen = format!("{PREFIX}.11:6443");
        let member = spawn(sheaf, dir.path(), "one", 1, &["--listen", &listen])?;
        let begun = Instant::now();
        let session = loop {
            if let Ok(client) = admin(&member.dir)
                && let Ok(session) = Session::open(&client).await
            {
                break session;
            }
            ensure!(begun.elapsed() < START_TIMEOUT, "the first node did not come up");
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        let members = vec![member];
        let mut cluster = Self { sheaf: sheaf.to_owned(), members, session, bridge, dir };
        cluster.session.until("/api/v1/nodes/one", is_ready).await?;
        Ok(cluster)
    }

    /// Starts another node with a token, and answers how long it took until it was Ready.
    pub(crate) async fn join(&mut self, name: &str, role: Role) -> Result<Duration> {
        let number = self.members.len() + 1;
        self.bridge.add(number).await?;
        let role = match role {
            Role::Worker => "worker",
            Role::Management => "management",
        };
        let printed = self.ask(&["token", "create", "--role", role])?;
        let words: Vec<&str> = printed.split_whitespace().collect();
        let after = |flag: &str| {
            let at = words.iter().position(|word| *word == flag);
            at.and_then(|at| words.get(at + 1)).copied().with_context(|| printed.clone())
        };
        let join = ["--join", after("--join")?, "--token", after("--token")?, "--role", role];
        let begun = Instant::now();
        let member = spawn(&self.sheaf, self.dir.path(), name, number, &join)?;
        self.members.push(member);
        self.session.until(&format!("/api/v1/nodes/{name}"), is_ready).await?;
        Ok(begun.elapsed())
    }

    /// Kills the processes of a node, those of its machines and volumes included, like a power cut.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        let member = self.member(name)?;
        // The server first, or it starts again what ends.
        member.server.kill()?;
        member.server.wait()?;
        processes_with(&member.dir)?.into_iter().for_each(kill);
        Ok(())
    }

    /// Starts a node that was killed, and waits until machines may be placed on it again.
    pub(crate) async fn restart(&mut self, name: &str) -> Result<()> {
        let (sheaf, dir) = (self.sheaf.clone(), self.dir.path().to_owned());
        let member = self.member(name)?;
        let arguments: Vec<&str> = member.arguments.iter().map(String::as_str).collect();
        *member = spawn(&sheaf, &dir, name, member.number, &arguments)?;
        let is_free = |node: &serde_json::Value| {
            is_ready(node) && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
        };
        self.session.until(&format!("/api/v1/nodes/{name}"), is_free).await.map(drop)
    }

    /// The data directory of a node.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn member(&mut self, name: &str) -> Result<&mut Member> {
        self.members.iter_mut().find(|own| own.name == name).context("there is no such node")
    }

    /// Waits until so many members of etcd vote.
    pub(crate) async fn until_voters(&mut self, count: usize) -> Result<()> {
        let (begun, wanted) = (Instant::now(), format!("{count} voters"));
        loop {
            let status = self.ask(&["cluster", "status"]).unwrap_or_else(|error| error.to_string());
            if status.contains(&wanted) {
                return Ok(());
            }
            ensure!(begun.elapsed() < START_TIMEOUT * 2, "there are no {wanted}: {status}");
            tokio::time::sleep(POLL_INTERVAL * 10).await;
        }
    }

    /// `sheaf …` on the first node.
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.sheaf);
        command.args(arguments).arg("--data-dir").arg(&self.members[0].dir);
        let output = command.output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "sheaf {}: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// An administrator at the first node.
    pub(crate) fn client(&self) -> Result<Client> {
        admin(&self.members[0].dir)
    }

    /// Of all processes of a node, in MB.
    pub(crate) fn memory(&self, name: &str) -> Result<f64> {
        let Some(member) = self.members.iter().find(|own| own.name == name) else {
            bail!("there is no node {name}")
        };
        Ok(processes_with(&member.dir)?.into_iter().map(memory).sum())
    }

    /// CPU time of the storage processes of all nodes.
    pub(crate) fn storage_cpu(&self) -> Result<Duration> {
        let dir = self.dir.path().to_string_lossy().into_owned();
        let serves = |arguments: &[String]| {
            arguments.iter().any(|each| each == "storage")
                && arguments.iter().any(|each| each.contains(&dir))
        };
        let all = processes()?.into_iter().filter(|(_, arguments)| serves(arguments));
        Ok(all.map(|(pid, _)| cpu(pid)).sum())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The servers first, or they start again what ends.
        for member in &mut self.members {
            let _ = member.server.kill();
            let _ = member.server.wait();
        }
        processes_with(self.dir.path()).unwrap_or_default().into_iter().for_each(kill);
    }
}

fn admin(dir: &Path) -> Result<Client> {
    Client::from_kubeconfig(&std::fs::read_to_string(dir.join("admin.kubeconfig"))?)
}

fn spawn(sheaf: &Path, dir: &Path, name: &str, number: usize, more: &[&str]) -> Result<Member> {
    let dir = dir.join(name);
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", space(number))).arg(sheaf);
    command.args(["server", "--log-level", "error", "--guest-network", "user"]);
    command.args(["--node-name", name]).args(more).arg("--data-dir").arg(&dir);
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let server = server.context("cannot start a node; is nsenter installed?")?;
    let arguments = more.iter().map(|&own| own.to_owned()).collect();
    Ok(Member { name: name.to_owned(), number, arguments, server, dir })
}

fn space(number: usize) -> String {
    format!("{BRIDGE}-{number}")
}

/// The Linux bridge that connects the nodes.
#[derive(Debug)]
struct Bridge;

impl Bridge {
    async fn make() -> Result<Self> {
        let bridge = Self;
        bridge.remove();
        ip(&format!("link add {BRIDGE} type bridge")).await?;
        ip(&format!("addr add {PREFIX}.1/24 dev {BRIDGE}")).await?;
        ip(&format!("link set {BRIDGE} up")).await?;
        Ok(bridge)
    }

    /// A machine with a cable to the switch.
    async fn add(&self, number: usize) -> Result<()> {
        let (space, link) = (space(number), format!("{BRIDGE}{number}"));
        ip(&format!("netns add {space}")).await?;
        ip(&format!("link add {link} type veth peer name eth0 netns {space}")).await?;
        ip(&format!("link set {link} master {BRIDGE} up")).await?;
        ip(&format!("-n {space} addr add {PREFIX}.{}/24 dev eth0", number + 10)).await?;
        ip(&format!("-n {space} link set eth0 up")).await?;
        ip(&format!("-n {space} link set lo up")).await
    }

    fn remove(&self) {
        for number in 1..=5 {
            let spaces = ["netns".to_owned(), "del".to_owned(), space(number)];
            let _ = Command::new("ip").args(spaces).output();
        }
        let _ = Command::new("ip").args(["link", "del", BRIDGE]).output();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.remove();
    }
}

async fn ip(line: &str) -> Result<()> {
    tool("ip", &line.split(' ').collect::<Vec<_>>()).await
}
