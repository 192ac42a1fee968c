//! The checksums that a killed process left in the file `sums`, and that file for the next one.

use super::End;
use crate::ids::BootId;
use crate::store::files::{FileId, FileNo, Files};
use crate::store::geometry::Region;
use crate::store::layer::written_files;
use crate::store::map::no_crcs;
use crate::store::recent::Ticket;
use crate::store::recent::stamp::{encode_stamp, is_stamped};
use crate::store::request::IoFault;
use crate::store::sums::places::{ALL, SumPlaces};
use crate::store::sums::record::{PLACE, STAMP, SumRecord, offset, read};
use crate::store::super_block::SuperBlock;

/// Places besides two for each region that may be active.
const SPARE: usize = 32;
/// More than any session has.
const MAX_PLACES: u64 = 1 << 16;

/// How a replica is opened.
pub(super) struct Opening<'a> {
    pub(super) meta: &'a SuperBlock,
    pub(super) boot: BootId,
    pub(super) end: End,
    /// Regions that were being written.
    pub(super) suspects: &'a [Region],
    /// Regions that may be, from now on.
    pub(super) active: usize,
}

/// The records of the session that was killed, and the places of the next one. Nothing on disk
/// changes that a second attempt would need.
pub(super) fn prepare(files: &mut dyn Files, opening: &Opening<'_>) -> SumPlaces {
    let left = match (opening.end, opening.meta.body.summed) {
        (End::Killed, true) => Some(left(files, opening.meta, opening.boot)),
        // A clean stop left nothing, and after a power cut data may be newer than any checksum.
        _ => None,
    };
    // Nothing in a file without records is believed, now or later.
    let is_new = left.as_ref().is_none_or(Vec::is_empty);
    let records = left.unwrap_or_else(|| unknown(opening));
    let written = if is_new { make(files, opening, &records) } else { stamp(files, opening) };
    let spacious = (2 * (opening.active + opening.suspects.len()) + SPARE).max(records.len());
    let allocated = files.allocate(FileId::Sums, 0, (spacious as u64 + 1) * PLACE);
    let places = match (written, allocated) {
        (Ok(()), Ok(())) => spacious,
        // There is no room for more than there was.
        (Ok(()), Err(_)) if !is_new => records.len(),
        _ => 0,
    };
    let is_suspect = |region| opening.suspects.binary_search(&region).is_ok();
    SumPlaces::new(records, places, is_suspect)
}

/// The records that a killed session left. Without its stamp the file is not what it wrote.
pub(crate) fn left(
    files: &mut dyn Files,
    meta: &SuperBlock,
    boot: BootId,
) -> Vec<Option<SumRecord>> {
    let len = files.len(FileId::Sums).ok().flatten().unwrap_or(0).div_ceil(PLACE);
    let bytes = files.read(FileId::Sums, 0, len.min(MAX_PLACES) * PLACE).unwrap_or_default();
    let stamp = bytes.get(STAMP as usize..);
    match stamp.is_some_and(|stamp| is_stamped(stamp, boot, meta.tag(), meta.body.session)) {
        true => read(&bytes, boot, meta.tag()),
        false => Vec::new(),
    }
}

/// Records which say that everything that was being written may be anything.
fn unknown(opening: &Opening<'_>) -> Vec<Option<SumRecord>> {
    let body = &opening.meta.body;
    let files: Vec<FileNo> = written_files(&body.layers, body.work.as_ref());
    let pages = opening.suspects.iter().flat_map(|at| files.iter().map(move |file| (*file, *at)));
    let record = |(page, ticket)| {
        Some(SumRecord { ticket: Ticket(ticket), page, open: ALL, crcs: no_crcs() })
    };
    // The first place is for pages without one.
    std::iter::once(None).chain(pages.zip(1..).map(record)).collect()
}

/// Makes the file anew.
fn make(
    files: &mut dyn Files,
    opening: &Opening<'_>,
    records: &[Option<SumRecord>],
) -> Result<(), IoFault> {
    files.create(FileId::Sums)?;
    for (place, record) in (0..).zip(records) {
        if let Some(record) = record {
            let data = record.encode(opening.boot, opening.meta.tag());
            files.write(FileId::Sums, offset(place), &data)?;
        }
    }
    stamp(files, opening)
}

fn stamp(files: &mut dyn Files, opening: &Opening<'_>) -> Result<(), IoFault> {
    let session = opening.meta.body.session + 1;
    let stamp = encode_stamp(opening.boot, opening.meta.tag(), session);
    files.write(FileId::Sums, STAMP, &stamp)
}
