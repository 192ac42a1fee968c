//! Finds where the parts of an image belong on its disk, while the image is downloaded. Pure.
//!
//! The position on the disk of most data is known when it is received: of a raw disk always, of a
//! qcow2 image if its tables are before the data that they refer to, as `qemu-img convert` writes
//! them. Such data is written to its position at once, and not twice. Any other qcow2 image has to
//! be converted by `qemu-img`; [`Layout::is_complete`] reports that.
//!
//! The verdict on a part depends only on the parts before it, so a second read of the parts that
//! were not moved shows again which parts were.

use std::collections::BTreeMap;

use super::header::{ImageKind, sniff};
use super::receive::Compression;

/// A raw disk is taken in steps of this, and left out where it is only zeros.
const BLOCK: u64 = 64 << 10;
/// The clusters of qcow2 that are moved: not smaller than a block of a file system.
const CLUSTERS: std::ops::RangeInclusive<u32> = 12..=21;
/// Entries that are remembered at a time; images that jump about more are converted later.
const MOST_RUNS: usize = 1 << 18;
const MOST_L1: u64 = 4 << 20;

/// Bits of an entry: where something is; that it is compressed; that it reads as zeros.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

/// Where a part of an image goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartPosition {
    /// It stays in the image: tables, and parts without an entry.
    Image,
    /// It is this part of the disk.
    Disk { at: u64 },
    /// It is the end of the disk and goes on behind that.
    Both { at: u64 },
}

/// How an image is taken apart.
#[derive(Debug)]
pub enum Layout {
    /// It is the disk.
    Raw,
    Qcow2(Qcow2),
    /// Nothing is known of its parts.
    Whole,
}

impl Layout {
    /// By the first bytes of an image, a few hundred at least unless it has fewer.
    pub fn of(start: &[u8]) -> Self {
        if Compression::of(start) != Compression::None {
            return Self::Whole;
        }
        match sniff(start) {
            ImageKind::Raw => Self::Raw,
            ImageKind::Qcow2 => Qcow2::parse(start).map_or(Self::Whole, Self::Qcow2),
            _ => Self::Whole,
        }
    }

    /// The length of its parts.
    pub fn step(&self) -> u64 {
        match self {
            Self::Qcow2(image) => image.cluster,
            Self::Raw | Self::Whole => BLOCK,
        }
    }

    /// Where the next part goes; each whole one is asked for once, in order. Its bytes matter
    /// only if it stays in the image.
    pub fn place(&mut self, index: u64, part: &[u8]) -> PartPosition {
        match self {
            Self::Raw => PartPosition::Disk { at: index * BLOCK },
            Self::Qcow2(image) => image.place(index, part),
            Self::Whole => PartPosition::Image,
        }
    }

    /// Whether the disk has everything, once the image has come to its end.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Raw => true,
            Self::Qcow2(image) => image.is_complete(),
            Self::Whole => false,
        }
    }

    /// The length of the disk in an image of this length.
    pub fn disk(&self, image: u64) -> u64 {
        match self {
            Self::Qcow2(qcow2) => qcow2.size,
            Self::Raw | Self::Whole => image,
        }
    }
}

/// Data that is to come: clusters in a row, in the image and on the disk.
#[derive(Debug, Clone, Copy)]
struct Run {
    disk: u64,
    count: u64,
}

/// A qcow2 image as far as it has come. All positions are in clusters.
#[derive(Debug)]
pub struct Qcow2 {
    cluster: u64,
    /// Of the disk, in bytes.
    size: u64,
    version: u32,
    /// Where the first table is, and its bytes as they come.
    l1: std::ops::Range<u64>,
    l1_bytes: usize,
    table: Vec<u8>,
    /// Tables of the second level that are to come, by place, and which they are.
    tables: BTreeMap<u64, u64>,
    runs: BTreeMap<u64, Run>,
    knows_tables: bool,
    /// Whether everything that was spoken of so far came later, and once.
    is_regular: bool,
}

