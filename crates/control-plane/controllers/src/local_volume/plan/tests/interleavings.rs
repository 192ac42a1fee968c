//! Every order of the steps of a migration, of the controller and of crashes, from a machine that
//! begins to migrate. The controller is two processes that read at one time and write at another:
//! the leader may have changed. Checked in each state that can be reached:
//!
//! - A guest writes to the file that is the volume, and it is the only guest.
//! - The file that is the volume has everything that was ever written.

use std::collections::{BTreeSet, VecDeque};

use super::*;

/// The object of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Machine {
    Migrating,
    Failed,
    HandedOver,
    /// Deleted, or over: the next machine starts where the volume is.
    Gone,
}

/// A write that a process of the controller has decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Decision {
    Begin,
    Commit,
    Abort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    machine: Machine,
    is_moving: bool,
    is_on_target: bool,
    /// Whether each file has all data; nothing if there is none.
    source: Option<bool>,
    target: Option<bool>,
    /// The source's guest has stopped and all of its data is at the target.
    is_stopped: bool,
    /// A machine was started after the first one was gone.
    has_next: bool,
    version: u8,
    /// Decisions of both processes with the version that they have read.
    pending: [Option<(Decision, u8)>; 2],
}

const START: Model = Model {
    machine: Machine::Migrating,
    is_moving: false,
    is_on_target: false,
    source: Some(true),
    target: None,
    is_stopped: false,
    has_next: false,
    version: 0,
    pending: [None, None],
};

impl Model {
    fn evidence(self) -> Option<InstanceEvidence<'static>> {
        match self.machine {
            Machine::Migrating => Some(instance("a")),
            Machine::Failed => Some(failed()),
            Machine::HandedOver => Some(arrived()),
            Machine::Gone if self.has_next => {
                Some(InstanceEvidence { uid: "u2", ..InstanceEvidence::default() })
            }
            Machine::Gone => None,
        }
    }

    fn decide(self) -> Option<Decision> {
        let node = if self.is_on_target { "b" } else { "a" };
        let placement = if self.is_moving {
            VolumePlacement::Moving(moves())
        } else {
            VolumePlacement::Settled { node: node.into() }
        };
        match next("v", &placement, self.evidence().as_ref()) {
            VolumeMoveStep::Wait => None,
            VolumeMoveStep::Begin(_) => Some(Decision::Begin),
            VolumeMoveStep::Commit(_) => Some(Decision::Commit),
            VolumeMoveStep::Abort => Some(Decision::Abort),
        }
    }

    fn written(mut self, decision: Decision) -> Self {
        self.version += 1;
        match decision {
            Decision::Begin => self.is_moving = true,
            Decision::Commit => (self.is_moving, self.is_on_target) = (false, true),
            Decision::Abort => self.is_moving = false,
        }
        self
    }

    /// Whether a guest runs, and writes, at the source and at the target.
    fn guests(self) -> (bool, bool) {
        match self.machine {
            Machine::Migrating => (!self.is_stopped, false),
            Machine::Failed => (true, false),
            Machine::HandedOver => (false, self.is_on_target),
            Machine::Gone => {
                (self.has_next && !self.is_on_target, self.has_next && self.is_on_target)
            }
        }
    }

    fn following(self) -> Vec<Self> {
        let mut all = self.steps_of_nodes();
        for process in 0..2 {
            let mut next = self;
            let Some((decision, version)) = self.pending[process] else {
                next.pending[process] = self.decide().map(|own| (own, self.version));
                all.extend(Some(next).filter(|next| *next != self));
                continue;
            };
            next.pending[process] = None;
            // The process is gone before it has written.
            all.push(next);
            // Refused if the object has changed since it was read.
            if version == self.version {
                all.push(next.written(decision));
            }
        }
        all
    }

    fn steps_of_nodes(self) -> Vec<Self> {
        let (at_source, at_target) = self.guests();
        let is_migrating = self.machine == Machine::Migrating;
        let is_copying = is_migrating && !self.is_stopped;
        let is_there = self.machine != Machine::Gone;
        let copied = Self { target: Some(false), ..self };
        let stopped = Self { is_stopped: true, target: Some(true), ..self };
        let steps = [
            // A write of a guest is in one file; the mirror's end makes up for it.
            (at_source, Self { target: self.target.map(|_| false), ..self }),
            (at_target, Self { source: self.source.map(|_| false), ..self }),
            // The target makes a copy only of a volume that moves.
            (is_copying && self.is_moving && self.target.is_none(), copied),
            (is_copying && self.target.is_some(), stopped),
            (is_migrating && self.is_stopped, Self { machine: Machine::HandedOver, ..self }),
            (is_migrating, Self { machine: Machine::Failed, ..self }),
            (is_there, Self { machine: Machine::Gone, ..self }),
            // No machine starts on a volume that moves.
            (!is_there && !self.has_next && !self.is_moving, Self { has_next: true, ..self }),
            // Nodes delete files that are not the volume, by the objects.
            (self.is_on_target && !self.is_moving, Self { source: None, ..self }),
            (!self.is_on_target && !self.is_moving, Self { target: None, ..self }),
        ];
        steps.into_iter().filter(|(can, _)| *can).map(|(_, next)| next).collect()
    }

    fn check(self) {
        let (at_source, at_target) = self.guests();
        assert!(!(at_source && at_target), "two guests: {self:?}");
        assert!(!at_source || !self.is_on_target, "the guest writes to an old file: {self:?}");
        assert!(!at_target || self.is_on_target, "the guest writes to a copy: {self:?}");
        let volume = if self.is_on_target { self.target } else { self.source };
        assert_eq!(volume, Some(true), "acknowledged data is lost: {self:?}");
    }
}

#[test]
fn in_every_order_of_steps_one_file_is_the_volume_and_complete() {
    let mut seen = BTreeSet::from([START]);
    let mut open = VecDeque::from([START]);
    let mut committed = 0;
    while let Some(model) = open.pop_front() {
        model.check();
        committed += usize::from(model.is_on_target);
        for next in model.following() {
            if next.version < 6 && seen.insert(next) {
                open.push_back(next);
            }
        }
    }
    assert!(seen.len() > 200 && committed > 20, "{} states, {committed} committed", seen.len());
}
