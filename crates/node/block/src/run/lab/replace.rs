//! Replicas that cannot be used any more: an empty one under another id takes their place.
//!
//! Never under the same id: the record may still call that one in sync, and an empty replica would
//! be served as the truth.

use std::io;
use std::sync::{Arc, PoisonError};

use super::{LabError, Shared, create_replica};
use crate::crypt::HEADER;
use crate::ids::ReplicaId;
use crate::repl::engine::{MemberFault, Notice};
use crate::run::{AdminReply, AdminRequest, VolumeKey, chain};

/// A replica that could not be rebuilt so often in a row is replaced.
const REBUILD_ATTEMPTS: u32 = 2;

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
            Notice::RebuildFailed { replica, why: MemberFault::Refused(why) } => {
                let count = failed.filter(|(id, _)| id == replica).map_or(0, |(_, count)| count);
                failed = Some((*replica, count + 1));
                if count + 1 < REBUILD_ATTEMPTS || !shared.note_failed(*replica, &why.to_string()) {
                    return;
                }
            }
            _ => return,
        }
        // Elsewhere: it asks the engine that has just said this.
        let replace = move || shared.replace_all();
        if let Err(error) = std::thread::Builder::new().spawn(replace) {
            tracing::error!(%error, "cannot replace replicas");
        }
    })
}

impl Shared {
    pub(super) fn note_unusable(&self, replicas: &[(usize, LabError)]) {
        let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable.extend(replicas.iter().map(|(index, error)| (*index, chain(error))));
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
        let others = status.replicas.iter().any(|it| it.id != old && it.state == "in-sync");
        if !others {
            return Err(format!("replica {index} is the only one that has everything"));
        }
        self.kill_replica(index);
        let dir = self.replica_dir(index);
        let fail = |error: io::Error| format!("cannot use {}: {error}", dir.display());
        // Giving back the space of many small pieces takes longer than anything else here.
        let aside = self.dir.join(format!("removed-{old}"));
        match std::fs::rename(&dir, &aside) {
            Ok(()) => {
                let removing = move || std::fs::remove_dir_all(aside);
                std::thread::Builder::new().spawn(removing).map_err(fail)?;
            }
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
