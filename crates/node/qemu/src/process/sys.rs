//! The system calls around a process that no safe wrapper offers: the steps of the child between
//! fork and exec, and opening taps.
//!
//! Everything the child needs is made before the fork; in between only system calls are
//! made, because another thread may have held the allocator's lock when we forked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit, Uid};
use rustix::thread::CapabilitySet;
use seccompiler::{BpfProgram, BpfProgramRef};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ProcessUser;
use crate::isolation::Entrance;

/// The steps of the child before it executes QEMU.
#[derive(Debug, Default)]
pub(crate) struct Preparation {
    pub(crate) identity: Option<ProcessUser>,
    /// Descriptors that stay open over exec, under their numbers.
    pub(crate) inherit: Vec<OwnedFd>,
    /// Files to which the child writes itself, to enter its control groups.
    pub(crate) cgroups: Vec<File>,
    pub(crate) lock_memory: bool,
    /// Further limits.
    pub(crate) limits: Vec<(Resource, u64)>,
    /// The namespaces that it enters.
    pub(crate) entrance: Option<Entrance>,
    /// The system calls that are left to it.
    pub(crate) filter: Option<BpfProgram>,
}

/// The limit of open files of a child: far above the need of any QEMU.
const MOST_FILES: u64 = 65_536;

/// Makes `command` run as another user and in namespaces, if they are given.
pub(crate) fn confine(
    command: &mut Command,
    identity: Option<ProcessUser>,
    entrance: Option<Entrance>,
) {
    prepare(command, Preparation { identity, entrance, ..Preparation::default() });
}

/// Makes `command` run as another user, if one is given, with these descriptors.
pub(crate) fn confine_with(
    command: &mut Command,
    identity: Option<ProcessUser>,
    inherit: Vec<OwnedFd>,
) {
    prepare(command, Preparation { identity, inherit, ..Preparation::default() });
}

/// Makes `command` prepare its child. The preparation lives until the command is dropped.
#[expect(unsafe_code, reason = "there is no other way to act between fork and exec")]
pub(crate) fn prepare(command: &mut Command, preparation: Preparation) {
    let groups: Vec<rustix::process::Gid> = preparation
        .identity
        .iter()
        .flat_map(|identity| &identity.groups)
        .map(|gid| rustix::process::Gid::from_raw(*gid))
        .collect();
    let files = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(MOST_FILES);
    let files = files.min(MOST_FILES);
    // SAFETY: the closure makes system calls only. It allocates nothing, takes no lock, and
    // what it reads was made before the fork.
    unsafe {
        command.pre_exec(move || Ok(become_child(&preparation, &groups, files)?));
    }
}

fn become_child(
    preparation: &Preparation,
    groups: &[rustix::process::Gid],
    files: u64,
) -> rustix::io::Result<()> {
    rustix::process::setsid()?;
    for cgroup in &preparation.cgroups {
        rustix::io::write(cgroup, b"0")?;
    }
    for fd in &preparation.inherit {
        rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
    }
    let limit = |value| Rlimit { current: Some(value), maximum: Some(value) };
    rustix::process::setrlimit(Resource::Core, limit(0))?;
    rustix::process::setrlimit(Resource::Nofile, limit(files))?;
    for (resource, value) in &preparation.limits {
        rustix::process::setrlimit(*resource, limit(*value))?;
    }
    if preparation.lock_memory && preparation.identity.is_some() {
        let unlimited = Rlimit { current: None, maximum: None };
        rustix::process::setrlimit(Resource::Memlock, unlimited)?;
    }
    if let Some(entrance) = &preparation.entrance {
        entrance.enter()?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    if let Some(identity) = &preparation.identity {
        drop_privileges(identity, groups)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    match &preparation.filter {
        Some(filter) => apply(filter),
        None => Ok(()),
    }
}

/// The last step before exec: none of the steps above is among the calls that are left.
fn apply(filter: BpfProgramRef<'_>) -> rustix::io::Result<()> {
    seccompiler::apply_filter(filter).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
            rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::INVAL)
        }
        _ => rustix::io::Errno::INVAL,
    })
}

