//! The plan that a seed encodes: the size of the cluster, the workload, and which faults may
//! happen.

use super::{Rng, Time};
use crate::repl::sabotage::Sabotage;

/// Which kinds of faults a run has. Each seed has some of them: a fault that always happens
/// hides what others would show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    pub engine_crash: bool,
    pub replica_crash: bool,
    pub power_cut: bool,
    pub cluster_power_cut: bool,
    pub network: bool,
    pub control_plane: bool,
    pub slow_disk: bool,
    pub no_space: bool,
    pub rot: bool,
    /// A page of the map of a replica is damaged.
    pub damaged_map: bool,
    /// Blocks and maps of all replicas but one are damaged, not only of the first.
    pub rot_many: bool,
    pub rival: bool,
    /// The network falls apart, and both sides want the volume.
    pub partition: bool,
    pub migration: bool,
    pub close: bool,
    /// A replica's directory is replaced by an older copy of itself.
    pub rollback: bool,
    /// All replicas but one are, at the same time.
    pub rollback_many: bool,
    /// The control plane is restored from an older backup.
    pub record_restored: bool,
    pub snapshots: bool,
    /// At the end only one in-sync replica is left.
    pub lose_all_but_one: bool,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub replicas: usize,
    pub blocks: u64,
    pub depth: u64,
    /// Requests of guests in all.
    pub requests: u64,
    /// How many faults are planned.
    pub trouble: u64,
    pub length: Time,
    pub faults: Faults,
    /// Longest delay of a frame, in microseconds.
    pub delay: u64,
    /// Longest time that a disk needs, in microseconds.
    pub disk: u64,
    /// Per mille of requests that are reads, flushes, discards or writes of zeroes.
    pub reads: u64,
    pub flushes: u64,
    pub zeroes: u64,
    /// Requests of odd sectors instead of whole blocks.
    pub ragged: bool,
    /// Replicas are on the real store instead of a model of one.
    pub real_store: bool,
    /// Longest time until a crashed engine is replaced, in microseconds.
    pub restart: u64,
    /// The engine is killed before everything is read at the end.
    pub kill_at_end: bool,
    /// How often everything is read at the end.
    pub final_reads: u64,
    /// Hosts count what they answered, outside of the replica's directory.
    pub witness: bool,
    /// Before everything heals, only some replicas are there: one in-sync replica is enough.
    pub partial: bool,
    pub sabotage: Sabotage,
    /// Prints what happens.
    pub trace: bool,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rot = rng.chance(80);
        // Options that were added later do not change the meaning of older seeds.
        let mut later = Rng::new(seed ^ 0x5eed);
        let (rollback, witness) = (later.chance(100) && !rot, later.chance(500));
        let partial = later.chance(400);
        let damaged_map = rot && later.chance(500);
        // The evidence that a copy is old must be reachable when the volume is opened. A rotten
        // block can be repaired while another copy is whole, so nothing else may take copies away.
        let mut on = |per_mille: u64| rng.chance(per_mille) && !rot && !rollback;
        let faults = Faults {
            replica_crash: on(400),
            power_cut: on(400),
            cluster_power_cut: on(150),
            network: on(500),
            partition: on(120),
            control_plane: on(250),
            slow_disk: on(250),
            no_space: on(120),
            lose_all_but_one: on(150),
            rot,
            damaged_map,
            rot_many: false,
            rollback,
            rollback_many: false,
            record_restored: false,
            engine_crash: rng.chance(500),
            rival: rng.chance(200),
            migration: rng.chance(250),
            close: rng.chance(200),
            snapshots: rng.chance(250) && !rot,
        };
        let faults = Faults {
            network: faults.network || (rollback && witness && later.chance(300)),
            replica_crash: faults.replica_crash || (rollback && witness && later.chance(300)),
            ..faults
        };
        let faults = if later.chance(60) && !rot && !rollback {
            // Members leave and return, and nothing else is lost: the evidence that the record is
            // old exists.
            Faults {
                replica_crash: true,
                record_restored: true,
                engine_crash: faults.engine_crash,
                close: faults.close,
                snapshots: faults.snapshots,
                ..Faults::default()
            }
        } else {
            faults
        };
        let faults = Faults {
            snapshots: faults.snapshots || (rot && later.chance(500)),
            rot_many: rot && later.chance(500),
            rollback_many: faults.rollback && later.chance(500),
            ..faults
        };
        let calm = rot || rollback || faults.record_restored;
        Self {
            seed,
            replicas: [1, 2, 2, 3, 3, 3, 3][rng.index(7)]
                .max(if rollback || faults.record_restored { 2 } else { 1 }),
            blocks: rng.between(4, 40),
            depth: [1, 2, 4, 8, 16, 32][rng.index(6)],
            requests: rng.between(30, 120),
            trouble: rng.between(1, 8) + if rollback || faults.record_restored { 6 } else { 0 },
            length: Time::from_millis(rng.between(200, 3000)),
            faults,
            // A slow member may be left out at activation, and then the rotten one is alone.
            delay: [200, 1000, 5000][rng.index(if calm { 2 } else { 3 })],
            disk: [200, 1000, 5000][rng.index(if calm { 2 } else { 3 })],
            reads: rng.between(50, 600),
            flushes: rng.between(if rollback { 80 } else { 0 }, 200),
            zeroes: rng.between(0, 150),
            ragged: rng.chance(300),
            real_store: false,
            restart: 200_000,
            kill_at_end: false,
            final_reads: 2,
            witness,
            partial,
            sabotage: Sabotage::default(),
            trace: false,
        }
    }

    /// The same with the real store, which cannot be made to rot here.
    pub fn with_real_store(mut self) -> Self {
        self.real_store = true;
        self.faults.rot = false;
        self.faults.damaged_map = false;
        self.faults.rot_many = false;
        self
    }

    /// Bytes of a region of the dirty-region log.
    pub(crate) fn region(&self) -> u64 {
        match self.real_store {
            true => crate::store::geometry::REGION,
            // Small, so that a small volume has several.
            false => 8 * crate::wire::BLOCK,
        }
    }
}
