//! The pieces of metadata of a replica, and how each is read.

use std::collections::VecDeque;

use crate::store::files::{FileId, FileNo};
use crate::store::geometry::{Region, region_count};
use crate::store::index::{self, Index, Stated};
use crate::store::log::PLACE;
use crate::store::map::PAIR;
use crate::store::recent;
use crate::store::replica::{Replica, own_index, own_map};
use crate::store::request::IoOp;
use crate::store::sums;
use crate::store::super_block::SLOT;

/// Regions of a map that are read at once: half a MiB.
const REGIONS_AT_ONCE: u32 = 64;
/// Pages of the log that are read at once: half a MiB.
const PAGES_AT_ONCE: u64 = 64;

/// Something that is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The name of a file in the directory.
    Name(FileId),
    Super,
    /// Pages from here on that a replay would need.
    Log {
        from: u64,
        upto: u64,
    },
    Recent,
    Sums,
    Index {
        file: FileNo,
        page: u32,
    },
    Map {
        file: FileNo,
        first: Region,
        count: u32,
    },
}

impl Piece {
    pub(super) fn file(&self) -> FileId {
        match self {
            Self::Name(file) => *file,
            Self::Super => FileId::Super,
            Self::Log { .. } => FileId::Log,
            Self::Recent => FileId::Recent,
            Self::Sums => FileId::Sums,
            Self::Index { file, .. } => own_index(*file),
            Self::Map { file, .. } => own_map(*file),
        }
    }

    /// The layer that it belongs to.
    fn layer(&self) -> Option<FileNo> {
        match self {
            Self::Name(FileId::Data(_, file) | FileId::Map(_, file) | FileId::Index(_, file))
            | Self::Index { file, .. }
            | Self::Map { file, .. } => Some(*file),
            Self::Name(_) | Self::Super | Self::Log { .. } | Self::Recent | Self::Sums => None,
        }
    }
}

/// The pieces of a range of regions. The files of the whole replica go with the first region.
pub(super) fn of(replica: &Replica, regions: &std::ops::Range<u32>) -> VecDeque<Piece> {
    let layers = || replica.meta.body.layers.layers.iter().map(|layer| layer.file);
    let mut pieces = VecDeque::new();
    if regions.start == 0 {
        let files = [FileId::Super, FileId::Log, FileId::Recent, FileId::Sums];
        pieces.extend(files.map(Piece::Name));
        pieces.extend(layers().flat_map(FileId::of_layer).map(Piece::Name));
        let upto = replica.log.live().end;
        pieces.extend([Piece::Super, Piece::Log { from: 0, upto }, Piece::Recent, Piece::Sums]);
    }
    let end = regions.end.min(region_count(replica.meta.size));
    for file in layers() {
        let pages = Index::pages_in(&(regions.start..end));
        pieces.extend(pages.map(|page| Piece::Index { file, page }));
        for first in (regions.start..end).step_by(REGIONS_AT_ONCE as usize) {
            let count = REGIONS_AT_ONCE.min(end - first);
            pieces.push_back(Piece::Map { file, first: Region(first), count });
        }
    }
    pieces
}

impl Replica {
    /// Whether the layer of a piece still exists.
    pub(super) fn has_piece(&self, piece: &Piece) -> bool {
        let layers = &self.meta.body.layers;
        piece.layer().is_none_or(|file| layers.by_file(file).is_some())
    }

    /// How to read a piece. Nothing if there is nothing to compare: it does not exist, or is being
    /// written anyway.
    pub(super) fn read_of(&self, piece: &Piece) -> Option<(FileId, IoOp)> {
        if !self.has_piece(piece) {
            return None;
        }
        let (offset, len) = match *piece {
            Piece::Name(FileId::Recent) if self.recent.limit() == 0 => return None,
            Piece::Name(file) => return Some((file, IoOp::CheckName)),
            // A change that is on its way writes both slots.
            Piece::Super => self.control.is_at_rest().then_some((0, 2 * SLOT))?,
            Piece::Log { from, upto } => {
                let pages = self.pages_of_log(from, upto)?;
                let place = PLACE as u64;
                (pages.start % self.log.pages() * place, (pages.end - pages.start) * place)
            }
            Piece::Recent => match self.recent.limit() as u64 {
                0 => return None,
                places => (0, (places + 1) * recent::PLACE),
            },
            Piece::Sums => self.log_mark.at_rest().map(|_| (0, sums::MARK))?,
            Piece::Index { file, page } => {
                let has_page = self.index.has_page(file, page);
                has_page.then_some((u64::from(page) * index::PAIR, index::PAIR))?
            }
            Piece::Map { file, first, count } => {
                let regions = self.regions_with_pages(file, first, count)?;
                let count = u64::from(regions.end - regions.start);
                (u64::from(regions.start) * PAIR, count * PAIR)
            }
        };
        Some((piece.file(), IoOp::Read { offset, len }))
    }

    /// The next pages of the log that a replay would need, in one piece of the ring.
    pub(super) fn pages_of_log(&self, from: u64, upto: u64) -> Option<std::ops::Range<u64>> {
        let live = self.log.live();
        let start = from.max(live.start);
        let turn = start + self.log.pages() - start % self.log.pages();
        let end = upto.min(live.end).min(start + PAGES_AT_ONCE).min(turn);
        (start < end).then_some(start..end)
    }

    /// From the first region of which the layer has a page to the last.
    pub(super) fn regions_with_pages(
        &self,
        file: FileNo,
        first: Region,
        count: u32,
    ) -> Option<std::ops::Range<u32>> {
        let map = own_map(file);
        let has = |at: &u32| matches!(self.index.get(map, Region(*at)), Stated::At(_));
        let mut regions = first.0..first.0 + count;
        let start = regions.find(has)?;
        Some(start..regions.rfind(has).unwrap_or(start) + 1)
    }

    /// Changes with the state that a piece is compared with, except for what only a clean changes.
    pub(super) fn stamp_of(&self, piece: &Piece) -> u64 {
        match piece {
            Piece::Super if self.control.is_at_rest() => self.meta.seq,
            Piece::Sums => self.log_mark.at_rest().unwrap_or(0),
            _ => 0,
        }
    }
}
