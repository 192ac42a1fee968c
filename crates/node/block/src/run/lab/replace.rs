//! Replicas that cannot be used any more: an empty one under another id takes their place.
//!
//! Never under the same id: the record may still call that one in sync, and an empty replica would
//! be served as the truth. The unusable files are kept in `unusable-ID` until every replica is in
//! sync: should the others turn out to be damaged too, some of the data may be there.

use std::io;
use std::sync::{Arc, PoisonError};

use super::{LabError, Shared, create_replica};
use crate::crypt::HEADER;
use crate::ids::ReplicaId;
use crate::repl::engine::{MemberFault, Notice};
use crate::run::{AdminReply, AdminRequest, MemberState, VolumeKey, VolumeStatus, chain};

/// A replica that could not be rebuilt so often in a row is replaced.
const REBUILD_ATTEMPTS: u32 = 2;

/// The prefix of directories of replaced replicas, before the id.
const ASIDE: &str = "unusable-";

/// Replaces replicas that cannot be used, once the others serve the volume.
pub(super) fn replace_unusable(
    shared: &Arc<Shared>,
    mut then: Box<dyn FnMut(&Notice) + Send>,
) -> Box<dyn FnMut(&Notice) + Send> {
    let shared = Arc::downgrade(shared);
    let mut failed: Option<(ReplicaId, u32)> = None;
    Box::new(move |notice| {
        then(notice);
        let Some(shared) = shared.upgrade().filter(|it| !it.in_process) else { return };
        match notice {
            Notice::Active { .. } if shared.has_unusable() => {}
            Notice::Active { .. } | Notice::RebuildDone { .. } => {
                return elsewhere(move || shared.remove_unusable());
            }
            Notice::RebuildFailed { replica, why: MemberFault::Refused(why) } => {
                let count = failed.filter(|(id, _)| id == replica).map_or(0, |(_, count)| count);
                failed = Some((*replica, count + 1));
                if count + 1 < REBUILD_ATTEMPTS || !shared.note_failed(*replica, &why.to_string()) {
                    return;
                }
            }
            _ => return,
        }
        elsewhere(move || shared.replace_all());
    })
}

/// Not in the thread of the engine, which is asked about its replicas.
fn elsewhere(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().spawn(work) {
        tracing::error!(%error, "cannot replace replicas");
    }
}

/// Whether files of replaced replicas are of no use any more: no other copy is doubtful.
fn is_whole(volume: &VolumeStatus) -> bool {
    volume.phase == "active"
        && volume.unreconciled == 0
        && volume.disputed.is_empty()
        && volume.lost.is_empty()
        && volume.replicas.iter().all(|it| it.state == MemberState::InSync)
}

impl Shared {
    pub(super) fn note_unusable(&self, replicas: &[(usize, LabError)]) {
        let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable.extend(replicas.iter().map(|(index, error)| (*index, chain(error))));
    }

