//! One virtqueue of a guest: takes requests from the available ring, and puts answers into the used
//! ring. Requests in flight are recorded, so that the next process completes them after a crash.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use virtio_queue::{Queue, QueueT as _};
use vm_memory::GuestAddress;

use super::config::MAX_RING;
use super::request::{self, Kind, Room, Status, Table};
use super::{Memory, Setup, inflight};

/// Why a virtqueue cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error("the guest's ring is not where it says")]
    Invalid,
    #[error("the guest's ring cannot be used")]
    Queue(#[source] virtio_queue::Error),
    #[error(transparent)]
    Take(#[from] request::TakeError),
}

/// A request that was taken.
#[derive(Debug)]
pub(crate) struct TakenRequest {
    /// Index of the first descriptor, which identifies the request in its queue.
    pub(crate) head: u16,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) struct Ring {
    queue: Queue,
    memory: Arc<Memory>,
    kick: File,
    call: Option<File>,
    inflight: Option<inflight::Queue>,
    /// Requests that were taken and not answered.
    open: BTreeMap<u16, Room>,
    /// Requests that another process had taken and not answered; they are taken first.
    left: VecDeque<u16>,
    /// Whether the guest has been notified of all answers.
    is_notified: bool,
    /// Whether the guest kicks when it adds requests.
    listening: bool,
    pub(crate) durable: bool,
    /// Takes no more requests.
    closed: bool,
    /// Waits for the last answer, and receives the index of the next request.
    draining: Option<mpsc::Sender<u16>>,
}

impl Ring {
    pub(crate) fn new(setup: Setup) -> Result<Self, RingError> {
        let Setup { memory, kick, call, mut inflight, durable, .. } = setup;
        // Its creator may have made it blocking.
        let flags = rustix::fs::fcntl_getfl(&kick).map_err(|_| RingError::Invalid)?;
        rustix::fs::fcntl_setfl(&kick, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(|_| RingError::Invalid)?;
        let mut queue = Queue::new(MAX_RING).map_err(RingError::Queue)?;
        queue.try_set_size(setup.size).map_err(RingError::Queue)?;
        let address = |address| GuestAddress(address);
        queue.try_set_desc_table_address(address(setup.descriptors)).map_err(RingError::Queue)?;
        queue.try_set_avail_ring_address(address(setup.available)).map_err(RingError::Queue)?;
        queue.try_set_used_ring_address(address(setup.used)).map_err(RingError::Queue)?;
        queue.set_event_idx(setup.event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&*memory) {
            return Err(RingError::Invalid);
        }
        let used = queue.used_idx(&*memory, Ordering::Acquire).map_err(RingError::Queue)?.0;
        let left: VecDeque<u16> =
            inflight.as_mut().map(|queue| queue.resume(used)).unwrap_or_default().into();
        queue.set_next_used(used);
        // The inflight log gives a more exact start of the remaining requests than QEMU does.
        queue.set_next_avail(match inflight {
            Some(_) => used.wrapping_add(left.len() as u16),
            None => setup.base,
        });
        Ok(Self {
            queue,
            memory,
            kick,
            call,
            inflight,
            open: BTreeMap::new(),
            left,
            is_notified: true,
            listening: true,
            durable,
            closed: false,
            draining: None,
        })
    }

    /// Clears the kick eventfd.
    pub(crate) fn clear_kick(&self) {
        let _ = rustix::io::read(&self.kick, &mut [0u8; 8]);
    }

    /// The next request. After `None`, call [`listen`](Self::listen) to be notified of more. Until
    /// then the guest does not kick, since a kick costs it more than the request itself.
    pub(crate) fn take(&mut self) -> Result<Option<TakenRequest>, RingError> {
        if self.closed {
            return Ok(None);
        }
        if let Some(head) = self.left.pop_front() {
            return self.begin(head).map(Some);
        }
        let memory = &*self.memory;
        if std::mem::replace(&mut self.listening, false) {
            self.queue.disable_notification(memory).map_err(RingError::Queue)?;
        }
        let Some(chain) = self.queue.pop_descriptor_chain(memory) else { return Ok(None) };
        let head = chain.head_index();
        if let Some(inflight) = &mut self.inflight {
            inflight.begin(head);
        }
        self.begin(head).map(Some)
    }

    /// From now on the guest kicks when it adds requests. Returns whether there are some already.
    pub(crate) fn listen(&mut self) -> Result<bool, RingError> {
        if self.closed {
            return Ok(false);
        }
        self.listening = true;
        self.queue.enable_notification(&*self.memory).map_err(RingError::Queue)
    }

    fn begin(&mut self, head: u16) -> Result<TakenRequest, RingError> {
        let table = Table { at: self.queue.desc_table(), count: self.queue.size() };
        let (kind, room) = request::take(&self.memory, table, head)?;
        self.open.insert(head, room);
        Ok(TakenRequest { head, kind })
    }

    /// Answers a request. False if there is no such request.
    pub(crate) fn answer(&mut self, head: u16, data: &[u8], status: Status) -> bool {
        let Some(room) = self.open.remove(&head) else { return false };
        let written = room.put(&self.memory, data, status);
        self.put(head, written);
        true
    }

    pub(crate) fn answer_name(&mut self, head: u16) {
        if let Some(room) = self.open.remove(&head) {
            let written = room.put_name(&self.memory);
            self.put(head, written);
        }
    }

    fn put(&mut self, head: u16, written: u32) {
        if let Some(inflight) = &self.inflight {
            inflight.answering(head);
        }
        if let Err(error) = self.queue.add_used(&*self.memory, head, written) {
            tracing::warn!(%error, "cannot complete request on virtqueue");
        }
        if let Some(inflight) = &self.inflight {
            inflight.end(head, self.queue.next_used());
        }
        self.is_notified = false;
        self.drained();
    }

    /// Notifies the guest of new answers, unless it has disabled notifications.
    pub(crate) fn notify(&mut self) {
        if std::mem::replace(&mut self.is_notified, true) {
            return;
        }
        let wanted = self.queue.needs_notification(&*self.memory).unwrap_or(true);
        if let Some(call) = self.call.as_ref().filter(|_| wanted) {
            // Fails only when the eventfd would overflow, and then a notification is pending.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }

    /// Takes no more requests; `done` gets the index of the next request when all requests that
    /// were taken have been answered.
    pub(crate) fn drain(&mut self, done: mpsc::Sender<u16>) {
        self.closed = true;
        self.draining = Some(done);
        self.drained();
    }

    /// Takes no more requests.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether [`drain`](Self::drain) has completed.
    pub(crate) fn is_drained(&self) -> bool {
        self.draining.is_some() && self.open.is_empty()
    }

    fn drained(&mut self) {
        if self.open.is_empty()
            && let Some(done) = &self.draining
        {
            let _ = done.send(self.queue.next_avail().wrapping_sub(self.left.len() as u16));
        }
    }

    pub(crate) fn set_call(&mut self, call: Option<File>) {
        self.call = call;
        // Notify the guest of answers that were given while there was no call descriptor.
        if let Some(call) = &self.call {
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn set_memory(&mut self, memory: Arc<Memory>) {
        self.memory = memory;
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use vm_memory::Bytes as _;

    use super::*;

    const DESCRIPTORS: u64 = 0;
    const AVAILABLE: u64 = 0x400;
    const USED: u64 = 0x800;
    const SIZE: u16 = 8;

    /// A driver in miniature: every request is a flush.
    struct Driver {
        memory: Arc<Memory>,
        available: u16,
    }

    impl Driver {
        fn with_ring(event_idx: bool) -> (Self, Ring) {
            let memory = Memory::from_ranges(&[(GuestAddress(0), 0x1_0000)]).unwrap();
            let memory = Arc::new(memory);
            // A blocking eventfd, which the ring must make non-blocking.
            let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let ring = Ring::new(Setup {
                memory: memory.clone(),
                size: SIZE,
                descriptors: DESCRIPTORS,
                available: AVAILABLE,
                used: USED,
                base: 0,
                event_idx,
                kick: kick.into(),
                call: None,
                inflight: None,
                durable: false,
            });
            (Self { memory, available: 0 }, ring.unwrap())
        }

        fn ask(&mut self) {
            let (next, writable) = (1u16, 2u16);
            let pieces = [(0x1000u64, 16u32, next, 1u16), (0x2000, 1, writable, 0)];
            for (at, (address, length, flags, follows)) in (0..).zip(pieces) {
                let mut bytes = address.to_le_bytes().to_vec();
                bytes.extend(length.to_le_bytes());
                bytes.extend(flags.to_le_bytes());
                bytes.extend(follows.to_le_bytes());
                self.memory.write_slice(&bytes, GuestAddress(DESCRIPTORS + at * 16)).unwrap();
            }
            self.memory.write_obj(4u32, GuestAddress(0x1000)).unwrap();
            let place = AVAILABLE + 4 + u64::from(self.available % SIZE) * 2;
            self.memory.write_obj(0u16, GuestAddress(place)).unwrap();
            self.available += 1;
            self.memory.write_obj(self.available, GuestAddress(AVAILABLE + 2)).unwrap();
        }

        /// Whether a driver would kick for its newest request.
        fn kicks(&self, event_idx: bool) -> bool {
            let number = |at| self.memory.read_obj::<u16>(GuestAddress(at)).unwrap();
            match event_idx {
                true => number(USED + 4 + u64::from(SIZE) * 8) == self.available - 1,
                false => number(USED) & 1 == 0,
            }
        }
    }

    #[test]
    fn a_guest_does_not_kick_while_its_requests_are_served_and_is_served_all_the_same() {
        for event_idx in [false, true] {
            let (mut driver, mut ring) = Driver::with_ring(event_idx);
            ring.clear_kick();
            assert!(!ring.listen().unwrap());
            driver.ask();
            assert!(driver.kicks(event_idx));
            let taken = ring.take().unwrap().unwrap();
            assert_eq!(taken.kind, Kind::Flush);
            assert!(ring.answer(taken.head, &[], Status::Ok));
            assert!(ring.take().unwrap().is_none());
            driver.ask();
            assert!(!driver.kicks(event_idx), "events {event_idx}");
            assert!(ring.listen().unwrap(), "what came unheard is found");
            let taken = ring.take().unwrap().unwrap();
            assert!(ring.answer(taken.head, &[], Status::Ok));
            assert!(ring.take().unwrap().is_none());
            assert!(!ring.listen().unwrap());
            driver.ask();
            assert!(driver.kicks(event_idx), "events {event_idx}");
        }
    }
}
