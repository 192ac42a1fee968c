//! Comparison of what was read with what memory says.

use bytes::Bytes;

use super::pieces::Piece;
use crate::store::cache::{Known, PageKey};
use crate::store::files::{FileId, FileNo};
use crate::store::geometry::Region;
use crate::store::index::{self, Entry, Stated};
use crate::store::log::{self, PLACE};
use crate::store::map::{self, Owner, PAGE, PAIR, Presence};
use crate::store::metadata::Found;
use crate::store::recent::stamp::{Expected, inspect};
use crate::store::replica::{Replica, own_map};
use crate::store::request::{IoFault, IoResult};
use crate::store::sums::Mark;
use crate::store::super_block::{SLOT, SuperBlock};

/// No such name, and the name of another file.
const GONE: [i32; 2] = [2, 116];

/// Result of a comparison.
#[derive(Debug)]
pub(super) enum Compared {
    One(Found, Fix),
    /// The regions whose pages are damaged, to be read one by one.
    Regions(Vec<Piece>),
    /// It is intact, and this comes after it.
    Followed(Piece),
}

/// How a piece is written again.
#[derive(Debug)]
pub(super) enum Fix {
    /// It is intact, or nothing here has its content.
    Nothing,
    /// These bytes, each at its place in the file.
    Slots(FileId, Vec<(u64, Bytes)>),
    /// A clean writes it anyway, or makes it superfluous.
    Clean,
    /// Which of the two super blocks are damaged.
    Super([bool; 2]),
    Recent,
    NewRecent,
    NewSums,
}

const INTACT: Compared = Compared::One(Found::Intact, Fix::Nothing);

impl Replica {
    pub(super) fn compare(&mut self, piece: &Piece, result: &IoResult) -> Compared {
        let bytes = match (result, *piece) {
            (result, Piece::Name(file)) => return name(file, result),
            (Ok(bytes), _) => bytes,
            (Err(_), Piece::Map { file, first, count }) if count > 1 => {
                return Compared::Regions(single(file, first.0..first.0 + count));
            }
            (Err(_), _) => return Compared::One(Found::Unreadable, self.fix(piece, None)),
        };
        match *piece {
            Piece::Log { from, upto } => self.compare_log(bytes, from, upto),
            Piece::Map { file, first, count } if count > 1 => {
                self.damaged_regions(bytes, file, first, count)
            }
            Piece::Name(_) => INTACT,
            Piece::Super => {
                let damaged = self.damaged_supers(bytes);
                self.two_copies(piece, damaged, bytes)
            }
            Piece::Recent if self.is_recent_intact(bytes) => INTACT,
            Piece::Recent => Compared::One(Found::Damaged, Fix::Recent),
            Piece::Sums => {
                let found = Mark::decode(bytes, self.meta.tag());
                match found.is_some_and(|it| Some(it.next) == self.log_mark.at_rest()) {
                    true => INTACT,
                    false => Compared::One(Found::Damaged, Fix::NewSums),
                }
            }
            Piece::Index { file, page } => {
                let damaged = self.index.damaged_slots(self.meta.tag(), file, page, bytes);
                self.two_copies(piece, damaged, bytes)
            }
            Piece::Map { file, first, .. } => {
                let damaged = self.damaged_slots(file, first, bytes);
                self.two_copies(piece, damaged, bytes)
            }
        }
    }

    fn two_copies(&mut self, piece: &Piece, damaged: [bool; 2], bytes: &Bytes) -> Compared {
        match Found::of(damaged) {
            Found::Intact => INTACT,
            found => Compared::One(found, self.fix(piece, Some((damaged, bytes)))),
        }
    }

    /// How to write a piece again, given what was read of it.
    fn fix(&mut self, piece: &Piece, read: Option<([bool; 2], &Bytes)>) -> Fix {
        let damaged = read.map_or([true; 2], |(damaged, _)| damaged);
        let (start, data) = match *piece {
            Piece::Name(_) => return Fix::Nothing,
            Piece::Super => return Fix::Super(damaged),
            Piece::Log { .. } => return Fix::Clean,
            Piece::Recent => return Fix::Recent,
            Piece::Sums => return Fix::NewSums,
            Piece::Index { file, page } => {
                let data = self.index.page_bytes(self.meta.tag(), file, page);
                (u64::from(page) * index::PAIR, data.map(Bytes::from))
            }
            Piece::Map { file, first, .. } => {
                let start = u64::from(first.0) * PAIR;
                match (damaged, read) {
                    ([true, false], Some((_, pair))) => (start, Some(pair.slice(PAGE..))),
                    ([false, true], Some((_, pair))) => (start, Some(pair.slice(..PAGE))),
                    _ => match self.page_in_memory(file, first) {
                        InMemory::Page(data) => (start, Some(data)),
                        InMemory::Newer => return Fix::Clean,
                        InMemory::Nothing => (start, None),
                    },
                }
            }
        };
        let Some(data) = data else { return Fix::Nothing };
        let places = [start, start + PAGE as u64].into_iter().zip(damaged);
        let slots = places.filter(|(_, damaged)| *damaged).map(|(at, _)| (at, data.clone()));
        Fix::Slots(piece.file(), slots.collect())
    }

