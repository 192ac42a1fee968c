//! The machine of a running guest, as its target has to make it.

use std::collections::BTreeMap;

use qemu::machine::{DiskSource, Firmware};
use qemu::qmp::Qmp;

use super::offer::{self, Content, MigrationOffer, UnfitMachine};
use super::outgoing::MigrationFailure;
use super::progress::MigrationRequest;
use crate::vmi::actor::VmiActor;
use crate::vmi::live::LiveMachine;
use crate::vmi::object::Vmi;

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
        let mut machine = live.running.spec().machine;
        let info = live.info.borrow().clone();
        let filled = info.topology.map_or(machine.cpu.sockets, |topology| topology.sockets);
        if info.growth > 0 || filled > machine.cpu.sockets {
            return Err(UnfitMachine::Grown.into());
        }
        let failed = |source| MigrationFailure::File { doing: "read", source };
        let mut seeds = BTreeMap::new();
        for disk in &machine.disks {
            // Seeds lie in the folder of the machine; other files belong to the node.
            if let DiskSource::File(image) = &disk.source
                && image.path.parent() == Some(self.dir.path())
            {
                let bytes = std::fs::read(&image.path).map_err(failed)?;
                seeds.insert(disk.name.clone(), Content::new(&bytes));
            }
        }
        offer::check(&machine, &seeds)?;
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
            post_copy: request.allows_post_copy,
        })
    }
}
