//! Changing what a running QEMU sees: a thread of ours enters its mount namespace for a moment.
//!
//! A path is shown with what it is on the host, by a mount that is made there and moved into the
//! namespace. Paths in directories that QEMU may write to are shown from the start, so none of
//! them is followed here.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

use super::enter::empty_file;

/// Why a path is not shown to a guest's QEMU.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot mount {} for QEMU", path.display())]
pub struct VisitError {
    pub path: PathBuf,
    #[source]
    pub source: Arc<io::Error>,
}

/// The root of a running QEMU, which may be that of the host.
#[derive(Debug, Clone)]
pub(crate) struct GuestRoot {
    pid: i32,
    /// The machine's run directory, which it sees as it is.
    own: PathBuf,
}

impl GuestRoot {
    pub(crate) fn new(pid: i32, own: &Path) -> Self {
        Self { pid, own: own.to_owned() }
    }

    /// Shows these paths of the host to QEMU, unless it sees them. Blocks.
    pub(crate) fn show(&self, paths: &[PathBuf]) -> Result<(), VisitError> {
        for path in paths.iter().filter(|path| !path.starts_with(&self.own)) {
            self.show_one(path)
                .map_err(|source| VisitError { path: path.clone(), source: source.into() })?;
        }
        Ok(())
    }

    /// Hides a path that was shown. Blocks. QEMU has closed it: nothing is lost if this fails.
    pub(crate) fn hide(&self, path: &Path) {
        if path.starts_with(&self.own) || !matches!(self.is_apart(), Ok(true)) {
            return;
        }
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return };
        let hidden = self.visit(move || {
            rustix::mount::unmount(&name, UnmountFlags::DETACH)?;
            Ok(rustix::fs::unlink(&name)?)
        });
        if let Err(error) = hidden {
            tracing::debug!(path = %path.display(), %error, "path stays visible for QEMU");
        }
    }

    fn show_one(&self, path: &Path) -> io::Result<()> {
        if !self.is_apart()? {
            return Ok(());
        }
        let found = match std::fs::metadata(path) {
            // QEMU says what it misses.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(CWD, path, flags)?;
        let (path, is_dir) = (path.to_owned(), found.is_dir());
        let id = (found.dev(), found.ino());
        self.visit(move || {
            let seen = std::fs::metadata(&path);
            if seen.is_ok_and(|seen| (seen.dev(), seen.ino()) == id) {
                return Ok(());
            }
            attach(&tree, &path, is_dir)
        })
    }

    /// Whether QEMU has a mount namespace of its own; that of an earlier version has none.
    fn is_apart(&self) -> io::Result<bool> {
        let of = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/mnt"));
        Ok(of(&self.pid.to_string())? != of("thread-self")?)
    }

    /// Does `work` in the mount namespace of QEMU, in a thread that ends with it.
    #[expect(unsafe_code, reason = "unshare is unsafe because of CLONE_FILES")]
    fn visit(&self, work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let go = || {
            // SAFETY: the table of descriptors is not among what is unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
            let mounts = ThreadNameSpaceType::MOUNT;
            rustix::thread::move_into_thread_name_spaces(process.as_fd(), mounts)?;
            work()
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("guest-root".to_owned());
            let visited = thread.spawn_scoped(scope, go)?;
            visited.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Mounts `tree` at `path`, whose directories are made.
fn attach(tree: &OwnedFd, path: &Path, is_dir: bool) -> io::Result<()> {
    let mut above: Vec<&Path> = path.ancestors().skip(usize::from(!is_dir)).collect();
    above.pop();
    for dir in above.into_iter().rev() {
        let mode = Mode::from_raw_mode(0o755);
        match rustix::fs::mkdir(dir, mode) {
            Ok(()) => rustix::fs::chmod(dir, mode)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if !is_dir {
        empty_file(&CString::new(path.as_os_str().as_bytes())?)?;
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, c"", CWD, path, flags)?)
}

/// The number on the host of a thread that a process knows by the number in its own namespace.
pub(crate) fn host_thread(pid: i32, thread: i32) -> io::Result<Option<Pid>> {
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        // A thread may end meanwhile.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        if innermost(&status) == Some(thread) {
            let number = entry.file_name().to_string_lossy().parse();
            return Ok(number.ok().and_then(Pid::from_raw));
        }
    }
    Ok(None)
}

/// The number of a thread in the innermost of its namespaces.
fn innermost(status: &str) -> Option<i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_the_last_of_its_numbers() {
        assert_eq!(innermost("Name:\tx\nNSpid:\t4711\t3\nThreads:\t1\n"), Some(3));
        assert_eq!(innermost("NSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost("Name:\tx\n"), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(host_thread(own, own).unwrap(), Pid::from_raw(own));
    }

    #[test]
    fn a_process_in_our_own_namespace_sees_what_we_see() {
        let own = i32::try_from(std::process::id()).unwrap();
        let root = GuestRoot::new(own, Path::new("/nonexistent"));
        root.show(&[PathBuf::from("/etc/hostname")]).unwrap();
        root.hide(Path::new("/etc/hostname"));
    }
}
