//! A laboratory that ends with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use block::run::lab::{LabReply, LabRequest, ask};
use block::run::{AdminReply, AdminRequest, MemberState, VolumeStatus};

pub(crate) const MIB: u64 = 1 << 20;

/// Long enough for a machine that does ten other things.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Lab {
    pub(crate) dir: tempfile::TempDir,
    size: u64,
    replicas: usize,
    how: Vec<&'static str>,
    child: Option<Child>,
}

impl Lab {
    pub(crate) fn start(size: u64, replicas: usize, how: &[&'static str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), size, replicas, how)
    }

    pub(crate) fn start_in(
        dir: tempfile::TempDir,
        size: u64,
        replicas: usize,
        how: &[&'static str],
    ) -> Self {
        let mut lab = Self { dir, size, replicas, how: how.to_vec(), child: None };
        lab.resume();
        lab
    }

    pub(crate) fn volume_dir(&self) -> PathBuf {
        self.dir.path().join("d")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// Starts the engine, and what else does not run.
    pub(crate) fn resume(&mut self) {
        let mut command = self.command(&self.how);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.child = Some(child);
        self.wait("the volume to be active", |status| status.phase == "active");
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(start.elapsed() < PATIENCE, "no client is let in: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As [`Lab::resume`], of a volume that may be beyond help. False if the engine has ended.
    pub(crate) fn try_resume(&mut self) -> bool {
        let mut command = self.command(&self.how);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        loop {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            let status = self.try_ask(&LabRequest::Status);
            let active = |it: &LabReply| matches!(it, LabReply::Status { volume, .. } if volume.phase == "active");
            let listens = std::os::unix::net::UnixStream::connect(self.socket()).is_ok();
            if status.as_ref().is_ok_and(active) && listens {
                self.child = Some(child);
                return true;
            }
            assert!(start.elapsed() < PATIENCE, "it neither serves nor ends: {status:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the engine and every replica, as a crash of all processes would.
    pub(crate) fn kill_all(&mut self, replicas: usize) {
        let pids: Vec<u32> = (0..replicas).map(|index| self.replica_pid(index)).collect();
        self.kill_engine();
        for pid in &pids {
            let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        pids.iter().for_each(|pid| crate::killed::wait_for_end(*pid));
    }

    fn command(&self, how: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("volume").arg(self.volume_dir()).arg(self.size.to_string());
        command.arg(self.replicas.to_string()).arg(self.socket()).args(how);
        command
    }

    /// Starts the engine in a way that does not work; gives what it says.
    pub(crate) fn fail(&self, how: &[&str]) -> String {
        let mut command = self.command(how);
        // Its input stays open: it must end by itself.
        let (input, _open) = std::io::pipe().unwrap();
        let output = command.stdin(input).stdout(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "it came up");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Kills the engine as a crash would; replicas go on.
    pub(crate) fn kill_engine(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends everything once all replicas are in sync: on a busy machine a replica can be removed
    /// because it is slow, and rejoins by a rebuild.
    pub(crate) fn stop_in_sync(&mut self) {
        self.wait_in_sync(self.replicas);
        self.stop();
    }

    /// Ends everything as a user would.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        drop(child.stdin.take());
        let status = child.wait().unwrap();
        assert!(status.success(), "a clean end: {}", self.log());
    }

    /// Waits for the engine to end by itself.
    pub(crate) fn wait_ended(&mut self) {
        let mut child = self.child.take().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "the engine goes on: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn try_ask(&self, request: &LabRequest) -> Result<LabReply, String> {
        ask(&self.volume_dir(), request).map_err(|error| error.to_string())
    }

    pub(crate) fn ask(&self, request: &LabRequest) -> LabReply {
        self.try_ask(request).unwrap_or_else(|error| panic!("{request:?}: {error}\n{}", self.log()))
    }

    pub(crate) fn admin(&self, request: AdminRequest) -> AdminReply {
        match self.ask(&LabRequest::Volume(request)) {
            LabReply::Volume(reply) => reply,
            other => panic!("not an answer: {other:?}"),
        }
    }

    pub(crate) fn replica_pid(&self, index: usize) -> u32 {
        match self.ask(&LabRequest::Status) {
            LabReply::Status { replicas, .. } => replicas[index].pid.expect("it runs"),
            other => panic!("not a status: {other:?}"),
        }
    }

    pub(crate) fn wait(&self, what: &str, is: impl Fn(&VolumeStatus) -> bool) {
        let start = Instant::now();
        loop {
            let status = match self.try_ask(&LabRequest::Status) {
                Ok(LabReply::Status { volume, .. }) => Some(*volume),
                _ => None,
            };
            if status.as_ref().is_some_and(&is) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what}: {status:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn wait_in_sync(&self, count: usize) {
        self.wait(&format!("{count} replicas in sync"), |status| {
            let in_sync =
                status.replicas.iter().filter(|it| it.state == MemberState::InSync).count();
            in_sync == count && status.unreconciled == 0
        });
    }

    /// After a clean end every replica holds the same, and nothing is wrong with any.
    pub(crate) fn compare_replicas(&self) -> Vec<u8> {
        let mut first: Option<Vec<u8>> = None;
        for index in 0..self.replicas {
            let dir = self.volume_dir().join(format!("replica-{index}"));
            let content = read_replica(&dir, self.size);
            match &first {
                None => first = Some(content),
                Some(first) => {
                    let differs =
                        first.chunks(4096).zip(content.chunks(4096)).position(|(a, b)| a != b);
                    assert_eq!(differs, None, "replica {index} differs from the first in a block");
                }
            }
        }
        first.unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // No process of the test is left running, whether it passed or failed.
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for index in 0..self.replicas {
            let socket = self.volume_dir().join(format!("replica-{index}.sock"));
            if let Ok(stream) = std::os::unix::net::UnixStream::connect(socket)
                && let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream)
            {
                let _ = rustix::process::kill_process(peer.pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// The content of a replica that is not in use, after a check that finds nothing wrong.
pub(crate) fn read_replica(dir: &Path, size: u64) -> Vec<u8> {
    use block::store::files::Directory;
    use block::store::{Depth, check};
    let report = check(&mut Directory::read_only(dir), Depth::Data, &mut |_| {});
    assert!(report.is_healthy(), "{}: {:?}", dir.display(), report.findings);
    read_view(dir, size, block::store::View::Head)
}

/// The content of the head or a snapshot of a replica that is not in use.
pub(crate) fn read_view(dir: &Path, size: u64, view: block::store::View) -> Vec<u8> {
    use block::store::files::Directory;
    use block::store::{NoBases, OpenOptions, Reply, Request, drive, open};
    let mut files = Directory::new(dir);
    let replica = open(&mut files, &mut NoBases, OpenOptions::default()).unwrap();
    let mut driven = drive::Driven::new(replica, &mut files);
    let mut content = Vec::new();
    let step = MIB.min(size);
    for offset in (0..size).step_by(usize::try_from(step).unwrap()) {
        let len = step.min(size - offset);
        let reply = driven.request(Request::Read { view, offset, len }).unwrap();
        let Reply::Data(data) = reply else { panic!("not data") };
        content.extend_from_slice(&data.into_bytes());
    }
    driven.request(Request::CloseClean).unwrap();
    content
}

/// The laboratory, built beside the tests.
pub(crate) fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let program = profile.join("examples").join("lab");
    assert!(program.exists(), "{} is missing: cargo builds it with the tests", program.display());
    program
}

/// Runs a tool that must succeed.
pub(crate) fn tool(name: &str, args: &[&str]) -> String {
    let output = try_tool(name, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{name} {args:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

pub(crate) fn try_tool(name: &str, args: &[&str]) -> Output {
    // A tool that waits for a volume that hangs must not hang the test.
    let output = Command::new("timeout").arg("120").arg(name).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run timeout {name}: {error}"));
    assert_ne!(output.status.code(), Some(127), "{name} is not installed; scripts/setup does that");
    output
}

/// qemu-io over the volume.
pub(crate) fn qemu_io(lab: &Lab, commands: &[&str]) -> String {
    let uri = lab.uri();
    let mut args = vec!["-f", "raw", &uri];
    for command in commands {
        args.extend(["-c", command]);
    }
    let said = tool("qemu-io", &args);
    assert!(!said.contains("verification failed"), "{commands:?}: {said}");
    assert!(!said.contains("failed:"), "{commands:?}: {said}");
    said
}
