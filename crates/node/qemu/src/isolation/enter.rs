//! Entering the namespaces: the child's system calls between fork and exec, and the fork itself.
//!
//! Like all of the child's steps, they allocate nothing: paths were made before the fork.

use std::ffi::CString;
use std::io;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use super::Isolation;
use super::root::{PLACE, RootPlan, Step};

/// Everything but disks and devices is small; no other process writes to it.
const ROOT_OPTIONS: &std::ffi::CStr = c"mode=0755,size=1m";
const HOST_NAME: &[u8] = b"guest";

/// The namespaces and the root that a child enters.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) isolation: Isolation,
    pub(crate) root: RootPlan,
}

impl Entrance {
    /// Leaves the host. Called by the child, as root, before its last descriptors are needed by
    /// path; what is open stays open.
    #[expect(unsafe_code, reason = "unshare is unsafe because of CLONE_FILES")]
    pub(crate) fn enter(&self) -> rustix::io::Result<()> {
        let mut apart = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
        if !self.isolation.host_network {
            apart |= UnshareFlags::NEWNET;
        }
        // SAFETY: the table of descriptors is not among what is unshared.
        unsafe { rustix::thread::unshare_unsafe(apart)? };
        rustix::system::sethostname(HOST_NAME)?;
        // Nothing that happens to mounts here reaches the host, nor the other way round.
        let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", flags)?;
        let RootPlan { steps, processes, work } = &self.root;
        let safe = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"root", PLACE, c"tmpfs", safe, ROOT_OPTIONS)?;
        for step in steps {
            build(step)?;
        }
        let flags = safe | MountFlags::NOEXEC;
        rustix::mount::mount(c"proc", processes, c"proc", flags, None)?;
        change_root()?;
        rustix::process::chdir(work)
    }
}

fn build(step: &Step) -> rustix::io::Result<()> {
    match step {
        Step::Directory(path) => match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
            Ok(()) => rustix::fs::chmod(path, Mode::from_raw_mode(0o755)),
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error),
        },
        Step::File(path) => empty_file(path),
        Step::Link { target, at } => rustix::fs::symlink(target, at),
        Step::Bind { from, to, recursive: false } => rustix::mount::mount_bind(from, to),
        Step::Bind { from, to, recursive: true } => rustix::mount::mount_bind_recursive(from, to),
        Step::ReadOnly(path) => {
            let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
            match rustix::mount::mount_remount(path, flags, c"") {
                // Flags of the host's mount that a container may not change: its user cannot write
                // there anyway.
                Err(Errno::PERM) => Ok(()),
                remounted => remounted,
            }
        }
    }
}

/// An empty file to mount something on, or the one that is there.
pub(super) fn empty_file(path: &CString) -> rustix::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o600)).map(drop)
}

/// Makes the new root the root, and releases everything else.
fn change_root() -> rustix::io::Result<()> {
    rustix::process::chdir(PLACE)?;
    match rustix::process::pivot_root(c".", c".") {
        Ok(()) => rustix::mount::unmount(c".", UnmountFlags::DETACH)?,
        // A host that runs from its initial file system, which cannot be put away.
        Err(Errno::INVAL) => {
            rustix::mount::mount_move(c".", c"/")?;
            rustix::process::chroot(c".")?;
        }
        Err(error) => return Err(error),
    }
    rustix::process::chdir(c"/")
}

/// Calls `start`, which starts one process: the first one of a process namespace of its own.
///
/// The namespace is one for children of the calling thread, so it takes a thread that has no other
/// children. The child's number is that on the host.
#[expect(unsafe_code, reason = "unshare is unsafe because of CLONE_FILES")]
pub(crate) fn as_first_process<T: Send>(
    start: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let start = || {
        // SAFETY: the table of descriptors is not among what is unshared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID)? };
        start()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("isolated-start".to_owned());
        let started = thread.spawn_scoped(scope, start)?;
        started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
