//! Whether a replica that the record calls in sync still is: pure.
//!
//! A directory can be replaced by an older copy of itself (a restored backup, a snapshot of its
//! file system, a disk that was swapped). Nothing inside the copy says so: it is whole, its
//! checksums match, and it may have been closed cleanly. So what proves a replica current is kept
//! outside of it, and is compared on every open:
//!
//! - the record has the last generation that the in-sync set promised (`confirmed`);
//! - the record and every other replica have flushes that all in-sync replicas carried out;
//! - the replica's host counts the changes that it answered ([`Witnessed`]);
//! - a replica knows the epoch of the set it last belonged to, which a record that was restored
//!   from a backup may not. Replicas outside of the set are therefore asked too: one that belonged
//!   to a later set than the record names proves that the record is old.
//!
//! All of it is a lower bound: evidence that is missing or old makes no replica stale. Regions leave
//! the dirty-region logs only with a flush that reports an earlier one as complete, so a replica
//! that passes differs from the others within the union of their dirty regions, and nowhere else.

use crate::ids::{Epoch, FlushMark, FlushMarks, Generation};
use crate::repl::control::Record;
use crate::wire::Witnessed;

/// The state that a replica reports when it is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The newest generation that it had promised before.
    pub(crate) promised: Generation,
    pub(crate) epoch: Epoch,
    /// False for a replica that is served by a version without marks: then none are expected.
    pub(crate) keeps_marks: bool,
    pub(crate) marks: Option<FlushMarks>,
    pub(crate) witnessed: Witnessed,
}

impl Claim {
    pub(crate) fn flushed(&self) -> FlushMark {
        self.marks.unwrap_or_default().flushed
    }

    pub(crate) fn complete(&self) -> FlushMark {
        self.marks.unwrap_or_default().complete
    }
}

/// Why a replica is older than what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    #[error(
        "its newest generation is {promised}, and the in-sync replicas were served in {confirmed}"
    )]
    Promise { promised: Generation, confirmed: Generation },
    #[error("its newest flush is {flushed}, and every in-sync replica had carried out {complete}")]
    Flush { flushed: FlushMark, complete: FlushMark },
    #[error("its files are older than changes that it answered")]
    RolledBack,
    #[error("it left the in-sync set at epoch {epoch}; another replica is at {newest}")]
    Epoch { epoch: Epoch, newest: Epoch },
}

/// The promise alone, which is known before the replica is opened and changed by opening it.
pub(crate) fn judge_promise(record: &Record, promised: Generation) -> Option<Stale> {
    let confirmed = record.confirmed;
    (promised < confirmed).then_some(Stale::Promise { promised, confirmed })
}

/// A flush that every in-sync replica carried out: the newest that any replica knows of.
pub(crate) fn known_complete(record: &Record, claims: &[Claim]) -> FlushMark {
    claims.iter().map(Claim::complete).fold(record.flushed, FlushMark::max)
}

/// Why the content of a replica with this claim is older than flush `complete` or than what it
/// answered, if it is.
pub(crate) fn judge_content(claim: &Claim, complete: FlushMark) -> Option<Stale> {
    let flushed = claim.flushed();
    let older = claim.keeps_marks && flushed < complete;
    older
        .then_some(Stale::Flush { flushed, complete })
        .or((claim.witnessed == Witnessed::RolledBack).then_some(Stale::RolledBack))
}

/// Why a replica that comes back is not what it was when this engine opened it in `generation`, if
/// it is not. `flushed` is the newest flush that it has answered since.
pub(crate) fn judge_return(
    claim: &Claim,
    generation: Generation,
    flushed: FlushMark,
) -> Option<Stale> {
    let promised = claim.promised;
    (promised < generation)
        .then_some(Stale::Promise { promised, confirmed: generation })
        .or(judge_content(claim, flushed))
}

/// A user has accepted the loss, and nothing was served since.
fn is_accepted(record: &Record) -> bool {
    !record.salvages.is_empty() && record.confirmed == Generation::default()
}

/// Whether the record is an older copy of itself: a replica belonged to a later in-sync set than
/// the record has ever named.
pub(crate) fn is_restored(record: &Record, claims: &[Claim]) -> bool {
    !is_accepted(record) && claims.iter().any(|claim| claim.epoch > record.epoch)
}

