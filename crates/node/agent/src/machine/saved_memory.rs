//! The memory of guests that was saved with snapshots: one file for each instant, and beside it
//! the machine whose memory it is. A file is written and read for that machine only.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base::Chain;
use hci::together::{SnapshotGroup, is_instant};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::object::Vmi;

const FOLDER: &str = "memory";

/// The machine whose memory a file has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryOwner {
    namespace: String,
    machine: String,
    /// The uid of the VirtualMachine. Unknown of files that earlier versions wrote.
    uid: Option<String>,
}

impl MemoryOwner {
    /// Nothing for an instance that no VirtualMachine controls: nothing restores its memory.
    pub(crate) fn of(vmi: &Vmi) -> Option<Self> {
        Some(Self {
            namespace: vmi.namespace.clone(),
            machine: vmi.machine.clone()?,
            uid: Some(vmi.machine_uid.clone()?),
        })
    }

    pub(crate) fn of_group(group: &SnapshotGroup) -> Self {
        let (namespace, machine) = (group.namespace.clone(), group.machine.clone());
        Self { namespace, machine, uid: None }
    }

    fn is(&self, other: &Self) -> bool {
        let is_uid = self.uid.is_none() || other.uid.is_none() || self.uid == other.uid;
        self.namespace == other.namespace && self.machine == other.machine && is_uid
    }
}

/// Why memory cannot be saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    #[error("{instant:?} is not the UUID of a snapshot")]
    Instant { instant: String },
    #[error("no virtual machine controls the instance")]
    Unowned,
    #[error("{} has the memory of another machine", path.display())]
    Foreign { path: PathBuf },
    #[error("cannot make the file {}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The file for the memory of a machine at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedMemory {
    path: PathBuf,
    owner: MemoryOwner,
}

