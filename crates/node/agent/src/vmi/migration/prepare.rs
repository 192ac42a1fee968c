//! Making the machine of a guest that runs elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::Chain;
use futures_util::FutureExt as _;
use qemu::RunningMachine;
use qemu::machine::{Disk, DiskSource};
use qemu::qmp::{MirrorScope, QmpError};
use tracing::info;

use super::allowance;
use super::disk_transfer::image_key;
use super::incoming::IncomingError;
use super::local_volume;
use super::offer::{self, CopiedDisk, MigrationOffer, Prepared, TargetParts, UnfitMachine};
use super::{INCOMING, MigrationNote, ticket};
use crate::machine::Vmi;
use crate::vmi::actor::{LocalMachine, VmiActor};
use crate::vmi::launch::StartError;
use crate::vmi::resolve::{ResolveError, Resolved, Resolver};
use crate::vmi::state::StateDir;
use crate::vmi::translate;
use crate::volume::MissingDisk;

/// The socket that the disks of a guest on its way are exported on, in the folder of the machine.
pub(super) const DISKS_SOCKET: &str = "disks.sock";
/// Between two polls of an image that is being pulled.
const PULL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// For an image that cannot be pulled at first.
const PULL_TIMEOUT: Duration = Duration::from_secs(15);
/// For volumes to be readable here.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);

