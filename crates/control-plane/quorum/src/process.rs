//! The etcd process of this node: starting, finding and stopping it. It keeps running when `sheaf`
//! ends, so that a restart of the API server causes no election.
//!
//! A running process is found by its command line, which names the data directory. A PID file could
//! be missing just after the start, or name another process after the end.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::members::TlsFiles;

/// A log that is larger is truncated at the next start.
const LOG_LIMIT: u64 = 16 << 20;
const OOM_SCORE: &str = "-900";
/// Guests that use all processors must not cost the cluster its leader.
const NICENESS: &str = "-10";
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process may take to become etcd; milliseconds on a host that is not overcommitted.
const EXEC_TIMEOUT: Duration = Duration::from_secs(10);
const EXEC_CHECK: Duration = Duration::from_millis(1);

/// How the process is started.
#[derive(Debug, Clone)]
pub struct EtcdSpec {
    /// Absolute path of the directory with `etcd` and `etcd.log`.
    pub root: PathBuf,
    pub member: String,
    pub client_url: String,
    pub peer_url: String,
    pub tls: TlsFiles,
}

/// Initial members of a process without data. One with data has them in its data.
#[derive(Debug, Clone)]
pub enum InitialCluster {
    /// This member alone.
    New,
    /// Those in the data of this member, which must be there: without it, etcd would begin another
    /// cluster, empty and with the same keys.
    Known,
    /// Members as `(name, peer URL)`, this one included.
    Existing(Vec<(String, String)>),
    /// This member alone, with its data: all others are removed (`--force-new-cluster`).
    Forced,
}

/// Why the process cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start etcd")]
    Start { source: io::Error },
    #[error("cannot use {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{} has no data of etcd, and this node is a voter: restore it, or remove the node on another \
         management node, sheaf node remove, and join anew with an empty data directory",
        path.display()
    )]
    NoData { path: PathBuf },
    #[error("cannot watch the etcd process")]
    Watch { source: io::Error },
    #[error("the etcd process does not end")]
    Stop,
}

/// The etcd process of one member.
#[derive(Debug, Clone)]
pub struct EtcdProcess {
    spec: EtcdSpec,
}

/// A process that was running when it was found.
#[derive(Debug)]
pub struct RunningEtcd {
    pidfd: AsyncFd<OwnedFd>,
    pub pid: i32,
}

impl EtcdProcess {
    pub fn new(spec: EtcdSpec) -> Self {
        Self { spec }
    }

    pub fn spec(&self) -> &EtcdSpec {
        &self.spec
    }

    fn data(&self) -> PathBuf {
        self.spec.root.join("etcd")
    }

    pub fn has_data(&self) -> bool {
        self.data().join("member").exists()
    }

    /// The process if it runs.
    pub fn find(&self) -> Option<RunningEtcd> {
        let data = self.data();
        let entries = std::fs::read_dir("/proc").ok()?.flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers.filter(|number| serves(*number, &data)).find_map(|number| {
            let pidfd = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
            // Checked again, since the PID may have been reused before the pidfd was opened.
            serves(number, &data).then(|| RunningEtcd::new(pidfd, number).ok()).flatten()
        })
    }

    /// The process, started if it does not run.
    pub fn ensure(&self, cluster: &InitialCluster) -> Result<RunningEtcd, ProcessError> {
        if let Some(found) = self.find() {
            return Ok(found);
        }
        if matches!(cluster, InitialCluster::Known | InitialCluster::Forced) && !self.has_data() {
            return Err(ProcessError::NoData { path: self.data() });
        }
        let path = self.spec.root.join("etcd.log");
        let log = open_log(&path).map_err(|source| ProcessError::File { path, source })?;
        // `nice` executes etcd, also if it has no right to raise the priority.
        let mut command = Command::new("nice");
        command.args(["-n", NICENESS, "etcd"]);
        command.args(arguments(&self.spec, cluster)).arg("--data-dir").arg(self.data());
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|source| ProcessError::Start { source })?;
        let number = child.id().cast_signed();
        let watch = |source: rustix::io::Errno| ProcessError::Watch { source: source.into() };
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(watch)?;
        // Only a hint to the kernel, and only for root.
        let _ = std::fs::write(format!("/proc/{number}/oom_score_adj"), OOM_SCORE);
        let running = RunningEtcd::new(pidfd, number)?;
        // Before that it is not found: another one would be started, and a stop would miss it.
        let (data, began) = (self.data(), Instant::now());
        while !serves(number, &data) && !running.has_ended() && began.elapsed() < EXEC_TIMEOUT {
            std::thread::sleep(EXEC_CHECK);
        }
        Ok(running)
    }

    /// Ends the process if it runs.
    pub async fn stop(&self) -> Result<(), ProcessError> {
        let Some(running) = self.find() else { return Ok(()) };
        for signal in [Signal::TERM, Signal::KILL] {
            let _ = pidfd_send_signal(running.pidfd.get_ref(), signal);
            if tokio::time::timeout(STOP_TIMEOUT, running.ended()).await.is_ok() {
                return Ok(());
            }
        }
        Err(ProcessError::Stop)
    }

    /// Renames the data directory; nothing is deleted.
    pub fn set_aside(&self, to: &str) -> Result<(), ProcessError> {
        let path = self.data();
        match std::fs::rename(&path, self.spec.root.join(to)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome.map_err(|source| ProcessError::File { path, source }),
        }
    }

    /// Copies the data of a process that does not run; the target must not exist.
    pub fn back_up(&self, to: &str) -> Result<PathBuf, ProcessError> {
        let target = self.spec.root.join(to);
        let outcome = copy_dir(&self.data(), &target);
        outcome.map_err(|source| ProcessError::File { path: target.clone(), source })?;
        Ok(target)
    }

    /// Deletes the data of a move into etcd that was not completed.
    pub fn discard(&self) -> Result<(), ProcessError> {
        let path = self.data();
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome.map_err(|source| ProcessError::File { path, source }),
        }
    }
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

