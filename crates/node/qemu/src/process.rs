//! QEMU processes: starting one so that it outlives us, finding it again, seeing it end.
//!
//! ```text
//! <run dir>/            ours; QEMU cannot write here
//!   lock                held (flock) by the QEMU process itself, from before it exists
//!   machine.json        what is to run: on disk before the process is started
//!   process.json        pid and start time, once it is started
//!   exit.json           why it ended, once we know
//!   qmp.sock serial.sock agent.sock   listening sockets that QEMU inherits
//!   qemu.log            what QEMU says
//!   vm/                 QEMU's working folder, owned by its user: vnc.sock, nvram, …
//! ```
//!
//! We may be killed at any moment, so nothing that is remembered only here may matter:
//!
//! - The descriptor of `lock` is opened by us and inherited by QEMU. The kernel holds the
//!   lock for as long as either lives: a lock that can be taken means that no process
//!   exists and none is on its way, so nothing is ever started twice.
//! - If the lock is held and `process.json` is missing, we died just after the start; the
//!   process is found by the path of its pid file among its arguments.
//! - QEMU waits after the guest's power-off (see `argv`); what it was is written to
//!   `exit.json` before QEMU is asked to quit.
//!
//! The child is prepared between fork and exec (`sys`), not by a helper program: that keeps
//! the lock's chain unbroken, needs no second binary that an upgrade could replace in
//! between, and costs one exec less.

pub mod cgroup;
mod launch;
mod running;
mod start;
mod sys;
mod system_calls;
mod watcher;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::isolation::Isolation;
use crate::machine::Machine;
pub use launch::{AdoptError, LaunchError, Launcher, RunDirState};
pub use running::{PinError, RecoverError, RunningMachine, ScreenshotError};
pub(crate) use sys::{Preparation, confine, confine_with, prepare};
pub use sys::{open_tap, open_vhost_net};
pub(crate) use system_calls::converter;

/// The machine to start, and its confinement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    pub machine: Machine,
    #[serde(default)]
    pub confinement: Confinement,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// The user that QEMU runs as; ours if there is none, which is all that is possible if
    /// we are not root.
    pub identity: Option<ProcessUser>,
    pub limits: Option<cgroup::Limits>,
    /// The namespaces of its own; none for a machine of an earlier version, and without root.
    pub isolation: Option<Isolation>,
    /// Where the limits apply; decided once for the host.
    pub cgroup: Option<cgroup::Layout>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUser {
    pub uid: u32,
    pub gid: u32,
    /// Groups that give access to devices, such as that of `/dev/kvm`.
    #[serde(default)]
    pub groups: Vec<u32>,
}

/// The lowest user id in `range` that is not in `used`.
pub fn free_uid(range: std::ops::Range<u32>, used: &[u32]) -> Option<u32> {
    range.into_iter().find(|uid| !used.contains(uid))
}

/// Why a machine is no longer there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// The guest powered off, by itself or because it was asked to.
    GuestShutdown,
    /// The guest rebooted, and its reboots end the machine.
    GuestReset,
    GuestPanic,
    /// We ended it.
    Killed,
    /// QEMU ended without a request. The status is known only for our own children.
    Died {
        status: Option<i32>,
        signal: Option<i32>,
    },
}

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// In clock ticks after the host's boot.
    pub start_time: u64,
}

/// A QEMU binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary(pub PathBuf);

impl Default for Binary {
    fn default() -> Self {
        Self(PathBuf::from("qemu-system-x86_64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_unused_user_is_taken() {
        assert_eq!(free_uid(10..13, &[]), Some(10));
        assert_eq!(free_uid(10..13, &[10, 12]), Some(11));
        assert_eq!(free_uid(10..12, &[11, 10]), None);
    }
}
