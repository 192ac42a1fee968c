//! Replicas of this node: made, opened, removed.
//!
//! A replica is added to the state when its files are complete, and its files are removed after it
//! has left the state: after a crash in between they are created or removed again.

use std::io;
use std::path::{Path, PathBuf};

use super::base::OnBaseError;
use super::protocol::{NewReplica, ReplicaState, WorkProgress};
use super::serve::Refused;
use super::state::Kept;
use super::{Inner, Shared, Thing};
use crate::ids::{ReplicaId, SnapshotId};
use crate::run::witness::{ANSWERED, witness_path};
use crate::run::{NotServed, OpenReplica, chain};
use crate::store::files::Directory;
use crate::store::layer::Base;
use crate::store::{CreateError, CreateOptions, OpenError, RemoveError, ReplicaFault, read_super};

/// Why a replica was not made, opened or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplicaError {
    #[error("replica {replica} is being changed; try again")]
    Busy { replica: ReplicaId },
    #[error("dir {path:?} must be absolute")]
    Relative { path: PathBuf },
    #[error("replica {replica} exists already, in {dir}, and is another one")]
    Exists { replica: ReplicaId, dir: PathBuf },
    #[error("dir {dir} holds replica {found}")]
    Taken { dir: PathBuf, found: ReplicaId },
    #[error(
        "replica {replica} is used by volume {volume}, which is attached here; detach that first"
    )]
    Used { replica: ReplicaId, volume: crate::ids::VolumeId },
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot make the replica in {dir}")]
    Create { dir: PathBuf, source: CreateError },
    #[error("cannot open the replica in {dir}")]
    Open { dir: PathBuf, source: OpenError },
    #[error("cannot remove the replica in {dir}")]
    Remove { dir: PathBuf, source: RemoveError },
    #[error("there is no replica in {dir} any more")]
    Lost { dir: PathBuf },
    #[error(transparent)]
    Base(#[from] OnBaseError),
    #[error(
        "snapshot {snapshot} of replica {replica} is the base of replica {by} in {path}, which is \
         being made whole; try again"
    )]
    Pinned { replica: ReplicaId, snapshot: SnapshotId, by: ReplicaId, path: PathBuf },
    #[error("the storage process is ending")]
    Ending,
}

impl ReplicaError {
    /// The fault of the replica's files, if there is one.
    fn fault(&self) -> Option<ReplicaFault> {
        match self {
            Self::Open { source, .. } => Some(source.fault()),
            Self::Taken { .. } => Some(ReplicaFault::Damaged),
            Self::Lost { .. } => Some(ReplicaFault::Missing),
            _ => None,
        }
    }
}

impl Shared {
    /// Opens all replicas that the state names. A replica that cannot be opened is reported in the
    /// status, and tried again with the next request to create it.
    pub(super) fn open_replicas(&self) {
        let kept: Vec<(ReplicaId, PathBuf)> = {
            let inner = self.inner();
            inner.state.replicas.iter().map(|(id, kept)| (*id, self.place(*id, kept))).collect()
        };
        // Each waits for its disk most of the time.
        const AT_ONCE: usize = 8;
        for some in kept.chunks(AT_ONCE) {
            std::thread::scope(|scope| {
                for (replica, dir) in some {
                    scope.spawn(move || {
                        if let Err(error) = self.open_replica(*replica, dir) {
                            let error = chain(&error);
                            tracing::error!(%replica, %error, "cannot serve replica");
                        }
                    });
                }
            });
        }
        self.remove_leftovers();
    }

    /// The directory of a replica.
    pub(super) fn place(&self, replica: ReplicaId, kept: &Kept) -> PathBuf {
        let own = || self.dir.join("replicas").join(replica.to_string());
        kept.dir.clone().unwrap_or_else(own)
    }

    fn open_replica(&self, replica: ReplicaId, dir: &Path) -> Result<(), ReplicaError> {
        let opened = self.try_open(replica, dir);
        let result = opened.as_ref().map(|_| ()).map_err(not_served);
        self.inner().replicas.insert(replica, result);
        opened
    }

