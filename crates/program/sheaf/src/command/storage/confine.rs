//! Privileges that the storage process drops before it serves: it cannot gain any by executing
//! programs, and of root's capabilities it keeps few, as a user of its own none that reaches files.
//!
//! To be called before any other thread exists; threads inherit it. Without a user of its own it
//! stays root, with the capabilities for files and the sockets of guests' users.

use rustix::process::{Gid, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Ownership and modes of the sockets that guests' QEMU connects to, files on disks of any owner,
/// memory for io_uring, and the blocks that file systems reserve for root.
const KEPT_BY_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE);
/// Memory for io_uring, and the blocks that file systems reserve: a volume is not stopped by files
/// of others.
const KEPT_BY_USER: CapabilitySet = CapabilitySet::IPC_LOCK.union(CapabilitySet::SYS_RESOURCE);

/// Changes to another user for good.
pub(super) fn become_user(uid: u32, gid: u32) -> rustix::io::Result<()> {
    thread::set_keep_capabilities(true)?;
    thread::set_thread_groups(&[])?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    thread::set_keep_capabilities(false)
}

pub(super) fn confine() -> rustix::io::Result<()> {
    let is_root = rustix::process::getuid().is_root();
    keep(if is_root { KEPT_BY_ROOT } else { KEPT_BY_USER })
}

fn keep(kept: CapabilitySet) -> rustix::io::Result<()> {
    thread::set_no_new_privs(true)?;
    let permitted = thread::capabilities(None)?.permitted.intersection(kept);
    let inheritable = CapabilitySet::empty();
    thread::set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_has_no_capability_beyond_those_for_files() {
        let confined = std::thread::spawn(|| {
            confine().unwrap();
            (thread::capabilities(None).unwrap(), thread::no_new_privs().unwrap())
        });
        let (sets, no_new_privs) = confined.join().unwrap();
        assert!(no_new_privs);
        assert!(
            KEPT_BY_ROOT.contains(sets.effective) && KEPT_BY_ROOT.contains(sets.permitted),
            "{sets:?}"
        );
        assert!(sets.inheritable.is_empty());
        assert!(!KEPT_BY_ROOT.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN));
    }

    #[test]
    fn another_user_has_no_right_to_files_of_root() {
        assert!(rustix::process::geteuid().is_root(), "this test changes the user: run it as root");
        let confined = std::thread::spawn(|| {
            become_user(0x7000_9001, 0x7000_9002).unwrap();
            confine().unwrap();
            // The thread's own: `geteuid` asks for the same.
            let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let shadow = std::fs::File::open("/etc/shadow").map(drop);
            (user, thread::capabilities(None).unwrap(), shadow)
        });
        let (user, sets, shadow) = confined.join().unwrap();
        assert_eq!(user, (0x7000_9001, 0x7000_9002));
        assert!(KEPT_BY_USER.contains(sets.permitted | sets.effective), "{sets:?}");
        assert_eq!(shadow.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }
}
