//! A server with an agent, whose machines end with the test.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::kubectl::Kubectl;
use super::server::Sheaf;
use super::wait::poll;

/// One node that runs machines.
pub(crate) struct Node {
    pub(crate) sheaf: Sheaf,
    /// The bridge of its guests, if it has one.
    bridge: Option<String>,
}

impl Node {
    /// A node without a network of its own, so that tests do not meet.
    pub(crate) fn start() -> Self {
        Self::with(&["--guest-network", "user"], None)
    }

    /// The same without `--host-disk-path`.
    pub(crate) fn without_host_disks() -> Self {
        let mut sheaf = Sheaf::used(&["--node-name", "one", "--guest-network", "user"]);
        sheaf.run_without_host_disks();
        Self::begin(sheaf, None)
    }

    /// A node whose guests are on a bridge of this name, which no other test may use.
    pub(crate) fn networked(bridge: &str, network: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes networks: run it as root");
        Self::with(&["--guest-bridge", bridge, "--guest-network", network], Some(bridge))
    }

    /// A node whose server is an ordinary user's.
    pub(crate) fn unprivileged(user: u32, arguments: &[&str]) -> Self {
        let mut sheaf = Sheaf::prepared(&[&["--node-name", "one"], arguments].concat());
        sheaf.run_as(user);
        sheaf.provokes("guest network is not available");
        Self::begin(sheaf, None)
    }

    /// A management node that others reach at this address of the test's machine.
    pub(crate) fn management(address: &str) -> Self {
        let listen = format!("{address}:0");
        Self::with(&["--guest-network", "user", "--listen", &listen], None)
    }

    /// The same at a port that it keeps when it is restarted; no other test may use the address.
    pub(crate) fn listening(address: &str) -> Self {
        Self::with(&["--guest-network", "user", "--listen", &format!("{address}:6443")], None)
    }

    /// A machine in a network namespace that is to join a cluster; nothing runs on it yet.
    pub(crate) fn outsider(namespace: &str, arguments: &[&str]) -> Self {
        let mut sheaf = Sheaf::prepared(&[&["--guest-network", "user"], arguments].concat());
        let_others_pass(&sheaf);
        sheaf.run_in(namespace);
        Self { sheaf, bridge: None }
    }

    /// A machine in a network namespace that votes only; the first argument is the command.
    pub(crate) fn witness(namespace: &str, arguments: &[&str]) -> Self {
        let mut sheaf = Sheaf::prepared(arguments);
        sheaf.run_in(namespace);
        Self { sheaf, bridge: None }
    }

    /// A machine in a network namespace, which has its guest network there.
    pub(crate) fn networked_outsider(namespace: &str, arguments: &[&str]) -> Self {
        let mut sheaf = Sheaf::prepared(arguments);
        let_others_pass(&sheaf);
        sheaf.run_with_sysfs_of(namespace);
        Self { sheaf, bridge: None }
    }

    /// The same on a data directory that has the first objects of a cluster.
    pub(crate) fn networked_used(namespace: &str, arguments: &[&str]) -> Self {
        let mut sheaf = Sheaf::used(arguments);
        let_others_pass(&sheaf);
        sheaf.run_with_sysfs_of(namespace);
        Self { sheaf, bridge: None }
    }

    fn with(arguments: &[&str], bridge: Option<&str>) -> Self {
        let sheaf = Sheaf::used(&[&["--node-name", "one"], arguments].concat());
        Self::begin(sheaf, bridge)
    }

    fn begin(mut sheaf: Sheaf, bridge: Option<&str>) -> Self {
        let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
        assert!(qemu.is_ok(), "QEMU is missing; scripts/setup test installs it");
        let_others_pass(&sheaf);
        sheaf.begin();
        let node = Self { sheaf, bridge: bridge.map(str::to_owned) };
        node.allow_host_disks();
        node
    }