impl Qcow2 {
    /// QEMU's `docs/interop/qcow2.txt`: 20 bits of a cluster, 24 size, 36 entries of the first
    /// table, 40 its place, 60 snapshots, 72 what a reader must know.
    fn parse(start: &[u8]) -> Option<Self> {
        let version = number::<4>(start, 4)?;
        let bits = u32::try_from(number::<4>(start, 20)?).ok()?;
        let is_plain = number::<8>(start, 8)? == 0
            && number::<4>(start, 32)? == 0
            && number::<4>(start, 60)? == 0
            && (version == 2 || (version == 3 && number::<8>(start, 72)? == 0));
        if !is_plain || !CLUSTERS.contains(&bits) {
            return None;
        }
        let cluster = 1_u64 << bits;
        let size = number::<8>(start, 24)?;
        let needed = size.div_ceil(cluster).div_ceil(cluster / 8);
        let (entries, at) = (number::<4>(start, 36)?, number::<8>(start, 40)?);
        let bytes = needed.checked_mul(8).filter(|bytes| *bytes <= MOST_L1)?;
        if entries < needed || at == 0 || !at.is_multiple_of(cluster) {
            return None;
        }
        let first = at / cluster;
        Some(Self {
            cluster,
            size,
            version: u32::try_from(version).ok()?,
            l1: first..first + bytes.div_ceil(cluster),
            l1_bytes: usize::try_from(bytes).ok()?,
            table: Vec::new(),
            tables: BTreeMap::new(),
            runs: BTreeMap::new(),
            knows_tables: bytes == 0,
            is_regular: true,
        })
    }

    fn place(&mut self, index: u64, part: &[u8]) -> PartPosition {
        if self.l1.contains(&index) {
            self.table.extend_from_slice(part);
            if index + 1 == self.l1.end {
                self.learn_tables(index);
            }
            return PartPosition::Image;
        }
        if let Some(number) = self.tables.remove(&index) {
            self.learn_data(index, number, part);
            return PartPosition::Image;
        }
        let Some(run) = self.runs.remove(&index) else { return PartPosition::Image };
        if run.count > 1 {
            self.runs.insert(index + 1, Run { disk: run.disk + 1, count: run.count - 1 });
        }
        let at = run.disk * self.cluster;
        if at + self.cluster > self.size {
            PartPosition::Both { at }
        } else {
            PartPosition::Disk { at }
        }
    }

    fn learn_tables(&mut self, now: u64) {
        self.knows_tables = true;
        let mut table = std::mem::take(&mut self.table);
        table.truncate(self.l1_bytes);
        for (number, entry) in (0..).zip(entries(&table)) {
            if entry & OFFSET == 0 {
                continue;
            }
            let at = self.later(entry & OFFSET, now);
            self.is_regular &= at.is_some_and(|at| self.tables.insert(at, number).is_none());
        }
    }

    fn learn_data(&mut self, now: u64, table: u64, part: &[u8]) {
        let first = table * (self.cluster / 8);
        let clusters = self.size.div_ceil(self.cluster);
        let mut last: Option<(u64, Run)> = None;
        for (disk, entry) in (first..).zip(entries(part)) {
            let is_zero = self.version >= 3 && entry & ZERO != 0;
            if entry == 0 || (is_zero && entry & COMPRESSED == 0) {
                continue;
            }
            let is_data = entry & (COMPRESSED | ZERO) == 0 && disk < clusters;
            let Some(at) = self.later(entry & OFFSET, now).filter(|_| is_data) else {
                self.is_regular = false;
                continue;
            };
            match &mut last {
                Some((first, run)) if *first + run.count == at && run.disk + run.count == disk => {
                    run.count += 1;
                }
                _ => {
                    let before = last.replace((at, Run { disk, count: 1 }));
                    self.remember(before);
                }
            }
        }
        self.remember(last);
    }

    /// The cluster at an offset if that is still to come.
    fn later(&self, offset: u64, now: u64) -> Option<u64> {
        let at = offset / self.cluster;
        (offset.is_multiple_of(self.cluster) && at > now && !self.l1.contains(&at)).then_some(at)
    }

    /// No two parts of a disk are in the same part of an image.
    fn remember(&mut self, found: Option<(u64, Run)>) {
        let Some((first, run)) = found else { return };
        let before = self.runs.range(..first + run.count).next_back();
        let is_free = before.is_none_or(|(at, other)| at + other.count <= first);
        if !is_free || self.runs.len() >= MOST_RUNS {
            self.is_regular = false;
            return;
        }
        self.runs.insert(first, run);
    }

    fn is_complete(&self) -> bool {
        self.is_regular && self.knows_tables && self.tables.is_empty() && self.runs.is_empty()
    }
}

fn entries(table: &[u8]) -> impl Iterator<Item = u64> {
    table.chunks_exact(8).map(|entry| number::<8>(entry, 0).unwrap_or_default())
}

