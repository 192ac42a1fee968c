//! Revisions of a store over its life, from a seed: writes, backups, restores of any backup, the move
//! from the file into etcd and back that is killed in any phase, and the loss of members of etcd that
//! had newer writes. The arithmetic is the real one ([`Revision::leapt`], [`Offset`]).
//!
//! Checked after each event (F12 of the design of clusters): the next revision is above all that a
//! client has seen, and no revision of before the event is taken for one of etcd's of now.

use crate::etcd::Offset;
use crate::revision::Revision;

#[path = "../../../../controllers/src/seeded_rng.rs"]
mod seeded_rng;
use seeded_rng::SeededRng;

/// A rule that is left out, to show that the check notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    None,
    /// A restore leaps by a fixed distance.
    FixedLeap,
    /// A recovery goes on where the member is that is left.
    NoLeapAfterRecovery,
    /// The move begins with etcd's own revisions.
    NoOffset,
    /// The file goes on with etcd's own revision.
    NoOffsetInFile,
    /// The file of a return that was killed is used as it is by the next one.
    OldFile,
}

#[derive(Debug, Clone, Copy)]
enum Engine {
    File { revision: Revision },
    Etcd { offset: Offset, etcd: i64 },
}

/// A move that was begun, in either direction; nothing of it counts before its end.
const MOVE_PHASES: u64 = 5;

struct RevisionSimulation {
    rng: SeededRng,
    sabotage: Sabotage,
    engine: Engine,
    backups: Vec<Revision>,
    /// The last revision that a client has seen.
    seen: Revision,
    seconds: i64,
    /// Of a return to the file that was killed.
    left_file: Option<Revision>,
    /// A recovery was killed before it raised the revisions: the next start does it.
    is_recovering: bool,
}

impl RevisionSimulation {
    fn new(seed: u64, sabotage: Sabotage) -> Self {
        let mut rng = SeededRng::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let engine = Engine::File { revision: Revision::new(rng.below(5_000)) };
        let seen = Revision::ZERO;
        let (backups, seconds, is_recovering) = (Vec::new(), 1_790_000_000, false);
        let left_file = None;
        Self { rng, sabotage, engine, backups, seen, seconds, left_file, is_recovering }
    }

    fn current(&self) -> Revision {
        match self.engine {
            Engine::File { revision } => revision,
            Engine::Etcd { offset, etcd } => offset.revision(etcd),
        }
    }

    fn run(mut self) -> Result<(), String> {
        self.write();
        for _ in 0..60 {
            let longest = if self.rng.chance(80) { 30 } else { 1_000_000 };
            self.seconds += 1 + i64::try_from(self.rng.below(longest)).unwrap_or(0);
            let event = match self.rng.index(6) {
                0 | 1 => "write",
                2 => self.back_up(),
                3 => self.restore(),
                4 => self.return_to_file(),
                _ => self.move_or_lose(),
            };
            self.start();
            if let Engine::Etcd { offset, etcd } = self.engine
                && offset.etcd(self.seen).is_some_and(|known| known > etcd)
            {
                return Err(format!("F12: {event}: {} is taken for a later one", self.seen));
            }
            let before = self.seen;
            self.write();
            if self.current() <= before {
                return Err(format!("F12: {event}: {} after {before}", self.current()));
            }
        }
        Ok(())
    }

    /// Some writes, all of which a client sees.
    fn write(&mut self) {
        let count = 1 + self.rng.below(2_000);
        match &mut self.engine {
            Engine::File { revision } => *revision = Revision::new(revision.get() + count),
            Engine::Etcd { etcd, .. } => *etcd += count.cast_signed(),
        }
        self.seen = self.seen.max(self.current());
    }

    fn back_up(&mut self) -> &'static str {
        self.backups.push(self.current());
        "backup"
    }

    /// Any backup, into a new file.
    fn restore(&mut self) -> &'static str {
        if self.backups.is_empty() {
            return "no backup";
        }
        let last = self.backups[self.rng.index(self.backups.len())];
        let revision = match self.sabotage {
            Sabotage::FixedLeap => Revision::new(last.get() + super::super::LEAP),
            _ => last.leapt(self.seconds),
        };
        self.engine = Engine::File { revision };
        self.is_recovering = false;
        "restore"
    }

    /// From an etcd of one member, while no server writes.
    fn return_to_file(&mut self) -> &'static str {
        // A start completes a recovery first.
        self.start();
        let Engine::Etcd { offset, etcd } = self.engine else { return "no return" };
        let exported = match (self.sabotage, self.left_file.take()) {
            (Sabotage::OldFile, Some(left)) => left,
            (Sabotage::NoOffsetInFile, _) => Revision::new(etcd.cast_unsigned()),
            _ => offset.revision(etcd),
        };
        if self.rng.below(MOVE_PHASES) + 1 < MOVE_PHASES {
            // Killed: etcd goes on, and takes writes before the next attempt.
            self.left_file = Some(exported);
            return "killed return";
        }
        self.engine = Engine::File { revision: exported };
        "return"
    }

    fn move_or_lose(&mut self) -> &'static str {
        match self.engine {
            Engine::File { revision } => {
                // Killed in a phase before the last: the file goes on, and etcd is discarded.
                if self.rng.below(MOVE_PHASES) + 1 < MOVE_PHASES {
                    return "killed move";
                }
                let offset = match self.sabotage {
                    Sabotage::NoOffset => Offset::new(0),
                    _ => Offset::after(revision),
                };
                self.engine = Engine::Etcd { offset, etcd: 2 + self.rng.below(50).cast_signed() };
                "move"
            }
            Engine::Etcd { offset, etcd } => {
                let lost = self.rng.below(100).cast_signed().min(etcd - 1);
                self.engine = Engine::Etcd { offset, etcd: etcd - lost };
                self.is_recovering = true;
                if self.rng.chance(50) {
                    self.start();
                }
                "recovery"
            }
        }
    }

    /// A start of the server, or the end of a recovery.
    fn start(&mut self) {
        let is_due = std::mem::take(&mut self.is_recovering);
        if let Engine::Etcd { offset, etcd } = self.engine
            && is_due
            && self.sabotage != Sabotage::NoLeapAfterRecovery
        {
            let offset = offset.leapt(etcd, self.seconds);
            self.engine = Engine::Etcd { offset, etcd: etcd + 1 };
        }
    }
}

/// How many seeds an ordinary run of the tests takes.
fn seeds() -> u64 {
    std::env::var("SHEAF_REVISION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

fn run(seed: u64, sabotage: Sabotage) -> Result<(), String> {
    RevisionSimulation::new(seed, sabotage).run()
}

#[test]
fn revisions_never_decrease() {
    for seed in 0..seeds() {
        run(seed, Sabotage::None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn each_rule_is_needed() {
    for (sabotage, event) in [
        (Sabotage::FixedLeap, "F12: restore"),
        (Sabotage::NoLeapAfterRecovery, "F12: recovery"),
        (Sabotage::NoOffset, "F12: move"),
        (Sabotage::NoOffsetInFile, "F12: return"),
        (Sabotage::OldFile, "F12: return"),
    ] {
        let is_found = |seed| run(seed, sabotage).is_err_and(|text| text.contains(event));
        assert!((0..1000).any(is_found), "{sabotage:?}");
    }
}
