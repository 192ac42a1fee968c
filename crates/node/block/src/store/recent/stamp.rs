//! Whether the file of recent changes is the one that the last process wrote.
//!
//! After a kill, changes that were answered and not flushed are known from this file alone, and
//! records that are older than flushed changes would hide them. So a file that is missing, damaged
//! or an older copy must be detected. The evidence:
//!
//! - the stamp after the last place names the session: a file that was lost, cut or taken from an
//!   earlier session has another or none;
//! - every record has a checksum, and says how many places are in use: none of them is blank;
//! - the mark in the file `sums` says which changes were recorded by the last flush.
//!
//! Not noticed are an older copy of the file from the same session and from after the last flush, and
//! zeroes over all of its records, while the stamp is whole and nothing was flushed since.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SRST` |
//! | 4 | 4 | CRC-32C of these 40 bytes, with this field zero |
//! | 8 | 16 | boot |
//! | 24 | 8 | tag of the replica |
//! | 32 | 8 | session |

use super::{PLACE, Ticket, decode, places_in_use, whole};
use crate::checksum::crc32c_of_page;
use crate::ids::BootId;
use crate::store::bytes_at::{get_u32, get_u64, get_u128, put_u32, put_u64, put_u128};
use crate::store::crc::crc32c;

const MAGIC: u32 = u32::from_le_bytes(*b"SRST");
const STAMP: usize = 40;

/// Why recent changes cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecentDamage {
    #[error("it is missing, cut, or of an earlier session")]
    Session,
    #[error("the record in place {place} is damaged")]
    Record { place: usize },
    #[error("the record in place {place} is missing")]
    Blank { place: usize },
    #[error("it ends with change {found}, and change {recorded} was recorded")]
    Older { found: u64, recorded: u64 },
}

/// The expected stamp of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) boot: BootId,
    pub(crate) tag: u64,
    pub(crate) session: u64,
    pub(crate) places: usize,
    /// Changes up to this one.
    pub(crate) recorded: Ticket,
}

pub(crate) fn encode_stamp(boot: BootId, tag: u64, session: u64) -> Vec<u8> {
    let mut bytes = vec![0; STAMP];
    put_u32(&mut bytes, 0, MAGIC);
    put_u128(&mut bytes, 8, boot.as_u128());
    put_u64(&mut bytes, 24, tag);
    put_u64(&mut bytes, 32, session);
    let crc = crc32c(&bytes);
    put_u32(&mut bytes, 4, crc);
    bytes
}

/// A session that ended while the next one was being opened has the stamp of that.
pub(crate) fn is_stamped(bytes: &[u8], boot: BootId, tag: u64, session: u64) -> bool {
    let Some(bytes) = bytes.get(..STAMP) else { return false };
    get_u32(bytes, 0) == MAGIC
        && crc32c_of_page(bytes) == get_u32(bytes, 4)
        && get_u128(bytes, 8) == boot.as_u128()
        && get_u64(bytes, 24) == tag
        && get_u64(bytes, 32) >= session
}

/// The fault of the file, if there is one.
pub(crate) fn inspect(file: &[u8], expected: &Expected) -> Option<RecentDamage> {
    let (boot, tag) = (expected.boot, expected.tag);
    let end = expected.places * PLACE as usize;
    if !file.get(end..).is_some_and(|stamp| is_stamped(stamp, boot, tag, expected.session)) {
        return Some(RecentDamage::Session);
    }
    let places = || file[..end].chunks_exact(PLACE as usize);
    let used = places().filter_map(|place| whole(place, boot, tag)).map(places_in_use).max();
    for (at, place) in places().enumerate() {
        let is_blank = place.iter().all(|byte| *byte == 0);
        if is_blank && at < used.unwrap_or(0) {
            return Some(RecentDamage::Blank { place: at });
        }
        if !is_blank && whole(place, boot, tag).is_none() {
            return Some(RecentDamage::Record { place: at });
        }
    }
    let tickets = places().filter_map(|place| decode(place, boot, tag)).map(|it| it.ticket.0);
    let (found, recorded) = (tickets.max().unwrap_or(0), expected.recorded.0);
    (found < recorded).then_some(RecentDamage::Older { found, recorded })
}

#[cfg(test)]
mod tests {
    use super::super::{Record, encode, encode_empty};
    use super::*;
    use crate::store::files::FileNo;
    use crate::store::geometry::{Blocks, Region};
    use crate::store::map::Presence;

    const BOOT: BootId = BootId::from_u128(7);

    fn expected() -> Expected {
        Expected { boot: BOOT, tag: 5, session: 3, places: 4, recorded: Ticket(2) }
    }

    fn file() -> Vec<u8> {
        let mut file = vec![0; 5 * PLACE as usize];
        for (at, ticket) in [(0, 1), (2, 2)] {
            let presence = Presence::new(Blocks::of(3, 5), Blocks::of(100, 1));
            let page = (FileNo(1), Region(at));
            let record = Record { ticket: Ticket(ticket), page, presence };
            put(&mut file, at as usize, &encode(BOOT, 5, &record, at + 1));
        }
        put(&mut file, 1, &encode_empty(BOOT, 5, 2));
        put(&mut file, 4, &encode_stamp(BOOT, 5, 3));
        file
    }

    fn put(file: &mut [u8], place: usize, bytes: &[u8]) {
        let at = place * PLACE as usize;
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn a_file_that_is_not_what_was_written_is_noticed() {
        assert_eq!(inspect(&file(), &expected()), None);
        let bytes = PLACE as usize;
        let flipped = |at: usize| {
            let mut file = file();
            file[at] ^= 1;
            file
        };
        let zeroed = |place: usize| {
            let mut file = file();
            put(&mut file, place, &[0; PLACE as usize]);
            file
        };
        for (what, file, found) in [
            ("no file", vec![], RecentDamage::Session),
            ("cut", file()[..3 * bytes].to_vec(), RecentDamage::Session),
            ("all zeroes", vec![0; 5 * bytes], RecentDamage::Session),
            ("a damaged stamp", flipped(4 * bytes + 9), RecentDamage::Session),
            ("a damaged record", flipped(2 * bytes + 50), RecentDamage::Record { place: 2 }),
            ("a damaged blank", flipped(3 * bytes), RecentDamage::Record { place: 3 }),
            ("a record is gone", zeroed(0), RecentDamage::Blank { place: 0 }),
            ("the last one is", zeroed(2), RecentDamage::Older { found: 1, recorded: 2 }),
        ] {
            assert_eq!(inspect(&file, &expected()), Some(found), "{what}");
        }
        let next = Expected { session: 4, ..expected() };
        assert_eq!(inspect(&file(), &next), Some(RecentDamage::Session), "an earlier session");
        let reopened = Expected { session: 2, ..expected() };
        assert_eq!(inspect(&file(), &reopened), None, "killed while the next was opened");
    }
}
