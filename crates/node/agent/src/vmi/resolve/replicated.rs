//! Replicated volumes of a machine: requested with an attachment ticket, and connected through a
//! socket that only the machine's user may open.
//!
//! Which volumes a machine holds is on disk before the first of them is asked for, so that none
//! stays attached for a machine that is gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Chain;
use qemu::RunDir;
use qemu::machine::DiskSource;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use virt::v1::Volume;

use super::{ResolveError, Resolved, Resolver, file};
use crate::context::Context;
use crate::storage::{LinkError, TicketError};
use crate::vmi::translate::VolumeBacking;

/// The volumes that a machine holds, in its folder.
const RECORD: &str = "storage.json";
/// Attaching takes a moment; who waits longer says so in its condition.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long QEMU waits for a storage process that is gone before a request fails, which pauses
/// the guest until the storage is back. It does not answer its monitor in some of that time.
const RECONNECT: u32 = 300;

/// A volume that a machine holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldVolumeRecord {
    disk: String,
    volume: String,
    socket: Option<PathBuf>,
    /// For whom the volume is here, if not for the machine's first run: it came from another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    /// The disk has moved to another image, and does not need it any more.
    #[serde(default)]
    is_left: bool,
}

/// The replicated volumes that the machine of a folder holds.
pub(crate) fn held_volumes(dir: &RunDir) -> Vec<String> {
    let all: Vec<HeldVolumeRecord> = dir.load(RECORD).ok().flatten().unwrap_or_default();
    let mut volumes: Vec<String> = all.into_iter().map(|held| held.volume).collect();
    volumes.sort();
    volumes.dedup();
    volumes
}

impl Resolver<'_> {
    /// The disk of a replicated volume.
    pub(super) async fn replicated(
        &self,
        volume: &Volume,
        name: &str,
        shared: bool,
    ) -> Result<Resolved, ResolveError> {
        self.hold(&volume.name, name, None)?;
        let (storage, ticket) = (&self.context.storage, self.ticket(&volume.name, name));
        let wanted = match self.migration {
            Some(_) => storage.want_migrated(name, &ticket).await,
            None => storage.want(name, &ticket).await,
        };
        wanted.map_err(|failure| ResolveError::Ticket(Box::new(failure)))?;
        let late = |_| ResolveError::Attaching { name: name.into() };
        let held = storage.until_held(name, &ticket);
        let served = tokio::time::timeout(ATTACH_TIMEOUT, held).await.map_err(late)?;
        self.hold(&volume.name, name, Some(&served.socket))?;
        let mut group = None;
        if let Some(identity) = self.identity {
            let user = if shared {
                group = Some(file::shared_group(&format!("{}/{name}", self.vmi.namespace)));
                None
            } else {
                Some(identity.uid)
            };
            storage.grant(&served, user, group).await.map_err(|source| match source {
                LinkError::Connect(_) | LinkError::Ended => {
                    ResolveError::Attaching { name: name.into() }
                }
                source => ResolveError::Storage { volume: name.into(), source },
            })?;
        }
        let source = DiskSource::Nbd {
            socket: served.socket,
            export: String::new(),
            reconnect_delay: RECONNECT,
        };
        let backing = VolumeBacking { source, read_only: false, direct: false, allocated: false };
        Ok(Resolved { backing, size: Some(served.size), claim: None, group })
    }

    /// For whom the volume is here.
    fn ticket(&self, disk: &str, volume: &str) -> String {
        if let Some(migration) = self.migration {
            return migration.to_owned();
        }
        let all: Vec<HeldVolumeRecord> = self.dir.load(RECORD).ok().flatten().unwrap_or_default();
        let held = all.into_iter().find(|it| it.disk == disk && it.volume == volume);
        held.and_then(|held| held.ticket).unwrap_or_else(|| ticket(&self.vmi.uid))
    }

    /// Notes that the machine holds a volume.
    fn hold(&self, disk: &str, volume: &str, socket: Option<&Path>) -> Result<(), ResolveError> {
        let failed = |doing| {
            let path = self.dir.path().join(RECORD);
            move |source| ResolveError::File { doing, path, source }
        };
        let known: Option<Vec<HeldVolumeRecord>> = self.dir.load(RECORD).map_err(failed("read"))?;
        let mut all = known.clone().unwrap_or_default();
        let held = all.iter().position(|it| it.disk == disk && it.volume == volume);
        let mut held = held.map(|at| all.remove(at)).unwrap_or_else(|| HeldVolumeRecord {
            disk: disk.into(),
            volume: volume.into(),
            socket: None,
            ticket: self.migration.map(str::to_owned),
            is_left: false,
        });
        held.is_left = false;
        held.socket = socket.map(Path::to_owned).or(held.socket);
        // Of several volumes of a disk, the one that was asked for last is to be it.
        let is_before = all.iter().rposition(|it| it.disk == disk).map_or(0, |at| at + 1);
        all.insert(is_before, held);
        if known.as_ref() == Some(&all) {
            return Ok(());
        }
        self.dir.store(RECORD, &all).map_err(failed("write"))
    }
}

