//! Requests of a guest that were not answered, in memory that QEMU keeps while this process is
//! killed and started again.
//!
//! The layout is vhost-user's, for split queues: of each queue 16 bytes and 16 for each of its
//! requests, rounded up to 64.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 8 | features, none |
//! | 8 | 2 | version 1 |
//! | 10 | 2 | requests in the queue |
//! | 12 | 2 | the request that was answered last |
//! | 14 | 2 | how many were answered, as the used ring counts them |
//! | 16 + 16 n | 1 | whether request n is in flight |
//! | 22 + 16 n | 2 | the request that was answered before it |
//! | 24 + 16 n | 8 | a number that grows, by which they are brought into order |
//!
//! A request is marked before it is worked on, and unmarked after the guest can see its answer. A
//! kill between the answer and its mark shows in the two counts, which then differ by one.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _, VolatileSlice};

const VERSION: u16 = 1;
const HEADER: usize = 16;
const ENTRY: usize = 16;

/// Bytes for a queue.
fn queue_bytes(size: u16) -> usize {
    (HEADER + ENTRY * usize::from(size)).next_multiple_of(64)
}

/// The region of a device.
#[derive(Clone, Debug)]
pub(super) struct Region {
    memory: Arc<MmapRegion<()>>,
    queues: u16,
    size: u16,
}

/// Why a region cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegionError {
    #[error("cannot make memory for what is in flight")]
    Make(#[source] std::io::Error),
    #[error("cannot use the memory for what is in flight")]
    Map(#[source] vm_memory::mmap::MmapRegionError),
    #[error("the memory for what is in flight has {found} bytes, not {needed}")]
    Short { found: u64, needed: u64 },
}

impl Region {
    /// Bytes that a device needs.
    pub(super) fn bytes(queues: u16, size: u16) -> u64 {
        (usize::from(queues) * queue_bytes(size)) as u64
    }

    /// Memory for a device, empty.
    pub(super) fn make(queues: u16, size: u16) -> Result<File, RegionError> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("inflight", flags)
            .map_err(|errno| RegionError::Make(errno.into()))?;
        let file = File::from(file);
        file.set_len(Self::bytes(queues, size)).map_err(RegionError::Make)?;
        Ok(file)
    }

    pub(super) fn open(
        file: File,
        offset: u64,
        bytes: u64,
        queues: u16,
        size: u16,
    ) -> Result<Self, RegionError> {
        let needed = Self::bytes(queues, size);
        let found = file.metadata().map_err(RegionError::Make)?.len().saturating_sub(offset);
        if bytes < needed || found < needed {
            return Err(RegionError::Short { found: bytes.min(found), needed });
        }
        let place = FileOffset::new(file, offset);
        let length = usize::try_from(needed).unwrap_or(usize::MAX);
        let memory = MmapRegion::from_file(place, length).map_err(RegionError::Map)?;
        Ok(Self { memory: Arc::new(memory), queues, size })
    }

    /// The part of a queue, if the region has it.
    pub(super) fn queue(&self, index: u16, size: u16) -> Option<Queue> {
        (index < self.queues && size <= self.size).then(|| Queue {
            memory: self.memory.clone(),
            at: usize::from(index) * queue_bytes(self.size),
            size,
            next: 0,
        })
    }
}

/// Requests in flight in one queue.
#[derive(Debug)]
pub(crate) struct Queue {
    memory: Arc<MmapRegion<()>>,
    at: usize,
    size: u16,
    /// The next number.
    next: u64,
}

impl Queue {
    /// Takes up what another process left, whose answers the guest has seen up to `used`.
    /// Gives what is still in flight, in the order in which it was asked.
    pub(super) fn resume(&mut self, used: u16) -> Vec<u16> {
        if self.get::<u16>(8) != VERSION {
            self.put(8, VERSION);
            self.put(10, self.size);
            self.put(14, used);
            return Vec::new();
        }
        // One that the guest has seen the answer of is not in flight, whatever its mark says.
        let unmarked = used.wrapping_sub(self.get::<u16>(14));
        let mut head = self.get::<u16>(12);
        for _ in 0..unmarked.min(self.size) {
            if head >= self.size {
                break;
            }
            self.put(self.entry(head), 0u8);
            head = self.get(self.entry(head) + 6);
        }
        self.put(14, used);
        let mut left: Vec<(u64, u16)> = (0..self.size)
            .filter(|head| self.get::<u8>(self.entry(*head)) != 0)
            .map(|head| (self.get::<u64>(self.entry(head) + 8), head))
            .collect();
        left.sort_unstable();
        self.next = left.last().map_or(0, |(number, _)| number.wrapping_add(1));
        left.into_iter().map(|(_, head)| head).collect()
    }

    /// A request will be worked on next.
    pub(super) fn begin(&mut self, head: u16) {
        let entry = self.entry(head);
        self.put(entry + 8, self.next);
        self.next = self.next.wrapping_add(1);
        self.put(entry, 1u8);
    }

    /// A request will be answered next.
    pub(super) fn answering(&self, head: u16) {
        self.put(self.entry(head) + 6, self.get::<u16>(12));
        self.put(12, head);
    }

    /// The guest can see the answer, and has seen `used` of them.
    pub(super) fn end(&self, head: u16, used: u16) {
        self.put(self.entry(head), 0u8);
        self.put(14, used);
    }

    fn entry(&self, head: u16) -> usize {
        HEADER + ENTRY * usize::from(head)
    }

    fn slice(&self) -> VolatileSlice<'_, ()> {
        let slice = self.memory.get_slice(self.at, queue_bytes(self.size));
        slice.expect("the region was made for its queues")
    }

    /// QEMU reads nothing of this, and the next process only after this one is gone: the order
    /// of the writes is all that counts.
    fn put<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        self.slice().store(value, at, Ordering::Release).expect("a field of the region");
    }

    fn get<T: vm_memory::AtomicAccess>(&self, at: usize) -> T {
        self.slice().load(at, Ordering::Acquire).expect("a field of the region")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        let file = Region::make(2, 8).unwrap();
        Region::open(file, 0, Region::bytes(2, 8), 2, 8).unwrap()
    }

    #[test]
    fn what_was_not_answered_is_found_in_the_order_it_was_asked() {
        let region = region();
        let mut queue = region.queue(1, 8).unwrap();
        assert!(queue.resume(0).is_empty());
        for head in [5, 2, 7, 0] {
            queue.begin(head);
        }
        queue.answering(2);
        queue.end(2, 1);
        // Killed between the answer and its mark.
        queue.answering(7);
        let mut next = region.queue(1, 8).unwrap();
        assert_eq!(next.resume(2), [5, 0]);
        next.begin(1);
        assert_eq!(region.queue(1, 8).unwrap().resume(2), [5, 0, 1]);
        assert!(region.queue(0, 8).unwrap().resume(0).is_empty(), "queues are apart");
        assert!(region.queue(2, 8).is_none() && region.queue(0, 16).is_none());
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let file = Region::make(1, 8).unwrap();
        let error = Region::open(file, 0, Region::bytes(4, 8), 4, 8).unwrap_err();
        assert_eq!(error.to_string(), "the memory for what is in flight has 192 bytes, not 768");
    }
}
