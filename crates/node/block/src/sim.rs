//! A whole cluster in one thread, from a seed.
//!
//! Engines, replica sessions, disks, a network, a control plane and guests, driven by one queue of
//! events in virtual time. Random numbers decide delays, faults and the workload, and they are
//! derived from the seed, so a run can be repeated exactly. An [`oracle`](self) checks every read,
//! and at the end every disk. A seed can contain:
//!
//! - engines that crash with or without their guest, are superseded, handed over or closed;
//! - replica processes that crash, nodes that lose power, disks that hang, fill up or rot, and
//!   maps that are damaged;
//! - connections that break, are cut in one direction or both, and deliver late;
//! - a replica's directory that is replaced by an older copy of itself;
//! - a control plane that is away, whose answers are lost, or that is restored from a backup.
//!
//! Not part of what is shipped; it is public so that a long run needs no test harness.

mod backup;
mod cell;
mod disk;
mod disks;
mod finish;
mod guest;
mod hosts;
mod nemesis;
mod net;
mod notices;
mod oracle;
mod plan;
mod rng;
mod stored;
#[cfg(test)]
mod tests;
mod traffic;
mod world;

use std::time::Duration;

pub use plan::{Faults, Plan};
pub use rng::Rng;

use world::World;

pub(crate) type Time = Duration;

/// Statistics of a run without errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub events: u64,
    pub acked_writes: u64,
    pub reads: u64,
    pub flushes: u64,
    pub faults: u64,
    pub activations: u64,
    pub rebuilds: u64,
    pub reconciles: u64,
    pub isr_changes: u64,
    pub snapshots: u64,
    pub repairs: u64,
    pub fenced: u64,
    /// Replicas that were replaced by an older copy, and that were found to be stale.
    pub rollbacks: u64,
    pub stale: u64,
    /// Pages of maps that were damaged.
    pub damaged_maps: u64,
    /// Records that were restored from a backup.
    pub restored_records: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.acked_writes += other.acked_writes;
        self.reads += other.reads;
        self.flushes += other.flushes;
        self.faults += other.faults;
        self.activations += other.activations;
        self.rebuilds += other.rebuilds;
        self.reconciles += other.reconciles;
        self.isr_changes += other.isr_changes;
        self.snapshots += other.snapshots;
        self.repairs += other.repairs;
        self.fenced += other.fenced;
        self.rollbacks += other.rollbacks;
        self.stale += other.stale;
        self.damaged_maps += other.damaged_maps;
        self.restored_records += other.restored_records;
    }
}

/// A rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed} at {at:?}: {what}")]
pub struct Violation {
    pub seed: u64,
    pub at: Duration,
    pub what: String,
}

/// Runs the cluster that `seed` describes.
pub fn run_seed(seed: u64) -> Result<Outcome, Violation> {
    run_plan(Plan::from_seed(seed))
}

/// Runs a given plan.
pub fn run_plan(plan: Plan) -> Result<Outcome, Violation> {
    World::new(plan).run()
}
