//! The data directory: its location, its files, and the lock that gives it one owner.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tracing::info;

/// How long to wait for the lock of another process. One that was killed holds its lock until
/// the kernel has torn it down, and so does a program that it was about to start.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The given directory, or the default for this user.
pub(crate) fn resolve(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir.to_owned());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/sheaf"));
    }
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = data.or(home).context("the environment variable HOME is not set; use --data-dir")?;
    Ok(base.join("sheaf"))
}

/// The paths inside a data directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn new(given: Option<&Path>) -> Result<Self> {
        Ok(Self { root: resolve(given)? })
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("state.db")
    }

    /// Backups of the store that are made by time.
    pub(crate) fn store_backups(&self) -> PathBuf {
        self.root.join("store-backups")
    }

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }

    /// The password of the user `admin`, as it was at the first start.
    pub(crate) fn admin_password(&self) -> PathBuf {
        self.root.join("admin-password")
    }

    /// The virtual address of the API, if the cluster has one.
    pub(crate) fn vip(&self) -> PathBuf {
        self.root.join("vip")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.root.join("tokens.csv")
    }

    /// The keys that secrets are encrypted with, if they are.
    pub(crate) fn encryption_keys(&self) -> PathBuf {
        self.root.join("encryption.keys")
    }

    /// Exists while secrets that were stored before there was a key are being encrypted.
    pub(crate) fn encryption_pending(&self) -> PathBuf {
        self.root.join("encryption.pending")
    }

    /// Where requests are logged unless the flags say otherwise.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.root.join("audit/audit.log")
    }

    /// Where the agent of this node answers.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.root.join("agent/agent.sock")
    }

    /// The cluster that this directory has joined, if it has.
    pub(crate) fn membership(&self) -> PathBuf {
        self.root.join("cluster.json")
    }

    /// How far this node has come with etcd, if it has anything to do with it.
    pub(crate) fn etcd_record(&self) -> PathBuf {
        self.root.join("etcd.json")
    }

    /// URLs of the cluster's API servers, if there are several.
    pub(crate) fn servers(&self) -> PathBuf {
        self.root.join("servers.json")
    }

    /// Programs that upgrades have brought.
    pub(crate) fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    /// The choice between them, if there was an upgrade.
    pub(crate) fn programs_record(&self) -> PathBuf {
        self.root.join("program.json")
    }

    /// Directory of the storage process.
    pub(crate) fn storage(&self) -> PathBuf {
        self.root.join("storage")
    }

    fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Creates the directory and locks it until the answer is dropped. Waits a few seconds for
    /// another owner to end.
    pub(crate) fn take(&self) -> Result<DirLock> {
        self.take_within(LOCK_TIMEOUT)
    }

    fn take_within(&self, timeout: Duration) -> Result<DirLock> {
        let dir = self.root.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .with_context(|| format!("cannot create the data directory {dir}"))?;
        let path = self.lock();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let locked = lock(file, &path, timeout)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        let Some(mut file) = locked else {
            let by =
                noted(&path).map_or_else(String::new, |pid| format!(" (pid {})", pid.as_raw_pid()));
            bail!(
                "the data directory {dir} is in use by another process{by}; \
                 stop it first, or choose another --data-dir"
            );
        };
        file.set_len(0).and_then(|()| file.rewind()).context("cannot write the lock file")?;
        writeln!(file, "{}", std::process::id()).context("cannot write the lock file")?;
        let closed = crate::private::tighten(&self.root)
            .with_context(|| format!("cannot take the rights of other users from {dir}"))?;
        if closed > 0 {
            info!(entries = closed, "took the rights of other users from the data directory");
        }
        Ok(DirLock { file })
    }

    /// The process that owns this directory, if one runs.
    pub(crate) fn holder(&self) -> Option<Pid> {
        let path = self.lock();
        let file = File::open(&path).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            // A child that is being started may have a copy of the descriptor.
            let _ = flock(&file, FlockOperation::Unlock);
            return None;
        }
        noted(&path).filter(|pid| test_kill_process(*pid) != Err(Errno::SRCH))
    }

    /// Fails unless a server has been started here before.
    pub(crate) fn require(&self) -> Result<()> {
        if fs::metadata(self.pki()).is_ok() {
            return Ok(());
        }
        bail!(
            "{} is not a data directory of Sheaf: it has no pki directory; start `sheaf server` \
             first, or use --data-dir or --kubeconfig",
            self.root.display()
        )
    }
}

/// Locks the file; `None` if another process still has the lock when `timeout` is over.
fn lock(file: File, path: &Path, timeout: Duration) -> std::io::Result<Option<File>> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(Some(file)),
        Err(Errno::WOULDBLOCK) if timeout.is_zero() => return Ok(None),
        Err(Errno::WOULDBLOCK) => {}
        Err(failure) => return Err(failure.into()),
    }
    let pid = noted(path).map(Pid::as_raw_pid);
    info!(path = %path.display(), pid, "waiting for another process to release the lock");
    // flock has no timeout. If the lock comes too late the thread drops the file, and with it
    // the lock.
    let (sender, receiver) = mpsc::sync_channel(0);
    std::thread::spawn(move || {
        let locked = loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        let _ = sender.send(locked.map(|()| file));
    });
    match receiver.recv_timeout(timeout) {
        Ok(locked) => Ok(Some(locked?)),
        Err(_) => Ok(None),
    }
}

/// The process id in the lock file.
fn noted(path: &Path) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(path).ok()?.trim().parse().ok()?)
}

/// The lock of the directory, released when this is dropped.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
}

impl Drop for DirLock {
    /// Unlocks explicitly: closing the file is not enough while a child process that has not
    /// reached its exec yet holds a copy of the descriptor.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { root: dir.path().join("data") };
        (dir, layout)
    }

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let (_dir, layout) = layout();
        let first = layout.take().unwrap();
        assert_eq!(
            layout.holder().map(|pid| pid.as_raw_nonzero().get()),
            Some(std::process::id().cast_signed())
        );
        let refused = layout.take_within(Duration::ZERO).unwrap_err().to_string();
        assert!(refused.contains("in use") && refused.contains(&std::process::id().to_string()));
        drop(first);
        assert!(layout.holder().is_none());
        assert!(layout.take().is_ok());
    }

    #[test]
    fn a_copy_of_the_descriptor_in_a_child_does_not_keep_the_lock() {
        let (_dir, layout) = layout();
        let lock = layout.take().unwrap();
        // As fork leaves it to a child until exec closes it.
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(layout.holder().is_none());
        assert!(layout.take_within(Duration::ZERO).is_ok());
        drop(copy);
    }

    #[test]
    fn a_new_owner_waits_for_the_last_one_to_end() {
        let (_dir, layout) = layout();
        let old = layout.take().unwrap();
        let new = layout.clone();
        let waiting = std::thread::spawn(move || new.take_within(Duration::from_secs(60)));
        drop(old);
        assert!(waiting.join().unwrap().is_ok());
    }

    #[test]
    fn a_process_that_is_gone_is_not_the_owner() {
        let (_dir, layout) = layout();
        let lock = layout.take().unwrap();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        fs::write(layout.lock(), gone.id().to_string()).unwrap();
        assert!(layout.holder().is_none());
        drop(lock);
    }
}
