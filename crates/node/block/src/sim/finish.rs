//! The end of a run: faults stop, everything must heal, and then everything is checked.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Time;
use super::disk::{Blocks, Cell};
use super::oracle::SECTOR;
use super::world::World;
use crate::ids::ReplicaId;
use crate::repl::engine::{Command, Event, Notice};
use crate::wire::{BLOCK, SnapshotInfo};

/// How long healing may take, in virtual time.
const HEALING_TIMEOUT: Time = Time::from_secs(30);

/// How long service may take when an in-sync replica can be reached.
const SERVICE_BOUND: Time = Time::from_secs(5);

impl World {
    pub(crate) fn finish(&mut self) {
        self.calm = true;
        self.troubled = self.troubled.max(self.now);
        for server in &mut self.servers {
            server.busy = false;
        }
        if self.plan.faults.lose_all_but_one {
            self.lose_all_but_one();
        }
        if self.plan.kill_at_end {
            self.crash_all_engines();
            self.start_engine(&super::world::Start { standby: false, busy: false });
        }
        for server in 0..self.servers.len() {
            if self.servers[server].is_waiting() {
                self.crash_engine(server);
            }
        }
        self.net.heal_all();
        self.control_away = false;
        for host in 0..self.hosts.len() {
            self.hosts[host].disk.set_full(false);
            self.hosts[host].hangs_until = self.now;
        }
        if self.plan.partial && self.can_be_partial() {
            self.serve_partially();
        }
        self.trace(|| "calm".into());
        self.troubled = self.now;
        for host in 0..self.hosts.len() {
            self.start_host(host);
        }
        // An engine that is on its way out may still supersede the one that serves.
        for _ in 0..5 {
            if self.heal() && self.close() {
                return self.compare();
            }
        }
        if self.violation.is_none() {
            self.wrong("no engine could close the volume".to_owned());
        }
    }

    /// Whether one in-sync replica is enough to go on: none has lost anything.
    fn can_be_partial(&self) -> bool {
        let faults = self.plan.faults;
        let whole = !faults.power_cut && !faults.cluster_power_cut && !faults.rot;
        let known = !faults.rollback && !faults.record_restored;
        whole && known && !faults.lose_all_but_one && self.hosts.len() > 1
    }

    /// Some replicas stay away. As long as one of the in-sync set is there, the volume is served
    /// within a bound.
    fn serve_partially(&mut self) {
        let isr = self.record.record.isr.clone();
        let in_sync: Vec<usize> =
            (0..self.hosts.len()).filter(|at| isr.contains(&self.hosts[*at].replica)).collect();
        let kept = in_sync[self.rng.index(in_sync.len())];
        for host in 0..self.hosts.len() {
            if host == kept || self.rng.chance(500) {
                self.start_host(host);
            } else {
                self.stop_host(host);
            }
        }
        self.trace(|| format!("only some are there, host {kept} among them"));
        let limit = self.now + SERVICE_BOUND;
        let served = |world: &Self| {
            let Some(server) = world.live_engine() else { return false };
            world.servers[server].active && world.servers[server].waiting.is_empty()
        };
        self.run_until(|world| world.now >= limit || served(world));
        // The set may have changed without it while it was on its way: then others are needed.
        let in_sync = self.record.record.isr.contains(&self.hosts[kept].replica);
        if served(self) {
            self.read_while_in_sync(kept);
        } else if in_sync && self.violation.is_none() {
            let status: Vec<_> =
                self.servers.iter().filter_map(|it| Some(it.engine.as_ref()?.status())).collect();
            self.wrong(format!("an in-sync replica is there, and no guest is served: {status:#?}"));
        }
    }

    /// Waits until everybody is in sync, and reads everything.
    fn heal(&mut self) -> bool {
        let all: BTreeSet<ReplicaId> =
            self.hosts.iter().filter(|host| !host.destroyed).map(|host| host.replica).collect();
        self.wait("healing", |world| world.has_healed(&all));
        for _ in 0..self.plan.final_reads {
            self.read_everything();
        }
        if self.plan.faults.rot || self.plan.real_store {
            self.scrub();
        }
        self.violation.is_none()
    }

    /// The other in-sync replicas burn down, and so does the engine.
    fn lose_all_but_one(&mut self) {
        self.crash_all_engines();
        // Messages in flight to the control plane arrive.
        self.control_away = false;
        let settled = self.now + Time::from_millis(5);
        self.run_until(|world| world.now >= settled);
        self.crash_all_engines();
        let isr: Vec<ReplicaId> = self.record.record.isr.iter().copied().collect();
        let survivor = isr[self.rng.index(isr.len())];
        for host in 0..self.hosts.len() {
            if self.hosts[host].replica != survivor {
                self.stop_host(host);
                self.hosts[host].destroyed = true;
            }
        }
    }

    fn has_healed(&self, all: &BTreeSet<ReplicaId>) -> bool {
        let Some(server) = self.live_engine() else { return false };
        let Some(engine) = &self.servers[server].engine else { return false };
        let live =
            |it: &&super::hosts::EngineHost| it.engine.as_ref().is_some_and(|it| !it.is_over());
        self.servers.iter().filter(live).count() == 1
            && self.servers[server].active
            && self.servers[server].waiting.is_empty()
            && engine.status().unreconciled == 0
            && self.record.record.isr == *all
            && engine.status().isr.len() == all.len()
    }

    pub(crate) fn read_everything(&mut self) {
        let Some(server) = self.live_engine() else { return };
        self.ask_everything(server);
        self.wait("reads", |world| world.servers[server].waiting.is_empty());
    }

