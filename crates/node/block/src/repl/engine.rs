//! The engine: one volume, served to one guest, kept on its replicas.
//!
//! ```text
//!  Idle ──Activate──► Claiming ──swapped──► Opening ──promised──► Confirming ──swapped──► Settling
//!   └──Standby──► Standby ──first change, or Switch──► Claiming                              │
//!                                                                         lease over, flushed ▼
//!  any ──newer generation──► Fenced        Closed ◄──────── Closing ◄──────Close──────────  Active
//!  Claiming, Opening, Active ──nothing left to trust──► Faulted
//! ```
//!
//! [`Engine::on`] takes an event and a time, and pushes actions. It does no I/O and reads no
//! clock. The engine must be woken at [`Engine::deadline`] with [`Event::Timer`].
//!
//! The pieces, each in a file of its own:
//!
//! - `activate`: from idle to active (R2); `standby`: reads before that, for a handover;
//! - `member`: what the engine knows of a replica; `link`: connections, sessions, heartbeats;
//! - `guest`: requests of the guest, held back until they may start; `locks`: who excludes whom;
//! - `ops`: calls under way and what their answers mean (R3); `flush`: group flush;
//! - `cover`: encryption, between the guest's addresses and the volume's;
//! - `membership`: the in-sync set by compare-and-swap (R4, R5); `rebuild`: learners;
//! - `sync`: compares a range between replicas and copies what differs. Reconciling after a
//!   crash, rebuilding, repairing a bad block and scrubbing are all this one task;
//! - `barrier`: snapshots and other changes of the whole volume; `pace`: latencies and throttle.

mod activate;
mod age;
mod barrier;
mod cover;
mod damage;
mod dispute;
mod event;
mod flush;
mod guest;
mod learner;
mod link;
mod locks;
mod member;
mod membership;
mod notice;
mod ops;
mod owner;
mod pace;
mod rebuild;
mod scrub;
mod scrub_metadata;
mod standby;
mod status;
mod sync;
mod sync_move;
mod sync_plan;
#[cfg(test)]
mod tests;
mod timer;
mod write;

use std::collections::{BTreeMap, VecDeque};

use barrier::Barrier;
use damage::{DamageList, MetadataList};
pub use damage::{ReplicaMetadata, ScrubResult, SnapshotDamage};
use dispute::Disputes;
pub use event::{
    Action, Command, Config, Connection, ControlAnswer, Event, Extent, GuestError, GuestId,
    GuestReply, GuestRequest, GuestResult, Time,
};
use flush::Flush;
use guest::{Parts, Waiting};
use locks::Locks;
use member::{Member, Role};
use membership::Control;
pub use notice::{Fault, LockFault, MemberFault, Notice, Progress, RebuildKind, Stale, Status};
use ops::Op;
use pace::Throttle;
use scrub::Scrub;
use sync::Sync;
use write::Fill;

use super::sabotage::{Sabotage, skips};
use super::slots::Slots;
use super::span::Pieces;
use crate::crypt::Cipher;
use crate::ids::{Generation, ReplicaId, Seq, SnapshotId};
use crate::wire::SnapshotInfo;

/// Where the engine is in its life.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Idle,
    Standby,
    Claiming,
    Opening { since: Time, warned: bool },
    Confirming,
    Settling { until: Time },
    Active,
    Closing(Closing),
    Closed,
    Fenced,
    Faulted(Fault),
}

/// The steps of a release.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Closing {
    Draining,
    Flushing,
    /// A second flush, which reports the first as complete: nothing is dirty any more.
    Settling,
    Ending,
    Releasing,
}

