//! Recovery from the log of a replica that was not stopped cleanly.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::{End, OpenError, indexes, is_inside};
use crate::ids::FlushMarks;
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::Region;
use crate::store::index::{Entry, Index, Root, Stated};
use crate::store::layer::written_files;
use crate::store::log::{self, LogError, LogWriter, Record};
use crate::store::map::{self, MapPage, Owner, PAGE, PAIR, Pair, Presence, decode_pair, no_crcs};
use crate::store::request::IoFault;
use crate::store::sabotage::{Check, is_left_out};
use crate::store::sums::{self, Mark};
use crate::store::super_block::SuperBlock;

/// The state of a replica according to its log.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) counts: BTreeMap<FileNo, u64>,
    pub(super) suspects: Vec<Region>,
    pub(super) cursor: Region,
    pub(super) marks: Option<FlushMarks>,
    pub(super) log: LogWriter,
    /// Data files that a killed process wrote to: they are there, but not durable.
    pub(super) unsynced: BTreeSet<FileNo>,
    pub(super) index: Index,
}

/// The sum of a log's records.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) active: BTreeSet<Region>,
    pub(crate) counts: BTreeMap<FileNo, i64>,
    pub(crate) presence: BTreeMap<(FileNo, Region), Presence>,
    /// For each piece of work the last cursor.
    pub(crate) cursors: BTreeMap<u32, Region>,
    /// The roots of the layers' indexes.
    pub(crate) roots: BTreeMap<FileNo, Root>,
    /// The newest super block that was durable.
    pub(crate) super_seq: u64,
    pub(crate) marks: Option<FlushMarks>,
}

impl Sum {
    /// The number of blocks that each layer has.
    pub(super) fn blocks(&self, meta: &SuperBlock) -> BTreeMap<FileNo, u64> {
        let count = |file| self.counts.get(&file).map_or(0, |count| (*count).max(0) as u64);
        meta.body.layers.layers.iter().map(|layer| (layer.file, count(layer.file))).collect()
    }
}

/// Adds records up. The first is the checkpoint at the tail; later ones repeat what is known.
pub(crate) fn sum(records: &[Record]) -> Sum {
    let mut sum = Sum::default();
    let mut checkpoints = 0;
    for record in records {
        match *record {
            Record::Checkpoint { work, cursor } => {
                checkpoints += 1;
                raise(&mut sum.cursors, work, cursor);
            }
            Record::Activate(region) => {
                sum.active.insert(region);
            }
            Record::Deactivate(region) => {
                sum.active.remove(&region);
            }
            Record::Presence { file, region, delta, presence } => {
                *sum.counts.entry(file).or_default() += i64::from(delta);
                sum.presence.insert((file, region), presence);
            }
            Record::Count { file, blocks } if checkpoints == 1 => {
                *sum.counts.entry(file).or_default() += blocks as i64;
            }
            Record::Count { .. } => {}
            Record::Cursor { work, region } => raise(&mut sum.cursors, work, region),
            Record::Root { file, root } => {
                sum.roots.insert(file, root);
            }
            Record::SuperBlock { seq } => sum.super_seq = sum.super_seq.max(seq),
            Record::Marks(marks) => {
                sum.marks = Some(sum.marks.unwrap_or_default().merged(marks));
            }
        }
    }
    sum
}

fn raise(cursors: &mut BTreeMap<u32, Region>, work: u32, cursor: Region) {
    let known = cursors.entry(work).or_insert(cursor);
    *known = (*known).max(cursor);
}

