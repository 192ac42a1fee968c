//! Fault injection of the simulation: crashes, power cuts, partitions, damaged and replaced files,
//! restores of the control plane. Damaged and replaced files never hit the last good copy, since no
//! engine could recover from that.

use super::Time;
use super::hosts::Copied;
use super::net::Way;
use super::world::{Start, What, World};
use crate::ids::{BootId, ReplicaId};
use crate::repl::engine::{Command, Engine, Event};

/// The longest duration of a fault.
const LONGEST_FAULT: Time = Time::from_millis(700);

#[derive(Debug, Clone, Copy)]
enum Fault {
    EngineCrash,
    ReplicaCrash,
    PowerCut,
    ClusterPowerCut,
    Cut,
    Reset,
    ControlAway,
    Hang,
    Full,
    Rot,
    /// A page of a replica's map is damaged.
    DamagedMap,
    Rival,
    /// A second engine on the other side of a network partition.
    Partition,
    Migration,
    Close,
    /// A copy is made of a replica's directory.
    Copy,
    /// A replica's directory is replaced by the copy; the others may be killed too.
    Restore,
    /// A backup is made of the control plane.
    Backup,
    /// The control plane is restored from it.
    RecordRestored,
}

impl World {
    pub(crate) fn plan_trouble(&mut self) {
        let length = u64::try_from(self.plan.length.as_micros()).expect("short");
        for _ in 0..self.plan.trouble {
            let at = self.rng.micros(length / 20, length);
            self.at(at, What::Trouble);
        }
        self.after(Time::from_millis(60), What::Supervise);
    }

    pub(crate) fn trouble(&mut self) {
        let faults = self.plan.faults;
        let known = [
            (faults.engine_crash, Fault::EngineCrash),
            (faults.replica_crash, Fault::ReplicaCrash),
            (faults.power_cut, Fault::PowerCut),
            (faults.cluster_power_cut, Fault::ClusterPowerCut),
            (faults.network, Fault::Cut),
            (faults.network, Fault::Reset),
            (faults.control_plane, Fault::ControlAway),
            (faults.slow_disk, Fault::Hang),
            (faults.no_space, Fault::Full),
            (faults.rot, Fault::Rot),
            (faults.damaged_map, Fault::DamagedMap),
            (faults.rival, Fault::Rival),
            (faults.partition, Fault::Partition),
            (faults.migration, Fault::Migration),
            (faults.close, Fault::Close),
            (faults.rollback && self.hosts[0].copy.is_none(), Fault::Copy),
            (faults.rollback && self.hosts[0].copy.is_some(), Fault::Restore),
            (faults.record_restored && self.backup.saved.is_none(), Fault::Backup),
            (faults.record_restored && self.backup.saved.is_some(), Fault::RecordRestored),
        ];
        let possible: Vec<Fault> =
            known.into_iter().filter(|(on, _)| *on).map(|(_, fault)| fault).collect();
        if possible.is_empty() || self.calm || self.backup.is_restored() {
            return;
        }
        self.outcome.faults += 1;
        let fault = possible[self.rng.index(possible.len())];
        self.trace(|| format!("fault: {fault:?}"));
        self.inflict(fault);
    }

