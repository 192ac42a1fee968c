//! A machine of this node as all parts of the agent know it: its object, its connections to
//! networks, and the handles to its running QEMU.
//!
//! Storage freezes a guest by these handles, networks read the object, and the endpoint serves
//! consoles; `vmi` makes and ends what is here. Refuses to start or to stop a guest, to choose a
//! network, and to name those who do.

mod attachment;
pub(crate) mod dial;
#[cfg(test)]
pub(crate) mod fixture;
mod freeze;
mod info;
mod live;
mod object;
mod registry;
pub(crate) mod saved_memory;

pub(crate) use attachment::{
    ATTACHMENTS, Attachment, BridgeNetwork, NetworkLocation, mac, tap_key,
};
pub(crate) use dial::{DialError, OpenPort};
pub(crate) use freeze::HoldError;
pub(crate) use info::{AgentState, CredentialsState, GuestInfo, Readiness, Topology};
pub(crate) use live::{LiveMachine, MachineChanges, UsbSlot};
pub(crate) use object::{FINALIZER, ReadError, Vmi, VmiPhase};
pub(crate) use registry::{KnownMachine, MachineEntry, Machines};
pub(crate) use saved_memory::{MemoryOwner, SaveError, SavedMemory};