/// A number of so many bytes, the highest first.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let all = bytes.get(at..at + BYTES)?;
    Some(all.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: usize = 1 << 16;

    /// An image of these clusters behind its header, with its first table at cluster 1.
    fn image(size: u64, clusters: &[&[(usize, u64)]]) -> Vec<u8> {
        let mut bytes = vec![0; CLUSTER * (clusters.len() + 1)];
        bytes[..4].copy_from_slice(b"QFI\xfb");
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(4, &3_u32.to_be_bytes());
        put(20, &16_u32.to_be_bytes());
        put(24, &size.to_be_bytes());
        put(36, &1_u32.to_be_bytes());
        put(40, &(CLUSTER as u64).to_be_bytes());
        for (index, entries) in clusters.iter().enumerate() {
            for (number, entry) in *entries {
                put(CLUSTER * (index + 1) + number * 8, &entry.to_be_bytes());
            }
        }
        bytes
    }

    fn places(image: &[u8]) -> (Vec<PartPosition>, bool) {
        let mut layout = Layout::of(image);
        let parts = image.chunks(CLUSTER).filter(|part| part.len() == CLUSTER);
        let places = (0..).zip(parts).map(|(index, part)| layout.place(index, part)).collect();
        (places, layout.is_complete())
    }

    const fn at(cluster: u64) -> u64 {
        1 << 63 | cluster << 16
    }

    #[test]
    fn data_goes_to_its_place_if_its_table_came_before() {
        let size = 5 * CLUSTER as u64 - 512;
        let table: &[_] = &[(0, at(4)), (1, at(3)), (2, at(9) | ZERO), (4, at(5))];
        let (found, is_complete) = places(&image(size, &[&[(0, at(2))], table, &[], &[], &[]]));
        let disk = |cluster: u64| PartPosition::Disk { at: cluster << 16 };
        let last = PartPosition::Both { at: 4 << 16 };
        let kept = PartPosition::Image;
        assert_eq!(found, [kept, kept, kept, disk(1), disk(0), last]);
        assert!(is_complete);
    }

    #[test]
    fn images_that_are_not_in_order_are_not_complete() {
        let size = 4 * CLUSTER as u64;
        let l1: &[_] = &[(0, at(2))];
        let cases: [(&str, Vec<u8>); 9] = [
            ("data before its table", image(size, &[&[(0, at(3))], &[], &[(0, at(2))]])),
            ("compressed", image(size, &[l1, &[(0, at(3) | COMPRESSED)], &[]])),
            ("the same data twice", image(size, &[l1, &[(0, at(3)), (1, at(3))], &[]])),
            ("data that is a table", image(size, &[l1, &[(0, at(1))], &[]])),
            ("data in the header", image(size, &[l1, &[(0, 1 << 63)], &[]])),
            ("between clusters", image(size, &[l1, &[(0, at(3) + 512)], &[]])),
            ("behind the disk", image(size, &[l1, &[(4, at(3))], &[]])),
            ("cut off", image(size, &[l1, &[(0, at(4))], &[]])),
            ("cut off before its tables", image(size, &[])),
        ];
        for (name, image) in cases {
            assert!(!places(&image).1, "{name}");
        }
        assert!(places(&image(size, &[&[]])).1, "an empty disk");
    }

    #[test]
    fn an_image_with_unknown_features_stays_whole() {
        let plain = image(1 << 20, &[&[]]);
        let changed = |at: usize, value: u8| {
            let mut image = plain.clone();
            image[at] = value;
            image
        };
        for (name, image) in [
            ("a backing file", changed(15, 1)),
            ("encrypted", changed(35, 1)),
            ("snapshots", changed(63, 1)),
            ("a feature", changed(79, 1)),
            ("another version", changed(7, 4)),
            ("tiny clusters", changed(23, 9)),
            ("a table that is too short", changed(39, 0)),
            ("no table", changed(45, 0)),
            ("compressed", b"\x1f\x8b\x08".to_vec()),
            ("a VMDK", b"KDMV".to_vec()),
            ("cut off", plain[..40].to_vec()),
        ] {
            assert!(matches!(Layout::of(&image), Layout::Whole), "{name}");
        }
        assert!(matches!(Layout::of(&plain), Layout::Qcow2(_)));
        assert!(matches!(Layout::of(b"boot sector"), Layout::Raw));
    }
}
