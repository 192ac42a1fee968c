//! A disk in memory that forgets as real ones do.
//!
//! Until a file is synced, each 512-byte sector of each write to it may or may not be there after
//! a power cut, in any combination; so may a file whose directory was not synced. Nothing else
//! is lost, and what was synced is never lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{FileId, Files};
use crate::store::request::IoFault;

const SECTOR: usize = 512;
const PAGE: u64 = 4096;

/// A small generator of numbers that appear random and are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03)
    }

    pub fn draw(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The part of unsynced data that survives a power cut.
#[derive(Clone, Debug)]
pub enum Keep {
    Nothing,
    Everything,
    /// Each sector with a chance of one half.
    Random(Rng),
    /// Only every other sector, so that whatever is longer than a sector is torn.
    Alternate,
}

impl Keep {
    fn sector(&mut self, index: u64) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Random(rng) => rng.draw() & 1 == 1,
            Self::Alternate => index & 1 == 1,
        }
    }
}

/// Pages are shared between copies of a disk until one of them changes.
type Pages = BTreeMap<u64, Arc<[u8; PAGE as usize]>>;

#[derive(Clone, Debug, Default)]
struct SimFile {
    current: Pages,
    durable: Pages,
    /// Writes since the last sync, in order.
    unsynced: Vec<Unsynced>,
    len: u64,
}

#[derive(Clone, Debug)]
struct Unsynced {
    offset: u64,
    data: Bytes,
    /// Survives a power cut all the same.
    durable: bool,
}

/// A directory of files in memory.
#[derive(Clone, Debug, Default)]
pub struct SimFiles {
    files: BTreeMap<FileId, SimFile>,
    /// The directory's names after a power cut, unless a creation or removal is lost.
    durable_names: BTreeMap<FileId, SimFile>,
    /// Pages of 4 KiB in all files; more is out of space.
    pub capacity: Option<u64>,
}

impl SimFiles {
    pub fn new() -> Self {
        Self::default()
    }

    /// Pages of 4 KiB in use.
    pub fn used(&self) -> u64 {
        self.files.values().map(|file| file.current.len() as u64).sum()
    }

