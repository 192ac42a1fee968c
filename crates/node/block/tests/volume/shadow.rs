//! A copy of every acknowledged write of a volume, and comparisons of what is read with it.

use std::collections::BTreeSet;
use std::path::Path;

use block::store::drive::Driven;
use block::store::files::Directory;
use block::store::{NoBases, OpenOptions, Reply, Report, Request, View, check_under, open};

use crate::nbd::Client;

pub(crate) const BLOCK: u64 = 4096;
/// Blocks that are read at once.
const RUN: u64 = 64;

/// Something that must never happen, in words.
#[derive(Debug)]
pub(crate) struct Violation(pub(crate) String);

pub(crate) type Blocks = BTreeSet<u64>;

#[derive(Clone)]
pub(crate) struct Shadow {
    /// For each block the number of its newest write; 0 for zeroes.
    newest: Vec<u64>,
    /// Blocks that were written since the last flush.
    unflushed: Blocks,
    writes: u64,
}

/// Different for each block and write, so that no exchange of two goes unnoticed.
fn content(block: u64, number: u64) -> Vec<u8> {
    let word = if number == 0 { 0 } else { number << 32 | block };
    word.to_le_bytes().repeat(usize::try_from(BLOCK / 8).unwrap())
}

impl Shadow {
    pub(crate) fn new(size: u64) -> Self {
        let newest = vec![0; usize::try_from(size / BLOCK).unwrap()];
        Self { newest, unflushed: Blocks::new(), writes: 0 }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.newest.len() as u64
    }

    pub(crate) fn unflushed(&self) -> &Blocks {
        &self.unflushed
    }

    fn note(&mut self, first: u64, count: u64, number: u64) {
        for block in first..first + count {
            self.newest[usize::try_from(block).unwrap()] = number;
            self.unflushed.insert(block);
        }
    }

    pub(crate) fn write(&mut self, client: &mut Client, first: u64, count: u64) {
        self.writes += 1;
        let data: Vec<u8> =
            (first..first + count).flat_map(|it| content(it, self.writes)).collect();
        client.write(first * BLOCK, &data).unwrap();
        self.note(first, count, self.writes);
    }

    pub(crate) fn zero(&mut self, client: &mut Client, first: u64, count: u64) {
        client.write_zeroes(first * BLOCK, u32::try_from(count * BLOCK).unwrap()).unwrap();
        self.note(first, count, 0);
    }

    pub(crate) fn flush(&mut self, client: &mut Client) {
        client.flush().unwrap();
        self.unflushed.clear();
    }

    /// Reads everything. Gives the blocks that cannot be read. `taken` may hold anything.
    pub(crate) fn read(&self, client: &mut Client, taken: &Blocks) -> Result<Blocks, Violation> {
        let len = u32::try_from(BLOCK).unwrap();
        self.compare(taken, |first, count| match count {
            1 => client.try_read(first * BLOCK, len).unwrap(),
            _ => client.try_read(first * BLOCK, u32::try_from(count * BLOCK).unwrap()).unwrap(),
        })
    }

    /// The same of a replica that is not in use. It is opened, and closed cleanly.
    pub(crate) fn read_replica(
        &self,
        dir: &Path,
        view: View,
        taken: &Blocks,
    ) -> Result<Blocks, Violation> {
        let mut files = Directory::new(dir);
        let options = OpenOptions { boot: Some(block::run::boot()), ..OpenOptions::default() };
        let replica = match open(&mut files, &mut NoBases, options) {
            Ok(replica) => replica,
            Err(error) => return Err(Violation(format!("it cannot be opened: {error}"))),
        };
        let mut driven = Driven::new(replica, &mut files);
        let bad = self.compare(taken, |first, count| {
            let request = Request::Read { view, offset: first * BLOCK, len: count * BLOCK };
            let Ok(Reply::Data(data)) = driven.request(request) else { return None };
            let crcs = data.crcs.clone();
            let data = data.into_bytes();
            block::store::crc::first_mismatch(&data, &crcs).is_none().then(|| data.to_vec())
        });
        driven.request(Request::CloseClean).unwrap();
        bad
    }

    fn compare(
        &self,
        taken: &Blocks,
        mut read: impl FnMut(u64, u64) -> Option<Vec<u8>>,
    ) -> Result<Blocks, Violation> {
        let mut bad = Blocks::new();
        for first in (0..self.blocks()).step_by(usize::try_from(RUN).unwrap()) {
            let count = RUN.min(self.blocks() - first);
            if let Some(data) = read(first, count) {
                self.compare_data(first, &data, taken)?;
                continue;
            }
            for block in first..first + count {
                match read(block, 1) {
                    Some(data) => self.compare_data(block, &data, taken)?,
                    None => drop(bad.insert(block)),
                }
            }
        }
        Ok(bad)
    }

    fn compare_data(&self, first: u64, data: &[u8], taken: &Blocks) -> Result<(), Violation> {
        let blocks = data.chunks(usize::try_from(BLOCK).unwrap());
        for (block, found) in (first..).zip(blocks) {
            let number = self.newest[usize::try_from(block).unwrap()];
            if found != content(block, number) && !taken.contains(&block) {
                let word = u64::from_le_bytes(found[..8].try_into().unwrap());
                return Err(Violation(format!(
                    "block {block} is read as write {} of block {}, or damaged; the newest is {number}",
                    word >> 32,
                    word & 0xffff_ffff
                )));
            }
        }
        Ok(())
    }
}

/// The report of `sheaf replica check`.
pub(crate) fn check_replica(dir: &Path) -> Report {
    let boot = Some(block::run::boot());
    let mut files = Directory::read_only(dir);
    let mut report = check_under(&mut files, block::store::Depth::Data, boot, &mut |_| {});
    if report.meta.as_ref().is_some_and(|meta| meta.body.session > 0) {
        block::run::check_answered(dir).into_iter().for_each(|problem| report.add(problem));
    }
    report
}
