//! Privileges that the storage process drops before it serves: it cannot gain any by executing
//! programs, and of root's capabilities it keeps those for files of its own and of guests' users.
//!
//! To be called before any other thread exists; threads inherit it. It stays the user that it was
//! started as: replicas lie on disks whose directories belong to root.

use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Ownership and modes of the sockets that guests' QEMU connects to, files on disks of any owner,
/// memory for io_uring, and the blocks that file systems reserve for root.
const KEPT_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE);

pub(super) fn confine() -> rustix::io::Result<()> {
    thread::set_no_new_privs(true)?;
    let had = thread::capabilities(None)?;
    let sets = CapabilitySets {
        effective: had.effective.intersection(KEPT_CAPABILITIES),
        permitted: had.permitted.intersection(KEPT_CAPABILITIES),
        inheritable: CapabilitySet::empty(),
    };
    thread::set_capabilities(None, sets)
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
            KEPT_CAPABILITIES.contains(sets.effective)
                && KEPT_CAPABILITIES.contains(sets.permitted),
            "{sets:?}"
        );
        assert!(sets.inheritable.is_empty());
        assert!(!KEPT_CAPABILITIES.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN));
    }
}
