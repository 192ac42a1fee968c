//! Declaring one replica to be the truth, when those that are in sync are lost or stale.
//!
//! Done by an administrator only: data that only the others have, and writes that a stale replica
//! lacks, are lost. The record keeps that it happened.

use std::path::Path;

use super::description::Description;
use super::heir::lock_directory;
use super::{LabError, open_record};
use crate::ids::ReplicaId;
use crate::repl::control::ControlPlane as _;
use crate::repl::engine::Stale;
use crate::repl::evidence::{self, Claim};
use crate::store::files::Directory;
use crate::store::{OpenError, read_super};
use crate::wire::Witnessed;

/// The result of a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    pub kept: ReplicaId,
    /// Were in sync, and have to learn what `kept` has.
    pub given_up: Vec<ReplicaId>,
    /// Why `kept` is known to lack writes that were acknowledged.
    pub stale: Option<Stale>,
}

/// Makes the replica at a place the only one in sync of a volume that no engine serves. Others that
/// are in sync and can be read are given up with `force` only.
pub fn salvage(dir: &Path, index: usize, force: bool) -> Result<Salvaged, LabError> {
    let io = |source| LabError::Io { path: dir.to_owned(), source };
    let dir = dir.canonicalize().map_err(io)?;
    let _lock = lock_directory(&dir)?;
    let description = Description::load(&dir)?;
    let count = description.replicas.len();
    let found = description.replicas.get(index).copied();
    let kept = found.ok_or(LabError::NoReplica { index, count })?;
    let claim = read_claim(&dir, index, kept)?;
    let control = open_record(&dir, &description)?;
    let fail = |source| LabError::Record { source };
    let now = control.read().map_err(fail)?;
    let given_up: Vec<ReplicaId> =
        now.record.isr.iter().copied().filter(|it| *it != kept).collect();
    let others = description.replicas.iter().enumerate();
    let others = others.filter(|(_, id)| **id != kept && !now.record.isr.contains(id));
    let others: Vec<Claim> = others.filter_map(|(at, id)| read_claim(&dir, at, *id).ok()).collect();
    let stale = evidence::judge(&now.record, &[claim], &others)[0];
    if given_up.is_empty() && now.record.isr.contains(&kept) && stale.is_none() {
        return Err(LabError::NothingToSalvage { index });
    }
    let is_live = |(at, id): &(usize, &ReplicaId)| {
        given_up.contains(id) && read_claim(&dir, *at, **id).is_ok()
    };
    if let (Some((live, _)), false) = (description.replicas.iter().enumerate().find(is_live), force)
    {
        return Err(LabError::Live { live });
    }
    control.compare_and_swap(now.version, &now.record.salvaged(kept)).map_err(fail)?;
    Ok(Salvaged { kept, given_up, stale })
}

/// The state of the replica in a directory, if it is the expected one. After an unclean stop its
/// log may have newer flushes.
pub(super) fn read_claim(dir: &Path, index: usize, expected: ReplicaId) -> Result<Claim, LabError> {
    let path = dir.join(format!("replica-{index}"));
    let fail = |source| LabError::Open { path: path.clone(), source };
    let meta = read_super(&mut Directory::read_only(&path)).map_err(fail)?;
    let found = meta.replica;
    match found == expected {
        true => Ok(Claim {
            promised: meta.body.promised,
            epoch: meta.body.epoch,
            keeps_marks: true,
            marks: meta.body.marks,
            witnessed: Witnessed::Unknown,
        }),
        false => Err(fail(OpenError::Replica { found, expected })),
    }
}