/// The engine of one volume.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    now: Time,
    out: Vec<Action>,
    phase: Phase,
    generation: Generation,
    /// A replica has promised this one already, though the record does not know it.
    outrun: Generation,
    control: Control,
    members: Vec<Member>,
    local: Option<ReplicaId>,
    size: u64,
    /// Of an encrypted volume that is unlocked.
    cipher: Option<Cipher>,
    /// Bytes of a region of the replicas' dirty-region logs.
    region: u64,
    snapshots: Vec<SnapshotInfo>,
    head_parent: Option<SnapshotId>,
    ops: BTreeMap<u64, Op>,
    /// Numbers operations, tasks and calls alike.
    next: u64,
    next_connection: Connection,
    seq: Seq,
    locks: Locks,
    /// Requests of the guest that may not start yet, in the order they came.
    queue: VecDeque<Waiting>,
    /// Requests that were cut into several.
    parts: BTreeMap<GuestId, Parts>,
    /// Bytes of the guest's changes under way.
    window: u64,
    flush: Flush,
    /// Regions that may differ between replicas since an unclean stop.
    unreconciled: Pieces,
    disputes: Disputes,
    syncs: BTreeMap<u64, Sync>,
    fills: BTreeMap<u64, Fill>,
    barrier: Option<Barrier>,
    barriers: VecDeque<(GuestId, GuestRequest)>,
    scrub: Option<Scrub>,
    /// Result of the last scrub: the number of blocks, and the damage left in snapshots and in
    /// metadata.
    last_scrub: Option<(u64, DamageList, MetadataList)>,
    throttle: Throttle,
    last_guest: Time,
    next_tick: Time,
    /// When this process last went on after a time in which it did not run.
    resumed: Time,
    /// Until then an older engine may still answer reads.
    lease_over: Time,
    /// The flush that ends an activation is under way.
    settling_flush: bool,
    /// A member on another node has given no proof for too long.
    unproven: bool,
    /// Why the volume is not served yet.
    waiting: Option<String>,
    sabotage: Sabotage,
}

impl Engine {
    pub fn new(config: Config) -> Self {
        let throttle = Throttle::new(config.rebuild_rate, config.rebuild_latency);
        Self {
            now: Time::ZERO,
            out: Vec::new(),
            phase: Phase::Idle,
            generation: Generation(0),
            outrun: Generation(0),
            control: Control::default(),
            members: Vec::new(),
            local: None,
            size: 0,
            cipher: None,
            region: 4 << 20,
            snapshots: Vec::new(),
            head_parent: None,
            ops: BTreeMap::new(),
            next: 1,
            next_connection: 1,
            seq: Seq(0),
            locks: Locks::default(),
            queue: VecDeque::new(),
            parts: BTreeMap::new(),
            window: 0,
            flush: Flush::default(),
            unreconciled: Pieces::none(4 << 20),
            disputes: Disputes::default(),
            syncs: BTreeMap::new(),
            fills: BTreeMap::new(),
            barrier: None,
            barriers: VecDeque::new(),
            scrub: None,
            last_scrub: None,
            throttle,
            last_guest: Time::ZERO,
            next_tick: Time::ZERO,
            resumed: Time::ZERO,
            lease_over: Time::ZERO,
            settling_flush: false,
            unproven: false,
            waiting: None,
            sabotage: Sabotage::None,
            config,
        }
    }

    /// The only way the engine changes.
    pub fn on(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        self.now = self.now.max(now);
        match event {
            Event::Command(command) => self.command(command),
            Event::Guest { id, request } => self.guest(id, request),
            Event::Connected { replica, connection } => self.connected(replica, connection),
            Event::Disconnected { replica, connection } => self.disconnected(replica, connection),
            Event::Answer { replica, connection, answer } => {
                self.answer(replica, connection, answer);
            }
            Event::Control(answer) => self.control_answered(answer),
            Event::Timer => {}
        }
        if self.now >= self.next_tick {
            self.tick();
        }
        self.drive();
        out.append(&mut self.out);
    }