impl VmiActor {
    /// Makes the machine of a guest that runs elsewhere; its QEMU waits for the stream.
    pub(super) async fn prepare_incoming(
        &mut self,
        vmi: &Arc<Vmi>,
        peer: &str,
        offer: &MigrationOffer,
    ) -> Result<(RunningMachine, Prepared), IncomingError> {
        let start = |failure: StartError| IncomingError::Start(Box::new(failure));
        let untranslated = |failure| start(StartError::Translate(failure));
        let (memory, cpu) = translate::size(vmi).map_err(untranslated)?;
        allowance::check_offer(&offer.machine, (&memory, &cpu))?;
        let host = self.host().map_err(start)?;
        let identity = self.identity().map_err(start)?;
        let failed = |doing| move |source| IncomingError::File { doing, source };
        self.local = LocalMachine::Unstarted;
        self.dir.create(identity.as_ref()).map_err(failed("make"))?;
        let own_ticket = ticket(&vmi.uid, &offer.migration);
        let mut note = MigrationNote::new(&offer.migration, vmi);
        note.source = peer.to_owned();
        self.dir.store(INCOMING, &note).map_err(failed("write"))?;
        let outlets = self.connect(vmi, identity.as_ref()).await.map_err(start)?;
        let resolver = Resolver {
            context: &self.context,
            vmi,
            dir: &self.dir,
            identity: identity.as_ref(),
            migration: Some(&own_ticket),
        };
        let mut disks = BTreeMap::new();
        let mut groups = Vec::new();
        let mut prepared = Prepared::default();
        note.moved = offer.moved();
        for disk in offer.machine.disks.iter().filter(|disk| disk.source != DiskSource::Empty) {
            let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name);
            let missing = || UnfitMachine::Missing { what: "volume", name: disk.name.clone() };
            let volume = volume.ok_or_else(missing)?;
            let found = if let Some(seed) = offer.seeds.get(&disk.name) {
                resolver.copied_seed(volume, &seed.bytes()?).map_err(Box::new)?
            } else if let Some(copy) = offer.copies.get(&disk.name) {
                let (found, scope) = copy_target(&resolver, volume, disk, *copy).await?;
                prepared.copies.insert(disk.name.clone(), scope);
                found
            } else if let Some(copy) = offer.volumes.get(&disk.name) {
                let copy = local_volume::request(copy, &offer.migration);
                prepared.copies.insert(disk.name.clone(), MirrorScope::Full);
                resolver.received(volume, &copy).boxed().await.map_err(Box::new)?
            } else {
                let found = attached(&resolver, volume, PULL_TIMEOUT).await?;
                if let Some(container) = &volume.container_disk
                    && image_key(&found.backing.source) != image_key(&disk.source)
                {
                    let (name, image) = (disk.name.clone(), container.image.clone());
                    return Err(UnfitMachine::ImageChanged { name, image }.into());
                }
                found
            };
            let spec = vmi.spec.domain.devices.disks.iter().find(|spec| spec.name == disk.name);
            let missing = || UnfitMachine::Missing { what: "disk", name: disk.name.clone() };
            let own = translate::disk(vmi, spec.ok_or_else(missing)?, Some(&found.backing));
            allowance::check_disk(disk, &own.map_err(untranslated)?)?;
            groups.extend(found.group);
            disks.insert(disk.name.clone(), found.backing.source.clone());
            self.disks.found.insert(disk.name.clone(), found);
        }
        note.volumes = resolver.held_volumes();
        self.dir.store(INCOMING, &note).map_err(failed("write"))?;
        let state = StateDir::of(&self.context, vmi, &self.dir);
        let nics = outlets.into_iter().map(|(name, outlet)| (name, outlet.backend)).collect();
        let qemu = qemu_version().await;
        let parts = TargetParts {
            accelerator: host.accelerator,
            qemu: &qemu,
            processor: &offer::processor(),
            disks: &disks,
            nics: &nics,
            firmware: host.firmware.iter().map(|efi| efi.code.clone()).collect(),
            variables: state.nvram.clone(),
            tpm: host.has_tpm.then(|| state.tpm.clone()),
        };
        let machine = offer::adapt(offer, &parts)?;
        // Left by an earlier stay: the guest's own comes with the stream.
        state.remove().map_err(failed("remove"))?;
        state.provide(&host, &machine, identity.as_ref()).map_err(start)?;
        if let Some(variables) = &offer.variables {
            state.restore_variables(&variables.bytes()?).map_err(failed("write"))?;
        }
        let running = self.launch_incoming(vmi, &host, machine, identity, groups).await;
        let running = running.map_err(start)?;
        let qmp = running.qmp().await?;
        qmp.set_migration_capabilities().await?;
        let mirrored = offer.mirrored();
        if !mirrored.is_empty() {
            let disks = running.spec().machine.disks.into_iter();
            let copied = disks.filter(|disk| mirrored.contains_key(disk.name.as_str()));
            let copied: Vec<Disk> = copied.collect();
            let listener = self.dir.listen(DISKS_SOCKET).map_err(failed("make a socket in"))?;
            qmp.export_disks(listener.into(), &copied).await?;
        }
        if offer.post_copy {
            match qmp.allow_post_copy().await {
                Ok(()) => prepared.post_copy = true,
                Err(QmpError::Refused { description, .. }) => {
                    prepared.post_copy_refusal = Some(description);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok((running, prepared))
    }
}

/// The version of the QEMU that is installed here.
async fn qemu_version() -> String {
    let said = tokio::process::Command::new("qemu-system-x86_64").arg("--version").output().await;
    let said = said.map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let mut words = said.split_whitespace().skip_while(|word| *word != "version");
    words.nth(1).unwrap_or_default().trim_end_matches(',').to_owned()
}

/// A volume that can be read here; it takes a moment until it is.
///
/// An image that cannot be pulled is waited for until `pull_limit`: the pull is tried again.
async fn attached(
    resolver: &Resolver<'_>,
    volume: &virt::v1::Volume,
    pull_limit: Duration,
) -> Result<Resolved, IncomingError> {
    let begun = tokio::time::Instant::now();
    loop {
        match resolver.volume(volume).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {
                let name = volume.name.clone();
                return Err(UnfitMachine::Missing { what: "volume", name }.into());
            }
            Err(ResolveError::Attaching { .. }) if begun.elapsed() < ATTACH_TIMEOUT => {}
            Err(ResolveError::ContainerDisk { source: MissingDisk::Pulling { .. }, .. })
                if begun.elapsed() < ATTACH_TIMEOUT =>
            {
                tokio::time::sleep(PULL_POLL_INTERVAL).await;
            }
            Err(ResolveError::ContainerDisk { .. }) if begun.elapsed() < pull_limit => {
                tokio::time::sleep(PULL_POLL_INTERVAL).await;
            }
            Err(failure) => return Err(Box::new(failure).into()),
        }
    }
}

/// The file that a disk is mirrored to, and the data that is missing there.
///
/// Only the changes are missing where the same container image is at hand. Otherwise the file gets
/// everything: the guest goes on even if its image cannot be pulled any more.
async fn copy_target(
    resolver: &Resolver<'_>,
    volume: &virt::v1::Volume,
    disk: &Disk,
    copy: CopiedDisk,
) -> Result<(Resolved, MirrorScope), IncomingError> {
    if volume.container_disk.is_some() && image_key(&disk.source).is_some() {
        match attached(resolver, volume, Duration::ZERO).await {
            Ok(found)
                if image_key(&found.backing.source) == image_key(&disk.source)
                    && found.size == Some(copy.size) =>
            {
                return Ok((found, MirrorScope::Top));
            }
            Ok(_) => info!(volume = volume.name, "the image has changed: all data is copied"),
            Err(failure) => {
                let error = Chain(&failure);
                info!(volume = volume.name, %error, "no image here: all data is copied");
            }
        }
    }
    let found = resolver.blank(volume, copy.size).await.map_err(Box::new)?;
    Ok((found, MirrorScope::Full))
}
