//! What a process that was killed left in the kernel's cache.

use super::replay::Recovered;
use super::{End, OpenError, is_inside};
use crate::ids::BootId;
use crate::store::cache::PageKey;
use crate::store::create::RECENT;
use crate::store::files::{FileId, Files, Place};
use crate::store::index::{Index, Stated};
use crate::store::map::{Owner, PAIR, Presence, find};
use crate::store::recent::{self, PLACE, Record};
use crate::store::replica::Left;
use crate::store::request::IoFault;
use crate::store::super_block::SuperBlock;

/// Reads the recent changes. Those of a process that ended well say what the maps say, but keep
/// their places: a record must not come back after its page has changed again.
pub(super) fn read(
    files: &mut dyn Files,
    meta: &SuperBlock,
    boot: Option<BootId>,
    end: End,
    recovered: &Recovered,
) -> Result<Left, OpenError> {
    let io = |source| OpenError::Io { file: FileId::Recent, source };
    let len = match files.len(FileId::Recent).map_err(io)? {
        Some(len) if len >= PLACE => len,
        _ => make(files),
    };
    let bytes = files.read(FileId::Recent, 0, len).map_err(io)?;
    let records = recent::read(&bytes, boot, meta.tag());
    let mut left = Left {
        places: (len / PLACE) as usize,
        unsynced: recovered.unsynced.clone(),
        ..Left::default()
    };
    if end == End::Killed {
        let active = |record: &&Record| recovered.suspects.contains(&record.page.1);
        for record in records.iter().flatten().filter(active) {
            left.pages.extend(changed_page(files, meta, record, &recovered.index)?);
        }
    }
    left.records = records;
    if end != End::Killed || !matches!(files.len(FileId::Sums), Ok(Some(_))) {
        // What it says of the log is written anew. A disk without room for it is no reason not to open.
        let _: Result<(), IoFault> = files.create(FileId::Sums);
    }
    Ok(left)
}

/// A disk without room for it is no reason not to open: then changes are flushed instead.
fn make(files: &mut dyn Files) -> u64 {
    let len = u64::from(RECENT) * PLACE;
    let made = files.create(FileId::Recent).is_ok()
        && files.write(FileId::Recent, 0, &vec![0; len as usize]).is_ok()
        && files.sync(FileId::Recent).is_ok()
        && files.sync_directory().is_ok();
    if made { len } else { 0 }
}

type ChangedPage = (PageKey, Option<crate::store::map::MapPage>, Presence);

/// The page that a record is about, if the map on disk says something else.
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