    fn try_open(&self, replica: ReplicaId, dir: &Path) -> Result<(), ReplicaError> {
        let opened = OpenReplica::open(dir, &self.dir, self.boot)
            .map_err(|source| ReplicaError::Open { dir: dir.to_owned(), source })?;
        if opened.replica() != replica {
            let found = opened.replica();
            return Err(ReplicaError::Taken { dir: dir.to_owned(), found });
        }
        let served = self.handle.with(move |shard| shard.serve_replica(opened));
        served.map(drop).ok_or(ReplicaError::Ending)
    }

    pub(super) fn create_replica(&self, new: &NewReplica) -> Result<(), Refused> {
        let replica = new.replica;
        let _busy = self.busy(Thing::Replica(replica)).ok_or(ReplicaError::Busy { replica })?;
        if let Some(path) = new.dir.as_ref().filter(|path| path.is_relative()) {
            return Err(ReplicaError::Relative { path: path.clone() }.into());
        }
        let kept = Kept { volume: new.volume, dir: new.dir.clone() };
        let dir = self.place(replica, &kept);
        let (known, is_served) = {
            let inner = self.inner();
            let found = inner.state.replicas.get(&replica);
            if let Some(found) = found.filter(|found| **found != kept) {
                let dir = self.place(replica, found);
                return Err(ReplicaError::Exists { replica, dir }.into());
            }
            (found.is_some(), matches!(inner.replicas.get(&replica), Some(Ok(()))))
        };
        if is_served {
            // One that could not be opened again is tried anew.
            let fault = self.handle.with(move |shard| shard.replica_fault(replica)).flatten();
            if fault.is_none() {
                return Ok(());
            }
            self.handle.with(move |shard| shard.drop_replica(replica));
        }
        if !known && !is_made(&dir, new)? {
            if new.existing {
                return Err(self.note_lost(replica, kept, dir)?.into());
            }
            let base = self.prepare_base(new, &dir).map_err(ReplicaError::Base)?;
            make(&dir, new, base)?;
        }
        self.open_replica(replica, &dir)?;
        let mut inner = self.inner();
        inner.state.replicas.insert(replica, kept);
        Ok(self.save(&inner)?)
    }

    /// The status reports a replica whose files are gone, until it is removed.
    fn note_lost(
        &self,
        replica: ReplicaId,
        kept: Kept,
        dir: PathBuf,
    ) -> Result<ReplicaError, ReplicaError> {
        let lost = ReplicaError::Lost { dir };
        let mut inner = self.inner();
        inner.replicas.insert(replica, Err(not_served(&lost)));
        inner.state.replicas.insert(replica, kept);
        self.save(&inner)?;
        Ok(lost)
    }

    pub(super) fn remove_replica(&self, replica: ReplicaId) -> Result<(), Refused> {
        let _busy = self.busy(Thing::Replica(replica)).ok_or(ReplicaError::Busy { replica })?;
        let kept = self.inner().state.replicas.get(&replica).cloned();
        let Some(kept) = kept else { return Ok(()) };
        let dir = self.place(replica, &kept);
        // A replica that a clone needs stays.
        if let Some((snapshot, by, path)) = self.pinned_by(replica, &dir) {
            return Err(ReplicaError::Pinned { replica, snapshot, by, path }.into());
        }
        let base = read_super(&mut Directory::new(&dir)).ok().and_then(|meta| meta.body.base);
        {
            let mut inner = self.inner();
            let uses = |it: &&super::Attachment| {
                it.replicas.iter().any(|used| used.id == replica && used.at.is_none())
            };
            if let Some(used) = inner.state.volumes.values().find(uses) {
                return Err(ReplicaError::Used { replica, volume: used.volume }.into());
            }
            self.handle.with(move |shard| shard.drop_replica(replica));
            inner.replicas.remove(&replica);
            inner.state.replicas.remove(&replica);
            if inner.state.replicas.values().all(|it| it.volume != kept.volume) {
                inner.state.grants.remove(&kept.volume);
            }
            inner.state.replica_grants.remove(replica);
            self.apply_grants(&inner);
            self.save(&inner)?;
        }
        remove(&dir)?;
        let _ = std::fs::remove_file(witness_path(&self.dir, replica));
        self.release_base(replica, base.as_ref());
        Ok(())
    }