    fn inflict(&mut self, fault: Fault) {
        let host = self.rng.index(self.hosts.len());
        let length = self.rng.micros(1_000, 700_000);
        self.troubled = self.troubled.max(self.now + LONGEST_FAULT);
        match fault {
            Fault::EngineCrash => self.crash_some_engine(),
            Fault::ReplicaCrash => {
                self.stop_host(host);
                self.after(length, What::StartHost { host });
            }
            Fault::PowerCut => {
                self.cut_power(host);
                self.after(length, What::StartHost { host });
            }
            Fault::ClusterPowerCut => {
                self.crash_all_engines();
                for host in 0..self.hosts.len() {
                    self.cut_power(host);
                    let length = self.rng.micros(1_000, 400_000);
                    self.after(length, What::StartHost { host });
                }
            }
            Fault::Cut => self.cut_network(host, length),
            Fault::Reset => {
                let wires = self.net.of_replica(host);
                if let Some(wire) = wires.last() {
                    self.reset(*wire);
                }
            }
            Fault::ControlAway => {
                self.control_away = true;
                self.after(length, What::ControlBack);
            }
            Fault::Hang => self.hosts[host].hangs_until = self.now + length,
            Fault::Full => {
                self.hosts[host].disk.set_full(true);
                self.after(length, What::DiskFree { host });
            }
            Fault::DamagedMap => {
                if let Some(host) = self.rotting_host() {
                    self.outcome.damaged_maps += 1;
                    self.hosts[host].disk.damage_map(&mut self.rng);
                }
            }
            Fault::Rot => {
                if let Some(host) = self.rotting_host() {
                    match self.plan.faults.snapshots && self.rng.chance(500) {
                        true => self.hosts[host].disk.rot_snapshot(&mut self.rng),
                        false => self.hosts[host].disk.rot(&mut self.rng),
                    }
                }
            }
            Fault::Rival => {
                self.start_engine(&Start { standby: false, busy: true });
            }
            Fault::Partition => {
                let Some(old) = self.live_engine() else { return };
                let new = self.start_engine(&Start { standby: false, busy: true });
                let (old_host, new_host) = (self.servers[old].host, self.servers[new].host);
                if old_host == new_host {
                    return;
                }
                for replica in 0..self.hosts.len() {
                    let engine_host = if self.rng.chance(500) { old_host } else { new_host };
                    for way in [Way::There, Way::Back] {
                        self.net.cut(engine_host, replica, way);
                    }
                    self.after(length, What::Heal { engine_host, replica });
                }
            }
            Fault::Migration => {
                let Some(from) = self.live_engine() else { return };
                let start = Start { standby: true, busy: false };
                let to = self.start_engine(&start);
                self.after(length, What::Arrived { from, to });
            }
            Fault::Copy => {
                let many = self.plan.faults.rollback_many;
                let count = if many { self.hosts.len() - 1 } else { 1 };
                for host in &mut self.hosts[..count] {
                    let mut disk = host.disk.copy();
                    let (flushed, answered) = (disk.flushed(), host.answered);
                    host.copy = Some(Copied { disk, flushed, answered });
                }
            }
            Fault::Restore => self.restore_copy(),
            Fault::Backup => self.backup.saved = Some(self.record.record.clone()),
            Fault::RecordRestored => self.restore_record(),
            Fault::Close => {
                if let Some(server) = self.live_engine() {
                    self.servers[server].busy = false;
                    self.engine_event(server, Event::Command(Command::Close));
                }
            }
        }
    }

    /// The host whose disk gets rotten blocks: never the last one, and only while that one is
    /// whole and in sync, so that there is a good copy.
    fn rotting_host(&mut self) -> Option<usize> {
        let isr = &self.record.record.isr;
        let last = self.hosts.last().filter(|_| self.hosts.len() > 1)?;
        match self.plan.faults.rot_many {
            true if isr.contains(&last.replica) => Some(self.rng.index(self.hosts.len() - 1)),
            true => None,
            // Any other copy is sufficient.
            false => (isr.len() > 1).then_some(0),
        }
    }

    /// Replaces the disk of the first host by its copy, or those of all hosts but the last, if
    /// another in-sync replica has everything, and a flush since then proves the copy old where the
    /// host has no witness.
    fn restore_copy(&mut self) {
        let many = self.plan.faults.rollback_many && self.rng.chance(500);
        let chosen = if many { self.hosts.len() - 1 } else { 1 };
        // A member that is being removed from the set may be out of it when the copy is detected.
        let engines = || self.servers.iter().filter_map(|it| it.engine.as_ref());
        let keeps = |engine: &Engine, id: &ReplicaId| {
            engine.is_over() || engine.status().isr.contains(id) && !engine.is_leaving(*id)
        };
        let stays = |id: &ReplicaId| {
            self.record.record.isr.contains(id) && engines().all(|it| keeps(it, id))
        };
        let others = self.hosts.iter().skip(chosen).filter(|host| host.session.is_some());
        let others = others.filter(|host| stays(&host.replica)).count();
        if others == 0 || !self.is_provable(chosen) {
            return;
        }
        let all = self.rng.chance(500);
        if all {
            self.crash_all_engines();
        }
        let hosts = if all { self.hosts.len() } else { chosen };
        for host in 0..hosts {
            self.stop_host(host);
            let delay = self.rng.micros(100, 20_000);
            self.after(delay, What::StartHost { host });
        }
        for host in 0..chosen {
            let Some(copy) = self.hosts[host].copy.take() else { continue };
            self.hosts[host].disk = copy.disk;
            self.hosts[host].answered = copy.answered;
            self.hosts[host].disk.stopped();
            self.outcome.rollbacks += 1;
        }
    }