    pub(crate) fn allow_host_disks(&self) {
        // Disks of tests are files of the host, which KubeVirt allows only where asked to.
        let gates = r#"{"spec":{"configuration":{"developerConfiguration":{"featureGates":["HostDisk"]}}}}"#;
        poll("the installation can be configured", || {
            let line = format!("patch kubevirt kubevirt -n kubevirt --type merge -p {gates}");
            let output = self.kubectl().output(&line, "");
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(()) } else { Err(complaint) }
        });
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        self.sheaf.kubectl()
    }

    /// A disk with the guest of one sector.
    pub(crate) fn disk(&self, name: &str) -> PathBuf {
        let path = self.sheaf.scratch(name);
        let mut image = assemble("pulse");
        image.resize(1 << 20, 0);
        fs::write(&path, image).unwrap();
        path
    }

    /// The folders of machines.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.sheaf.data().join("agent/vmis"));
        all.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// The processes of machines that exist.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let data = self.sheaf.data();
        let ours = format!("{}/agent/vmis/", data.display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(number) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
            let line = String::from_utf8_lossy(&line);
            if line.contains("-pidfile") && line.contains(&ours) {
                found.extend(Pid::from_raw(number));
            }
        }
        found
    }

    /// The storage process of this node, if it runs.
    pub(crate) fn storage(&self) -> Option<Pid> {
        let ours = format!("storage\0--dir\0{}/storage", self.sheaf.data().display());
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        processes.find_map(|entry| {
            let number = entry.file_name().to_string_lossy().parse::<i32>().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let is_ours = String::from_utf8_lossy(&line).contains(&ours);
            is_ours.then(|| Pid::from_raw(number)).flatten()
        })
    }

    /// The etcd process of this node, if it runs.
    pub(crate) fn etcd(&self) -> Option<Pid> {
        let ours = format!("--data-dir\0{}/etcd\0", self.sheaf.data().display());
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        processes.find_map(|entry| {
            let number = entry.file_name().to_string_lossy().parse::<i32>().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let is_ours = String::from_utf8_lossy(&line).contains(&ours);
            is_ours.then(|| Pid::from_raw(number)).flatten()
        })
    }

    /// The taps that this node has made.
    pub(crate) fn taps(&self) -> Vec<String> {
        let Some(prefix) = self.tap_prefix() else { return Vec::new() };
        let links = fs::read_dir("/sys/class/net").unwrap().flatten();
        let names = links.map(|link| link.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    fn tap_prefix(&self) -> Option<String> {
        let bridge = self.bridge.as_ref()?;
        Some(format!("s{}-", &bridge[bridge.len().saturating_sub(4)..]))
    }

    /// The taps that this node's rules speak of.
    pub(crate) fn ruled_taps(&self) -> Vec<String> {
        let (Some(bridge), Some(prefix)) = (&self.bridge, self.tap_prefix()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        // The third table keeps addresses seen on taps until they expire, so it is left out.
        for table in &tables(bridge)[..2] {
            let listed = Command::new("nft").args(["list", "table"]).args(table).output().unwrap();
            let text = String::from_utf8_lossy(&listed.stdout).into_owned();
            let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
            // The prefix alone represents all of them, and the tunnel is not a tap.
            let is_tap = |word: &&str| {
                word.starts_with(&prefix) && *word != prefix && !word.ends_with("-vxlan")
            };
            let taps = words.filter(is_tap);
            found.extend(taps.map(str::to_owned));
        }
        found.sort();
        found.dedup();
        found
    }

    /// The output of the only machine on its serial port.
    pub(crate) fn said(&self) -> String {
        let folders = self.folders();
        let [folder] = folders.as_slice() else { return String::new() };
        let text = fs::read(folder.join("serial.log")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[track_caller]
    pub(crate) fn until_said(&self, part: &str) {
        poll(&format!("the guest says {part:?}"), || {
            let said = self.said();
            if said.contains(part) { Ok(()) } else { Err(said) }
        });
    }

    /// The console of a machine, as the API server reaches it.
    #[track_caller]
    pub(crate) fn console(&self, name: &str) -> UnixStream {
        // A server that was just started has to find its guests first.
        poll("the console is served", || self.try_console(name))
    }

    fn try_console(&self, name: &str) -> Result<UnixStream, String> {
        let socket = self.sheaf.data().join("agent/agent.sock");
        let mut stream = UnixStream::connect(socket).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let request = format!(
            "GET /v1/vmis/default/{name}/console HTTP/1.1\r\nHost: node\r\n\
             Connection: Upgrade\r\nUpgrade: sheaf-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).map_err(|error| error.to_string())?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(stream) } else { Err(head) }
    }

    /// Waits until an object has this value at a JSON pointer.
    #[track_caller]
    pub(crate) fn until(&self, path: &str, pointer: &str, value: &str) -> Value {
        let http = self.sheaf.http();
        poll(&format!("{pointer} of {path} is {value}"), || {
            let object = http.get(path).json();
            match object.pointer(pointer).and_then(Value::as_str) {
                Some(seen) if seen == value => Ok(object),
                _ => Err(object.to_string()),
            }
        })
    }

    /// Waits until nothing of any machine is left on the node.
    #[track_caller]
    pub(crate) fn until_empty(&self) {
        poll("nothing is left of machines", || {
            let (processes, folders) = (self.processes(), self.folders());
            match processes.is_empty() && folders.is_empty() {
                true => Ok(()),
                false => Err(format!("{processes:?} {folders:?}")),
            }
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // First the one that would start the others again.
        self.sheaf.end();
        for other in self.storage().into_iter().chain(self.etcd()) {
            let _ = kill_process(other, Signal::KILL);
        }
        for process in self.processes() {
            let groups = groups(process);
            let _ = kill_process(process, Signal::KILL);
            // A group can be removed when its last process has truly ended.
            let ended =
                || groups.iter().all(|group| fs::remove_dir(group).is_ok() || !group.exists());
            let mut tries = 0..3000;
            while !ended() && tries.next().is_some() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let Some(bridge) = &self.bridge else { return };
        // Its taps end with their processes or with the bridge's rules; the bridge would stay.
        for tap in self.taps() {
            let _ = Command::new("ip").args(["link", "del", &tap]).output();
        }
        let _ = Command::new("ip").args(["link", "del", bridge]).output();
        for table in tables(bridge) {
            let _ = Command::new("nft").args(["delete", "table"]).args(table).output();
        }
    }
}

/// The control groups of a machine's process that are its own, in whichever hierarchies.
fn groups(process: Pid) -> Vec<PathBuf> {
    let path = format!("/proc/{}/cgroup", process.as_raw_nonzero());
    let lines = fs::read_to_string(path).unwrap_or_default();
    let own = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let group = group.strip_prefix("/sheaf/vm-")?;
        let root = Path::new("/sys/fs/cgroup").join(controllers);
        Some(root.join(format!("sheaf/vm-{group}")))
    };
    lines.lines().filter_map(own).collect()
}

/// The tables of rules that go with a bridge: family and name.
fn tables(bridge: &str) -> [[String; 2]; 7] {
    let names = [
        ("inet", ""),
        ("bridge", ""),
        ("bridge", "_seen"),
        ("inet", "_services"),
        ("netdev", "_services"),
        ("inet", "_hosts"),
        ("inet", "_policies"),
    ];
    names.map(|(family, end)| [family.to_owned(), format!("sheaf_{bridge}{end}")])
}

/// A guest of one sector from `tests/guests`, assembled.
pub(crate) fn assemble(name: &str) -> Vec<u8> {
    build(name, "--32", &["-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary"])
}

/// A program for a Linux guest from `tests/guests`.
pub(crate) fn link(name: &str) -> Vec<u8> {
    build(name, "--64", &["--strip-all", "-N", "--no-warn-rwx-segments"])
}

fn build(name: &str, width: &str, how: &[&str]) -> Vec<u8> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/guests");
    let source = guests.join(format!("{name}.S"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let tool = |program: &str, arguments: &[&str], files: [&Path; 2]| {
        let done = Command::new(program)
            .args(arguments)
            .arg(files[0])
            .arg("-o")
            .arg(files[1])
            .status()
            .unwrap_or_else(|_| panic!("{program} is missing; scripts/setup test installs it"));
        assert!(done.success(), "{program} failed");
    };
    tool("as", &[width], [&source, &path("object")]);
    tool("ld", how, [&path("object"), &path("image")]);
    fs::read(path("image")).unwrap()
}

/// Machines run as users of their own, who must be able to reach their folders.
fn let_others_pass(sheaf: &Sheaf) {
    let above = sheaf.data().parent().unwrap().to_owned();
    fs::set_permissions(above, fs::Permissions::from_mode(0o711)).unwrap();
}