    /// The set may still change without the host: then reads wait for others.
    fn read_while_in_sync(&mut self, kept: usize) {
        let Some(server) = self.live_engine() else { return };
        self.ask_everything(server);
        let replica = self.hosts[kept].replica;
        self.wait("reads", |world| {
            let in_sync = world.record.record.isr.contains(&replica);
            !in_sync || world.servers[server].waiting.is_empty()
        });
    }

    fn ask_everything(&mut self, server: usize) {
        let per_block = BLOCK as usize / SECTOR;
        for block in 0..usize::try_from(self.plan.blocks).expect("few") {
            self.ask_read(server, block * per_block, per_block);
        }
    }

    fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = self.now + HEALING_TIMEOUT;
        self.run_until(|world| world.now >= limit || done(world));
        if !done(self) {
            let status: Vec<_> =
                self.servers.iter().filter_map(|it| Some(it.engine.as_ref()?.status())).collect();
            let engine = self.live_engine().and_then(|it| self.servers[it].engine.as_ref());
            self.trace(|| format!("{engine:#?}"));
            self.wrong(format!("no end of {what}: {status:#?}"));
        }
    }

    fn scrub(&mut self) {
        let Some(server) = self.live_engine() else { return };
        self.engine_event(server, Event::Command(Command::Scrub));
        let done = |notice: &Notice| matches!(notice, Notice::ScrubDone { .. });
        self.notices.clear();
        self.wait("the scrub", |world| world.is_over(server) || world.notices.iter().any(done));
    }

    /// False if the engine was superseded before it could.
    fn close(&mut self) -> bool {
        let Some(server) = self.live_engine() else { return false };
        self.notices.clear();
        self.engine_event(server, Event::Command(Command::Close));
        self.wait("closing", |world| world.is_over(server));
        self.notices.contains(&Notice::Closed)
    }

    fn is_over(&self, server: usize) -> bool {
        self.servers[server].engine.as_ref().is_none_or(|engine| engine.is_over())
    }

    /// Every replica must hold the same, what the oracle expects, with good checksums.
    fn compare(&mut self) {
        let isr = &self.record.record.isr;
        let hosts: Vec<usize> =
            (0..self.hosts.len()).filter(|host| isr.contains(&self.hosts[*host].replica)).collect();
        let Some(first) = hosts.first().copied() else { return };
        for host in hosts {
            if let Err(error) = self.compare_host(first, host) {
                return self.wrong(format!("host {host} at rest: {error}"));
            }
        }
    }

    fn compare_host(&mut self, first: usize, host: usize) -> Result<(), String> {
        let record = &self.record.record;
        let disputed = record
            .disputed
            .iter()
            .flat_map(|it| it.offset / BLOCK..(it.offset + it.length) / BLOCK);
        let disputed: BTreeSet<u64> = disputed.collect();
        let known: Vec<u64> =
            (0..self.plan.blocks).filter(|block| !disputed.contains(block)).collect();
        let head = self.hosts[host].disk.head();
        same(&self.hosts[first].disk.head(), &head, &known)?;
        let mut shape = |host: usize| {
            let disk = &mut self.hosts[host].disk;
            (disk.snapshots(), disk.size())
        };
        let (expected, found) = (shape(first), shape(host));
        if expected != found {
            return Err(format!("snapshots and size {found:?}, not {expected:?}"));
        }
        for info in &found.0 {
            let one = self.hosts[first].disk.snapshot(info);
            same(&one, &self.hosts[host].disk.snapshot(info), &self.undisputed())
                .and_then(|()| self.check_snapshot(info, &one))
                .map_err(|error| format!("snapshot {}: {error}", info.name))?;
        }
        let dirty = self.hosts[host].disk.log();
        if !dirty.is_empty() {
            return Err(format!("regions {dirty:?} are dirty after a clean stop"));
        }
        for block in known {
            let cell = cell(&head, block);
            if crate::checksum::crc32c(&cell.data) != cell.crc {
                return Err(format!("block {block} does not fit its checksum"));
            }
            for (index, sector) in cell.data.chunks(SECTOR).enumerate() {
                let sector_index = usize::try_from(block).expect("few") * 8 + index;
                self.oracle.check_sector(sector_index, sector)?;
            }
        }
        Ok(())
    }

    /// Blocks that were never disputed: a snapshot keeps what its replica had.
    fn undisputed(&self) -> Vec<u64> {
        (0..self.plan.blocks).filter(|block| !self.disputed.contains(block)).collect()
    }

    /// A snapshot shows one moment between the request and its answer. Of one that was not
    /// answered nothing is known.
    fn check_snapshot(&self, info: &SnapshotInfo, blocks: &Blocks) -> Result<(), String> {
        let Some(view) = self.snapshots.get(&info.id) else { return Ok(()) };
        for block in self.undisputed() {
            let first = usize::try_from(block).expect("few") * 8;
            for (index, sector) in cell(blocks, block).data.chunks(SECTOR).enumerate() {
                view.check_sector(first + index, sector)?;
            }
        }
        Ok(())
    }
}

fn cell(blocks: &Blocks, block: u64) -> Cell {
    blocks.get(&block).cloned().unwrap_or_else(|| {
        let data = Bytes::from(vec![0; BLOCK as usize]);
        let crc = crate::checksum::crc32c(&data);
        Cell { data, crc }
    })
}

fn same(one: &Blocks, other: &Blocks, blocks: &[u64]) -> Result<(), String> {
    for block in blocks.iter().copied() {
        if cell(one, block) != cell(other, block) {
            return Err(format!("block {block} differs from the first host's"));
        }
    }
    Ok(())
}
