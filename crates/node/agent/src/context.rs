//! State shared by all machines of the node.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use qemu::Launcher;
use qemu::isolation::Isolation;
use qemu::process::cgroup;
use tokio::sync::watch;

use crate::change_notifier::ChangeNotifier;
use crate::config::Config;
use crate::event::Reporter;
use crate::host::AcceleratorProbe;
use crate::network::Networks;
use crate::order::StartOrder;
use crate::processors::Processors;
use crate::storage::StorageHandle;
use crate::volume::Volumes;

/// Users for machines: above all that systemd and container tools hand out.
const UIDS: Range<u32> = 0x7000_0000..0x7000_8000;

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) reporter: Reporter,
    pub(crate) networks: Networks,
    pub(crate) launcher: Launcher,
    pub(crate) users: Users,
    /// Result of probing QEMU here.
    pub(crate) trial: watch::Receiver<AcceleratorProbe>,
    pub(crate) cgroup: Option<cgroup::Layout>,
    /// The namespaces of guests' QEMU, where the host allows them.
    pub(crate) isolation: Option<Isolation>,
    pub(crate) processors: Processors,
    /// The order in which machines start after a power cut.
    pub(crate) order: StartOrder,
    pub(crate) volumes: Volumes,
    pub(crate) storage: StorageHandle,
    pub(crate) notifier: ChangeNotifier,
}

/// The users that machines run as; none if we are not root and all are ours.
#[derive(Debug, Clone)]
pub(crate) struct Users(Option<Arc<Mutex<BTreeSet<u32>>>>);

impl Users {
    /// Those in `taken` belong to machines that exist.
    pub(crate) fn new(is_root: bool, taken: BTreeSet<u32>) -> Self {
        Self(is_root.then(|| Arc::new(Mutex::new(taken))))
    }

    /// A user that no other machine has.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut taken = self.0.as_ref()?.lock();
        let used: Vec<u32> = taken.iter().copied().collect();
        let uid = qemu::process::free_uid(UIDS, &used)?;
        taken.insert(uid);
        Some(uid)
    }

    /// Whether machines have users of their own at all.
    pub(crate) fn are_many(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn release(&self, uid: u32) {
        if let Some(taken) = &self.0 {
            taken.lock().remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_machines_have_one_user() {
        let users = Users::new(true, BTreeSet::from([UIDS.start]));
        let (one, two) = (users.take().unwrap(), users.take().unwrap());
        assert_eq!((one, two), (UIDS.start + 1, UIDS.start + 2));
        users.release(one);
        assert_eq!(users.take(), Some(one));
        assert_eq!(Users::new(false, BTreeSet::new()).take(), None);
    }
}