    /// Leaves out a rule, to show that this is noticed.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn sabotage(&mut self, sabotage: Sabotage) {
        self.sabotage = sabotage;
        self.locks.lawless = skips!(sabotage, NoLocks);
    }

    /// When the engine wants [`Event::Timer`].
    pub fn deadline(&self) -> Time {
        self.next_tick
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Activate { replicas, local } if self.phase == Phase::Idle => {
                self.know(&replicas, local);
                self.claim();
            }
            Command::Standby { replicas, local } if self.phase == Phase::Idle => {
                self.know(&replicas, local);
                self.stand_by();
            }
            Command::Switch if self.phase == Phase::Standby => self.claim(),
            Command::AddReplica(replica) => {
                let slot = self.slot_or_new(replica);
                self.members[slot].wanted = true;
            }
            Command::RemoveReplica(replica) => self.remove_replica(replica),
            Command::Scrub if self.scrub.is_none() => self.scrub = Some(Scrub::default()),
            Command::Unlock(result) => self.unlock(result),
            Command::Close => self.close(),
            Command::Activate { .. }
            | Command::Standby { .. }
            | Command::Switch
            | Command::Scrub => {}
        }
    }

    /// Lets everything that waited for what has just changed go on.
    fn drive(&mut self) {
        match self.phase {
            Phase::Active => {
                self.drive_membership();
                self.drive_syncs();
                self.drive_rebuilds();
                self.drive_barrier();
                self.drive_flush();
                self.start_ready();
            }
            Phase::Standby => self.pump_standby(),
            Phase::Opening { .. } => self.drive_opening(),
            Phase::Settling { .. } => self.drive_settling(),
            Phase::Closing(_) => {
                self.drive_membership();
                self.drive_syncs();
                self.drive_closing();
            }
            _ => {}
        }
    }

    fn know(&mut self, replicas: &[ReplicaId], local: Option<ReplicaId>) {
        self.local = local;
        for replica in replicas {
            let slot = self.slot_or_new(*replica);
            self.members[slot].wanted = true;
        }
    }

    fn slot(&self, replica: ReplicaId) -> Option<usize> {
        self.members.iter().position(|member| member.id == replica)
    }

    fn slot_or_new(&mut self, replica: ReplicaId) -> usize {
        self.slot(replica).unwrap_or_else(|| {
            assert!(self.members.len() < super::slots::MAX_SLOTS, "more replicas than places");
            self.members.push(Member::new(replica, self.config.chunk));
            self.members.len() - 1
        })
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push(Action::Notice(notice));
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The members that fit.
    fn slots(&self, fits: impl Fn(&Member) -> bool) -> Slots {
        (0..self.members.len()).filter(|slot| fits(&self.members[*slot])).collect()
    }

    /// Members that must answer before anything is acknowledged: all that the record names, or may
    /// name because a change of it was not answered.
    fn required(&self) -> Slots {
        self.slots(|member| {
            let given_up = skips!(self.sabotage, EarlyShrink) && member.fault.is_some();
            matches!(member.role, Role::InSync | Role::Leaving | Role::Joining { .. }) && !given_up
        })
    }

    /// The members that have everything and can be asked.
    fn readable(&self) -> Slots {
        self.slots(|member| member.is_readable())
    }

    /// Another engine has the volume: nothing that is still under way may be acknowledged.
    fn fence(&mut self, by: Generation) {
        if matches!(self.phase, Phase::Closed | Phase::Fenced) {
            return;
        }
        self.notice(Notice::Fenced { by });
        self.stop(Phase::Fenced);
    }

    fn fault(&mut self, why: Fault) {
        self.notice(Notice::Faulted { why });
        self.stop(Phase::Faulted(why));
    }

    /// Ends all service: every request fails, every connection closes.
    fn stop(&mut self, phase: Phase) {
        self.phase = phase;
        for slot in 0..self.members.len() {
            self.disconnect(slot);
        }
        self.fail_all_guests();
        self.ops.clear();
        self.syncs.clear();
        self.fills.clear();
        self.locks = Locks::default();
        self.control.stop();
    }
}
