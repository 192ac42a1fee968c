//! Records of checksums: what the data of a region that is being written was at the last flush.
//!
//! A map has the checksums of a region as a clean left them. A region that is written has newer
//! ones in memory only, and a process can be killed. The file `sums` has them for the process
//! that follows, in places of 4096 bytes after its first page, so that no record crosses a page of
//! the kernel's cache. It is never synced and not read after a power cut: each record carries the
//! id of the boot.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SUMR` |
//! | 4 | 4 | CRC-32C of these 2168 bytes, with this field zero |
//! | 8 | 16 | boot |
//! | 24 | 8 | tag of the replica |
//! | 32 | 8 | ticket: of two records about a page the one with the greater counts |
//! | 40 | 4 | number of the file |
//! | 44 | 4 | region |
//! | 48 | 8 | zero |
//! | 56 | 64 | bit per block: may have been written since the last flush |
//! | 120 | 2048 | CRC-32C of each block |
//!
//! The first page has the mark ([`super::Mark`]) and, at 64, the stamp of the session
//! ([`crate::store::recent::stamp`]): a copy from an earlier session has another one.
//!
//! A record that is missing or damaged is as if it was never there: the checksums of the map count,
//! and a block that does not match them is damaged. So damage of this file makes blocks unreadable,
//! and never a wrong block readable.

use crate::checksum::crc32c_of_page;
use crate::ids::BootId;
use crate::store::bytes_at::{get_u32, get_u64, get_u128, put_u32, put_u64, put_u128};
use crate::store::crc::crc32c;
use crate::store::files::FileNo;
use crate::store::geometry::{Blocks, REGION_BLOCKS, Region};
use crate::store::map::Crcs;
use crate::store::recent::{PageName, Ticket};

/// Bytes of a place. The first one is the page of the mark.
pub(crate) const PLACE: u64 = 4096;
/// Where the stamp is.
pub(crate) const STAMP: u64 = 64;
const RECORD: usize = 2168;
const MAGIC: u32 = u32::from_le_bytes(*b"SUMR");

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SumRecord {
    pub ticket: Ticket,
    pub page: PageName,
    /// Blocks that may have been written since the last flush: their checksums say nothing.
    pub open: Blocks,
    pub crcs: Box<Crcs>,
}

/// Where a place begins.
pub(crate) fn offset(place: u32) -> u64 {
    (u64::from(place) + 1) * PLACE
}

impl SumRecord {
    pub(crate) fn encode(&self, boot: BootId, tag: u64) -> Vec<u8> {
        encode(boot, tag, self.ticket, self.page, &self.open, &self.crcs)
    }

    pub(crate) fn decode(place: &[u8], boot: BootId, tag: u64) -> Option<Self> {
        let bytes = place.get(..RECORD)?;
        let ours = get_u32(bytes, 0) == MAGIC
            && crc32c_of_page(bytes) == get_u32(bytes, 4)
            && get_u128(bytes, 8) == boot.as_u128()
            && get_u64(bytes, 24) == tag;
        let crcs = || Box::new(std::array::from_fn(|i| get_u32(bytes, 120 + i * 4)));
        ours.then(|| Self {
            ticket: Ticket(get_u64(bytes, 32)),
            page: (FileNo(get_u32(bytes, 40)), Region(get_u32(bytes, 44))),
            open: Blocks(std::array::from_fn(|i| get_u64(bytes, 56 + i * 8))),
            crcs: crcs(),
        })
    }
}

/// As [`SumRecord::encode`], of parts that are elsewhere.
pub(crate) fn encode(
    boot: BootId,
    tag: u64,
    ticket: Ticket,
    page: PageName,
    open: &Blocks,
    crcs: &Crcs,
) -> Vec<u8> {
    const { assert!(RECORD == 120 + REGION_BLOCKS as usize * 4) };
    let mut bytes = vec![0; RECORD];
    put_u32(&mut bytes, 0, MAGIC);
    put_u128(&mut bytes, 8, boot.as_u128());
    put_u64(&mut bytes, 24, tag);
    put_u64(&mut bytes, 32, ticket.0);
    put_u32(&mut bytes, 40, page.0.0);
    put_u32(&mut bytes, 44, page.1.0);
    for (i, word) in open.0.iter().enumerate() {
        put_u64(&mut bytes, 56 + i * 8, *word);
    }
    for (at, crc) in bytes[120..].chunks_exact_mut(4).zip(crcs) {
        at.copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c(&bytes);
    put_u32(&mut bytes, 4, crc);
    bytes
}

/// The records in a file, by place: those of this boot and replica, and of each page the newest.
pub(crate) fn read(file: &[u8], boot: BootId, tag: u64) -> Vec<Option<SumRecord>> {
    let places = file.chunks_exact(PLACE as usize).skip(1);
    let mut records: Vec<_> = places.map(|place| SumRecord::decode(place, boot, tag)).collect();
    let mut newest = std::collections::BTreeMap::new();
    for record in records.iter().flatten() {
        let known = newest.entry(record.page).or_insert(record.ticket);
        *known = (*known).max(record.ticket);
    }
    for record in &mut records {
        // Of two with the same ticket, which are nonsense, one.
        record.take_if(|record| newest.get(&record.page) != Some(&record.ticket));
        record.as_ref().map(|record| newest.remove(&record.page));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId::from_u128(7);

    fn record(region: u32, ticket: u64) -> SumRecord {
        SumRecord {
            ticket: Ticket(ticket),
            page: (FileNo(2), Region(region)),
            open: Blocks::of(3, 70),
            crcs: Box::new(std::array::from_fn(|i| i as u32 * 3 + region)),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_other() {
        let written = record(5, 9);
        let mut place = written.encode(BOOT, 4);
        assert_eq!(SumRecord::decode(&place, BOOT, 4), Some(written));
        assert_eq!(SumRecord::decode(&place, BOOT, 5), None, "of another replica");
        assert_eq!(SumRecord::decode(&place, BootId::from_u128(8), 4), None, "before a power cut");
        assert_eq!(SumRecord::decode(&place[..2000], BOOT, 4), None, "cut");
        for bit in (0..place.len() * 8).step_by(31) {
            place[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SumRecord::decode(&place, BOOT, 4), None, "bit {bit}");
            place[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn of_two_records_of_a_page_the_newer_one_counts() {
        let mut file = vec![0; 5 * PLACE as usize];
        for (place, record) in [(0, record(1, 3)), (1, record(2, 4)), (3, record(1, 5))] {
            let at = offset(place) as usize;
            let bytes = record.encode(BOOT, 4);
            file[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        assert_eq!(read(&file, BOOT, 4), [None, Some(record(2, 4)), None, Some(record(1, 5))]);
        assert_eq!(read(&[], BOOT, 4), []);
    }
}
