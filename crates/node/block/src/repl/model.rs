//! The rules R1 to R5 alone, explored to the end.
//!
//! A small model of replicas, engines and the record, without time, messages or disks: every step
//! that the rules allow, in every order. Two things must be true in every reachable state: every
//! acknowledged write is on every replica that the record names (AckedDurable), and an engine that
//! was superseded by another cannot get a new write acknowledged (NoTwoWriters). Leaving out a
//! rule must make one of them false.

use std::collections::{HashSet, VecDeque};

const REPLICAS: usize = 3;

/// A set of replicas or of writes.
type Set = u8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Engine {
    Idle,
    /// Took a generation; these have promised it.
    Claimed {
        generation: u8,
        asked: Set,
        promised: Set,
    },
    Active {
        generation: u8,
        isr: Set,
        write: Option<Write>,
    },
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Write {
    id: u8,
    answered: Set,
    /// A newer engine was already active when the guest asked for it.
    late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ModelState {
    generation: u8,
    isr: Set,
    promised: [u8; REPLICAS],
    /// The writes that a replica has.
    data: [Set; REPLICAS],
    engines: Vec<Engine>,
    begun: u8,
    acked: Set,
    late_ack: bool,
}

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// R1: replicas take writes of any generation.
    Promise,
    /// R2: an engine serves with whoever promised, without updating the record.
    Confirm,
    /// R3: the first answer acknowledges.
    All,
    /// R4: a member is given up without updating the record.
    Shrink,
    /// R4, R5: the record is changed without comparing the generation.
    Compare,
    /// R5: a learner counts before it has a copy.
    Copy,
}

struct Model {
    writes: u8,
    without: Without,
}

fn has(set: Set, index: usize) -> bool {
    set & (1 << index) != 0
}

fn bit(index: usize) -> Set {
    1 << index
}

impl Model {
    fn first(&self, engines: usize) -> ModelState {
        ModelState {
            generation: 0,
            isr: bit(REPLICAS) - 1,
            promised: [0; REPLICAS],
            data: [0; REPLICAS],
            engines: vec![Engine::Idle; engines],
            begun: 0,
            acked: 0,
            late_ack: false,
        }
    }

    fn next(&self, state: &ModelState) -> Vec<ModelState> {
        let mut out = Vec::new();
        for index in 0..state.engines.len() {
            match state.engines[index] {
                Engine::Idle => out.push(self.claim(state, index)),
                Engine::Claimed { generation, asked, promised } => {
                    self.claimed(state, index, (generation, asked, promised), &mut out);
                    out.push(with(state, index, Engine::Over));
                }
                Engine::Active { generation, isr, write } => {
                    self.serve(state, index, (generation, isr, write), &mut out);
                    self.change_members(state, index, (generation, isr, write), &mut out);
                    out.push(with(state, index, Engine::Over));
                }
                Engine::Over => {}
            }
        }
        out
    }

    fn claim(&self, state: &ModelState, index: usize) -> ModelState {
        let mut next = state.clone();
        next.generation += 1;
        let (generation, asked) = (next.generation, next.isr);
        next.engines[index] = Engine::Claimed { generation, asked, promised: 0 };
        next
    }

    fn claimed(
        &self,
        state: &ModelState,
        index: usize,
        (generation, asked, promised): (u8, Set, Set),
        out: &mut Vec<ModelState>,
    ) {
        for replica in (0..REPLICAS).filter(|replica| has(asked & !promised, *replica)) {
            if state.promised[replica] <= generation {
                let promised = promised | bit(replica);
                let mut next = with(state, index, Engine::Claimed { generation, asked, promised });
                next.promised[replica] = generation;
                out.push(next);
            }
        }
        if promised == 0 {
            return;
        }
        if state.generation != generation && self.without != Without::Compare {
            return out.push(with(state, index, Engine::Over));
        }
        // Any of them may be the source that the others are reconciled with.
        for source in (0..REPLICAS).filter(|replica| has(promised, *replica)) {
            let mut next = state.clone();
            if self.without != Without::Confirm {
                next.isr = promised;
            }
            for replica in (0..REPLICAS).filter(|replica| has(promised, *replica)) {
                next.data[replica] = state.data[source];
            }
            next.engines[index] = Engine::Active { generation, isr: promised, write: None };
            out.push(next);
        }
    }

    fn serve(
        &self,
        state: &ModelState,
        index: usize,
        (generation, isr, write): (u8, Set, Option<Write>),
        out: &mut Vec<ModelState>,
    ) {
        let Some(write) = write else {
            if state.begun < self.writes {
                let late = state.engines.iter().any(|engine| {
                    matches!(engine, Engine::Active { generation: newer, .. } if *newer > generation)
                });
                let write = Some(Write { id: state.begun, answered: 0, late });
                let mut next = with(state, index, Engine::Active { generation, isr, write });
                next.begun += 1;
                out.push(next);
            }
            return;
        };
        for replica in (0..REPLICAS).filter(|replica| has(isr & !write.answered, *replica)) {
            if state.promised[replica] == generation || self.without == Without::Promise {
                let write = Some(Write { answered: write.answered | bit(replica), ..write });
                let mut next = with(state, index, Engine::Active { generation, isr, write });
                next.data[replica] |= 1 << state.begun_id(index);
                out.push(next);
            }
        }
        let enough = match self.without {
            Without::All => write.answered != 0,
            _ => write.answered & isr == isr,
        };
        if enough {
            let mut next = with(state, index, Engine::Active { generation, isr, write: None });
            next.acked |= 1 << write.id;
            next.late_ack |= write.late;
            out.push(next);
        }
    }

    fn change_members(
        &self,
        state: &ModelState,
        index: usize,
        (generation, isr, write): (u8, Set, Option<Write>),
        out: &mut Vec<ModelState>,
    ) {
        let fenced = state.generation != generation && self.without != Without::Compare;
        for replica in 0..REPLICAS {
            let shrinks = has(isr, replica) && isr != bit(replica);
            let grows = !has(isr, replica) && state.promised[replica] <= generation;
            if !shrinks && !grows {
                continue;
            }
            let isr = if shrinks { isr & !bit(replica) } else { isr | bit(replica) };
            let quietly = shrinks && self.without == Without::Shrink;
            if fenced && !quietly {
                out.push(with(state, index, Engine::Over));
                continue;
            }
            // A learner has a copy of some member, which may lack what is under way; that it
            // must do itself before it counts, whatever it did in an earlier life as a member.
            let answered = |it: Write| Write { answered: it.answered & !bit(replica), ..it };
            let write = if grows { write.map(answered) } else { write };
            let sources = (0..REPLICAS).filter(|source| grows && has(isr & !bit(replica), *source));
            let copies: Vec<Option<Set>> = match (grows, self.without) {
                (true, Without::Copy) | (false, _) => vec![None],
                (true, _) => sources.map(|source| Some(state.data[source])).collect(),
            };
            for copy in copies {
                let mut next = with(state, index, Engine::Active { generation, isr, write });
                if grows {
                    next.promised[replica] = generation;
                    next.data[replica] = copy.unwrap_or(state.data[replica]);
                }
                if !quietly {
                    next.isr = isr;
                }
                out.push(next);
            }
        }
    }

    /// Explores everything; the number of states, or one that breaks a rule.
    fn explore(&self, engines: usize) -> Result<usize, ModelState> {
        let first = self.first(engines);
        let mut seen = HashSet::from([first.clone()]);
        let mut todo = VecDeque::from([first]);
        while let Some(state) = todo.pop_front() {
            if state.breaks_a_rule() {
                return Err(state);
            }
            for next in self.next(&state) {
                if seen.insert(next.clone()) {
                    todo.push_back(next);
                }
            }
        }
        Ok(seen.len())
    }
}

impl ModelState {
    fn begun_id(&self, index: usize) -> u8 {
        match self.engines[index] {
            Engine::Active { write: Some(write), .. } => write.id,
            _ => 0,
        }
    }

    fn breaks_a_rule(&self) -> bool {
        let lost = (0..REPLICAS)
            .any(|replica| has(self.isr, replica) && self.data[replica] & self.acked != self.acked);
        lost || self.late_ack
    }
}

fn with(state: &ModelState, index: usize, engine: Engine) -> ModelState {
    let mut next = state.clone();
    next.engines[index] = engine;
    next
}

#[test]
fn the_rules_hold_in_every_state_of_two_engines() {
    let states = Model { writes: 2, without: Without::Nothing }.explore(2).unwrap();
    assert!(states > 10_000, "only {states} states were reached");
}

#[test]
fn each_rule_is_needed() {
    for without in [
        Without::Promise,
        Without::Confirm,
        Without::All,
        Without::Shrink,
        Without::Compare,
        Without::Copy,
    ] {
        let broken = Model { writes: 2, without }.explore(2);
        assert!(broken.is_err(), "{without:?} can be left out");
    }
}
