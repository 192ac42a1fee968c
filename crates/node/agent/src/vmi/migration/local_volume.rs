//! Local volumes that migrate with their guest.
//!
//! The source names them in the object before anything is copied, and again in the write that hands
//! the guest over. The controller of the cluster lets the target make copies, and changes the node
//! of each volume once the guest is the target's. Before that the guest does not run there, so that
//! the file of the source has all data until the copy is the volume.

use std::sync::Arc;

use hci::local_volume::{COPIED_VOLUMES, CopiedVolumes};
use qemu::machine::{Disk, DiskSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use virt::v1::Volume;

use super::disk_transfer::{self, DiskTransfer, FileOrigin};
use super::failure::MigrationFailure;
use super::incoming::IncomingError;
use super::offer::CopiedVolume;
use super::outgoing::Written;
use super::progress::MigrationRequest;
use super::{MigrationNote, OUTGOING};
use crate::context::Context;
use crate::machine::{LiveMachine, Vmi};
use crate::vmi::actor::VmiActor;
use crate::volume::ReceivedCopy;

/// A local volume that comes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::vmi) struct MovedVolume {
    /// The disk that its bytes are of.
    pub(super) disk: String,
    /// The name of the PersistentVolume.
    pub(super) volume: String,
}

/// Has a patch of the instance name the volumes of its migration, if there are any.
pub(super) fn name(patch: &mut Value, migration: &str, moved: &[MovedVolume]) {
    if moved.is_empty() {
        return;
    }
    let volumes = moved.iter().map(|own| own.volume.clone()).collect();
    let copied = CopiedVolumes { migration: migration.to_owned(), volumes };
    patch["metadata"]["annotations"][COPIED_VOLUMES] = json!(copied.encode());
}

impl VmiActor {
    /// The maker of the file of a disk.
    pub(super) fn origin(&self, disk: &Disk) -> FileOrigin {
        let DiskSource::File(image) = &disk.source else { return FileOrigin::Other };
        // Seeds lie in the folder of the machine; other files belong to the node.
        if image.path.parent() == Some(self.dir.path()) {
            return FileOrigin::Seed;
        }
        match self.context.volumes.volume_of(&image.path) {
            Some(_) if image.backing.is_none() => FileOrigin::LocalVolume,
            _ => FileOrigin::Other,
        }
    }

    /// The way of a disk to another node.
    pub(super) fn transfer(&self, vmi: &Vmi, disk: &Disk) -> DiskTransfer {
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name);
        disk_transfer::transfer(disk, volume, self.origin(disk))
    }

    /// The names of disks on local volumes that are copied when the guest migrates.
    pub(in crate::vmi) fn movable_volumes(&self, vmi: &Vmi, live: &LiveMachine) -> Vec<String> {
        let disks = live.running.spec().machine.disks.into_iter();
        let movable = disks.filter(|disk| self.transfer(vmi, disk) == DiskTransfer::LocalVolume);
        movable.map(|disk| disk.name).collect()
    }

    /// A local volume as the target has to make it.
    pub(super) fn copied_volume(&self, disk: &Disk, size: u64) -> Option<CopiedVolume> {
        use std::os::unix::fs::MetadataExt as _;
        let DiskSource::File(image) = &disk.source else { return None };
        let volume = self.context.volumes.volume_of(&image.path)?;
        let blocks = std::fs::metadata(&image.path).map_or(0, |facts| facts.blocks());
        Some(CopiedVolume { volume, size, allocated: blocks * 512 })
    }

    /// Names the volumes of a migration in the object: the controller lets the target make copies.
    pub(super) async fn announce_copies(
        &mut self,
        vmi: &Arc<Vmi>,
        request: &MigrationRequest,
        note: &MigrationNote,
    ) -> Result<(), MigrationFailure> {
        if note.moved.is_empty() {
            return Ok(());
        }
        let copying = |vmi: &Vmi| {
            let mut patch = json!({"metadata": {"resourceVersion": vmi.version}});
            name(&mut patch, &request.migration, &note.moved);
            Some(patch)
        };
        match self.write_until_known(vmi, request, copying).await? {
            Written::Yes => Ok(()),
            Written::Refused(_) | Written::Gone => Err(MigrationFailure::Refused),
        }
    }

    /// Whether a disk has, or may have, a mirror of the migration that this node has begun.
    pub(super) fn is_mirrored(&self, vmi: &Vmi, disk: &Disk) -> bool {
        match self.transfer(vmi, disk) {
            DiskTransfer::Copy => true,
            // Without the note, the mirror is one to another claim.
            DiskTransfer::LocalVolume => {
                let note: Option<MigrationNote> = self.dir.load(OUTGOING).ok().flatten();
                note.is_some_and(|note| note.moved.iter().any(|own| own.disk == disk.name))
            }
            _ => false,
        }
    }
}

/// The request for the file of a volume at the target.
pub(super) fn request(copy: &CopiedVolume, migration: &str) -> ReceivedCopy {
    let CopiedVolume { volume, size, allocated } = copy.clone();
    ReceivedCopy { volume, migration: migration.to_owned(), size, allocated }
}

/// Whether the volume of a machine may come along at all: it has a claim.
pub(super) fn has_claim(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.data_volume.is_some()
}

/// The guest has stopped and its mirrors have ended: all of its data gets to the disk.
pub(super) async fn sync(
    context: &Context,
    note: Option<&MigrationNote>,
) -> Result<(), IncomingError> {
    let failed = |source| IncomingError::File { doing: "sync", source };
    for own in note.map_or(&[][..], |note| note.moved.as_slice()) {
        context.volumes.sync(&own.volume).await.map_err(failed)?;
    }
    Ok(())
}

/// Waits until all volumes that came along are this node's.
pub(super) async fn until_here(
    context: &Context,
    note: &MigrationNote,
) -> Result<(), IncomingError> {
    for own in &note.moved {
        context.volumes.until_here(&own.volume).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_names_the_volumes_that_come_along_and_keeps_its_other_fields() {
        let mut patch = json!({"metadata": {"annotations": {"other": "x"}}, "status": {}});
        let before = patch.clone();
        name(&mut patch, "m", &[]);
        assert_eq!(patch, before, "there are none");
        let root = MovedVolume { disk: "root".into(), volume: "pvc-1".into() };
        name(&mut patch, "m", &[root]);
        let notes = &patch["metadata"]["annotations"];
        assert_eq!(notes["other"], "x");
        let copied = CopiedVolumes::parse(notes[COPIED_VOLUMES].as_str().unwrap()).unwrap();
        assert_eq!(
            (copied.migration.as_str(), copied.volumes.as_slice()),
            ("m", &["pvc-1".into()][..])
        );
    }
}
