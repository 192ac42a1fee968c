//! The namespaces of a guest's QEMU: mounts, processes, network, IPC and host name of its own.
//!
//! Its root is a small tmpfs with the programs and libraries of the host, a few devices, the
//! machine's run directory, and what its disks are made of, each under its path on the host:
//! `root` lists them, `enter` builds the root in the child between fork and exec. A disk that is
//! plugged later is shown to the running process first, and hidden when it is unplugged: `visit`.
//! Sockets are shown with their directory, because a server that starts again replaces them.
//!
//! QEMU is the first process of its process namespace and needs no parent: it is adopted by its
//! pidfd and by its number on the host. Taps, monitor and streams are descriptors, so that an empty
//! network namespace is enough, except for user-mode networks.
//!
//! Namespaces need root. A host that refuses them is found out by `probe`, once.

mod enter;
mod probe;
mod root;
mod visit;

use serde::{Deserialize, Serialize};

pub(crate) use self::enter::{Entrance, as_first_process};
pub use self::probe::{ProbeError, probe};
pub(crate) use self::root::{RootPlan, disk_paths, machine_paths};
pub use self::visit::VisitError;
pub(crate) use self::visit::{GuestRoot, host_thread};

/// How far QEMU is apart from the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Isolation {
    /// It stays in the network of the host, which a user-mode network is part of.
    pub host_network: bool,
}
