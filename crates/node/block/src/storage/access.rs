//! Access to a volume: only for the owner of its socket, and not before its passphrase was
//! received.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::protocol::Attachment;
use super::serve::Refused;
use super::state::Grant;
use super::volumes::VolumeError;
use super::{Shared, Thing, acl};
use crate::crypt::luks::Cost;
use crate::ids::VolumeId;
use crate::run::{Encryption, chain};

/// Between two questions for a passphrase.
const RETRY: Duration = Duration::from_millis(500);

impl Shared {
    /// Serves again what was attached; for as long as it takes until its passphrase is known.
    pub(super) fn reopen(&self, attachment: &Attachment, survived: bool) {
        let volume = attachment.volume;
        loop {
            let result = match self.busy(Thing::Volume(volume)) {
                // A request attached or detached it meanwhile.
                _ if self.inner().state.volumes.get(&volume) != Some(attachment) => return,
                _ if self.inner().live.contains_key(&volume) => return,
                Some(_busy) => self.open_volume(attachment, survived),
                None => Err(VolumeError::Busy { volume }),
            };
            match result {
                Ok(()) => break,
                // It may still come: a supervisor that is not there yet, or has no connection.
                Err(error @ (VolumeError::NoPassphrase { .. } | VolumeError::Busy { .. })) => {
                    self.inner().failed.insert(volume, chain(&error));
                    std::thread::sleep(RETRY);
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(%volume, %error, "cannot serve volume");
                    self.inner().failed.insert(volume, error);
                    break;
                }
            }
        }
        self.changes.notify();
    }

    /// Asks for what opens a volume.
    pub(super) fn unlocking(&self, volume: VolumeId) -> Result<Encryption, VolumeError> {
        let secret = self.records.passphrase(volume).ok_or(VolumeError::NoPassphrase { volume })?;
        let (passphrase, cost) = (secret.passphrase(), Cost::default());
        Ok(Encryption { passphrase, format: true, cost })
    }

    /// Says who may connect from now on.
    pub(super) fn grant(&self, volume: VolumeId, grant: Grant) -> Result<(), Refused> {
        let _busy = self.busy(Thing::Volume(volume)).ok_or(VolumeError::Busy { volume })?;
        let mut inner = self.inner();
        let Some(attachment) = inner.state.volumes.get(&volume).cloned() else {
            return Err(VolumeError::NotAttached { volume }.into());
        };
        if inner.state.grants.get(&volume).copied().unwrap_or_default() == grant {
            return Ok(give(&attachment, grant)?);
        }
        // It outlives a detachment: a client that waits for the volume gets back in.
        match grant {
            Grant { user: None, group: None } => drop(inner.state.grants.remove(&volume)),
            grant => drop(inner.state.grants.insert(volume, grant)),
        }
        self.save(&inner)?;
        Ok(give(&attachment, grant)?)
    }

    pub(super) fn disconnect_clients(&self, volume: VolumeId) -> Result<(), Refused> {
        let key = self.inner().live.get(&volume).map(|live| live.key);
        let key = key.ok_or(VolumeError::NotAttached { volume })?;
        self.handle.with(move |shard| shard.disconnect_clients(key));
        Ok(())
    }
}

/// Lets some users connect to a socket, and no others. Root gives the socket to them; any other
/// user adds them to its access control list.
pub(super) fn give(attachment: &Attachment, grant: Grant) -> Result<(), VolumeError> {
    let own = rustix::process::geteuid();
    for path in attachment.nbd.iter().chain(&attachment.vhost) {
        let fail = |source| VolumeError::Give { path: path.clone(), source };
        // Shut first, so that no client connects in between. This also revokes the list.
        let mode = |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        mode(0o600).map_err(fail)?;
        if !own.is_root() {
            acl::set(path, grant).map_err(fail)?;
            continue;
        }
        let Grant { user, group } = grant;
        let (user, none) = (user.unwrap_or_default(), rustix::process::getegid().as_raw());
        std::os::unix::fs::chown(path, Some(user), group.or(Some(none))).map_err(fail)?;
        if group.is_some() {
            mode(0o660).map_err(fail)?;
        }
    }
    Ok(())
}
