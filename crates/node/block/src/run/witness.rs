//! Whether a replica's directory is the one that this machine used last.
//!
//! A directory can be replaced by an older copy of itself while no process serves it. The peers
//! and the record prove flushed writes, but not writes that were only answered, and a volume with
//! a single replica has no peers. So every change that a replica answers is counted twice, in two
//! files: one in the replica's directory, which is copied and restored with it, and one outside,
//! the witness. The end of the process loses neither. The witness is mapped and needs no system
//! call. The file in the directory is written: truncating a mapped file ends the process, and with
//! it all other replicas of the node.
//!
//! ```text
//!  REPLICA/answered          boot id (16 bytes), changes answered (8 bytes), checksum (8 bytes)
//!  DIR/witness/REPLICA-ID    the same
//! ```
//!
//! A count that is missing or damaged proves nothing, least of all that the replica is old: then
//! flushes and generations decide, as after a restart of the kernel. Without the checksum it would
//! appear as a smaller count, and a single replica would be refused.
//!
//! The count in the directory grows first, so it is never behind unless the directory is older.
//! That is known within one life of the kernel: after another the files may hold anything.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use crate::checksum::crc32c;
use crate::ids::{BootId, ReplicaId};
use crate::store::Problem;
use crate::wire::Witnessed;

/// The count in the replica's directory.
pub(crate) const ANSWERED: &str = "answered";

/// Bytes of a file: a page, written in full, so that it never lacks space.
const LENGTH: usize = 4096;

/// Counts the changes that a replica answers.
#[derive(Debug)]
pub(super) struct Witness {
    counts: Option<Counts>,
    boot: BootId,
    found: Witnessed,
}

#[derive(Debug)]
struct Counts {
    own: WrittenCount,
    outside: MappedCount,
    answered: u64,
}

impl Witness {
    /// Compares the count in a replica's directory with the one in `dir`. Without files to count in
    /// the replica is served all the same, and nothing is known.
    pub(super) fn open(replica_dir: &Path, dir: &Path, replica: ReplicaId, boot: BootId) -> Self {
        let counts = match Counts::open(replica_dir, dir, replica) {
            Ok(counts) => counts,
            Err(error) => {
                tracing::warn!(%replica, %error, "changes of a replica cannot be counted");
                return Self { counts: None, boot, found: Witnessed::Unknown };
            }
        };
        let mut witness = Self { counts: Some(counts), boot, found: Witnessed::Unknown };
        witness.compare();
        witness
    }

    fn compare(&mut self) {
        let Some(counts) = &mut self.counts else { return };
        let own = counts.own.get().map(|(_, count)| count);
        let outside = counts.outside.get();
        let outside = outside.filter(|(boot, _)| *boot == self.boot).map(|(_, count)| count);
        counts.answered = own.or(outside).unwrap_or(0);
        self.found = match (own, outside) {
            (Some(own), Some(outside)) if own < outside => Witnessed::RolledBack,
            (Some(_), Some(_)) => Witnessed::Intact,
            (None, _) | (_, None) => Witnessed::Unknown,
        };
        if self.found != Witnessed::RolledBack {
            self.put();
        }
    }

    pub(super) fn found(&self) -> Witnessed {
        self.found
    }

    /// A change will be answered next.
    pub(super) fn count(&mut self) {
        if let (Some(counts), true) = (&mut self.counts, self.found != Witnessed::RolledBack) {
            counts.answered += 1;
            self.put();
        }
    }

    /// Writes both. Without the one in the directory the other would make the replica appear old.
    fn put(&mut self) {
        let Some(counts) = &self.counts else { return };
        if let Err(error) = counts.put(self.boot) {
            tracing::warn!(%error, "changes of a replica are not counted any more");
            self.counts = None;
        }
    }

    /// An engine took the replica into its in-sync set. From here on this process knows of every
    /// change that it answered, whatever could be compared when it started.
    pub(super) fn accepted(&mut self) {
        if self.found == Witnessed::Unknown {
            self.found = Witnessed::Intact;
        }
    }

    /// The replica has the same content as its peers: earlier losses do not matter any more.
    pub(super) fn rebuilt(&mut self) {
        if let (Some(counts), Witnessed::RolledBack) = (&mut self.counts, self.found) {
            let outside = counts.outside.get().map(|(_, count)| count);
            counts.answered = outside.unwrap_or(counts.answered);
            self.found = Witnessed::Intact;
            self.put();
        }
    }
}

