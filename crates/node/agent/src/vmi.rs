//! VirtualMachineInstances of this node: one task per object, from its hand-over to its end.
//!
//! The folder of a machine, `agent/vmis/<uid>/`, is all that a new process needs to take over
//! from one that was killed: what was started ([`qemu::RunDir`]) and how it is connected.
//! Folders and objects are brought together by uid; each side may be missing.
//!
//! Decisions are in `plan`, `translate`, `hotplug`, `seed` and `status`, which are pure.

mod actor;
mod awaited;
mod credential;
pub(crate) mod dial;
mod end;
mod filesystem_trim;
#[cfg(test)]
pub(crate) mod fixture;
mod freeze;
mod grow;
mod guest;
mod guest_clock;
mod hotplug;
mod interface;
mod launch;
mod live;
mod memory_dump;
mod migration;
mod object;
mod plan;
mod probe;
mod registry;
mod resolve;
mod resume;
mod running;
mod saved_memory;
mod seed;
mod state;
mod status;
mod token_renewal;
mod translate;
mod view;
mod volume_migration;
mod watch;
mod write;

pub(crate) use dial::{DialError, OpenPort};
pub(crate) use freeze::HoldError;
pub(crate) use guest::os_info;
pub(crate) use live::{LiveMachine, UsbSlot};
pub(crate) use migration::{IncomingError, IncomingMigrations, MigrationOffer, is_arriving};
pub(crate) use object::Vmi;
pub(crate) use registry::Machines;
pub(crate) use saved_memory::{MemoryOwner, SaveError, SavedMemory, sweep as sweep_memory};
pub(crate) use state::sweep;
pub(crate) use translate::{Efi, HostCapabilities, InterfaceBackend, mac};
pub(crate) use watch::run;
