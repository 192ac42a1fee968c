//! The front-end of a guest that shares its memory: vhost-user-blk.
//!
//! * [`request`](self::request) what a guest asks, as it lies in its memory
//! * [`config`](self::config) what the device says of itself · `inflight` what was asked and not
//!   answered, in memory that outlives this process
//! * `ring` one queue of a guest · `device` the conversation with QEMU about all of this ·
//!   `notice` the one message that is sent without a request
//!
//! Rings are served by the shard that has the volume, without another thread in between; only
//! the conversation has a thread of its own, which no request waits for. A guest whose storage
//! process was killed is found again by what is in flight: it is asked for once more, in the
//! order in which it was first.
//!
//! Guest memory is never trusted: its content is copied before it is checked, and an invalid
//! request is answered with an error, or stops the ring if it cannot be answered.

pub(crate) mod config;
mod device;
mod inflight;
mod notice;
pub(crate) mod request;
mod ring;

use std::fs::File;
use std::sync::{Arc, mpsc};

pub(crate) use self::device::converse;
pub(crate) use self::notice::Notice;
pub(crate) use self::ring::{Ring, RingError, TakenRequest};

/// The memory of a guest.
pub(crate) type Memory = vm_memory::GuestMemoryMmap<()>;

/// Names a guest's device in a shard.
pub(crate) type DeviceId = u64;

/// Parameters for starting a ring.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) memory: Arc<Memory>,
    pub(crate) size: u16,
    /// In the guest's own addresses.
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// Where the guest's requests begin.
    pub(crate) base: u16,
    pub(crate) event_idx: bool,
    /// Is written to by the guest when there are requests.
    pub(crate) kick: File,
    /// Is written to when there are answers.
    pub(crate) call: Option<File>,
    pub(crate) inflight: Option<inflight::Queue>,
    /// The guest does not flush, so that every write has to be durable.
    pub(crate) durable: bool,
}

/// Requests of a device to the shard that serves its volume.
pub(crate) trait Attach: Send {
    /// Bytes of the volume now.
    fn size(&self) -> u64;
    fn start(&self, ring: usize, setup: Setup) -> bool;
    /// Ends a ring when everything that was taken from it has been answered, and says where the
    /// next request begins.
    fn stop(&self, ring: usize, done: mpsc::Sender<u16>);
    fn set_call(&self, ring: usize, call: Option<File>);
    fn set_memory(&self, memory: Arc<Memory>);
    /// Where to say that the device is not as it was.
    fn set_notice(&self, notice: Notice);
    /// The guest is gone, or its QEMU.
    fn end(&self);
}
