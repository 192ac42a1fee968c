//! A Sheaf server of a test's own: the built binary on a port and a directory of its own.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::etcd::Etcd;
use super::http::Http;
use super::kubectl::{Kubectl, kubectls};
use super::template;
use super::wait::{output_of, poll};

pub(crate) struct Sheaf {
    directory: TempDir,
    arguments: Vec<String>,
    process: Option<Child>,
    /// Beginnings of warnings and errors that this test provokes.
    provoked: Vec<String>,
    /// The user that it runs as; by default ours.
    user: Option<u32>,
    /// The network namespace it runs in; ours if none is named.
    namespace: Option<String>,
    /// Whether it sees the devices of that namespace in /sys, and no control groups then.
    has_own_sysfs: bool,
    /// Whether files of the host may be disks, as most tests have them.
    has_host_disks: bool,
}

impl Sheaf {
    /// A single node that is ready.
    pub(crate) fn start() -> Self {
        let mut server = Self::used(&[]);
        server.begin();
        server
    }

    /// The same with further arguments, in a new directory.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut server = Self::prepared(arguments);
        server.begin();
        server
    }

    /// A node that keeps its objects in an etcd.
    pub(crate) fn on(etcd: &Etcd) -> Self {
        let arguments = etcd.arguments();
        Self::with(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A data directory that has the first objects of a cluster; nothing runs on it.
    pub(crate) fn used(arguments: &[&str]) -> Self {
        let server = Self::prepared(arguments);
        template::copy_to(&server.data());
        server
    }

    /// A data directory on which nothing ran yet.
    pub(crate) fn prepared(arguments: &[&str]) -> Self {
        Self {
            directory: directory(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            process: None,
            provoked: Vec::new(),
            user: None,
            namespace: None,
            has_own_sysfs: false,
            has_host_disks: true,
        }
    }

    /// Runs the server without `--host-disk-path` from now on, unless the arguments have it.
    pub(crate) fn run_without_host_disks(&mut self) {
        self.has_host_disks = false;
    }

    /// Runs the server in a network namespace from now on, where it can make taps.
    pub(crate) fn run_with_sysfs_of(&mut self, namespace: &str) {
        self.run_in(namespace);
        self.has_own_sysfs = true;
    }

    /// Runs the server in a network namespace from now on.
    pub(crate) fn run_in(&mut self, namespace: &str) {
        self.namespace = Some(namespace.to_owned());
    }

    /// Runs the server as another user from now on, who gets the directory.
    pub(crate) fn run_as(&mut self, user: u32) {
        assert!(rustix::process::geteuid().is_root(), "this test changes users: run it as root");
        std::os::unix::fs::chown(self.directory.path(), Some(user), Some(user)).unwrap();
        self.user = Some(user);
    }

    /// Starts the process and waits until it serves.
    pub(crate) fn begin(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut process = self.spawn();
        poll("the server announces itself", || {
            if self.has_announced() {
                return Ok(());
            }
            if let Ok(Some(status)) = process.try_wait() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            Err(self.log())
        });
        self.process = Some(process);
    }

    /// Starts the process, which may not come to serve.
    pub(crate) fn start_without_waiting(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        self.process = Some(self.spawn());
    }

    /// Starts a process on this directory; its output replaces that of the one before.
    pub(crate) fn spawn(&self) -> Child {
        let file = |name: &str| File::create(self.directory.path().join(name)).unwrap();
        // Another user may not be able to reach the program, but can run what is open.
        let program = File::open(binary()).unwrap();
        let mut command = match (self.user, &self.namespace) {
            (_, Some(namespace)) if self.has_own_sysfs => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(binary());
                command
            }
            (_, Some(namespace)) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg(binary());
                command
            }
            (Some(user), None) => {
                let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
                command.uid(user).gid(user);
                command
            }
            (None, None) => Command::new(binary()),
        };
        let has = |flag: &str| self.arguments.iter().any(|argument| argument == flag);
        let is_witness = self.arguments.first().is_some_and(|word| word == "witness");
        // Only a server with the name of its node has an agent.
        if is_witness {
            command.arg("witness");
        } else if !self.arguments.iter().any(|argument| argument == "--node-name") {
            command.arg("server").arg("--no-agent");
        } else {
            command.arg("server");
            if !self.arguments.iter().any(|argument| argument == "--import-allow") {
                command.args(["--import-allow", "127.0.0.0/8", "--import-allow", "::1/128"]);
            }
            // Disks of tests are files of the host, wherever images were put.
            if self.has_host_disks && !has("--host-disk-path") {
                command.args(["--host-disk-path", "/"]);
            }
        }
        if !has("--listen") && !has("--join") && !is_witness {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command
            .args(["--log-format", "json"])
            .arg("--data-dir")
            .arg(self.data())
            .args(self.arguments.iter().skip(usize::from(is_witness)))
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap()
    }

    /// Replaces the arguments for the next start.
    pub(crate) fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    /// Announces a warning or error that this test provokes, by a part of its line.
    pub(crate) fn provokes(&mut self, part: &str) {
        self.provoked.push(part.to_owned());
    }

    /// `kill -9`: no chance to tidy up.
    pub(crate) fn kill(&mut self) {
        self.check_log();
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Kills it for good; its log is checked later.
    pub(crate) fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGTERM; answers how long the end took.
    pub(crate) fn terminate(&mut self) -> Duration {
        let mut process = self.process.take().expect("it runs");
        // Interrupted operations may log this.
        self.provokes("the server is shutting down");
        let began = Instant::now();
        kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
        let status = poll("the server ends", || match process.try_wait().unwrap() {
            Some(status) => Ok(status),
            None => Err("it still runs".to_owned()),
        });
        assert!(status.success(), "it ended with {status}:\n{}", self.log());
        began.elapsed()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.process.as_ref().expect("it runs"))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A place for files of the test.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data().join("admin.kubeconfig")
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn address(&self) -> String {
        let url = self.announced().expect("it was started");
        url.trim_start_matches("https://").to_owned()
    }

    /// Requests as the administrator.
    pub(crate) fn http(&self) -> Http {
        Http::from_kubeconfig(&self.kubeconfig())
    }

    /// Anonymous requests.
    pub(crate) fn anonymous(&self) -> Http {
        Http::anonymous(&self.kubeconfig())
    }

    /// Requests with a bearer token.
    pub(crate) fn bearer(&self, token: &str) -> Http {
        Http::bearer(&self.kubeconfig(), token)
    }

    /// The newest kubectl of this machine, as the administrator.
    pub(crate) fn kubectl(&self) -> Kubectl {
        let newest = kubectls().last().expect("there is a kubectl");
        newest.on(&self.kubeconfig(), &self.scratch("home"))
    }

    /// Every kubectl of this machine, as the administrator.
    pub(crate) fn every_kubectl(&self) -> Vec<Kubectl> {
        let with = |kubectl: &Kubectl| {
            let home = self.scratch(&format!("home-{}", kubectl.minor()));
            kubectl.on(&self.kubeconfig(), &home)
        };
        kubectls().iter().map(with).collect()
    }

    /// Another command of the binary, on this data directory.
    pub(crate) fn command(&self, line: &str) -> Output {
        self.run_command(Command::new(binary()), line)
    }

    /// The same in the network namespace of the server.
    pub(crate) fn command_there(&self, line: &str) -> Output {
        let namespace = self.namespace.as_ref().expect("it has a network namespace");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).arg(binary());
        self.run_command(command, line)
    }

    fn run_command(&self, mut command: Command, line: &str) -> Output {
        output_of(command.args(line.split_whitespace()).arg("--data-dir").arg(self.data()))
    }

    /// The same; it must succeed, and its output is the answer.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.command(line);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "sheaf {line}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same; it must fail, and its complaint is the answer.
    #[track_caller]
    pub(crate) fn refused(&self, line: &str) -> String {
        let output = self.command(line);
        assert!(!output.status.success(), "sheaf {line} is not refused");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The server's log since it was last started.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Whether it serves: a server with its URL, or a node that has joined.
    fn has_announced(&self) -> bool {
        let text = fs::read_to_string(self.directory.path().join("stdout")).unwrap_or_default();
        text.contains("Stop with")
    }

    fn announced(&self) -> Option<String> {
        let text = fs::read_to_string(self.directory.path().join("stdout")).ok()?;
        // The line is complete once the next one has begun.
        let (_, rest) = text.split_once("URL ")?;
        let (url, _) = rest.split_once('\n')?;
        text.contains("Stop with").then(|| url.trim().to_owned())
    }

    /// Fails on an error that the test did not announce, and reports such a warning: on a busy
    /// machine something late is worth a warning, and no defect.
    fn check_log(&self) {
        for line in self.log().lines() {
            let Ok(entry) = serde_json::from_str::<Value>(line) else {
                // A panic is not written by the logger.
                assert!(!line.contains("panicked"), "the server panicked:\n{}", self.log());
                continue;
            };
            if self.provoked.iter().any(|part| line.contains(part.as_str())) {
                continue;
            }
            match entry["level"].as_str() {
                Some("ERROR") => panic!("an unexpected line in the log: {line}"),
                Some("WARN") if std::env::var_os("STRICT_LOGS").is_some() => {
                    panic!("an unexpected line in the log: {line}")
                }
                Some("WARN") => note_warning(line),
                _ => {}
            }
        }
    }
}

/// `make test` shows them at its end.
fn note_warning(line: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let notes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warnings");
    let mut notes = fs::File::options().create(true).append(true).open(notes).unwrap();
    notes.write_all(format!("{test}: {line}\n").as_bytes()).unwrap();
}

impl Drop for Sheaf {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(20);
            eprintln!("the end of the server's log:\n{}", lines[from..].join("\n"));
        } else {
            self.check_log();
        }
    }
}

/// The binary that Cargo built for this run.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_sheaf"))
}

/// In memory where there is such a place: tests sync thousands of times, and a killed
/// process does not see the difference.
pub(super) fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("sheaf-").tempdir_in(place).unwrap()
}