pub(super) fn recover(
    files: &mut dyn Files,
    meta: &SuperBlock,
    end: End,
) -> Result<Recovered, OpenError> {
    let len = log::ring_bytes(meta.body.log_pages);
    let io = |file| move |source| OpenError::Io { file, source };
    let ring = files.read(FileId::Log, 0, len).map_err(io(FileId::Log))?;
    let replay = log::replay(&ring, meta.tag()).map_err(|source| OpenError::Log { source })?;
    if !matches!(replay.records.first(), Some(Record::Checkpoint { .. })) {
        let source = LogError::Record { seq: replay.tail };
        return Err(OpenError::Log { source });
    }
    let sum = sum(&replay.records);
    check_ages(files, meta, &sum, replay.next)?;
    // A process that was killed may have left the last batch to the kernel.
    files.sync(FileId::Log).map_err(io(FileId::Log))?;
    let counts = sum.blocks(meta);
    let index = if meta.body.indexed {
        let mut index = indexes::load(files, meta, &sum.roots)?;
        mend_maps(files, meta, &sum, end, Some(&mut index))?;
        index
    } else {
        mend_maps(files, meta, &sum, end, None)?;
        indexes::build(files, meta, &counts)?
    };
    let written = written_files(&meta.body.layers, meta.body.work.as_ref());
    // Where the content of the kernel's cache is not known, all of it becomes durable now: data
    // that was read must not change later.
    for file in written.iter().copied().filter(|_| end != End::Killed) {
        let data = FileId::Data(Place::Own, file);
        files.sync(data).map_err(io(data))?;
    }
    let cursor = meta.body.work.as_ref().map_or(Region(0), |work| {
        let logged = sum.cursors.get(&work.no).copied().unwrap_or(Region(0));
        work.cursor.max(logged)
    });
    Ok(Recovered {
        counts,
        suspects: sum.active.into_iter().filter(|region| is_inside(meta, *region)).collect(),
        cursor,
        marks: sum.marks,
        log: LogWriter::new(meta.body.log_pages, meta.tag(), replay.next, replay.tail, replay.last),
        index,
        unsynced: if end == End::Killed { written.into_iter().collect() } else { BTreeSet::new() },
    })
}

/// Whether super block and log are of the same time: each names a state of the other that was
/// durable when it was written.
pub(crate) fn check_ages(
    files: &mut dyn Files,
    meta: &SuperBlock,
    sum: &Sum,
    next: u64,
) -> Result<(), OpenError> {
    if is_left_out(Check::Ages) {
        return Ok(());
    }
    if sum.super_seq > meta.seq {
        return Err(OpenError::Stale { file: FileId::Super });
    }
    // Without it less is known.
    let mark = files.read(FileId::Sums, 0, sums::MARK).ok();
    let mark = mark.and_then(|bytes| Mark::decode(&bytes, meta.tag()));
    if next < meta.body.log_next || mark.is_some_and(|mark| next < mark.next) {
        return Err(OpenError::Stale { file: FileId::Log });
    }
    Ok(())
}

fn mend_maps(
    files: &mut dyn Files,
    meta: &SuperBlock,
    sum: &Sum,
    end: End,
    mut index: Option<&mut Index>,
) -> Result<(), OpenError> {
    let exists = |file: &FileNo| meta.body.layers.by_file(*file).is_some();
    let mut pages: BTreeMap<(FileNo, Region), Option<Presence>> = BTreeMap::new();
    for file in written_files(&meta.body.layers, meta.body.work.as_ref()) {
        pages.extend(sum.active.iter().map(|region| ((file, *region), None)));
    }
    let logged = sum.presence.iter().filter(|((file, _), _)| exists(file));
    pages.extend(logged.map(|(page, presence)| (*page, Some(*presence))));
    let mut touched = BTreeSet::new();
    let mut reserved = true;
    for ((file, region), presence) in pages {
        if !is_inside(meta, region) {
            continue;
        }
        let place = Where { meta, file, region };
        let mut mend = |files: &mut dyn Files| match index.as_deref_mut() {
            Some(index) => place.mend(files, presence, index),
            None => place.mend_unindexed(files, presence),
        };
        let mended = match mend(files) {
            Err(OpenError::Io { source: IoFault::NoSpace, .. }) if reserved => {
                reserved = false;
                let io = |source| OpenError::Io { file: FileId::Reserve, source };
                files.truncate(FileId::Reserve, 0).map_err(io)?;
                mend(files)?
            }
            other => other?,
        };
        // A page that a killed process wrote is right, but perhaps in the kernel's cache only;
        // it is not written again, and the log will soon forget it.
        if mended || end == End::Killed {
            touched.insert(file);
        }
    }
    for file in touched {
        let map = FileId::Map(Place::Own, file);
        files.sync(map).map_err(|source| OpenError::Io { file: map, source })?;
    }
    Ok(())
}

/// A page of a map that a log names.
#[derive(Clone, Copy)]
struct Where<'a> {
    meta: &'a SuperBlock,
    file: FileNo,
    region: Region,
}