    /// Pages of 4 KiB that a file has.
    pub fn pages_of(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, |file| file.current.len() as u64)
    }

    /// Turns a bit, on the medium too.
    pub fn flip(&mut self, file: FileId, offset: u64, bit: u8) {
        let file = self.files.get_mut(&file).expect("the file exists");
        for pages in [&mut file.current, &mut file.durable] {
            let page = pages.entry(offset / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[(offset % PAGE) as usize] ^= 1 << bit;
        }
    }

    /// Puts the file of another directory, or of an earlier time, in the place of one.
    pub fn replace(&mut self, file: FileId, from: &Self, other: FileId) {
        match from.files.get(&other) {
            Some(found) => drop(self.files.insert(file, found.clone())),
            None => drop(self.files.remove(&file)),
        }
    }

    /// The power goes and comes back.
    pub fn power_cut(&mut self, mut keep: Keep) {
        let mut after = BTreeMap::new();
        let names: Vec<FileId> =
            self.files.keys().chain(self.durable_names.keys()).copied().collect();
        for name in names {
            if after.contains_key(&name) {
                continue;
            }
            let current = self.files.get(&name);
            let named = self.durable_names.contains_key(&name);
            let there = match (current.is_some(), named) {
                (true, true) => true,
                (false, false) => false,
                // A creation or a removal whose directory was not synced.
                (true, false) => keep.sector(0),
                (false, true) => !keep.sector(0),
            };
            if !there {
                continue;
            }
            let file = current.or_else(|| self.durable_names.get(&name)).expect("it is in one");
            after.insert(name, file.after_power_cut(&mut keep));
        }
        self.durable_names = after.clone();
        self.files = after;
    }

    fn file(&mut self, file: FileId) -> Result<&mut SimFile, IoFault> {
        self.files.get_mut(&file).ok_or(IoFault::Errno(2))
    }

    /// Finds room for the pages that the range does not have yet.
    fn reserve(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault> {
        let used = self.used();
        let capacity = self.capacity;
        let file = self.file(file)?;
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        let missing = pages.clone().filter(|page| !file.current.contains_key(page)).count() as u64;
        if capacity.is_some_and(|capacity| missing > 0 && used + missing > capacity) {
            return Err(IoFault::NoSpace);
        }
        for page in pages {
            file.current.entry(page).or_insert_with(|| Arc::new([0; PAGE as usize]));
        }
        file.len = file.len.max(offset + len);
        Ok(())
    }
}

impl SimFile {
    fn after_power_cut(&self, keep: &mut Keep) -> Self {
        let mut durable = self.durable.clone();
        for write in &self.unsynced {
            for (index, sector) in write.data.chunks(SECTOR).enumerate() {
                let offset = write.offset + (index * SECTOR) as u64;
                if write.durable || keep.sector(offset / SECTOR as u64) {
                    put(&mut durable, offset, sector);
                }
            }
        }
        Self { current: durable.clone(), durable, unsynced: Vec::new(), len: self.len }
    }

    fn sync(&mut self) {
        self.unsynced.clear();
        // Holes and allocations become durable with the data.
        self.durable = self.current.clone();
    }

    fn write(&mut self, offset: u64, data: &[u8], durable: bool) {
        put(&mut self.current, offset, data);
        if durable && self.unsynced.is_empty() {
            put(&mut self.durable, offset, data);
        } else {
            self.unsynced.push(Unsynced { offset, data: Bytes::copy_from_slice(data), durable });
        }
        self.len = self.len.max(offset + data.len() as u64);
    }
}

fn put(pages: &mut Pages, offset: u64, data: &[u8]) {
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let count = (PAGE as usize - within).min(data.len() - done);
        let page = pages.entry(at / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
        Arc::make_mut(page)[within..within + count].copy_from_slice(&data[done..done + count]);
        done += count;
    }
}

impl Files for SimFiles {
    fn read(&mut self, file: FileId, offset: u64, len: u64) -> Result<Bytes, IoFault> {
        let mut data = vec![0; len as usize];
        if let Some(file) = self.files.get(&file) {
            let mut done = 0;
            while done < data.len() {
                let at = offset + done as u64;
                let within = (at % PAGE) as usize;
                let count = (PAGE as usize - within).min(data.len() - done);
                if let Some(page) = file.current.get(&(at / PAGE)) {
                    data[done..done + count].copy_from_slice(&page[within..within + count]);
                }
                done += count;
            }
        }
        Ok(data.into())
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), IoFault> {
        self.reserve(file, offset, data.len() as u64)?;
        self.file(file)?.write(offset, data, false);
        Ok(())
    }

    fn write_durable(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), IoFault> {
        self.reserve(file, offset, data.len() as u64)?;
        self.file(file)?.write(offset, data, true);
        Ok(())
    }

    fn sync(&mut self, file: FileId) -> Result<(), IoFault> {
        self.file(file)?.sync();
        Ok(())
    }

    fn punch(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault> {
        let file = self.file(file)?;
        let len = len.min(file.len.saturating_sub(offset));
        file.write(offset, &vec![0; len as usize], false);
        for page in offset.div_ceil(PAGE)..(offset + len) / PAGE {
            file.current.remove(&page);
        }
        Ok(())
    }

    fn allocate(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault> {
        self.reserve(file, offset, len)
    }

    fn create(&mut self, file: FileId) -> Result<(), IoFault> {
        self.files.insert(file, SimFile::default());
        Ok(())
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoFault> {
        let old = self.file(file)?.len;
        if len < old {
            self.punch(file, len, old - len)?;
        }
        let file = self.file(file)?;
        let first = len.div_ceil(PAGE);
        file.current.retain(|page, _| *page < first);
        file.len = len;
        Ok(())
    }

    fn remove(&mut self, file: FileId) -> Result<(), IoFault> {
        if let Some(removed) = self.files.remove(&file)
            && let Some(named) = self.durable_names.get_mut(&file)
        {
            *named = removed;
        }
        Ok(())
    }

    fn sync_directory(&mut self) -> Result<(), IoFault> {
        self.durable_names = self.files.keys().map(|name| (*name, SimFile::default())).collect();
        Ok(())
    }

    fn list(&mut self) -> Result<Vec<String>, IoFault> {
        let mut names: Vec<String> = self.files.keys().map(ToString::to_string).collect();
        names.sort();
        Ok(names)
    }

    fn len(&mut self, file: FileId) -> Result<Option<u64>, IoFault> {
        Ok(self.files.get(&file).map(|file| file.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &mut SimFiles, offset: u64) -> u8 {
        files.read(FileId::Log, offset, 1).unwrap()[0]
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_may_not() {
        let mut files = SimFiles::new();
        files.create(FileId::Log).unwrap();
        files.sync_directory().unwrap();
        files.write(FileId::Log, 0, &[1; 1024]).unwrap();
        files.sync(FileId::Log).unwrap();
        files.write(FileId::Log, 0, &[2; 1024]).unwrap();
        files.write_durable(FileId::Log, 4096, &[3; 512]).unwrap();
        let mut torn = files.clone();
        torn.power_cut(Keep::Alternate);
        assert_eq!((read(&mut torn, 0), read(&mut torn, 512), read(&mut torn, 4096)), (1, 2, 3));
        files.power_cut(Keep::Nothing);
        assert_eq!((read(&mut files, 0), read(&mut files, 512)), (1, 1));
    }

    #[test]
    fn names_come_and_go_with_their_directory() {
        let mut files = SimFiles::new();
        files.create(FileId::Log).unwrap();
        files.sync_directory().unwrap();
        files.create(FileId::Super).unwrap();
        files.remove(FileId::Log).unwrap();
        let mut lost = files.clone();
        lost.power_cut(Keep::Nothing);
        assert_eq!(lost.list().unwrap(), ["log"]);
        files.power_cut(Keep::Everything);
        assert_eq!(files.list().unwrap(), ["super"]);
    }

    #[test]
    fn a_full_disk_takes_no_new_pages() {
        let mut files = SimFiles { capacity: Some(2), ..SimFiles::default() };
        files.create(FileId::Log).unwrap();
        files.write(FileId::Log, 0, &[1; 8192]).unwrap();
        assert_eq!(files.write(FileId::Log, 8192, &[1; 1]), Err(IoFault::NoSpace));
        files.write(FileId::Log, 0, &[2; 1]).unwrap();
        files.punch(FileId::Log, 0, 4096).unwrap();
        files.write(FileId::Log, 8192, &[1; 1]).unwrap();
    }
}
