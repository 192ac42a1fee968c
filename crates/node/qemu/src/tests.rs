//! Tests with real QEMU processes, and what they share: a guest, a folder, an end.

mod faults;
mod isolation;
mod lifecycle;
mod linux;
mod migration;
mod mirror;
mod samples;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::isolation::Isolation;
use crate::machine::{Bus, Disk, DiskSource, FileImage, Machine};
use crate::process::{Binary, Confinement, Launcher, ProcessUser, RunningMachine, Spec};
use crate::run_dir::RunDir;

/// Long enough for the slowest machine that runs tests; nothing waits for it to pass.
pub(crate) const BOUND: Duration = Duration::from_secs(300);
const UUID: &str = "6d2b0ad4-5d60-4d1c-9a36-1f1f3a2c9f01";

/// A place for one test's machines. Its end is theirs.
pub(crate) struct Stage {
    pub(crate) tasks: Tasks,
    pub(crate) launcher: Launcher,
    place: PathBuf,
    /// Removed with the stage, unless the place is given.
    _dir: Option<tempfile::TempDir>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("sheaf-qemu-").tempdir().unwrap();
        // QEMU runs as another user and must be able to pass.
        run(Command::new("chmod").arg("711").arg(dir.path()));
        let mut stage = Self::at(dir.path().to_owned());
        stage._dir = Some(dir);
        stage
    }

    /// In a place that exists and stays.
    fn at(place: PathBuf) -> Self {
        let tasks = Tasks::default();
        let launcher = Launcher::new(tasks.clone(), Binary::default()).with_limit(BOUND);
        Self { tasks, launcher, place, _dir: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place
    }

    pub(crate) fn run_dir(&self, name: &str) -> RunDir {
        RunDir::new(self.place.join(name))
    }

    /// An image that boots into `pulse.S`.
    pub(crate) fn guest_image(&self, name: &str) -> PathBuf {
        let image = self.place.join(format!("{name}.img"));
        if image.exists() {
            return image;
        }
        assemble(&self.place.join(name), &image);
        let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.set_len(1 << 20).unwrap();
        if let Some(identity) = identity() {
            std::os::unix::fs::chown(&image, Some(identity.uid), Some(identity.gid)).unwrap();
        }
        image
    }

    /// A machine with that guest on a virtio disk.
    pub(crate) fn machine(&self, name: &str) -> Machine {
        let image = self.guest_image(name);
        let mut machine = Machine::new(name, UUID, 32 << 20);
        let mut disk = Disk::new("root", Bus::Virtio, DiskSource::File(FileImage::raw(image)));
        disk.boot_index = Some(1);
        machine.disks.push(disk);
        machine
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A failed test must not leave guests behind.
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = self.place.to_string_lossy().into_owned();
            let named = String::from_utf8_lossy(&command).contains(&ours);
            if named && let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user without rights, if the tests may become one.
pub(crate) fn identity() -> Option<ProcessUser> {
    is_root().then_some(ProcessUser { uid: 64_055, gid: 64_055, groups: Vec::new() })
}

pub(crate) fn spec(machine: Machine) -> Spec {
    let isolation = identity().map(|_| Isolation::default());
    let confinement = Confinement { identity: identity(), isolation, ..Confinement::default() };
    Spec { machine, confinement }
}

fn assemble(stem: &Path, image: &Path) {
    let source = stem.with_extension("S");
    let object = stem.with_extension("o");
    std::fs::write(&source, include_str!("tests/pulse.S")).unwrap();
    run(Command::new("as").arg("--32").arg("-o").arg(&object).arg(&source));
    run(Command::new("ld")
        .args(["-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "-o"])
        .arg(image)
        .arg(&object));
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(BOUND, future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

/// Reads from a console until `wanted` has been said; returns all of it.
pub(crate) async fn read_until(console: &mut UnixStream, wanted: &str) -> String {
    let mut output = String::new();
    within(&format!("the guest says {wanted:?}"), async {
        let mut bytes = [0; 256];
        while !output.contains(wanted) {
            let count = console.read(&mut bytes).await.unwrap();
            assert_ne!(count, 0, "the console ended after {output:?}");
            output.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    })
    .await;
    output
}

pub(crate) async fn say(console: &mut UnixStream, letters: &str) {
    console.write_all(letters.as_bytes()).await.unwrap();
}

/// Starts a machine and waits for its guest; returns its console.
pub(crate) async fn boot(stage: &Stage, name: &str) -> (RunningMachine, UnixStream) {
    let machine = stage.machine(name);
    let running = stage.launcher.launch(&stage.run_dir(name), spec(machine)).await.unwrap();
    let mut console = running.serial().await.unwrap();
    running.begin().await.unwrap();
    read_until(&mut console, "UP\n.").await;
    (running, console)
}
