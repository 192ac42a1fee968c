//! The data directory: where it is, and who has it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// How long the lock of a process that is gone is waited for.
const LEFT_OVER: Duration = Duration::from_secs(10);

/// The directory that was asked for, or the usual one.
pub(crate) fn resolve(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir.to_owned());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/sheaf"));
    }
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = data.or(home).context("cannot tell where your home is; use --data-dir")?;
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

    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.root.join("tokens.csv")
    }

    /// What secrets are encrypted with, if they are.
    pub(crate) fn encryption_keys(&self) -> PathBuf {
        self.root.join("encryption.keys")
    }

    /// Where the agent of this node answers.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.root.join("agent/agent.sock")
    }

    fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Makes the directory and takes it; it is ours until the lock is dropped.
    pub(crate) fn take(&self) -> Result<DirLock> {
        let dir = self.root.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .with_context(|| format!("cannot create the data directory {dir}"))?;
        let path = self.lock();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if let Err(holder) = lock(&mut file) {
            let by = holder.map_or_else(String::new, |pid| format!(" (pid {})", pid.as_raw_pid()));
            bail!(
                "the data directory {dir} is in use by another process{by}; \
                 stop it first, or choose another --data-dir"
            );
        }
        file.set_len(0).and_then(|()| file.rewind()).context("cannot write the lock file")?;
        writeln!(file, "{}", std::process::id()).context("cannot write the lock file")?;
        Ok(DirLock { _file: file })
    }

    /// The process that runs on this directory, if one does.
    pub(crate) fn holder(&self) -> Option<Pid> {
        let mut file = File::open(self.lock()).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        noted(&mut file)
    }

    /// Fails unless a server has been started here before.
    pub(crate) fn require(&self) -> Result<()> {
        if fs::metadata(self.pki()).is_ok() {
            return Ok(());
        }
        bail!(
            "{} is not a data directory of Sheaf (no pki in it); start `sheaf server` there first, \
             or say --data-dir",
            self.root.display()
        )
    }
}

/// Locks the file, or says who has it. A server that was killed while it started a program may
/// leave its lock to that program until it has begun, so the lock of a dead process is waited for.
fn lock(file: &mut File) -> Result<(), Option<Pid>> {
    let begun = Instant::now();
    while flock(&*file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let holder = noted(file);
        let is_dead = holder.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        if !is_dead || begun.elapsed() > LEFT_OVER {
            return Err(holder);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whose number is in the lock file.
fn noted(file: &mut File) -> Option<Pid> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

/// Proof that this process owns the directory.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { root: dir.path().join("data") };
        let first = layout.take().unwrap();
        assert_eq!(
            layout.holder().map(|pid| pid.as_raw_nonzero().get()),
            Some(std::process::id().cast_signed())
        );
        let refused = layout.take().unwrap_err().to_string();
        assert!(refused.contains("in use") && refused.contains(&std::process::id().to_string()));
        drop(first);
        assert!(layout.holder().is_none());
        assert!(layout.take().is_ok());
    }

    #[test]
    fn what_a_dead_owner_left_locked_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { root: dir.path().to_owned() };
        let mut owner = std::process::Command::new("true").spawn().unwrap();
        owner.wait().unwrap();
        fs::write(layout.lock(), owner.id().to_string()).unwrap();
        let left = File::open(layout.lock()).unwrap();
        flock(&left, FlockOperation::NonBlockingLockExclusive).unwrap();
        let heir = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(left);
        });
        assert!(layout.take().is_ok());
        heir.join().unwrap();
    }
}
