//! Ways to damage the files of a replica, by chance from a seed.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::lab::tool;

const BLOCK: u64 = 4096;

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

#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// Its data cannot be judged: it stays as it is.
    pub(crate) spare_data: bool,
    /// Its process runs: files change, and keep their places.
    pub(crate) runs: bool,
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    tool("cp", &["-a", "--sparse=always", &text(from), &text(to)]);
}

pub(crate) fn replace(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    copy(from, to);
}

fn is_data(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "data")
}

/// Writes into a file that a process may have open.
fn overwrite(path: &Path, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

impl DamageTarget {
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.dir).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| !(self.spare_data && is_data(path)) && path.is_file());
        files.sort();
        files
    }

    fn pick(&self, rng: &mut Rng) -> Damage {
        loop {
            let damage = DAMAGES[rng.index(DAMAGES.len())];
            let whole = matches!(damage, Damage::OlderCopy | Damage::RemoveAll);
            // A directory is not exchanged under a process: it goes on with the files it has.
            if !(whole && self.runs) {
                return damage;
            }
        }
    }

    /// Damages a file. Gives what was done.
    pub(crate) fn damage(&self, rng: &mut Rng) -> String {
        let files = self.files();
        let file = &files[rng.index(files.len())];
        let name = file.file_name().unwrap();
        let damage = self.pick(rng);
        match damage {
            Damage::OlderCopy => replace(&self.older, &self.dir),
            Damage::RemoveAll => fs::remove_dir_all(&self.dir).unwrap(),
            Damage::Remove => fs::remove_file(file).unwrap(),
            Damage::Foreign => mix_up(file, &self.peer.join(name)),
            Damage::OlderFile => mix_up(file, &self.older.join(name)),
            Damage::SwapFiles => {
                let other = &files[rng.index(files.len())];
                let (one, two) = (fs::read(file).unwrap(), fs::read(other).unwrap());
                overwrite(file, &two);
                overwrite(other, &one);
            }
            Damage::Flip | Damage::Zero | Damage::Truncate | Damage::Empty | Damage::SwapBlocks => {
                let mut bytes = fs::read(file).unwrap();
                change(rng, damage, &mut bytes);
                overwrite(file, &bytes);
            }
        }
        format!("{damage:?} of {}", name.display())
    }
}

fn mix_up(file: &Path, other: &Path) {
    if other.exists() {
        overwrite(file, &fs::read(other).unwrap());
    }
}

fn change(rng: &mut Rng, damage: Damage, bytes: &mut Vec<u8>) {
    let len = bytes.len();
    let blocks = (len as u64).div_ceil(BLOCK);
    let block = |at: u64| {
        let start = usize::try_from(at * BLOCK).unwrap();
        start..(start + usize::try_from(BLOCK).unwrap()).min(len)
    };
    match damage {
        Damage::Flip => {
            for _ in 0..1 + rng.below(16) {
                let at = rng.index(len);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
        Damage::Zero if rng.one_in(2) => bytes.fill(0),
        Damage::Zero => {
            for _ in 0..1 + rng.below(8) {
                let range = block(rng.below(blocks));
                bytes[range].fill(0);
            }
        }
        Damage::Truncate => bytes.truncate(rng.index(len)),
        Damage::SwapBlocks => {
            let (one, two) = (block(rng.below(blocks)), block(rng.below(blocks)));
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
