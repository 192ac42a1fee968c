//! Whether a replica's directory is the one that this machine used last.
//!
//! A directory can be replaced by an older copy of itself while nobody serves it. What was flushed
//! is proven by the peers and the record; what was only answered is not, and a volume with a single
//! replica has no peers. So every change that a replica answers is counted twice, in memory that
//! is mapped from two files: one in the replica's directory, which is copied and restored with it,
//! and one outside, the witness. No system call is needed, and the end of the process loses neither.
//!
//! ```text
//!  REPLICA/answered          boot id (16 bytes), changes answered (8 bytes)
//!  DIR/witness/REPLICA-ID    the same
//! ```
//!
//! The count in the directory grows first, so it is never behind unless the directory is older.
//! That is known within one life of the kernel: after another the files may hold anything.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use vm_memory::{Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use crate::ids::{BootId, ReplicaId};
use crate::wire::Witnessed;

/// The count in the replica's directory.
pub(crate) const ANSWERED: &str = "answered";

/// Bytes of a file: a page, written in full, so that the mapping never lacks space.
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
    own: Counter,
    outside: Counter,
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
        let (boot, outside) = counts.outside.get();
        self.found = match (boot == self.boot, counts.answered < outside) {
            (false, _) => Witnessed::Unknown,
            (true, true) => Witnessed::RolledBack,
            (true, false) => Witnessed::Intact,
        };
        if self.found != Witnessed::RolledBack {
            counts.put(self.boot);
        }
    }

    pub(super) fn found(&self) -> Witnessed {
        self.found
    }

    /// A change is about to be answered.
    pub(super) fn count(&mut self) {
        if let (Some(counts), true) = (&mut self.counts, self.found != Witnessed::RolledBack) {
            counts.answered += 1;
            counts.put(self.boot);
        }
    }

    /// The replica has everything that its peers have: what it lacked does not matter any more.
    pub(super) fn rebuilt(&mut self) {
        if let (Some(counts), Witnessed::RolledBack) = (&mut self.counts, self.found) {
            counts.answered = counts.outside.get().1;
            counts.put(self.boot);
            self.found = Witnessed::Intact;
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
        let outside = Counter::open(&path)?;
        let own = Counter::open(&replica_dir.join(ANSWERED))?;
        let answered = own.get().1;
        Ok(Self { own, outside, answered })
    }

    fn put(&self, boot: BootId) {
        self.own.put(boot, self.answered);
        self.outside.put(boot, self.answered);
    }
}

/// A boot id and a number in a file that is mapped.
#[derive(Debug)]
struct Counter {
    memory: MmapRegion<()>,
}

impl Counter {
    fn open(path: &Path) -> io::Result<Self> {
        let options =
            File::options().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = options?;
        if file.metadata()?.len() < LENGTH as u64 {
            file.write_all(&[0; LENGTH])?;
        }
        let memory = MmapRegion::from_file(FileOffset::new(file, 0), LENGTH);
        Ok(Self { memory: memory.map_err(io::Error::other)? })
    }

    fn get(&self) -> (BootId, u64) {
        let memory = self.memory.as_volatile_slice();
        let boot: u128 = memory.read_obj(0).unwrap_or_default();
        (BootId::from_u128(boot), memory.read_obj(16).unwrap_or_default())
    }

    fn put(&self, boot: BootId, count: u64) {
        let memory = self.memory.as_volatile_slice();
        let put = memory.write_obj(boot.as_u128(), 0).and_then(|()| memory.write_obj(count, 16));
        debug_assert!(put.is_ok(), "the page is larger than that");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_replaced_by_an_older_copy_is_found_until_it_is_rebuilt() {
        let dir = tempfile::tempdir().unwrap();
        let replica_dir = dir.path().join("r");
        std::fs::create_dir(&replica_dir).unwrap();
        let (replica, boot) = (ReplicaId::random(), BootId::random());
        let open = |boot| Witness::open(&replica_dir, dir.path(), replica, boot);
        let mut first = open(boot);
        assert_eq!(first.found(), Witnessed::Unknown, "it is new");
        first.count();
        drop(first);
        let copied = std::fs::read(replica_dir.join(ANSWERED)).unwrap();
        let mut second = open(boot);
        assert_eq!(second.found(), Witnessed::Intact);
        second.count();
        drop(second);
        std::fs::write(replica_dir.join(ANSWERED), &copied).unwrap();
        assert_eq!(open(boot).found(), Witnessed::RolledBack);
        std::fs::remove_file(replica_dir.join(ANSWERED)).unwrap();
        let mut third = open(boot);
        assert_eq!(third.found(), Witnessed::RolledBack, "it has not counted at all");
        third.count();
        assert_eq!(open(boot).found(), Witnessed::RolledBack);
        third.rebuilt();
        assert_eq!((third.found(), open(boot).found()), (Witnessed::Intact, Witnessed::Intact));
        assert_eq!(open(BootId::random()).found(), Witnessed::Unknown, "another kernel");
    }
}
