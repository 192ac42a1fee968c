//! VirtualMachineInstances of this node: one task per object, from its hand-over to its end.
//!
//! The folder of a machine, `agent/vmis/<uid>/`, is all that a new process needs to take over
//! from one that was killed: what was started ([`qemu::RunDir`]) and how it is connected.
//! Folders and objects are brought together by uid; each side may be missing.
//!
//! Decisions are in `plan`, `translate`, `hotplug`, `seed` and `status`, which are pure.

mod actor;
mod attend;
mod awaited;
mod credential;
mod disks;
mod end;
mod filesystem_trim;
mod grow;
mod guest;
mod guest_clock;
mod hotplug;
mod interface;
mod launch;
mod memory_dump;
mod migration;
mod plan;
mod probe;
mod process_state;
mod resolve;
mod resume;
mod retry;
mod running;
mod seed;
mod state;
mod status;
mod token_renewal;
mod translate;
mod view;
mod volume_migration;
mod watch;
mod write;

pub(crate) use guest::os_info;
pub(crate) use migration::{
    IncomingError, IncomingMigrations, MigrationOffer, STREAM_PROTOCOL, is_arriving,
};
pub(crate) use state::sweep;
pub(crate) use watch::run;
