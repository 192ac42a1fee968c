//! The machines of the cluster: what runs on them and what is on their disks.

use std::collections::BTreeMap;

use super::Time;
use super::disk::ModelDisk;
use crate::ids::{BootId, InstanceId, ReplicaId};
use crate::repl::disk::DiskRequest;
use crate::repl::engine::{Engine, GuestId};
use crate::repl::session::Session;

/// A replica and the machine it is on.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) replica: ReplicaId,
    pub(crate) disk: ModelDisk,
    pub(crate) session: Option<Session>,
    pub(crate) instance: InstanceId,
    pub(crate) boot: BootId,
    /// Counts the lives of the process: what was meant for an earlier one is dropped.
    pub(crate) life: u64,
    /// What the disk is working on.
    pub(crate) working: BTreeMap<u64, DiskRequest>,
    /// The disk answers nothing before this.
    pub(crate) hangs_until: Time,
    /// Its disk is gone for good.
    pub(crate) destroyed: bool,
}

/// An engine with its guest.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) engine: Option<Engine>,
    /// The machine it runs on; may be one without a replica.
    pub(crate) host: usize,
    pub(crate) deadline: Time,
    /// What the guest waits for.
    pub(crate) waiting: BTreeMap<GuestId, Asked>,
    /// The guest makes new requests.
    pub(crate) busy: bool,
    pub(crate) active: bool,
    /// Reads before the volume was taken are not judged.
    pub(crate) standby: bool,
}

/// A request of a guest that was not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) at: Time,
    pub(crate) what: AskedWhat,
}

#[derive(Debug, Clone)]
pub(crate) enum AskedWhat {
    Read { first: usize, judged: bool },
    Write { tag: u64, fua: bool },
    Flush,
    Other,
}

impl Server {
    /// Stands by for a guest that has not come.
    pub(crate) fn is_waiting(&self) -> bool {
        self.standby && !self.busy && !self.active
    }
}