    /// Starts the process of a replica. If that cannot be opened, an empty one takes its place.
    pub(super) fn start_or_replace(&self, index: usize) -> Result<(), String> {
        let Err(error) = self.start_replica(index) else { return Ok(()) };
        self.note_unusable(&[(index, error)]);
        self.replace_all();
        let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable.get(&index).map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Removes what was put aside, once every replica is in sync.
    fn remove_unusable(&self) {
        if !self.is_held() {
            return;
        }
        match self.handle.ask(VolumeKey::FIRST, AdminRequest::Status) {
            Ok(AdminReply::Status(status)) if is_whole(&status) => {}
            _ => return,
        }
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return };
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with(ASIDE)
                && let Err(error) = std::fs::remove_dir_all(entry.path())
            {
                let path = entry.path();
                tracing::warn!(path = %path.display(), %error, "cannot remove a replaced replica");
            }
        }
    }

    fn has_unusable(&self) -> bool {
        !self.unusable.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// False if it is not one of the volume's replicas any more.
    fn note_failed(&self, replica: ReplicaId, why: &str) -> bool {
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = description.replicas.iter().position(|it| *it == replica) else {
            return false;
        };
        let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable.insert(index, format!("it cannot be rebuilt: {why}"));
        true
    }

    /// Replaces every replica that cannot be used. One that cannot be replaced stays as it is, with
    /// the reason in the status.
    fn replace_all(&self) {
        if !self.is_held() {
            return;
        }
        let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (index, why) in unusable {
            let old = {
                let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
                description.replicas[index]
            };
            let replaced = self.replace(index, old);
            let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
            match replaced {
                Ok(()) => {
                    tracing::warn!(index, replica = %old, why, "replica replaced by an empty one");
                    unusable.remove(&index);
                }
                Err(error) => {
                    tracing::error!(index, replica = %old, error, "cannot replace a replica");
                    unusable.insert(index, format!("{why}; it cannot be replaced: {error}"));
                }
            }
        }
    }

    /// Throws a replica away and lets an empty one take its place.
    pub(super) fn replace(&self, index: usize, old: ReplicaId) -> Result<(), String> {
        let reply = self
            .handle
            .ask(VolumeKey::FIRST, AdminRequest::Status)
            .map_err(|error| error.to_string())?;
        let AdminReply::Status(status) = reply else { return Err("no status".to_owned()) };
        let others =
            status.replicas.iter().any(|it| it.id != old && it.state == MemberState::InSync);
        if !others {
            return Err(format!("replica {index} is the only one that has everything"));
        }
        self.kill_replica(index);
        let dir = self.replica_dir(index);
        let fail = |error: io::Error| format!("cannot use {}: {error}", dir.display());
        match std::fs::rename(&dir, self.dir.join(format!("{ASIDE}{old}"))) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        let new = ReplicaId::random();
        let (volume, size) = {
            let mut description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
            description.replicas[index] = new;
            description.save(&self.dir).map_err(|error| chain(&error))?;
            let hidden = if description.encrypted { HEADER } else { 0 };
            (description.volume, status.size + hidden)
        };
        create_replica(&dir, volume, new, size).map_err(|error| chain(&error))?;
        let address = self.start_replica(index).map_err(|error| chain(&error))?;
        let request = AdminRequest::Replace { old, new, at: Some(address) };
        self.handle.ask(VolumeKey::FIRST, request).map(|_| ()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use MemberState::{Away, Disconnected, InSync, Learner};

    use super::*;
    use crate::ids::{Epoch, Generation};
    use crate::repl::control::ByteRange;
    use crate::run::MemberStatus;

    #[test]
    fn replaced_files_go_only_when_no_other_copy_is_doubtful() {
        let member = |state: &MemberState| MemberStatus {
            id: ReplicaId::from_u128(1),
            state: *state,
            rebuilt_bytes: None,
            rebuild_bytes: None,
            latency_micros: 0,
            address: None,
            free_bytes: 0,
            used_bytes: 0,
            work: None,
            reason: None,
        };
        let volume = |states: &[MemberState]| VolumeStatus {
            phase: "active".to_owned(),
            generation: Generation(1),
            epoch: Epoch(1),
            size: 1 << 20,
            replicas: states.iter().map(member).collect(),
            unreconciled: 0,
            unproven: false,
            disputed: vec![],
            lost: vec![],
            scrubbed_bytes: None,
            last_scrub: None,
            waiting: None,
            snapshots: vec![],
        };
        let whole = || volume(&[InSync, InSync, InSync]);
        let range = vec![ByteRange { offset: 0, length: 4096 }];
        for (what, volume, expected) in [
            ("all in sync", whole(), true),
            ("one is built", volume(&[InSync, Learner]), false),
            ("one is away", volume(&[InSync, Away]), false),
            ("one is not connected", volume(&[InSync, Disconnected]), false),
            ("to be compared", VolumeStatus { unreconciled: 1, ..whole() }, false),
            ("replicas differ", VolumeStatus { disputed: range.clone(), ..whole() }, false),
            ("blocks are lost", VolumeStatus { lost: range, ..whole() }, false),
            ("not served", VolumeStatus { phase: "opening".to_owned(), ..whole() }, false),
        ] {
            assert_eq!(is_whole(&volume), expected, "{what}");
        }
    }
}