/// For each replica of the record's in-sync set that was opened, why it is stale, if it is.
/// `others` are replicas outside of the set. Their reports count if they belonged to a later set
/// than the record names. If they did not, then the record is right about them: they left it, and
/// their flushes may be ones that were given up.
pub(crate) fn judge(record: &Record, claims: &[Claim], others: &[Claim]) -> Vec<Option<Stale>> {
    let accepted = is_accepted(record);
    let counts = |other: &&Claim| !accepted && other.epoch > record.epoch;
    let later: Vec<Claim> = others.iter().filter(counts).copied().collect();
    let complete = known_complete(record, claims).max(known_complete(record, &later));
    let newest = claims.iter().chain(&later).map(|claim| claim.epoch).max().unwrap_or_default();
    let restored = record.epoch < newest;
    let one = |claim: &Claim| {
        let epoch = claim.epoch;
        let content = judge_content(claim, complete);
        judge_promise(record, claim.promised)
            .or((restored && epoch < newest).then_some(Stale::Epoch { epoch, newest }))
            .or(content.filter(|why| !(accepted && *why == Stale::RolledBack)))
    };
    claims.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(generation: u64, number: u64) -> FlushMark {
        FlushMark { generation: Generation(generation), number }
    }

    fn claim(promised: u64, epoch: u64, flushed: FlushMark, complete: FlushMark) -> Claim {
        Claim {
            promised: Generation(promised),
            epoch: Epoch(epoch),
            keeps_marks: true,
            marks: Some(FlushMarks { flushed, complete }),
            witnessed: Witnessed::Unknown,
        }
    }

    fn record(confirmed: u64, epoch: u64, flushed: FlushMark) -> Record {
        Record {
            confirmed: Generation(confirmed),
            epoch: Epoch(epoch),
            flushed,
            ..Record::default()
        }
    }

    #[test]
    fn a_replica_that_was_salvaged_is_current_until_it_is_served_again() {
        let rolled =
            Claim { witnessed: Witnessed::RolledBack, ..claim(1, 1, mark(1, 4), mark(1, 3)) };
        let replica = crate::ids::ReplicaId::from_u128(1);
        let before = Record { generation: Generation(3), ..record(2, 1, mark(2, 1)) };
        let salvaged = before.salvaged(replica);
        assert!(judge(&before, &[rolled], &[])[0].is_some());
        assert_eq!(judge(&salvaged, &[rolled], &[]), [None]);
        let served = salvaged.confirmed([replica].into(), mark(1, 4));
        let promised = Claim { promised: served.generation, ..rolled };
        assert_eq!(judge(&served, &[promised], &[]), [Some(Stale::RolledBack)]);
    }

    #[test]
    fn a_replica_that_comes_back_has_promised_what_it_was_asked_for_and_flushed_what_it_answered() {
        let before = claim(3, 1, mark(3, 4), mark(3, 3));
        let opened = Claim { promised: Generation(4), ..before };
        let flushed = claim(4, 1, mark(4, 2), mark(4, 1));
        let rolled = Claim { witnessed: Witnessed::RolledBack, ..flushed };
        let none = FlushMark::default();
        for (what, claim, known, is_stale) in [
            ("a copy from before it was opened", before, none, true),
            ("opened, and nothing was flushed yet", opened, none, false),
            ("the flush that it answered is missing", opened, mark(4, 1), true),
            ("it has that flush", flushed, mark(4, 2), false),
            ("its host has counted more", rolled, mark(4, 2), true),
        ] {
            let found = judge_return(&claim, Generation(4), known);
            assert_eq!(found.is_some(), is_stale, "{what}");
        }
    }

    #[test]
    fn a_replica_is_stale_when_the_record_or_a_peer_proves_it() {
        let old = claim(1, 1, mark(1, 4), mark(1, 3));
        let new = claim(2, 1, mark(2, 7), mark(2, 6));
        let none = FlushMark::default();
        let bare = Claim { marks: None, ..old };
        let before = Claim { keeps_marks: false, ..bare };
        let fresh = Claim { promised: Generation(0), ..bare };
        let ahead = claim(2, 1, mark(2, 6), mark(2, 5));
        let behind = claim(2, 1, mark(2, 5), mark(2, 4));
        let rolled = Claim { witnessed: Witnessed::RolledBack, ..new };
        let apart = claim(2, 3, mark(2, 7), mark(2, 6));
        for (what, record, claims, expected) in [
            ("nothing is known", record(0, 1, none), vec![fresh, fresh], vec![false, false]),
            ("the record has a newer generation", record(2, 1, none), vec![old], vec![true]),
            ("the record has a newer flush", record(1, 1, mark(2, 1)), vec![old], vec![true]),
            ("a peer has", record(1, 1, none), vec![old, new], vec![true, false]),
            ("an old record", record(1, 1, mark(1, 1)), vec![new, new], vec![false, false]),
            ("a flush not known complete", record(2, 1, none), vec![ahead, behind], vec![false; 2]),
            ("its host has counted more", record(2, 1, none), vec![new, rolled], vec![false, true]),
            ("a replica without marks", record(1, 1, mark(1, 1)), vec![bare], vec![true]),
            ("an old version", record(1, 1, mark(1, 1)), vec![before, new], vec![false, false]),
            (
                "a set left in an old record",
                record(2, 2, none),
                vec![new, apart],
                vec![true, false],
            ),
            ("the same, not restored", record(2, 3, none), vec![new, apart], vec![false, false]),
        ] {
            let found: Vec<bool> =
                judge(&record, &claims, &[]).iter().map(Option::is_some).collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_replica_outside_of_the_set_counts_if_it_belonged_to_a_later_one() {
        let none = FlushMark::default();
        let kept = claim(3, 3, mark(3, 4), mark(3, 3));
        let later = claim(3, 4, mark(3, 9), mark(3, 8));
        let left = claim(3, 2, mark(3, 9), mark(3, 8));
        let unmarked = Claim { marks: None, ..later };
        let old = record(3, 2, none);
        let salvaged = Record {
            confirmed: Generation(0),
            ..old.salvaged(crate::ids::ReplicaId::from_u128(1))
        };
        for (what, record, others, is_restored, is_stale) in [
            ("there is no other", record(3, 3, none), vec![], false, false),
            ("the other left the set", record(3, 3, none), vec![left], false, false),
            ("an old record, but the other is older", old.clone(), vec![left], true, false),
            ("the other has all later writes", old.clone(), vec![left, later], true, true),
            ("the same without flushes", old.clone(), vec![unmarked], true, true),
            ("the loss was accepted", salvaged, vec![later], false, false),
        ] {
            let all: Vec<Claim> = others.iter().copied().chain([kept]).collect();
            assert_eq!(super::is_restored(&record, &all), is_restored, "{what}");
            assert_eq!(judge(&record, &[kept], &others)[0].is_some(), is_stale, "{what}");
        }
    }
}