    /// Removes files that a crash left in our own directory, of replicas that were deleted or
    /// never completed.
    fn remove_leftovers(&self) {
        let Ok(entries) = std::fs::read_dir(self.dir.join("replicas")) else { return };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<ReplicaId>().ok()) else {
                continue;
            };
            if !self.inner().state.replicas.contains_key(&id)
                && let Err(error) = remove(&entry.path())
            {
                let error = chain(&error);
                tracing::warn!(replica = %id, %error, "cannot remove what is left of a replica");
            }
        }
    }

    pub(super) fn save(&self, inner: &Inner) -> Result<(), ReplicaError> {
        let path = self.dir.join("state.json");
        inner.state.save(&self.dir).map_err(|source| ReplicaError::Io { path, source })
    }

    pub(super) fn replica_states(&self) -> Vec<ReplicaState> {
        let known: Vec<_> = {
            let inner = self.inner();
            let of = |(id, kept): (&ReplicaId, &Kept)| {
                let failed = inner.replicas.get(id).and_then(|it| it.clone().err());
                (*id, kept.clone(), failed, inner.state.replica_grants.get(*id).cloned())
            };
            inner.state.replicas.iter().map(of).collect()
        };
        let ids: Vec<ReplicaId> = known.iter().map(|(id, ..)| *id).collect();
        let usage = self.handle.with(move |shard| {
            let status = |id: &ReplicaId| (shard.replica_status(*id), shard.replica_fault(*id));
            ids.iter().map(status).collect::<Vec<_>>()
        });
        let usage = usage.unwrap_or_else(|| vec![(None, None); known.len()]);
        known
            .into_iter()
            .zip(usage)
            .map(|((replica, kept, failed, grant), (usage, fault))| {
                (replica, kept, failed.or(fault), usage, grant)
            })
            .map(|(replica, kept, failed, usage, grant)| ReplicaState {
                grant,
                replica,
                volume: kept.volume,
                dir: self.place(replica, &kept),
                used_bytes: usage.as_ref().map(|it| it.unique_bytes),
                head_bytes: usage.as_ref().map(|it| it.head_bytes),
                snapshot_bytes: usage
                    .iter()
                    .flat_map(|it| &it.snapshots)
                    .map(|it| (it.info.id, it.bytes))
                    .collect(),
                work: usage.and_then(|it| it.work).map(|work| WorkProgress {
                    done: work.done_regions,
                    total: work.total_regions,
                }),
                fault: failed.as_ref().and_then(|it| it.fault),
                error: failed.map(|it| it.why),
            })
            .collect()
    }
}

fn not_served(error: &ReplicaError) -> NotServed {
    NotServed { why: chain(error), fault: error.fault() }
}

/// Whether the files of a replica are there.
fn is_made(dir: &Path, new: &NewReplica) -> Result<bool, ReplicaError> {
    match read_super(&mut Directory::new(dir)) {
        Ok(found) if found.replica == new.replica => Ok(true),
        Ok(found) => Err(ReplicaError::Taken { dir: dir.to_owned(), found: found.replica }),
        Err(_) => Ok(false),
    }
}

/// Makes the files of a replica.
fn make(dir: &Path, new: &NewReplica, base: Option<Base>) -> Result<(), ReplicaError> {
    let fail = |source| ReplicaError::Io { path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(fail)?;
    // Without a super block it is what a crash left.
    remove(dir)?;
    std::fs::create_dir_all(dir).map_err(fail)?;
    let mut options = CreateOptions::new(new.volume, new.replica, new.size);
    options.base = base;
    let made = crate::store::create(&mut Directory::new(dir), &options);
    made.map_err(|source| ReplicaError::Create { dir: dir.to_owned(), source })
}

fn remove(dir: &Path) -> Result<(), ReplicaError> {
    if !dir.exists() {
        return Ok(());
    }
    let removed = crate::store::remove(&mut Directory::new(dir));
    removed.map_err(|source| ReplicaError::Remove { dir: dir.to_owned(), source })?;
    let _ = std::fs::remove_file(dir.join(ANSWERED));
    // Fails if another program keeps a file in it, which stays then.
    let _ = std::fs::remove_dir(dir);
    Ok(())
}
