//! Declaring one replica to be the truth, when those that are in sync are lost.
//!
//! An act of a person and of nobody else: what only the others have is gone with it. The record
//! keeps that it happened.

use std::path::Path;

use super::description::Description;
use super::heir::lock_directory;
use super::{LabError, open_record};
use crate::ids::ReplicaId;
use crate::repl::control::ControlPlane as _;
use crate::store::files::Directory;
use crate::store::{OpenError, read_super};

/// What became of the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    pub kept: ReplicaId,
    /// Were in sync, and have to learn what `kept` has.
    pub given_up: Vec<ReplicaId>,
}

/// Makes the replica at a place the only one in sync of a volume that nobody serves. Others that
/// are in sync and can be read are given up with `force` only.
pub fn salvage(dir: &Path, index: usize, force: bool) -> Result<Salvaged, LabError> {
    let io = |source| LabError::Io { path: dir.to_owned(), source };
    let dir = dir.canonicalize().map_err(io)?;
    let _lock = lock_directory(&dir)?;
    let description = Description::load(&dir)?;
    let count = description.replicas.len();
    let found = description.replicas.get(index).copied();
    let kept = found.ok_or(LabError::NoReplica { index, count })?;
    look(&dir, index, kept)?;
    let control = open_record(&dir, &description)?;
    let fail = |source| LabError::Record { source };
    let now = control.read().map_err(fail)?;
    let given_up: Vec<ReplicaId> =
        now.record.isr.iter().copied().filter(|it| *it != kept).collect();
    if given_up.is_empty() && now.record.isr.contains(&kept) {
        return Err(LabError::NothingToSalvage { index });
    }
    let is_live =
        |(at, id): &(usize, &ReplicaId)| given_up.contains(id) && look(&dir, *at, **id).is_ok();
    if let (Some((live, _)), false) = (description.replicas.iter().enumerate().find(is_live), force)
    {
        return Err(LabError::Live { live });
    }
    control.compare_and_swap(now.version, &now.record.salvaged(kept)).map_err(fail)?;
    Ok(Salvaged { kept, given_up })
}

/// Whether the directory of a replica holds it.
fn look(dir: &Path, index: usize, expected: ReplicaId) -> Result<(), LabError> {
    let path = dir.join(format!("replica-{index}"));
    let fail = |source| LabError::Open { path: path.clone(), source };
    let found = read_super(&mut Directory::read_only(&path)).map_err(fail)?.replica;
    match found == expected {
        true => Ok(()),
        false => Err(fail(OpenError::Replica { found, expected })),
    }
}
