//! A real Linux in a machine: the small guest of `scripts/guest`, and a shell in it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::node::Node;

/// A guest without KVM on a busy machine takes its time.
const BOUND: Duration = Duration::from_secs(600);
pub(crate) const PASSWORD: &str = "sheaf";
/// Makes `disk SERIAL` the guest's name of the disk with that serial number.
pub(crate) const FIND: &str = "disk() { for d in /sys/block/*; do \
    [ \"$(cat $d/serial 2>/dev/null || dd if=$d/device/vpd_pg80 bs=1 skip=4 2>/dev/null)\" = $1 ] \
    && echo ${d##*/}; done; }";

/// The image of the guest, which is built from the distribution's packages once.
fn image() -> &'static Path {
    static IMAGE: LazyLock<PathBuf> = LazyLock::new(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/guest");
        let output = Command::new(script).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the guest cannot be built: {complaint}");
        String::from_utf8(output.stdout).unwrap().trim().into()
    });
    &IMAGE
}

/// A disk of its own for a guest, at `path`.
pub(crate) fn disk_of_image(path: &Path) {
    let raw = ["convert", "-O", "raw"];
    let done = Command::new("qemu-img").args(raw).arg(image()).arg(path).status().unwrap();
    assert!(done.success(), "qemu-img failed");
}

/// A session at the console of a guest.
pub(crate) struct Shell {
    console: UnixStream,
}

impl Shell {
    /// Waits for the guest to boot, and logs in as root.
    #[track_caller]
    pub(crate) fn login(node: &Node, name: &str) -> Self {
        let mut shell = Self::attach(node, name);
        shell.enter(PASSWORD);
        shell
    }

    /// Goes on where a user is logged in already.
    #[track_caller]
    pub(crate) fn attach(node: &Node, name: &str) -> Self {
        let console = node.console(name);
        console.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        Self { console }
    }

    /// Answers the prompt of a login.
    #[track_caller]
    pub(crate) fn enter(&mut self, password: &str) {
        self.until("GUEST: ready");
        self.until("login:");
        self.send("root\n");
        self.until("assword:");
        self.send(&format!("{password}\n"));
        self.until("# ");
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.console.write_all(text.as_bytes()).unwrap();
    }

    /// The output of a command.
    #[track_caller]
    pub(crate) fn run(&mut self, command: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Neither the echo of what is typed, wherever the terminal breaks it, nor what a
        // console repeats of earlier commands must be taken for its answer.
        let number = format!("{:03}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (mark, typed) = (format!("{number}|"), format!("{number}'|'"));
        self.send(&format!("({command}) 2>&1 | sed 's/^/'{typed}'/'; echo {typed}END\n"));
        let said = self.until(&format!("{mark}END"));
        let lines = said.lines().filter_map(|line| line.trim_end().strip_prefix(&mark));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Repeats a command until it prints this.
    #[track_caller]
    pub(crate) fn sees(&mut self, command: &str, wanted: &str) {
        let began = Instant::now();
        loop {
            let said = self.run(command);
            if said == wanted {
                return;
            }
            assert!(began.elapsed() < BOUND, "{command} says {said:?} instead of {wanted:?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// All that is said until `part`, which must be.
    #[track_caller]
    pub(crate) fn until(&mut self, part: &str) -> String {
        let (mut said, began) = (Vec::new(), Instant::now());
        loop {
            let text = String::from_utf8_lossy(&said).into_owned();
            if let Some(end) = text.find(part) {
                return text[..end].to_owned();
            }
            assert!(began.elapsed() < BOUND, "the guest does not say {part:?}: {text}");
            // Byte by byte: later output belongs to the next command.
            let mut byte = [0];
            match self.console.read(&mut byte) {
                Ok(0) => panic!("the console ended after {text:?}"),
                Ok(_) => said.push(byte[0]),
                Err(_) => {}
            }
        }
    }
}