impl SavedMemory {
    pub(crate) fn new(agent_dir: &Path, instant: &str, vmi: &Vmi) -> Result<Self, SaveError> {
        let path = file(agent_dir, instant);
        let path = path.ok_or_else(|| SaveError::Instant { instant: instant.to_owned() })?;
        Ok(Self { path, owner: MemoryOwner::of(vmi).ok_or(SaveError::Unowned)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty file that is not taken for a complete one. Nothing that is there is opened.
    pub(crate) fn begin(&self) -> Result<File, SaveError> {
        let failed = |source| SaveError::File { path: self.part(), source };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        if owner(&self.path).is_some_and(|known| !known.is(&self.owner)) {
            return Err(SaveError::Foreign { path: self.path.clone() });
        }
        record(&self.path, &self.owner).map_err(failed)?;
        self.discard().map_err(failed)?;
        // A new file only: a link in its place is not followed.
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600).open(self.part()).map_err(failed)
    }

    /// Removes what was begun.
    pub(crate) fn discard(&self) -> io::Result<()> {
        match std::fs::remove_file(self.part()) {
            Err(failure) if failure.kind() != io::ErrorKind::NotFound => Err(failure),
            _ => Ok(()),
        }
    }

    /// Makes what was begun the memory of the instant.
    pub(crate) fn complete(&self) -> Result<(), SaveError> {
        let kept = || {
            File::open(self.part())?.sync_all()?;
            std::fs::rename(self.part(), &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        kept().map_err(|source| SaveError::File { path: self.path.clone(), source })
    }

    fn part(&self) -> PathBuf {
        self.path.with_extension("part")
    }
}

/// Nothing for a text that is not the name of an instant.
fn file(agent_dir: &Path, instant: &str) -> Option<PathBuf> {
    is_instant(instant).then(|| agent_dir.join(FOLDER).join(instant))
}

fn owner_file(memory: &Path) -> PathBuf {
    memory.with_extension("json")
}

fn owner(memory: &Path) -> Option<MemoryOwner> {
    let bytes = std::fs::read(owner_file(memory)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn record(memory: &Path, owner: &MemoryOwner) -> io::Result<()> {
    let (folder, name) = (memory.parent(), owner_file(memory));
    let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    qemu::RunDir::new(folder.unwrap_or(Path::new("/"))).store(&name, owner)
}

/// The saved memory from which a machine is to resume, if it is here and the machine's own.
pub(crate) fn source(vmi: &Vmi, instant: &str, agent_dir: &Path) -> Option<PathBuf> {
    let path = file(agent_dir, instant).filter(|path| path.is_file())?;
    let is_own = match (owner(&path), MemoryOwner::of(vmi)) {
        (Some(owner), Some(own)) => owner.is(&own),
        _ => false,
    };
    if !is_own {
        let (namespace, name) = (&vmi.namespace, &vmi.name);
        warn!(namespace, name, instant, "saved memory of another machine is not loaded");
    }
    is_own.then_some(path)
}

/// Removes the memory of all other instants, and records whose memory it is for files that an
/// earlier version wrote. A few files in one folder: not worth a thread.
pub(crate) fn sweep(agent_dir: &Path, kept: &BTreeMap<String, Option<MemoryOwner>>) {
    let entries = std::fs::read_dir(agent_dir.join(FOLDER)).into_iter().flatten().flatten();
    for entry in entries {
        let path = entry.path();
        let instant = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let done = match kept.get(&instant) {
            Some(Some(group)) if path.extension().is_none() && owner(&path).is_none() => {
                record(&path, group)
            }
            Some(_) => continue,
            None => std::fs::remove_file(&path)
                .inspect(|()| info!(instant, "saved memory of snapshot removed")),
        };
        if let Err(failure) = done {
            warn!(instant, error = %Chain(&failure), "cannot sweep the saved memory of a snapshot");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::fixture::vmi;

    const INSTANT: &str = "5f0c9d3a-1b2c-4d5e-8f90-112233445566";

    fn machine(namespace: &str, name: &str, uid: &str) -> Vmi {
        let mut vmi = vmi(json!({"domain": {}}));
        (vmi.namespace, vmi.name) = (namespace.into(), name.into());
        (vmi.machine, vmi.machine_uid) = (Some(name.into()), Some(uid.into()));
        vmi
    }

    fn saved(dir: &Path, vmi: &Vmi) {
        let memory = SavedMemory::new(dir, INSTANT, vmi).unwrap();
        memory.begin().unwrap();
        memory.complete().unwrap();
    }

    #[test]
    fn the_memory_of_another_machine_is_neither_loaded_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let own = machine("victim", "db", "1");
        saved(dir.path(), &own);
        assert!(source(&own, INSTANT, dir.path()).is_some());
        let mut unowned = machine("victim", "db", "1");
        unowned.machine = None;
        for other in [
            machine("team", "db", "1"),
            machine("victim", "web", "1"),
            machine("victim", "db", "2"),
            unowned,
        ] {
            assert_eq!(source(&other, INSTANT, dir.path()), None, "{other:?}");
            let begun = SavedMemory::new(dir.path(), INSTANT, &other).and_then(|it| it.begin());
            assert!(matches!(begun, Err(SaveError::Foreign { .. } | SaveError::Unowned)));
        }
        assert!(source(&own, INSTANT, dir.path()).is_some());
    }

    #[test]
    fn an_instant_is_no_path() {
        let (dir, vmi) = (tempfile::tempdir().unwrap(), machine("team", "vm", "1"));
        let target = dir.path().join("target");
        std::fs::write(&target, "secret").unwrap();
        for instant in [target.to_str().unwrap(), "../target", "target", ""] {
            let refused = SavedMemory::new(dir.path(), instant, &vmi).unwrap_err();
            assert!(matches!(refused, SaveError::Instant { .. }), "{instant}");
            assert_eq!(source(&vmi, instant, dir.path()), None, "{instant}");
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"secret");
    }

    #[test]
    fn links_in_the_way_are_not_followed() {
        let (dir, vmi) = (tempfile::tempdir().unwrap(), machine("team", "vm", "1"));
        let target = dir.path().join("target");
        std::fs::write(&target, "secret").unwrap();
        let memory = SavedMemory::new(dir.path(), INSTANT, &vmi).unwrap();
        std::fs::create_dir(dir.path().join(FOLDER)).unwrap();
        std::os::unix::fs::symlink(&target, memory.part()).unwrap();
        memory.begin().unwrap();
        memory.complete().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"secret");
    }

    #[test]
    fn memory_goes_with_its_snapshot_and_older_memory_gets_its_owner() {
        let (dir, own) = (tempfile::tempdir().unwrap(), machine("team", "vm", "1"));
        saved(dir.path(), &own);
        let path = file(dir.path(), INSTANT).unwrap();
        std::fs::remove_file(owner_file(&path)).unwrap();
        assert_eq!(source(&own, INSTANT, dir.path()), None);
        // Two groups that claim one instant.
        sweep(dir.path(), &BTreeMap::from([(INSTANT.to_owned(), None)]));
        assert_eq!(source(&own, INSTANT, dir.path()), None);
        let group = SnapshotGroup {
            instant: INSTANT.into(),
            count: 1,
            namespace: "team".into(),
            machine: "vm".into(),
            memory: true,
        };
        let kept = BTreeMap::from([(INSTANT.to_owned(), Some(MemoryOwner::of_group(&group)))]);
        sweep(dir.path(), &kept);
        assert!(source(&own, INSTANT, dir.path()).is_some());
        assert_eq!(source(&machine("team", "other", "2"), INSTANT, dir.path()), None);
        sweep(dir.path(), &BTreeMap::new());
        assert_eq!(std::fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 0);
    }
}
