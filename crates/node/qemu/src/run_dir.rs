//! The folder of one machine: where things are in it, and how they are written so that they
//! are whole or not there at all.
//!
//! A socket's path may be longer than the 107 bytes that the kernel takes; sockets are
//! therefore reached through the folder's descriptor.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::argv::device::usb_socket;
use crate::machine::USB_SLOTS;
use crate::process::ProcessUser;

pub(crate) const MACHINE: &str = "machine.json";
pub(crate) const PROCESS: &str = "process.json";
pub(crate) const EXIT: &str = "exit.json";
pub(crate) const QMP: &str = "qmp.sock";
pub(crate) const SERIAL: &str = "serial.sock";
pub(crate) const AGENT: &str = "agent.sock";
const LOCK: &str = "lock";
const LOG: &str = "qemu.log";
/// Together a quarter of a second; a fork takes a hundredth of that.
const TRIES: u32 = 50;
const BETWEEN_TRIES: std::time::Duration = std::time::Duration::from_millis(5);
/// No file of ours in a run folder is larger.
const LARGEST_FILE: u64 = 16 << 20;

/// The folder of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// `path` must be absolute: it is how a process is recognised.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where QEMU works and may write.
    pub fn vm(&self) -> PathBuf {
        self.0.join("vm")
    }

    pub fn pid_file(&self) -> PathBuf {
        self.vm().join("qemu.pid")
    }

    /// QEMU's own output; bounded.
    pub fn log(&self) -> PathBuf {
        self.0.join(LOG)
    }

    /// Where the console hub keeps what the guest has said.
    pub fn serial_log(&self) -> PathBuf {
        self.0.join("serial.log")
    }

    /// The variable store of an EFI machine that does not outlive it.
    pub fn nvram(&self) -> PathBuf {
        self.vm().join("nvram.fd")
    }

    /// Makes the folders; those that exist are put right.
    pub fn create(&self, identity: Option<&ProcessUser>) -> io::Result<()> {
        let vm = self.vm();
        fs::DirBuilder::new().recursive(true).mode(0o711).create(&self.0)?;
        // QEMU's user must be able to pass, and no user to list the folder.
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o711))?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&vm)?;
        if let Some(identity) = identity {
            std::os::unix::fs::chown(&vm, Some(identity.uid), Some(identity.gid))?;
        }
        Ok(())
    }

    /// Removes the folder with everything in it.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Takes the lock that says that a process of this machine exists or is being made.
    /// `None` if it is held.
    pub(crate) fn try_lock(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(self.0.join(LOCK))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Self::try_lock`], but not misled by a passing shadow: a child of ours that is being
    /// made for another machine holds a copy of every descriptor until it becomes QEMU.
    /// Blocks for a fraction of a second if the lock is held in earnest.
    pub(crate) fn lock_patiently(&self) -> io::Result<Option<File>> {
        for _ in 0..TRIES {
            if let Some(lock) = self.try_lock()? {
                return Ok(Some(lock));
            }
            std::thread::sleep(BETWEEN_TRIES);
        }
        self.try_lock()
    }

    /// Whether a process of this machine exists or is being made, as far as the lock says.
    pub fn is_locked(&self) -> io::Result<bool> {
        match self.try_lock() {
            Ok(lock) => Ok(lock.is_none()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a file so that a power cut leaves the old one or the new one.
    pub fn store(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(value)?;
        let temporary = self.0.join(format!("{name}.new"));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, self.0.join(name))?;
        File::open(&self.0)?.sync_all()
    }

    /// Reads what [`Self::store`] wrote; `None` if there is nothing.
    pub fn load<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let file = match File::open(self.0.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE).read_to_end(&mut bytes)?;
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// Removes what an earlier process in this folder left.
    pub(crate) fn forget_process(&self) -> io::Result<()> {
        // Its last words as well: they would be taken for those of the next one.
        let fixed = [PROCESS, EXIT, QMP, SERIAL, AGENT, LOG, "vm/vnc.sock", "vm/qemu.pid"];
        let usb = (0..USB_SLOTS).map(|slot| format!("vm/{}", usb_socket(slot)));
        for name in fixed.into_iter().map(str::to_owned).chain(usb) {
            match fs::remove_file(self.0.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// A listening socket called `name`, for QEMU to inherit.
    pub fn listen(&self, name: &str) -> io::Result<StdListener> {
        let folder = File::open(&self.0)?;
        let listener = StdListener::bind(through(&folder, name))?;
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Connects to the socket `name` in this folder.
    pub async fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let folder = File::open(&self.0)?;
        UnixStream::connect(through(&folder, name)).await
    }

    /// The end of QEMU's output, at most `limit` bytes.
    pub fn log_tail(&self, limit: usize) -> String {
        let Ok(bytes) = fs::read(self.log()) else { return String::new() };
        let start = bytes.len().saturating_sub(limit);
        String::from_utf8_lossy(&bytes[start..]).trim().to_owned()
    }

    /// Cuts the log to its last `keep` bytes if it is longer than `most`.
    ///
    /// QEMU appends, so that its next line lands behind what is kept.
    pub(crate) fn trim_log(&self, most: u64, keep: usize) -> io::Result<()> {
        let path = self.log();
        if fs::metadata(&path)?.len() <= most {
            return Ok(());
        }
        let bytes = fs::read(&path)?;
        let tail = &bytes[bytes.len().saturating_sub(keep)..];
        let file = OpenOptions::new().append(true).open(&path)?;
        file.set_len(0)?;
        (&file).write_all(tail)
    }
}

/// A path to `name` that is short however long the folder's own path is.
fn through(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_until_the_last_copy_of_its_descriptor_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = RunDir::new(dir.path().join("vm1"));
        dir.create(None).unwrap();
        let lock = dir.try_lock().unwrap().expect("no process holds it");
        let inherited = lock.try_clone().unwrap();
        drop(lock);
        assert!(dir.is_locked().unwrap());
        drop(inherited);
        assert!(!dir.is_locked().unwrap());
    }

    #[tokio::test]
    async fn sockets_work_in_folders_with_long_names() {
        let dir = tempfile::tempdir().unwrap();
        let dir = RunDir::new(dir.path().join("x".repeat(200)));
        dir.create(None).unwrap();
        let _listener = dir.listen("qmp.sock").unwrap();
        dir.connect("qmp.sock").await.unwrap();
    }

    #[test]
    fn a_long_log_keeps_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let dir = RunDir::new(dir.path());
        let mut log = OpenOptions::new().create(true).append(true).open(dir.log()).unwrap();
        log.write_all(&[b'a'; 5000]).unwrap();
        log.write_all(b"end").unwrap();
        dir.trim_log(4096, 10).unwrap();
        log.write_all(b" and more").unwrap();
        assert_eq!(dir.log_tail(100), "aaaaaaaend and more");
    }
}