/// Where the witness of a replica is.
pub(crate) fn witness_path(dir: &Path, replica: ReplicaId) -> PathBuf {
    dir.join("witness").join(replica.to_string())
}

impl Counts {
    fn open(replica_dir: &Path, dir: &Path, replica: ReplicaId) -> io::Result<Self> {
        let path = witness_path(dir, replica);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let outside = MappedCount::open(&path)?;
        let own = WrittenCount { file: open_page(&replica_dir.join(ANSWERED))? };
        Ok(Self { own, outside, answered: 0 })
    }

    fn put(&self, boot: BootId) -> io::Result<()> {
        self.own.put(boot, self.answered)?;
        self.outside.put(boot, self.answered);
        Ok(())
    }
}

/// A file of one page; a shorter one is filled with zeroes.
fn open_page(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    let used = file.metadata()?.len();
    if used < LENGTH as u64 {
        file.write_all_at(&[0; LENGTH][used as usize..], used)?;
    }
    Ok(file)
}

/// A boot id and a number in a file.
#[derive(Debug)]
struct WrittenCount {
    file: File,
}

impl WrittenCount {
    fn get(&self) -> Option<(BootId, u64)> {
        let mut bytes = [0; USED];
        self.file.read_exact_at(&mut bytes, 0).ok()?;
        decode(&bytes)
    }

    fn put(&self, boot: BootId, count: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(boot, count), 0)
    }
}

/// The same, mapped.
#[derive(Debug)]
struct MappedCount {
    memory: MmapRegion<()>,
}

impl MappedCount {
    fn open(path: &Path) -> io::Result<Self> {
        let memory = MmapRegion::from_file(FileOffset::new(open_page(path)?, 0), LENGTH);
        Ok(Self { memory: memory.map_err(io::Error::other)? })
    }

    fn get(&self) -> Option<(BootId, u64)> {
        let mut bytes = [0; USED];
        self.memory.as_volatile_slice().read_slice(&mut bytes, 0).ok()?;
        decode(&bytes)
    }

    fn put(&self, boot: BootId, count: u64) {
        let memory = self.memory.as_volatile_slice();
        let put = memory
            .write_obj(boot.as_u128(), 0)
            .and_then(|()| memory.write_obj(count, 16))
            .and_then(|()| memory.write_obj(sum(boot.as_u128(), count), 24));
        debug_assert!(put.is_ok(), "the page is larger than that");
    }
}

/// Bytes of a file that are used.
const USED: usize = 32;

/// Never zero, which means a file of a version without checksums.
fn sum(boot: u128, count: u64) -> u64 {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&boot.to_le_bytes());
    bytes[16..].copy_from_slice(&count.to_le_bytes());
    1 << 32 | u64::from(crc32c(&bytes))
}

fn encode(boot: BootId, count: u64) -> [u8; USED] {
    let mut bytes = [0; USED];
    bytes[..16].copy_from_slice(&boot.as_u128().to_le_bytes());
    bytes[16..24].copy_from_slice(&count.to_le_bytes());
    bytes[24..].copy_from_slice(&sum(boot.as_u128(), count).to_le_bytes());
    bytes
}

/// The boot id and the count in a file, unless it is blank or damaged.
fn decode(bytes: &[u8; USED]) -> Option<(BootId, u64)> {
    let number = |at: usize| {
        let word = bytes[at..at + 8].try_into().expect("a word has eight bytes");
        u64::from_le_bytes(word)
    };
    let boot = u128::from(number(0)) | u128::from(number(8)) << 64;
    let (count, found) = (number(16), number(24));
    // The process may have been killed between the count and its checksum.
    let fits = found == sum(boot, count)
        || count.checked_sub(1).is_some_and(|before| found == sum(boot, before))
        || (found == 0 && boot != 0);
    fits.then_some((BootId::from_u128(boot), count))
}

