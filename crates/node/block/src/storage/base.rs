//! Replicas that lie on something: a snapshot of another replica here, or an image.
//!
//! A snapshot is pinned before a clone is made on it, and unpinned after the clone is deleted. A
//! crash in between leaves an unused pin: it is found when it prevents an operation.

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::protocol::{BaseOf, NewReplica};
use super::{Shared, Thing};
use crate::ids::{ReplicaId, SnapshotId};
use crate::store::files::Directory;
use crate::store::layer::Base;
use crate::store::{
    BaseError, DirectoryBases, Pin, Request, RequestError, describe_image, read_super,
};

/// Why a replica cannot lie on something.
#[derive(Debug, thiserror::Error)]
pub(super) enum OnBaseError {
    #[error("base.snapshot: replica {replica} is not on this node")]
    NoReplica { replica: ReplicaId },
    #[error("base.snapshot: replica {replica} has no snapshot {snapshot:?}")]
    NoSnapshot { replica: ReplicaId, snapshot: String },
    #[error("base.image: {path:?} must be absolute")]
    Relative { path: PathBuf },
    #[error("base.image cannot be used")]
    Image { source: BaseError },
    #[error("cannot keep the snapshot for the clone")]
    Pin { source: RequestError },
    #[error("the storage process is ending")]
    Ending,
}

impl Shared {
    /// The base of a new replica, pinned from now on.
    pub(super) fn prepare_base(
        &self,
        new: &NewReplica,
        dir: &Path,
    ) -> Result<Option<Base>, OnBaseError> {
        let (replica, name) = match &new.base {
            None => return Ok(None),
            Some(BaseOf::Image { path }) => return image(path).map(Some),
            Some(BaseOf::Snapshot { replica, snapshot }) => (*replica, snapshot),
        };
        let kept = self.inner().state.replicas.get(&replica).cloned();
        let kept = kept.ok_or(OnBaseError::NoReplica { replica })?;
        let source = self.place(replica, &kept);
        let missing = || OnBaseError::NoSnapshot { replica, snapshot: name.clone() };
        let meta = read_super(&mut Directory::new(&source)).map_err(|_| missing())?;
        let layers = meta.body.layers.snapshots().filter(|layer| !layer.removed);
        let infos = layers.filter_map(|layer| layer.snapshot.as_ref());
        let found = infos.into_iter().find(|it| it.name == *name || it.id.to_string() == *name);
        let snapshot = found.map(|it| it.id).ok_or_else(missing)?;
        let path = dir.display().to_string();
        let pin = Pin { volume: new.volume, replica: new.replica, path };
        self.ask_replica(replica, Request::Pin { snapshot, pin })?;
        let path = source.display().to_string();
        Ok(Some(Base::Replica { path, volume: kept.volume, replica, snapshot }))
    }

    /// A clone was deleted; its base need not be retained for it.
    pub(super) fn release_base(&self, clone: ReplicaId, base: Option<&Base>) {
        let Some(Base::Replica { replica, .. }) = base else { return };
        if let Err(error) = self.ask_replica(*replica, Request::Unpin { replica: clone }) {
            tracing::warn!(%replica, %clone, %error, "snapshot is still retained for a deleted clone");
        }
    }

    /// Returns a clone that needs a replica, and makes it copy the data it needs, after which it
    /// depends on the replica no more. Pins for other clones are released.
    pub(super) fn pinned_by(
        &self,
        replica: ReplicaId,
        dir: &Path,
    ) -> Option<(SnapshotId, ReplicaId, PathBuf)> {
        let meta = read_super(&mut Directory::new(dir)).ok()?;
        for pin in &meta.body.pins {
            let (by, path) = (pin.by.replica, PathBuf::from(&pin.by.path));
            let is_being_made = self.inner().busy.contains(&Thing::Replica(by));
            let clone = read_super(&mut Directory::new(&path)).ok().filter(|it| it.replica == by);
            let lies_on =
                |base: &Base| matches!(base, Base::Replica { replica: it, .. } if *it == replica);
            if is_being_made || clone.is_some_and(|it| it.body.base.as_ref().is_some_and(lies_on)) {
                if let Err(error) = self.ask_replica(by, Request::Hydrate) {
                    tracing::info!(replica = %by, %error, "cannot flatten clone now");
                }
                return Some((pin.snapshot, by, path));
            }
            let _ = self.ask_replica(replica, Request::Unpin { replica: by });
        }
        None
    }

    fn ask_replica(&self, replica: ReplicaId, request: Request) -> Result<(), OnBaseError> {
        let (answer, answered) = mpsc::channel();
        self.handle.with(move |shard| shard.ask_replica(replica, request, answer));
        let result = answered.recv().map_err(|_| OnBaseError::Ending)?;
        result.map(drop).map_err(|source| OnBaseError::Pin { source })
    }
}

fn image(path: &Path) -> Result<Base, OnBaseError> {
    if path.is_relative() {
        return Err(OnBaseError::Relative { path: path.to_owned() });
    }
    let described = describe_image(&mut DirectoryBases::default(), &path.display().to_string());
    described.map_err(|source| OnBaseError::Image { source })
}