impl Where<'_> {
    fn owner(&self) -> Owner {
        Owner { tag: self.meta.tag(), file: self.file, region: self.region }
    }

    fn map(&self) -> FileId {
        FileId::Map(Place::Own, self.file)
    }

    fn read(&self, files: &mut dyn Files) -> Result<Bytes, OpenError> {
        let read = files.read(self.map(), u64::from(self.region.0) * PAIR, PAIR);
        read.map_err(|source| OpenError::Io { file: self.map(), source })
    }

    /// Brings the page up to date. Says whether something was written.
    fn mend(
        &self,
        files: &mut dyn Files,
        logged: Option<Presence>,
        index: &mut Index,
    ) -> Result<bool, OpenError> {
        let pair = self.read(files)?;
        let Stated::At(entry) = index.get(self.map(), self.region) else {
            // A page that never counted is there in full, or the log has all there is to know.
            let found = map::find_newest(&pair, self.owner(), None);
            return self.bring_up(files, found, logged, 0, index);
        };
        match (map::find_newest(&pair, self.owner(), Some(entry)), logged) {
            (Some(page), logged) => self.bring_up(files, Some(page), logged, 0, index),
            // The page is damaged, but the log has its blocks. Which were lost before is not known.
            (None, Some(mut presence)) => {
                if entry.has_lost() {
                    presence.lost = Presence::all_lost().lost.without(&presence.any());
                }
                self.bring_up(files, None, Some(presence), u64::from(entry.seq), index)
            }
            // Its blocks are lost, as in any other page that is damaged.
            (None, None) => Ok(false),
        }
    }

    /// Writes the page if the log knows more than what was found.
    fn bring_up(
        &self,
        files: &mut dyn Files,
        found: Option<MapPage>,
        logged: Option<Presence>,
        seq: u64,
        index: &mut Index,
    ) -> Result<bool, OpenError> {
        let known = found.as_ref().map(|page| page.presence);
        let presence = match (logged, known) {
            (Some(logged), Some(_)) => logged.over(found.as_ref()),
            (Some(logged), None) => logged,
            (None, Some(known)) => known,
            (None, None) => return Ok(false),
        };
        if known == Some(presence) {
            let entry = found.as_ref().map(Entry::of);
            entry.into_iter().for_each(|entry| index.found_newer(self.file, self.region, entry));
            return Ok(false);
        }
        let (seq, crcs) = found.map_or((seq, no_crcs()), |page| (page.seq, page.crcs));
        let clean = index.next_clean();
        let data = map::encode(self.owner(), seq + 1, clean, &presence, &crcs);
        let entry = Entry::new(seq + 1, map::crc_of(&data), &presence);
        let written = files.write(self.map(), map::offset(self.region, seq + 1), &data);
        written.map_err(|source| OpenError::Io { file: self.map(), source })?;
        index.found_newer(self.file, self.region, entry);
        Ok(true)
    }

    /// As [`Self::mend`], for a replica of the first format.
    fn mend_unindexed(
        &self,
        files: &mut dyn Files,
        presence: Option<Presence>,
    ) -> Result<bool, OpenError> {
        let (id, owner) = (self.map(), self.owner());
        let io = |source| OpenError::Io { file: id, source };
        let at = u64::from(self.region.0) * PAIR;
        let pair = self.read(files)?;
        let (found, healthy) = match decode_pair(&pair, owner) {
            Pair::Blank => (None, true),
            Pair::Page(page) => (Some(page), true),
            Pair::Damaged { older } => (older, false),
        };
        let is_new = presence.is_some_and(|new| {
            found.as_ref().map_or(Presence::default(), |page| page.presence) != new
        });
        if healthy && !is_new {
            return Ok(false);
        }
        let never_written = pair[..PAGE].iter().all(|byte| *byte == 0);
        match (found, presence) {
            (Some(page), presence) => {
                let presence = presence.unwrap_or(page.presence);
                write_page(files, owner, page.seq + 1, &presence, &page).map_err(io)?;
            }
            // The very first write of the page was torn, or the log has all there is to know.
            (None, presence) if presence.is_some() || never_written => {
                files.write(id, at, &[0; PAIR as usize]).map_err(io)?;
                if let Some(presence) = presence {
                    let empty = MapPage { seq: 0, clean: 0, crc: 0, presence, crcs: no_crcs() };
                    write_page(files, owner, 1, &presence, &empty).map_err(io)?;
                }
            }
            // Both slots are lost and the log does not know: damage, found when it is needed.
            (None, _) => return Ok(false),
        }
        Ok(true)
    }
}

fn write_page(
    files: &mut dyn Files,
    owner: Owner,
    seq: u64,
    presence: &Presence,
    page: &MapPage,
) -> Result<(), IoFault> {
    let data = map::encode(owner, seq, 0, presence, &page.crcs);
    files.write(FileId::Map(Place::Own, owner.file), map::offset(owner.region, seq), &data)
}