/// Whether the count in the directory of a replica that was served is missing or damaged.
pub fn check_answered(replica_dir: &Path) -> Option<Problem> {
    let path = replica_dir.join(ANSWERED);
    let mut bytes = [0; USED];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    match read.is_ok() && decode(&bytes).is_some() {
        true => None,
        false => Some(Problem::Answered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_whose_file_is_truncated_while_it_is_open_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let replica_dir = dir.path().join("r");
        std::fs::create_dir(&replica_dir).unwrap();
        let (replica, boot) = (ReplicaId::random(), BootId::random());
        let open = || Witness::open(&replica_dir, dir.path(), replica, boot);
        let mut witness = open();
        witness.count();
        File::create(replica_dir.join(ANSWERED)).unwrap();
        witness.count();
        assert!(check_answered(&replica_dir).is_none());
        assert_eq!(decode_file(&replica_dir), Some(2));
        drop(witness);
        assert_eq!(open().found(), Witnessed::Intact);
    }

    fn decode_file(replica_dir: &Path) -> Option<u64> {
        let bytes = std::fs::read(replica_dir.join(ANSWERED)).ok()?;
        decode(bytes.first_chunk()?).map(|(_, count)| count)
    }

    #[test]
    fn a_directory_that_is_replaced_by_an_older_copy_is_found_until_it_is_rebuilt() {
        let dir = tempfile::tempdir().unwrap();
        let replica_dir = dir.path().join("r");
        std::fs::create_dir(&replica_dir).unwrap();
        let (replica, boot) = (ReplicaId::random(), BootId::random());
        let open = |boot| Witness::open(&replica_dir, dir.path(), replica, boot);
        let mut first = open(boot);
        assert_eq!(first.found(), Witnessed::Unknown, "it is new");
        first.accepted();
        assert_eq!(first.found(), Witnessed::Intact, "this process knows every change since");
        first.count();
        drop(first);
        let copied = std::fs::read(replica_dir.join(ANSWERED)).unwrap();
        let mut second = open(boot);
        assert_eq!(second.found(), Witnessed::Intact);
        second.count();
        drop(second);
        std::fs::write(replica_dir.join(ANSWERED), &copied).unwrap();
        assert_eq!(open(boot).found(), Witnessed::RolledBack);
        let mut third = open(boot);
        third.count();
        third.accepted();
        assert_eq!(open(boot).found(), Witnessed::RolledBack);
        third.rebuilt();
        assert_eq!((third.found(), open(boot).found()), (Witnessed::Intact, Witnessed::Intact));
        assert_eq!(open(BootId::random()).found(), Witnessed::Unknown, "another kernel");
    }

    #[test]
    fn a_count_that_is_lost_or_damaged_does_not_make_a_replica_old() {
        let path = |dir: &Path| dir.join("r").join(ANSWERED);
        type Damage = (&'static str, fn(&Path));
        let damages: [Damage; 5] = [
            ("removed", |file| std::fs::remove_file(file).unwrap()),
            ("zeroed", |file| std::fs::write(file, [0; LENGTH]).unwrap()),
            ("truncated", |file| std::fs::write(file, []).unwrap()),
            ("a smaller count", |file| change(file, 16)),
            ("another checksum", |file| change(file, 25)),
        ];
        fn change(file: &Path, at: usize) {
            let mut bytes = std::fs::read(file).unwrap();
            bytes[at] ^= 2;
            std::fs::write(file, bytes).unwrap();
        }
        for (what, damage) in damages {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("r")).unwrap();
            let (replica, boot) = (ReplicaId::random(), BootId::random());
            let open = || Witness::open(&dir.path().join("r"), dir.path(), replica, boot);
            let mut witness = open();
            (0..3).for_each(|_| witness.count());
            drop(witness);
            assert_eq!(check_answered(&dir.path().join("r")), None, "{what}");
            damage(&path(dir.path()));
            assert_eq!(check_answered(&dir.path().join("r")), Some(Problem::Answered), "{what}");
            assert_eq!(open().found(), Witnessed::Unknown, "{what}");
            assert_eq!(open().found(), Witnessed::Intact, "{what}: it counts again");
            assert_eq!(check_answered(&dir.path().join("r")), None, "{what}");
        }
    }

    #[test]
    fn a_count_is_read_as_it_was_written_also_without_a_checksum_or_when_interrupted() {
        let bytes = |boot: u128, count: u64, sum: u64| {
            let mut bytes = [0; USED];
            bytes[..16].copy_from_slice(&boot.to_le_bytes());
            bytes[16..24].copy_from_slice(&count.to_le_bytes());
            bytes[24..].copy_from_slice(&sum.to_le_bytes());
            bytes
        };
        for (what, boot, count, sum, expected) in [
            ("written", 7, 9, sum(7, 9), Some(9)),
            ("interrupted", 7, 9, sum(7, 8), Some(9)),
            ("of a version before", 7, 9, 0, Some(9)),
            ("blank", 0, 0, 0, None),
            ("another count", 7, 9, sum(7, 10), None),
            ("another boot", 8, 9, sum(7, 9), None),
        ] {
            let found = decode(&bytes(boot, count, sum)).map(|(_, count)| count);
            assert_eq!(found, expected, "{what}");
        }
    }
}