    /// The page of a map as it should be on disk.
    fn page_in_memory(&mut self, file: FileNo, region: Region) -> InMemory {
        let key = PageKey { file: own_map(file), region };
        let (Stated::At(entry), Known::Cached(at)) =
            (self.index.get(key.file, region), self.cache.known(key))
        else {
            return InMemory::Nothing;
        };
        let owner = Owner { tag: self.meta.tag(), file, region };
        let page = self.cache.page_mut(at);
        if page.is_dirty() {
            return InMemory::Newer;
        }
        if page.seq == 0 || page.current == Presence::all_lost() {
            return InMemory::Nothing;
        }
        let data = map::encode(owner, page.seq, page.clean, &page.committed, &page.crcs);
        if map::crc_of(&data) == entry.crc {
            return InMemory::Page(Bytes::from(data));
        }
        // It was written in the first format: a clean writes it in that of today.
        page.version = page.version.wrapping_add(1);
        InMemory::Newer
    }

    fn damaged_supers(&self, bytes: &[u8]) -> [bool; 2] {
        let (first, second) = bytes.split_at(SLOT as usize);
        let identity = |it: &SuperBlock| (it.seq, it.volume, it.replica, it.size);
        [first, second].map(|slot| {
            let found = SuperBlock::decode(slot);
            !found.is_ok_and(|found| identity(&found) == identity(&self.meta))
        })
    }

    fn compare_log(&self, bytes: &[u8], from: u64, upto: u64) -> Compared {
        let Some(pages) = self.pages_of_log(from, upto) else { return INTACT };
        let (ring, tag) = (self.log.pages(), self.meta.tag());
        let places = pages.clone().zip(bytes.chunks_exact(PLACE));
        let mut copies = places.map(|(seq, place)| log::damaged_copies(place, seq, ring, tag));
        match copies.find(|copies| copies.contains(&true)) {
            Some(copies) => Compared::One(Found::of(copies), Fix::Clean),
            None => Compared::Followed(Piece::Log { from: pages.end, upto }),
        }
    }

    fn is_recent_intact(&self, bytes: &[u8]) -> bool {
        let expected = Expected {
            boot: self.boot,
            tag: self.meta.tag(),
            session: self.meta.body.session,
            places: self.recent.limit(),
            recorded: self.recent.recorded(),
        };
        inspect(bytes, &expected).is_none()
    }

    fn damaged_regions(&self, bytes: &[u8], file: FileNo, first: Region, count: u32) -> Compared {
        let Some(regions) = self.regions_with_pages(file, first, count) else { return INTACT };
        let pairs = regions.zip(bytes.chunks_exact(PAIR as usize));
        let slots = pairs.map(|(at, pair)| (at, self.damaged_slots(file, Region(at), pair)));
        let damaged = slots.filter(|(_, slots)| slots.contains(&true));
        Compared::Regions(damaged.flat_map(|(at, _)| single(file, at..at + 1)).collect())
    }

    /// Which of the two slots of a page of a map are damaged.
    fn damaged_slots(&self, file: FileNo, region: Region, pair: &[u8]) -> [bool; 2] {
        let Stated::At(entry) = self.index.get(own_map(file), region) else { return [false; 2] };
        // The index says that there is no good page.
        if entry == Entry::LOST {
            return [false; 2];
        }
        let owner = Owner { tag: self.meta.tag(), file, region };
        match map::find(pair, owner, entry) {
            Some(page) => map::damaged_slots(pair, owner, page.seq),
            None => [true; 2],
        }
    }
}

/// The content of a page of a map in memory.
enum InMemory {
    /// The bytes that the index names.
    Page(Bytes),
    /// Something that a clean will write.
    Newer,
    Nothing,
}

/// Whether a file still is the one that its directory names.
fn name(file: FileId, result: &IoResult) -> Compared {
    let fix = match file {
        FileId::Recent => Fix::NewRecent,
        FileId::Sums => Fix::NewSums,
        _ => Fix::Nothing,
    };
    match result {
        Ok(_) => INTACT,
        Err(IoFault::Errno(errno)) if GONE.contains(errno) => Compared::One(Found::Missing, fix),
        Err(_) => Compared::One(Found::Unreadable, Fix::Nothing),
    }
}

fn single(file: FileNo, regions: std::ops::Range<u32>) -> Vec<Piece> {
    regions.map(|at| Piece::Map { file, first: Region(at), count: 1 }).collect()
}