/// Notes that a disk of a running machine has moved to `source`, so that [`release`] frees the volumes
/// that it had before.
pub(crate) fn leave_others(dir: &RunDir, disk: &str, source: &DiskSource) {
    let Ok(Some(mut all)) = dir.load::<Vec<HeldVolumeRecord>>(RECORD) else { return };
    for held in all.iter_mut().filter(|held| held.disk == disk) {
        held.is_left = !is_source(held, source);
    }
    if let Err(failure) = dir.store(RECORD, &all) {
        warn!(error = %Chain(&failure), "cannot record volumes of machine");
    }
}

/// Whether an image of a disk is the volume.
fn is_source(held: &HeldVolumeRecord, source: &DiskSource) -> bool {
    match source {
        DiskSource::Nbd { socket, .. } | DiskSource::Overlay { socket, .. } => {
            Some(socket) == held.socket.as_ref()
        }
        _ => false,
    }
}

fn ticket(uid: &str) -> String {
    format!("vmi-{uid}")
}

/// Releases the volumes that a machine does not need: all of them when it is gone, or those
/// that are neither its disk nor its volume any longer.
pub(crate) async fn release(
    context: &Context,
    dir: &RunDir,
    uid: &str,
    needs: Option<(&qemu::Machine, &[Volume])>,
) -> Result<(), TicketError> {
    let Ok(Some(all)) = dir.load::<Vec<HeldVolumeRecord>>(RECORD) else { return Ok(()) };
    let mut rest = Vec::new();
    for (index, held) in all.iter().enumerate() {
        if needs.is_some_and(|needs| is_needed(held, &all[index + 1..], needs)) {
            rest.push(held.clone());
            continue;
        }
        // Another disk of the machine may be the same volume.
        if !all.iter().enumerate().any(|(at, it)| at != index && it.volume == held.volume) {
            if let Some(served) = context.storage.served(&held.volume)
                && let Err(failure) = context.storage.grant(&served, None, None).await
            {
                warn!(volume = held.volume, error = %Chain(&failure), "volume is not closed");
            }
            let ticket = held.ticket.clone().unwrap_or_else(|| ticket(uid));
            context.storage.forgo(&held.volume, &ticket).await?;
            info!(volume = held.volume, "volume released");
        }
    }
    if rest.len() != all.len()
        && let Err(failure) = dir.store(RECORD, &rest)
    {
        warn!(error = %Chain(&failure), "cannot record volumes of machine");
    }
    Ok(())
}

/// Whether a running machine needs a volume: one of its disks is it, or is to be it.
fn is_needed(
    held: &HeldVolumeRecord,
    later: &[HeldVolumeRecord],
    needs: (&qemu::Machine, &[Volume]),
) -> bool {
    let (machine, volumes) = needs;
    let is_newest = !held.is_left && later.iter().all(|it| it.disk != held.disk);
    let is_named = volumes.iter().any(|volume| volume.name == held.disk);
    is_named && is_newest || machine.disks.iter().any(|disk| is_source(held, &disk.source))
}

#[cfg(test)]
mod tests {
    use qemu::machine::{Bus, Disk};

    use super::*;

    fn held(disk: &str, volume: &str) -> HeldVolumeRecord {
        let socket = Some(format!("/{volume}.sock").into());
        let (disk, volume) = (disk.into(), volume.into());
        HeldVolumeRecord { disk, volume, socket, ticket: None, is_left: false }
    }

    #[test]
    fn a_volume_is_held_while_a_disk_is_it_or_is_to_be_it() {
        let mut machine = qemu::Machine::new("m", "u", 1 << 30);
        let volume = Volume { name: "cd".into(), ..Volume::default() };
        let (old, new) = (held("cd", "old"), held("cd", "new"));
        let needed =
            |held: &HeldVolumeRecord,
             later: &[HeldVolumeRecord],
             machine: &qemu::Machine,
             volumes: &[Volume]| { is_needed(held, later, (machine, volumes)) };
        let volumes = [volume];
        assert!(needed(&old, &[], &machine, &volumes), "it is to come");
        assert!(!needed(&old, std::slice::from_ref(&new), &machine, &volumes), "another came");
        assert!(!needed(&old, &[], &machine, &[]), "no machine names it");
        let left = HeldVolumeRecord { is_left: true, ..old.clone() };
        assert!(!needed(&left, &[], &machine, &volumes), "the disk has moved to a local volume");
        let source = DiskSource::Nbd {
            socket: "/old.sock".into(),
            export: String::new(),
            reconnect_delay: 1,
        };
        machine.disks.push(Disk::new("cd", Bus::Sata, source));
        assert!(needed(&old, &[new], &machine, &[]), "it is still in the drive");
    }
}