/// Changes to another user for good. The order matters: each step needs rights that the next drops.
fn drop_privileges(
    identity: &ProcessUser,
    groups: &[rustix::process::Gid],
) -> rustix::io::Result<()> {
    for number in 0..63 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel has no further capabilities.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    rustix::thread::set_thread_groups(groups)?;
    let gid = rustix::process::Gid::from_raw(identity.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(identity.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// An asynchronous pidfd, which becomes readable when the process ends.
#[expect(unsafe_code, reason = "tokio wants a promise about the descriptor")]
pub(super) fn exit_signal(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` gives out one descriptor for all its life, and closes it only when
    // the `AsyncFd` that owns it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

/// `struct ifreq` as far as TUNSETIFF reads it.
#[repr(C)]
struct TapRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_MULTI_QUEUE: u16 = 0x0100;
/// `_IOW('T', 202, int)`.
const TUNSETIFF: u32 = 0x4004_54ca;

/// How long a tap may be busy because of another child of ours, which has copies of all
/// descriptors between fork and exec; on a busy host that takes a while.
const TAP_BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const TAP_RETRY: Duration = Duration::from_millis(5);

/// Opens `queues` queues of a tap that exists. Blocks for a moment if it was just made while
/// another machine is being started: see [`TAP_BUSY_TIMEOUT`].
pub fn open_tap(ifname: &str, queues: u16) -> io::Result<Vec<OwnedFd>> {
    let mut request = TapRequest { name: [0; 16], flags: 0, rest: [0; 22] };
    if ifname.is_empty() || ifname.len() >= request.name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of an interface"));
    }
    request.name[..ifname.len()].copy_from_slice(ifname.as_bytes());
    request.flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if queues > 1 {
        request.flags |= IFF_MULTI_QUEUE;
    }
    // Otherwise the kernel would create a new tap of that name.
    if !std::path::Path::new("/sys/class/net").join(ifname).exists() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no such interface"));
    }
    (0..queues.max(1)).map(|_| open_queue(&mut request)).collect()
}

fn open_queue(request: &mut TapRequest) -> io::Result<OwnedFd> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    rustix::io::ioctl_fionbio(&tun, true)?;
    let deadline = Instant::now() + TAP_BUSY_TIMEOUT;
    loop {
        match set_interface(&tun, request) {
            Ok(()) => return Ok(OwnedFd::from(tun)),
            Err(rustix::io::Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(TAP_RETRY);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[expect(unsafe_code, reason = "the only interface to taps is an ioctl")]
fn set_interface(tun: &File, request: &mut TapRequest) -> rustix::io::Result<()> {
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which is 40 bytes on all 64-bit
    // systems and which `TapRequest` is a prefix-compatible picture of.
    unsafe {
        rustix::ioctl::ioctl(tun, rustix::ioctl::Updater::<TUNSETIFF, TapRequest>::new(request))
    }
}

/// One descriptor of `/dev/vhost-net` for each queue.
pub fn open_vhost_net(queues: u16) -> io::Result<Vec<OwnedFd>> {
    let open = |_| OpenOptions::new().read(true).write(true).open("/dev/vhost-net");
    (0..queues.max(1)).map(open).map(|file| file.map(OwnedFd::from)).collect()
}

/// The numbers under which a child will find these descriptors.
pub(crate) fn numbers(fds: &[OwnedFd]) -> Vec<RawFd> {
    fds.iter().map(AsRawFd::as_raw_fd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tap that goes with the test.
    struct Tap(String);

    impl Tap {
        fn new() -> Self {
            let tap = Self(format!("shftap{}", std::process::id() % 100_000));
            tap.ip(&["tuntap", "add", "mode", "tap", "name"]);
            tap
        }

        fn ip(&self, words: &[&str]) {
            let done = Command::new("ip").args(words).arg(&self.0).status();
            let done = done.expect("ip is missing; scripts/setup test installs it");
            assert!(done.success() || std::thread::panicking(), "ip failed; root may make taps");
        }
    }

    impl Drop for Tap {
        fn drop(&mut self) {
            self.ip(&["link", "delete"]);
        }
    }

    #[test]
    fn a_tap_that_a_child_holds_for_a_moment_is_waited_for() {
        let tap = Tap::new();
        let first = open_tap(&tap.0, 1).unwrap();
        // As a child does that was forked while the tap was being made.
        let child = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        let second = open_tap(&tap.0, 1).unwrap();
        child.join().unwrap();
        let taken = open_tap(&tap.0, 1).unwrap_err();
        assert_eq!(taken.raw_os_error(), Some(rustix::io::Errno::BUSY.raw_os_error()));
        drop(second);
        let missing = open_tap("shfnone", 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