    /// Whether something shows that the copies of the first hosts are old. Several that agree are
    /// believed, unless a flush that is known to be complete is newer.
    fn is_provable(&mut self, chosen: usize) -> bool {
        if self.hosts[..chosen].iter().any(|host| host.copy.is_none()) {
            return false;
        }
        if self.plan.witness {
            return true;
        }
        let last = self.hosts.len() - 1;
        let complete = self.hosts[last].disk.completed();
        (0..chosen).all(|host| {
            let copied = self.hosts[host].copy.as_ref().map(|copy| copy.flushed);
            let known = if chosen > 1 { complete } else { self.hosts[host].disk.flushed() };
            copied < Some(known)
        })
    }

    pub(crate) fn live_engine(&self) -> Option<usize> {
        let live = |server: &usize| {
            let engine = self.servers[*server].engine.as_ref();
            engine.is_some_and(|engine| !engine.is_over()) && !self.servers[*server].is_waiting()
        };
        (0..self.servers.len()).rev().find(live)
    }

    fn crash_some_engine(&mut self) {
        let Some(server) = self.live_engine() else { return };
        let guest_dies = self.rng.chance(600) && !self.lives_elsewhere(server);
        self.crash_engine(server);
        if guest_dies {
            self.guest_crashed();
        }
        let delay = self.rng.micros(100, self.plan.restart);
        let start = Start { standby: false, busy: true };
        self.after(delay, What::StartEngine(Box::new(start)));
    }

    /// Whether the guest continues with another engine.
    fn lives_elsewhere(&self, server: usize) -> bool {
        let goes_on = |(at, it): (usize, &super::hosts::EngineHost)| {
            at != server && it.busy && it.engine.as_ref().is_some_and(|engine| !engine.is_over())
        };
        self.servers.iter().enumerate().any(goes_on)
    }

    pub(crate) fn crash_all_engines(&mut self) {
        for server in 0..self.servers.len() {
            self.crash_engine(server);
        }
        self.guest_crashed();
    }

    pub(crate) fn crash_engine(&mut self, server: usize) {
        if self.servers[server].engine.take().is_none() {
            return;
        }
        self.servers[server].busy = false;
        self.servers[server].active = false;
        self.forget_requests(server);
        for wire in self.net.of_engine(server) {
            self.lose_unsent(wire);
            // Sometimes the replica does not notice that the connection was lost.
            if self.rng.chance(700) {
                self.disconnect_later(wire);
            }
        }
    }

    pub(crate) fn stop_host(&mut self, host: usize) {
        if self.hosts[host].session.take().is_none() {
            return;
        }
        let working = std::mem::take(&mut self.hosts[host].working);
        for request in working.values() {
            self.hosts[host].disk.half_done(request, &mut self.rng);
        }
        self.hosts[host].disk.stopped();
        let replica = self.hosts[host].replica;
        for wire in self.net.of_replica(host) {
            self.deliver(wire, Event::Disconnected { replica, connection: wire.1 });
        }
    }

    pub(crate) fn cut_power(&mut self, host: usize) {
        self.stop_host(host);
        self.hosts[host].disk.power_cut(&mut self.rng);
        self.hosts[host].boot = BootId::from_u128(self.rng.u128());
        self.hosts[host].power_cut = Some(self.now);
        if self.record.record.isr.contains(&self.hosts[host].replica) {
            self.oracle.power_cut(self.now);
        }
    }

    fn cut_network(&mut self, replica: usize, length: Time) {
        let Some(server) = self.live_engine() else { return };
        let engine_host = self.servers[server].host;
        let ways = [&[Way::There][..], &[Way::Back], &[Way::There, Way::Back]];
        for way in ways[self.rng.index(3)] {
            self.net.cut(engine_host, replica, *way);
        }
        self.after(length, What::Heal { engine_host, replica });
    }

    /// Starts another engine when no engine serves the volume.
    pub(crate) fn supervise(&mut self) {
        for server in 0..self.servers.len() {
            let faulted = self.servers[server].engine.as_ref().is_some_and(|it| it.is_faulted());
            if faulted {
                let elsewhere = self.lives_elsewhere(server);
                self.crash_engine(server);
                if !elsewhere {
                    self.guest_crashed();
                }
            }
        }
        self.salvage_if_refused();
        let alive = (0..self.servers.len()).any(|server| {
            let engine = self.servers[server].engine.as_ref();
            engine.is_some_and(|it| !it.is_over()) && !self.servers[server].is_waiting()
        });
        if !alive {
            self.start_engine(&Start { standby: false, busy: !self.calm });
        }
        self.after(Time::from_millis(60), What::Supervise);
    }
}
