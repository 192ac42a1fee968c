//! Ways to damage the files of a replica, by chance from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::lab::{tool, try_tool};

const BLOCK: u64 = 4096;

#[derive(Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds begin alike without this.
        let mut rng = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            rng.draw();
        }
        rng
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.draw() >> 8) % limit.max(1)
    }

    pub(crate) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    pub(crate) fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    Flip,
    /// Some blocks, or everything.
    Zero,
    Truncate,
    Empty,
    Remove,
    /// Two blocks of the file change places.
    SwapBlocks,
    /// Two files of the replica change places.
    SwapFiles,
    /// The same file of the next replica.
    Foreign,
    /// The file as it was some writes ago.
    OlderFile,
    /// The whole directory as it was some writes ago.
    OlderCopy,
    RemoveAll,
}

const DAMAGES: [Damage; 11] = [
    Damage::Flip,
    Damage::Zero,
    Damage::Truncate,
    Damage::Empty,
    Damage::Remove,
    Damage::SwapBlocks,
    Damage::SwapFiles,
    Damage::Foreign,
    Damage::OlderFile,
    Damage::OlderCopy,
    Damage::RemoveAll,
];

/// Where the replica is, and what it may be mixed up with.
pub(crate) struct DamageTarget {
    pub(crate) dir: PathBuf,
    pub(crate) peer: PathBuf,
    pub(crate) older: PathBuf,
    /// Its process runs: files change, and keep their places.
    pub(crate) runs: bool,
    /// Which files are damaged, by name.
    pub(crate) only: fn(&str) -> bool,
    /// Damage so far.
    pub(crate) done: Vec<Done>,
}

/// Damage of one file, or of the directory.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) damage: Damage,
    pub(crate) file: String,
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    tool("cp", &["-a", "--sparse=always", &text(from), &text(to)]);
}

pub(crate) fn replace(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    copy(from, to);
}

/// A copy of a directory in use: files may go meanwhile.
pub(crate) fn replace_live(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    try_tool("cp", &["-a", "--sparse=always", &text(from), &text(to)]);
}

/// The data files of a replica, by name.
pub(crate) fn data_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let data = named.filter(|(name, _)| name.ends_with(".data"));
    // The layer of a deleted snapshot may go meanwhile.
    data.filter_map(|(name, path)| Some((name, fs::read(path).ok()?))).collect()
}

/// The blocks of the volume whose data is not what it was, in any layer.
pub(crate) fn changed_blocks(before: &BTreeMap<String, Vec<u8>>, dir: &Path) -> BTreeSet<u64> {
    let after = data_files(dir);
    let mut changed = BTreeSet::new();
    for (name, before) in before {
        let after = after.get(name).map_or(&[][..], Vec::as_slice);
        let mut after = after.chunks(BLOCK as usize);
        for (block, data) in (0..).zip(before.chunks(BLOCK as usize)) {
            if after.next() != Some(data) {
                changed.insert(block);
            }
        }
    }
    changed
}

/// Writes into a file that a process may have open.
fn overwrite(path: &Path, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

impl DamageTarget {
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file() && (self.only)(name(path)));
        files.sort();
        files
    }

    pub(crate) fn has_files(&self) -> bool {
        !self.files().is_empty()
    }

    fn is_possible(&self, damage: Damage, file: &str) -> bool {
        match damage {
            // A directory is not exchanged under a process: it goes on with the files it has.
            Damage::OlderCopy | Damage::RemoveAll => !self.runs,
            // Older checksums that fit older data of the same session are believed, as the
            // decision record on checksums that survive a kill says.
            Damage::OlderFile => {
                let other = if file == "sums" { ".data" } else { "sums" };
                let is_one = file == "sums" || file.ends_with(".data");
                !is_one
                    || !self.done.iter().any(|it| it.damage == damage && it.file.ends_with(other))
            }
            _ => true,
        }
    }

    /// Damages one more file, or the directory.
    pub(crate) fn damage(&mut self, rng: &mut Rng) {
        while !self.try_damage(rng) {}
    }

    /// Whether anything is not what it was.
    fn try_damage(&mut self, rng: &mut Rng) -> bool {
        let files = self.files();
        let damage = DAMAGES[rng.index(DAMAGES.len())];
        let file = &files[rng.index(files.len())];
        let other = &files[rng.index(files.len())];
        if !self.is_possible(damage, name(file)) {
            return false;
        }
        // The layer of a deleted snapshot may go meanwhile.
        let Ok(before) = fs::read(file) else { return false };
        match damage {
            Damage::OlderCopy => replace(&self.older, &self.dir),
            Damage::RemoveAll => fs::remove_dir_all(&self.dir).unwrap(),
            Damage::Remove => fs::remove_file(file).unwrap(),
            Damage::Foreign => mix_up(file, &self.peer.join(name(file))),
            Damage::OlderFile => mix_up(file, &self.older.join(name(file))),
            Damage::SwapFiles => {
                mix_up(file, other);
                overwrite(other, &before);
            }
            Damage::Flip | Damage::Zero | Damage::Truncate | Damage::Empty | Damage::SwapBlocks => {
                let mut bytes = before.clone();
                change(rng, damage, &mut bytes);
                overwrite(file, &bytes);
            }
        }
        let is_changed = damage == Damage::OlderCopy || fs::read(file).ok() != Some(before);
        if is_changed {
            self.done.push(Done { damage, file: name(file).to_owned() });
        }
        if is_changed && damage == Damage::SwapFiles {
            self.done.push(Done { damage, file: name(other).to_owned() });
        }
        is_changed
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn mix_up(file: &Path, other: &Path) {
    if let Ok(bytes) = fs::read(other) {
        overwrite(file, &bytes);
    }
}

fn change(rng: &mut Rng, damage: Damage, bytes: &mut Vec<u8>) {
    let len = bytes.len();
    let blocks = (len as u64).div_ceil(BLOCK);
    let block = |at: u64| {
        let start = usize::try_from(at * BLOCK).unwrap();
        start..(start + usize::try_from(BLOCK).unwrap()).min(len)
    };
    // Most of a file is a hole.
    let used: Vec<u64> =
        (0..blocks).filter(|at| bytes[block(*at)].iter().any(|byte| *byte != 0)).collect();
    let pick = |rng: &mut Rng| match used.is_empty() || rng.one_in(4) {
        true => rng.below(blocks),
        false => used[rng.index(used.len())],
    };
    match damage {
        Damage::Flip => {
            for _ in 0..1 + rng.below(16) {
                let range = block(pick(rng));
                let at = range.start + rng.index(range.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
        Damage::Zero if rng.one_in(2) => bytes.fill(0),
        Damage::Zero => {
            for _ in 0..1 + rng.below(8) {
                let range = block(pick(rng));
                bytes[range].fill(0);
            }
        }
        Damage::Truncate => bytes.truncate(rng.index(len)),
        Damage::SwapBlocks => {
            let (one, two) = (block(pick(rng)), block(pick(rng)));
            if one.len() == two.len() {
                let first = bytes[one.clone()].to_vec();
                let second = bytes[two.clone()].to_vec();
                bytes[one].copy_from_slice(&second);
                bytes[two].copy_from_slice(&first);
            }
        }
        _ => bytes.clear(),
    }
}
