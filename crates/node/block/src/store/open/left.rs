//! Data that a killed process left in the kernel's cache, and the file that records it for the
//! next one.

use super::replay::Recovered;
use super::{End, MAX_PLACES, OpenError, is_inside};
use crate::ids::BootId;
use crate::store::cache::PageKey;
use crate::store::create::RECENT;
use crate::store::files::{FileId, Files, Place};
use crate::store::index::{Index, Stated};
use crate::store::map::{Owner, PAIR, Presence, find};
use crate::store::recent::stamp::{Expected, RecentDamage, encode_stamp, inspect};
use crate::store::recent::{self, PLACE, Record, Ticket};
use crate::store::replica::Left;
use crate::store::request::IoFault;
use crate::store::sums::{self, Mark};
use crate::store::super_block::SuperBlock;

/// Reads the recent changes, and prepares their file for the next session.
pub(super) fn read(
    files: &mut dyn Files,
    meta: &SuperBlock,
    boot: BootId,
    end: End,
    recovered: &Recovered,
) -> Result<Left, OpenError> {
    let mut left = Left { unsynced: recovered.unsynced.clone(), ..Left::default() };
    left.places = places(files, meta)?.min(MAX_PLACES as usize);
    if end != End::Killed {
        // Records of an earlier boot, or those that repeat the maps, must not be used again.
        left.places = make(files, meta, boot, left.places);
        return Ok(left);
    }
    let io = |source| OpenError::Io { file: FileId::Recent, source };
    let bytes = files.read(FileId::Recent, 0, (left.places as u64 + 1) * PLACE).map_err(io)?;
    left.damage = damage(files, meta, &bytes);
    left.records = match left.damage {
        // They may be older than what was flushed.
        Some(RecentDamage::Session | RecentDamage::Older { .. }) => Vec::new(),
        _ => recent::read(&bytes, Some(boot), meta.tag()),
    };
    left.records.truncate(left.places);
    let active = |record: &&Record| recovered.suspects.contains(&record.page.1);
    for record in left.records.iter().flatten().filter(active) {
        left.pages.extend(changed_page(files, meta, record, &recovered.index)?);
    }
    if !is_renewed(meta, &left) {
        let stamp = encode_stamp(boot, meta.tag(), meta.body.session + 1);
        // Without it the next open believes less.
        let _: Result<(), IoFault> =
            files.write(FileId::Recent, left.places as u64 * PLACE, &stamp);
    }
    Ok(left)
}

/// Why the recent changes of the session that was killed cannot be believed, if they cannot.
pub(crate) fn damage(
    files: &mut dyn Files,
    meta: &SuperBlock,
    recent: &[u8],
) -> Option<RecentDamage> {
    let boot = meta.body.boot.filter(|_| meta.body.recent_places > 0)?;
    // Without it less is known.
    let mark = files.read(FileId::Sums, 0, sums::MARK).ok();
    let mark = mark.and_then(|bytes| Mark::decode(&bytes, meta.tag()));
    let expected = Expected {
        boot,
        tag: meta.tag(),
        session: meta.body.session,
        places: meta.body.recent_places as usize,
        recorded: mark.map_or(Ticket(0), |mark| mark.recorded),
    };
    inspect(recent, &expected)
}

/// Places that the file has, or should have.
fn places(files: &mut dyn Files, meta: &SuperBlock) -> Result<usize, OpenError> {
    let io = |source| OpenError::Io { file: FileId::Recent, source };
    let found = (files.len(FileId::Recent).map_err(io)?.unwrap_or(0) / PLACE) as usize;
    Ok(match meta.body.recent_places {
        // Of an earlier version, or there was no room for it.
        0 if found > 0 => found,
        0 => RECENT as usize,
        places => places as usize,
    })
}

/// A disk without room for it is no reason not to open: then changes are flushed instead.
fn make(files: &mut dyn Files, meta: &SuperBlock, boot: BootId, places: usize) -> usize {
    let stamp = encode_stamp(boot, meta.tag(), meta.body.session + 1);
    let mut bytes = vec![0; places * PLACE as usize];
    bytes.extend(stamp);
    let is_new = !matches!(files.len(FileId::Recent), Ok(Some(_)));
    let made = (!is_new || files.create(FileId::Recent).is_ok())
        && files.write(FileId::Recent, 0, &bytes).is_ok()
        && (!is_new || (files.sync(FileId::Recent).is_ok() && files.sync_directory().is_ok()));
    if made { places } else { 0 }
}

/// Whether the file is made anew, once the super block says what was lost with the old one.
fn is_renewed(meta: &SuperBlock, left: &Left) -> bool {
    left.damage.is_some() || meta.body.recent_places == 0
}

/// Makes a file that could not be believed anew, with the records that could. `before` is the super
/// block that was found.
pub(super) fn renew(files: &mut dyn Files, before: &SuperBlock, boot: BootId, left: &mut Left) {
    if !is_renewed(before, left) {
        return;
    }
    let used = left.records.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let count = u32::try_from(used).unwrap_or(u32::MAX);
    let mut bytes = vec![0; left.places * PLACE as usize];
    for (place, record) in bytes.chunks_exact_mut(PLACE as usize).zip(&left.records[..used]) {
        let record = match record {
            Some(record) => recent::encode(boot, before.tag(), record, count),
            None => recent::encode_empty(boot, before.tag(), count),
        };
        place[..record.len()].copy_from_slice(&record);
    }
    bytes.extend(encode_stamp(boot, before.tag(), before.body.session + 1));
    let exists = matches!(files.len(FileId::Recent), Ok(Some(_)));
    let made = (exists || files.create(FileId::Recent).is_ok())
        && files.write(FileId::Recent, 0, &bytes).is_ok();
    // Changes are counted from what is left of them.
    let _: Result<(), IoFault> = files.write(FileId::Sums, 0, &[0; sums::MARK as usize]);
    if !made {
        // There is no room: changes are flushed instead.
        (left.places, left.records) = (0, Vec::new());
    }
}

type ChangedPage = (PageKey, Option<crate::store::map::MapPage>, Presence);

/// The page that a record concerns, if the map on disk says something else.
fn changed_page(
    files: &mut dyn Files,
    meta: &SuperBlock,
    record: &Record,
    index: &Index,
) -> Result<Option<ChangedPage>, OpenError> {
    let (file, region) = record.page;
    if meta.body.layers.by_file(file).is_none() || !is_inside(meta, region) {
        return Ok(None);
    }
    let map = FileId::Map(Place::Own, file);
    let pair = files
        .read(map, u64::from(region.0) * PAIR, PAIR)
        .map_err(|source| OpenError::Io { file: map, source })?;
    let page = match index.get(map, region) {
        Stated::Unindexed | Stated::Blank => None,
        Stated::At(entry) => match find(&pair, Owner { tag: meta.tag(), file, region }, entry) {
            Some(page) => Some(page),
            // Found when it is needed, as any other damage.
            None => return Ok(None),
        },
    };
    let known = page.as_ref().map_or(Presence::default(), |page| page.presence);
    let recorded = record.presence.over(page.as_ref());
    let key = PageKey { file: map, region };
    Ok((known != recorded).then_some((key, page, recorded)))
}
