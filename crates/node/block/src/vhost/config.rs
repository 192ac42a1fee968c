//! The configuration space of a virtual disk.

/// So many queues are more than guests have processors.
pub(crate) const QUEUES: u16 = 256;

/// The longest queue.
pub(crate) const MAX_RING: u16 = 1024;

/// Pieces of memory in a request, as QEMU's own disks have it.
const SEGMENTS: u32 = 126;

/// The most that is discarded or zeroed at once.
pub(crate) const MAX_ZERO: u64 = 1 << 30;

/// Bits of virtio's features.
pub(crate) mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const CONFIG_WCE: u64 = 1 << 11;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;

    pub(crate) const ALL: u64 = SEG_MAX
        | BLK_SIZE
        | FLUSH
        | TOPOLOGY
        | CONFIG_WCE
        | MQ
        | DISCARD
        | WRITE_ZEROES
        | INDIRECT
        | EVENT_IDX
        | PROTOCOL
        | VERSION_1;
}

/// Where the guest says whether it flushes.
pub(crate) const WRITEBACK: usize = 32;

/// The device's configuration space: `struct virtio_blk_config`.
pub(crate) fn space(bytes: u64, writeback: bool) -> [u8; 60] {
    let mut space = [0; 60];
    let mut put = |at: usize, value: &[u8]| space[at..at + value.len()].copy_from_slice(value);
    let sectors = u32::try_from(MAX_ZERO / 512).unwrap_or(u32::MAX);
    put(0, &(bytes / 512).to_le_bytes());
    put(12, &SEGMENTS.to_le_bytes());
    put(20, &512u32.to_le_bytes());
    // A physical block is 2^3 sectors, and the best request a megabyte.
    put(24, &[3]);
    put(26, &8u16.to_le_bytes());
    put(28, &2048u32.to_le_bytes());
    put(WRITEBACK, &[u8::from(writeback)]);
    put(34, &QUEUES.to_le_bytes());
    for (at, alignment) in [(36, true), (48, false)] {
        put(at, &sectors.to_le_bytes());
        put(at + 4, &1u32.to_le_bytes());
        if alignment {
            put(at + 8, &8u32.to_le_bytes());
        }
    }
    put(56, &[1]);
    space
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_reads_its_size_in_sectors() {
        let space = space(1 << 30, true);
        assert_eq!(space[..8], (1u64 << 21).to_le_bytes());
        assert_eq!((space[WRITEBACK], space[24]), (1, 3));
        assert_eq!(space[36..40], (2u32 << 20).to_le_bytes());
        assert_eq!(space[48..56], [0, 0, 32, 0, 1, 0, 0, 0]);
    }
}
