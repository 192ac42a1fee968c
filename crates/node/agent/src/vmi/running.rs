//! Managing a running guest: its status, and the changes that can be made in place.

use std::sync::Arc;
use std::time::Duration;

use base::Chain;
use futures_util::FutureExt as _;
use qemu::machine::{Disk, DiskSource};
use qemu::qmp::{Qmp, QmpError, RunState, UnplugError};
use tokio::time::Instant;
use tracing::{debug, info, warn};
use virt::reason::NotSynchronized;

use super::actor::{LocalMachine, LoopControl, VmiActor};
use super::hotplug::{self, HotplugChange, RunningDevices};
use super::migration::{self, Arrival};
use super::resolve::{self, Resolver, is_hotpluggable};
use super::status::{MachineProblem, View};
use super::{translate, view, volume_migration};
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi, VmiPhase};
use crate::network::ConnectError;
use crate::order;

/// For QEMU to make a change.
const ANSWER: Duration = Duration::from_secs(10);
/// For a guest to release a device.
pub(super) const RELEASE: Duration = Duration::from_secs(5);
/// How often a guest that ran out of storage is checked.
const ROOM_CHECK: Duration = Duration::from_secs(3);
/// Less room than this would only pause the guest again.
const ROOM: u64 = 64 << 20;
/// How often a change that did not succeed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(3);

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error(transparent)]
    Unplug(#[from] UnplugError),
    #[error(transparent)]
    Network(#[from] ConnectError),
    #[error(transparent)]
    Translate(#[from] translate::TranslateError),
    #[error(transparent)]
    Start(#[from] super::launch::StartError),
    #[error("cannot record the change")]
    Record(#[source] std::io::Error),
    #[error("cannot open tap {ifname}")]
    Tap { ifname: String, source: std::io::Error },
}

impl VmiActor {
    /// Brings a running guest and its object together.
    pub(super) async fn reconcile_running(&mut self, vmi: &Arc<Vmi>) -> LoopControl {
        let LocalMachine::Running(live) = &self.local else { return LoopControl::Again };
        let live = live.clone();
        self.context.order.started(vmi, order::uptime());
        self.condemned.clone_from(&live.info.borrow().condemned);
        if self.condemned.is_some() {
            return LoopControl::Again;
        }
        if live.running.state() == Some(RunState::Prelaunch) {
            // The process that started QEMU was killed before it let the guest run.
            if let Err(failure) = live.running.begin().await {
                debug!(error = %Chain(&failure), "cannot let the guest run");
            }
        }
        match migration::arrive(&self.context, vmi, &self.dir, &live.running).await {
            Ok(Arrival::Whole) => {}
            // No device comes or goes before the guest has all of its memory.
            Ok(Arrival::PostCopy(note)) => return self.follow_post_copy(vmi, &live, &note).await,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot let an arrived guest run yet");
                return self.later();
            }
        }
        if let Some(after) = self.migrate_if_asked(vmi, &live).boxed().await {
            return after;
        }
        self.report_unresponsive_qemu(vmi, live.info.borrow().silent);
        if self.process.unknown_to_networks {
            self.reconnect(vmi, &live).await;
        }
        let first = vmi.phase() == VmiPhase::Scheduled;
        let mut wait = self.resume_if_room(&live).await;
        // The start is reported first: devices that come later may take their time.
        let again = if first { None } else { self.change(vmi, &live).await };
        wait = [wait, again].into_iter().flatten().min();
        self.trim_file_systems(vmi, &live);
        let renewal = self.renew_tokens(vmi, &live).await;
        wait = [wait, renewal].into_iter().flatten().min();
        let dumps =
            self.disks.dumps.iter().map(|(name, dump)| (name.clone(), dump.report())).collect();
        let mut guest = view::guest(vmi, &live, &self.disks.found, &self.disks.pending, &dumps);
        guest.moves = self.volume_moves();
        guest.movable = self.movable_volumes(vmi, &live);
        let trouble = self.trouble.clone();
        let view = View { phase: VmiPhase::Running, trouble, guest: Some(guest) };
        if let Err(after) = self.write(vmi, &view).await {
            return after;
        }
        if first {
            self.report(vmi, EventNote::normal("Started", "VirtualMachineInstance started."));
            return LoopControl::Again;
        }
        self.retry.succeeded();
        LoopControl::Wait(wait)
    }

    /// Says when QEMU stops answering and when it is back; the condition is in the status.
    fn report_unresponsive_qemu(&mut self, vmi: &Vmi, silent: bool) {
        if silent == self.process.is_silence_reported {
            return;
        }
        self.process.is_silence_reported = silent;
        if silent {
            warn!(namespace = vmi.namespace, name = vmi.name, "QEMU does not answer");
            let message = "QEMU does not answer its monitor; the guest may be stopped.";
            self.report(vmi, EventNote::warning("GuestNotResponding", message));
        } else {
            info!(namespace = vmi.namespace, name = vmi.name, "QEMU answers again");
            self.report(
                vmi,
                EventNote::normal("GuestResponding", "QEMU answers its monitor again."),
            );
        }
    }

    /// A guest that was paused because storage was full goes on when there is room.
    async fn resume_if_room(&mut self, live: &LiveMachine) -> Option<Instant> {
        if live.running.state() != Some(RunState::IoError) {
            self.process.is_pause_reported = false;
            return None;
        }
        let spec = live.running.spec();
        let paths = spec.machine.disks.iter().filter_map(|disk| match &disk.source {
            DiskSource::File(image) if !disk.read_only => Some(image.path.clone()),
            DiskSource::Overlay { path, .. } => Some(path.clone()),
            _ => None,
        });
        let full = paths
            .filter_map(|path| rustix::fs::statvfs(&path).ok())
            .any(|stat| stat.f_bavail * stat.f_frsize < ROOM);
        if !self.process.is_pause_reported {
            self.process.is_pause_reported = true;
            warn!(full, "guest is paused by a failed request of a disk");
            if let Some(vmi) = self.present() {
                let message = "VMI was paused, low-level IO error detected";
                self.report(&vmi, EventNote::warning("IOerror", message));
            }
        } else if !full && let Ok(qmp) = live.running.qmp().await {
            match qmp.resume().await {
                Ok(()) => info!("space is available again; guest resumed"),
                Err(failure) => debug!(error = %Chain(&failure), "cannot resume"),
            }
        }
        Some(Instant::now() + ROOM_CHECK)
    }

    /// Makes the changes that the object asks for; says when to check again if some are open.
    async fn change(&mut self, vmi: &Arc<Vmi>, live: &LiveMachine) -> Option<Instant> {
        let info = live.info.borrow().clone();
        let moves = match info.silent {
            true => None,
            false => self.migrate_volumes(vmi, live).boxed().await,
        };
        let machine = live.running.spec().machine;
        let (wanted, mut open) = self.desired_disks(vmi, live, &machine).await;
        if info.silent {
            return Some(Instant::now() + TRY_AGAIN);
        }
        let now = RunningDevices {
            // Not known yet: then nothing is missing yet.
            sockets: info.topology.map_or(u32::MAX, |topology| topology.sockets),
            growth: self.process.requested_growth.unwrap_or(info.growth),
        };
        let mut trouble = None;
        for change in hotplug::changes(vmi, &wanted, &machine, now) {
            debug!(?change, "changing a running machine");
            match self.apply(vmi, live, change).await {
                Ok(note) => {
                    if let Some(note) = note {
                        self.report(vmi, note);
                    }
                }
                Err(failure) => {
                    let message = Chain(&failure).to_string();
                    if self.trouble.as_ref().map(|trouble| &trouble.message) != Some(&message) {
                        warn!(error = message, "cannot change a running machine");
                        self.report(vmi, EventNote::warning("HotplugFailed", message.clone()));
                    }
                    trouble = Some(MachineProblem::new(NotSynchronized::Hotplug, message));
                    open = true;
                }
            }
        }
        self.grow_disks(vmi, live).await;
        open |= self.dump_memory(vmi, live).boxed().await;
        let needs = live.running.spec().machine;
        let needs = Some((&needs, vmi.spec.volumes.as_slice()));
        if let Err(failure) = resolve::release(&self.context, &self.dir, &vmi.uid, needs).await {
            warn!(error = %Chain(&failure), "cannot release volume");
            open = true;
        }
        self.trouble = trouble;
        let again = open.then(|| Instant::now() + TRY_AGAIN);
        [again, moves].into_iter().flatten().min()
    }

    /// The disks of the object whose volumes are there; true if some must be resolved again.
    /// Objects that are missing for one are watched instead.
    async fn desired_disks(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        machine: &qemu::Machine,
    ) -> (Vec<Disk>, bool) {
        let identity = live.running.spec().confinement.identity;
        let (mut disks, mut open) = (Vec::new(), false);
        let mut awaited = std::mem::take(&mut self.disks.awaited_by_moves);
        for spec in &vmi.spec.domain.devices.disks {
            let volume = vmi.spec.volumes.iter().find(|volume| volume.name == spec.name);
            let Some(volume) = volume else { continue };
            let attached = machine.disks.iter().find(|disk| disk.name == spec.name);
            if attached.is_some() && volume_migration::is_moving(vmi, &spec.name) {
                disks.extend(attached.cloned());
                continue;
            }
            let known = self.disks.found.contains_key(&spec.name);
            // A volume that is attached and cannot be exchanged is not checked again.
            if attached.is_some() && (known || spec.cdrom.is_none()) && !self.is_exchanged(vmi) {
                disks.extend(attached.cloned());
                continue;
            }
            if attached.is_none() && !is_hotpluggable(volume) && spec.cdrom.is_none() {
                continue;
            }
            let context = Arc::clone(&self.context);
            let resolver = Resolver {
                context: &context,
                vmi,
                dir: live.running.dir(),
                identity: identity.as_ref(),
                migration: None,
            };
            match resolver.volume(volume).boxed().await {
                Ok(Some(found)) => {
                    match translate::disk(vmi, spec, Some(&found.backing)) {
                        Ok(disk) => disks.push(disk),
                        Err(failure) => debug!(error = %failure, "disk cannot be made"),
                    }
                    self.disks.found.insert(spec.name.clone(), found);
                }
                Ok(None) => {}
                Err(failure) => {
                    debug!(error = %Chain(&failure), "volume is not there yet");
                    match failure.awaited(&vmi.namespace) {
                        Some(object) => drop(awaited.insert(object)),
                        None => open = true,
                    }
                    self.disks.pending.insert(spec.name.clone(), failure.trouble().message);
                }
            }
        }
        self.awaited.set(&self.context.client, awaited);
        self.disks.checked_generation = vmi.generation;
        (disks, open)
    }

    /// Whether the object may name other volumes than when they were last checked.
    fn is_exchanged(&self, vmi: &Vmi) -> bool {
        self.disks.checked_generation != vmi.generation
    }

    async fn apply(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        change: HotplugChange,
    ) -> Result<Option<EventNote>, ChangeError> {
        let qmp = live.running.qmp().await?.with_limit(ANSWER);
        match change {
            HotplugChange::PlugDisk(disk) => self.plug_disk(live, &qmp, disk).await.map(Some),
            HotplugChange::UnplugDisk(disk) => {
                qmp.unplug_disk(&disk, RELEASE).await?;
                record(live, |machine| machine.disks.retain(|each| each.name != disk.name))?;
                self.disks.found.remove(&disk.name);
                let message = format!("Volume {} has been unplugged", disk.name);
                Ok(Some(EventNote::normal("VolumeUnplugged", message)))
            }
            HotplugChange::Medium(drive) => {
                qmp.change_medium(&drive).await?;
                record(live, |machine| {
                    if let Some(disk) = machine.disks.iter_mut().find(|d| d.name == drive.name) {
                        disk.source.clone_from(&drive.source);
                    }
                })?;
                if drive.source == DiskSource::Empty {
                    self.disks.found.remove(&drive.name);
                }
                Ok(None)
            }
            HotplugChange::PlugNic(name) => {
                self.plug_nic(vmi, live, &qmp, &name).await.map(|()| None)
            }
            HotplugChange::UnplugNic(nic) => self.unplug_nic(live, &qmp, &nic).await.map(|()| None),
            HotplugChange::SetLink(nic) => {
                qmp.set_link(&nic.id(), nic.link == qemu::machine::LinkState::Up).await?;
                record(live, |machine| {
                    if let Some(known) = machine.nics.iter_mut().find(|n| n.name == nic.name) {
                        known.link = nic.link;
                    }
                })?;
                Ok(None)
            }
            HotplugChange::FillSockets(sockets) => {
                let count = qmp.fill_sockets(sockets).await?;
                info!(count, "processors added");
                live.ask_again();
                Ok(None)
            }
            HotplugChange::Grow(bytes) => {
                qmp.request_growth(bytes).await?;
                self.process.requested_growth = Some(bytes);
                live.ask_again();
                Ok(None)
            }
        }
    }

    async fn plug_disk(
        &mut self,
        live: &LiveMachine,
        qmp: &Qmp,
        disk: Disk,
    ) -> Result<EventNote, ChangeError> {
        qmp.plug_disk(&disk).await?;
        self.disks.pending.remove(&disk.name);
        let message = format!("Successfully attach hotplugged volume {} to VM", disk.name);
        let disk = Disk { hot_plugged: true, ..disk };
        record(live, |machine| machine.disks.push(disk))?;
        Ok(EventNote::normal("VolumeReady", message))
    }
}

/// Notes a change that was made, so that the next process knows of it.
pub(super) fn record(
    live: &LiveMachine,
    change: impl FnOnce(&mut qemu::Machine),
) -> Result<(), ChangeError> {
    live.running.update_spec(|spec| change(&mut spec.machine)).map_err(ChangeError::Record)
}