impl RunningEtcd {
    fn new(pidfd: OwnedFd, pid: i32) -> Result<Self, ProcessError> {
        let pidfd = exit_signal(pidfd).map_err(|source| ProcessError::Watch { source })?;
        Ok(Self { pidfd, pid })
    }

    /// Whether our child has ended; whoever waits for it finds out as well.
    fn has_ended(&self) -> bool {
        let child = WaitId::PidFd(self.pidfd.get_ref().as_fd());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(child, options), Ok(None))
    }

    /// Resolves when the process has ended.
    pub async fn ended(&self) {
        let _ = self.pidfd.readable().await;
        // A child stays a zombie until it is waited for. A process that an earlier `sheaf` started is
        // not our child.
        let child = WaitId::PidFd(self.pidfd.get_ref().as_fd());
        let _ = waitid(child, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// An asynchronous pidfd, which becomes readable when the process ends.
#[expect(unsafe_code, reason = "tokio wants a promise about the descriptor")]
fn exit_signal(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` gives out one descriptor for all its life, and closes it only when
    // the `AsyncFd` that owns it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

fn open_log(path: &Path) -> io::Result<std::fs::File> {
    let is_large = std::fs::metadata(path).is_ok_and(|log| log.len() > LOG_LIMIT);
    let mut options = OpenOptions::new();
    options.create(true).write(true);
    if is_large { options.truncate(true) } else { options.append(true) }.open(path)
}

/// Whether a process is etcd with this data directory. One that has ended has no command line.
fn serves(pid: i32, data: &Path) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let wanted = data.as_os_str().as_encoded_bytes();
    words.windows(2).any(|pair| pair[0] == b"--data-dir" && pair[1] == wanted)
        && words[0].rsplit(|byte| *byte == b'/').next() == Some(b"etcd")
}

fn arguments(spec: &EtcdSpec, cluster: &InitialCluster) -> Vec<String> {
    let (members, state) = match cluster {
        InitialCluster::New | InitialCluster::Known | InitialCluster::Forced => {
            (vec![(spec.member.clone(), spec.peer_url.clone())], "new")
        }
        InitialCluster::Existing(members) => (members.clone(), "existing"),
    };
    let members: Vec<String> = members.iter().map(|(name, url)| format!("{name}={url}")).collect();
    let text = |path: &Path| path.display().to_string();
    let (ca, certificate, key) =
        (text(&spec.tls.ca), text(&spec.tls.certificate), text(&spec.tls.key));
    let pairs = [
        ("--name", spec.member.clone()),
        ("--logger", "zap".into()),
        ("--log-outputs", "stderr".into()),
        ("--log-level", "warn".into()),
        ("--listen-peer-urls", spec.peer_url.clone()),
        ("--initial-advertise-peer-urls", spec.peer_url.clone()),
        ("--listen-client-urls", spec.client_url.clone()),
        ("--advertise-client-urls", spec.client_url.clone()),
        ("--initial-cluster", members.join(",")),
        ("--initial-cluster-state", state.into()),
        ("--cert-file", certificate.clone()),
        ("--key-file", key.clone()),
        ("--trusted-ca-file", ca.clone()),
        ("--peer-cert-file", certificate),
        ("--peer-key-file", key),
        ("--peer-trusted-ca-file", ca),
        ("--heartbeat-interval", "250".into()),
        ("--election-timeout", "2500".into()),
        ("--snapshot-count", "10000".into()),
        ("--quota-backend-bytes", "8589934592".into()),
        ("--max-request-bytes", "3145728".into()),
        ("--auto-compaction-retention", "0".into()),
    ];
    let mut all: Vec<String> =
        pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    let switches = [
        "--client-cert-auth",
        "--peer-client-cert-auth",
        "--pre-vote",
        "--experimental-initial-corrupt-check=true",
    ];
    all.extend(switches.map(str::to_owned));
    if matches!(cluster, InitialCluster::Forced) {
        all.push("--force-new-cluster".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(root: &Path) -> EtcdProcess {
        let tls = TlsFiles { ca: "ca".into(), certificate: "crt".into(), key: "key".into() };
        EtcdProcess::new(EtcdSpec {
            root: root.to_owned(),
            member: "n1-00000001".into(),
            client_url: "https://10.0.0.1:2379".into(),
            peer_url: "https://10.0.0.1:2380".into(),
            tls,
        })
    }

    #[test]
    fn a_voter_without_its_data_does_not_begin_another_cluster() {
        let dir = tempfile::tempdir().unwrap();
        for cluster in [InitialCluster::Known, InitialCluster::Forced] {
            let refused = process(dir.path()).ensure(&cluster);
            assert!(matches!(refused, Err(ProcessError::NoData { .. })), "{cluster:?}");
        }
        assert!(!dir.path().join("etcd.log").exists(), "nothing was started");
    }

    #[test]
    fn a_process_is_known_by_its_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (etcd, other) = (process(dir.path()), process(&dir.path().join("other")));
        runtime.block_on(async {
            assert!(etcd.find().is_none());
            // A process with the command line of etcd that does nothing.
            let mut sleeper = Command::new("sh");
            sleeper.arg0("etcd").args(["-c", "read line", "--", "--data-dir"]).arg(etcd.data());
            let mut child = sleeper.stdin(Stdio::piped()).spawn().unwrap();
            // While it is executed, a process has no command line.
            let began = Instant::now();
            let found = loop {
                match etcd.find() {
                    None if began.elapsed() < Duration::from_secs(300) => {
                        std::thread::sleep(EXEC_CHECK);
                    }
                    found => break found,
                }
            };
            assert_eq!(found.map(|found| found.pid), Some(child.id().cast_signed()));
            assert!(other.find().is_none());
            etcd.stop().await.unwrap();
            assert!(etcd.find().is_none());
            let _ = child.wait();
        });
    }

    #[test]
    fn members_and_clients_show_certificates_of_the_ca_of_etcd() {
        let dir = tempfile::tempdir().unwrap();
        let spec = process(dir.path()).spec().clone();
        let line = arguments(&spec, &InitialCluster::New).join(" ");
        for part in [
            "--client-cert-auth",
            "--peer-client-cert-auth",
            "--trusted-ca-file ca",
            "--initial-cluster n1-00000001=https://10.0.0.1:2380 --initial-cluster-state new",
        ] {
            assert!(line.contains(part), "{line}");
        }
        let others = vec![("a".to_owned(), "u".to_owned()), ("b".to_owned(), "v".to_owned())];
        let line = arguments(&spec, &InitialCluster::Existing(others)).join(" ");
        assert!(line.contains("--initial-cluster a=u,b=v --initial-cluster-state existing"));
        assert!(!line.contains("--force-new-cluster"));
        let line = arguments(&spec, &InitialCluster::Forced).join(" ");
        assert!(line.ends_with("--force-new-cluster"), "{line}");
    }

    #[test]
    fn a_copy_of_the_data_is_complete_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let etcd = process(dir.path());
        std::fs::create_dir_all(etcd.data().join("member/wal")).unwrap();
        std::fs::write(etcd.data().join("member/wal/0.wal"), "log").unwrap();
        let copy = etcd.back_up("copy").unwrap();
        assert_eq!(std::fs::read_to_string(copy.join("member/wal/0.wal")).unwrap(), "log");
        assert!(matches!(etcd.back_up("copy"), Err(ProcessError::File { .. })));
    }

    #[test]
    fn data_is_put_aside_or_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let etcd = process(dir.path());
        etcd.discard().unwrap();
        etcd.set_aside("etcd.removed").unwrap();
        std::fs::create_dir_all(dir.path().join("etcd/member")).unwrap();
        assert!(etcd.has_data());
        etcd.set_aside("etcd.removed").unwrap();
        assert!(!etcd.has_data() && dir.path().join("etcd.removed/member").exists());
    }
}
