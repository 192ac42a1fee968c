//! The machine of a running guest, as its target has to make it.

use std::collections::BTreeMap;

use qemu::machine::{DiskSource, Firmware};
use qemu::qmp::Qmp;

use super::disk_transfer::DiskTransfer;
use super::failure::MigrationFailure;
use super::offer::{self, Content, CopiedDisk, MigrationOffer, UnfitMachine};
use super::progress::MigrationRequest;
use crate::machine::{LiveMachine, Vmi};
use crate::vmi::actor::VmiActor;

impl VmiActor {
    /// Everything that the target needs to know of the machine.
    pub(super) async fn describe(
        &self,
        vmi: &Vmi,
        live: &LiveMachine,
        request: &MigrationRequest,
        qmp: &Qmp,
    ) -> Result<MigrationOffer, MigrationFailure> {
        if vmi.status["migratedVolumes"].as_array().is_some_and(|moves| !moves.is_empty()) {
            return Err(UnfitMachine::VolumesMove.into());
        }
        let machine = live.running.spec().machine;
        let info = live.info.borrow().clone();
        let filled = info.topology.map_or(machine.cpu.sockets, |topology| topology.sockets);
        // Memory that was added needs nothing: QEMU sends the size of virtio-mem.
        let mut machine = machine.with_filled_sockets(filled);
        let failed = |source| MigrationFailure::File { doing: "read", source };
        let (mut seeds, mut copies) = (BTreeMap::new(), BTreeMap::new());
        let mut volumes = BTreeMap::new();
        let mut transfers = Vec::new();
        for disk in &machine.disks {
            let transfer = self.transfer(vmi, disk);
            match (transfer, &disk.source) {
                (DiskTransfer::Seed, DiskSource::File(image)) => {
                    let bytes = std::fs::read(&image.path).map_err(failed)?;
                    seeds.insert(disk.name.clone(), Content::new(&bytes));
                }
                (DiskTransfer::Copy, _) => {
                    let size = qmp.disk_size(disk).await?;
                    copies.insert(disk.name.clone(), CopiedDisk { size });
                }
                (DiskTransfer::LocalVolume, _) => {
                    let copy = self.copied_volume(disk, qmp.disk_size(disk).await?);
                    volumes.extend(copy.map(|copy| (disk.name.clone(), copy)));
                }
                _ => {}
            }
            transfers.push(transfer);
        }
        offer::check(&machine, &transfers)?;
        machine.layout = Some(qmp.layout(&machine).await?);
        let variables = match &machine.firmware {
            Firmware::Efi(efi) => Some(Content::new(&std::fs::read(&efi.vars).map_err(failed)?)),
            Firmware::Bios | Firmware::BiosWithSerial => None,
        };
        Ok(MigrationOffer {
            migration: request.migration.clone(),
            namespace: vmi.namespace.clone(),
            name: vmi.name.clone(),
            uid: vmi.uid.clone(),
            machine,
            qemu: qmp.version().await?,
            processor: offer::processor(),
            seeds,
            variables,
            copies,
            volumes,
            post_copy: request.allows_post_copy,
        })
    }
}
