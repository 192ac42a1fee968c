//! Which nodes vote in etcd. Pure.
//!
//! Three nodes vote, or five where five can. Members keep their seats; free ones go to nodes that
//! are ready, to other zones first if there are three of them, to management nodes before the
//! witness, and to the oldest. No change begins that would end with an even number of voters:
//! that needs one more for a majority and survives no more failures.

use std::collections::BTreeSet;

/// Voters of a cluster with at least as many nodes that can vote.
const MOST_VOTERS: usize = 5;
/// Voters of any other.
const USUAL_VOTERS: usize = 3;
/// Fewer zones are no reason to prefer a node.
const ZONES: usize = 3;

/// A node that can vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoterCandidate<'a> {
    pub node: &'a str,
    pub zone: Option<&'a str>,
    pub is_witness: bool,
    pub is_ready: bool,
    /// Whether it serves the API, with a member of etcd.
    pub is_server: bool,
    /// When it joined, in seconds.
    pub created: i64,
}

/// Why a node does not get a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeatRefusal {
    /// There are enough voters; this node replaces one that is lost.
    Enough,
    /// One more voter would make their number even.
    Even,
}

/// Whether `own` is to become a voter. `voters` are the nodes of all members.
pub(crate) fn seat(
    own: &str,
    candidates: &[VoterCandidate<'_>],
    voters: &[&str],
) -> Result<(), SeatRefusal> {
    let candidates = one_witness(candidates, voters);
    let ready = |own: &&VoterCandidate<'_>| own.is_ready;
    let count = candidates.iter().filter(ready).count();
    // A cluster that had five keeps them, also while fewer nodes are ready.
    let has_many = count >= MOST_VOTERS || voters.len() > USUAL_VOTERS;
    let wanted = if has_many { MOST_VOTERS } else { USUAL_VOTERS };
    let zones: BTreeSet<&str> = candidates.iter().filter_map(|own| own.zone).collect();
    let mut seats: Vec<&str> = voters.to_vec();
    let mut chosen = Vec::new();
    while seats.len() < wanted {
        let taken: BTreeSet<&str> = candidates
            .iter()
            .filter(|own| seats.contains(&own.node))
            .filter_map(|own| own.zone)
            .collect();
        let is_near = |own: &VoterCandidate<'_>| {
            zones.len() >= ZONES && own.zone.is_none_or(|zone| taken.contains(zone))
        };
        let free = candidates.iter().filter(ready).filter(|own| !seats.contains(&own.node));
        let next = free.min_by_key(|own| (is_near(own), own.is_witness, own.created, own.node));
        let Some(next) = next else { break };
        seats.push(next.node);
        chosen.push(next.node);
    }
    if seats.len().is_multiple_of(2) && chosen.pop() == Some(own) {
        return Err(SeatRefusal::Even);
    }
    if chosen.contains(&own) { Ok(()) } else { Err(SeatRefusal::Enough) }
}

/// Without witnesses but one: that which votes, or the oldest.
fn one_witness<'a>(candidates: &[VoterCandidate<'a>], voters: &[&str]) -> Vec<VoterCandidate<'a>> {
    let witnesses = candidates.iter().filter(|own| own.is_witness);
    let first = witnesses.min_by_key(|own| (!voters.contains(&own.node), own.created, own.node));
    let is_counted = |own: &&VoterCandidate<'_>| {
        !own.is_witness || first.is_some_and(|first| first.node == own.node)
    };
    candidates.iter().filter(is_counted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n1` is ready, `n1!` is not; `x1` is a witness; `n1@a` is in zone a.
    fn candidates<'a>(text: &'a str) -> Vec<VoterCandidate<'a>> {
        let one = |(index, word): (usize, &'a str)| {
            let (word, zone) = match word.split_once('@') {
                Some((word, zone)) => (word, Some(zone)),
                None => (word, None),
            };
            let node = word.trim_end_matches('!');
            VoterCandidate {
                node,
                zone,
                is_witness: node.starts_with('x'),
                is_ready: !word.ends_with('!'),
                is_server: !node.starts_with('x'),
                created: i64::try_from(index).unwrap(),
            }
        };
        text.split_whitespace().enumerate().map(one).collect()
    }

    fn seats(nodes: &str, voters: &str) -> String {
        let all = candidates(nodes);
        let voters: Vec<&str> = voters.split_whitespace().collect();
        let names = all.iter().map(|own| own.node).filter(|own| !voters.contains(own));
        let chosen = names.filter(|own| seat(own, &all, &voters).is_ok());
        chosen.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn three_vote_or_five_where_five_can() {
        for (nodes, voters, expected) in [
            ("n1 n2 n3", "n1", "n2 n3"),
            ("n1 n2 n3", "n1 n2", "n3"),
            ("n1 n2 x1", "n1", "n2 x1"),
            ("n1 n2 x1", "n1 x1", "n2"),
            // Management nodes vote first: without a vote they serve no API.
            ("n1 x1 n2 n3", "n1", "n2 n3"),
            // The fourth is on standby, and so is one that is not ready.
            ("n1 n2 n3 n4", "n1 n2 n3", ""),
            ("n1 n2! n3 n4", "n1", "n3 n4"),
            ("n1 n2 n3 n4", "n1 n2", "n3"),
            // Five, at once or later; not with four that are ready.
            ("n1 n2 n3 n4 n5", "n1 n2 n3", "n4 n5"),
            ("n1 n2 n3 n4 n5", "n1 n2 n3 n4", "n5"),
            ("n1 n2 n3 n4 x1", "n1 n2 n3", "n4 x1"),
            ("n1 n2 n3 n4 n5!", "n1 n2 n3", ""),
            ("n1 n2 n3 n4 n5 n6 n7", "n1 n2 n3", "n4 n5"),
            ("n1 n2 n3 n4 n5 n6", "n1 n2 n3 n4 n5", ""),
            // Of two witnesses one counts.
            ("n1 n2 n3 x1 x2", "n1 n2 n3", ""),
            ("n1 x1 x2", "n1", ""),
            // One of five was lost, and another is not ready: the fifth seat is filled nevertheless.
            ("n1 n2 n3 n4! n6", "n1 n2 n3 n4", "n6"),
            // A voter that is silent keeps its seat until it is removed.
            ("n1 n2 n3! n4", "n1 n2 n3", ""),
        ] {
            assert_eq!(seats(nodes, voters), expected, "{nodes} of which {voters} vote");
        }
    }

    #[test]
    fn the_number_of_voters_does_not_become_even() {
        for (nodes, voters) in [("n1 n2", "n1"), ("n1 n2 n3!", "n1"), ("n1 x1", "n1")] {
            let all = candidates(nodes);
            let voters: Vec<&str> = voters.split_whitespace().collect();
            assert_eq!(seat(all[1].node, &all, &voters), Err(SeatRefusal::Even), "{nodes}");
        }
        let all = candidates("n1 n2 n3 n4");
        assert_eq!(seat("n4", &all, &["n1", "n2", "n3"]), Err(SeatRefusal::Enough));
    }

    #[test]
    fn seats_go_to_other_zones_if_there_are_three() {
        for (nodes, voters, expected) in [
            ("n1@a n2@a n3@b n4@c", "n1", "n3 n4"),
            ("n1@a n2@a n3@b n4@b", "n1", "n2 n3"),
            ("n1@a n3 n4@b n6@c", "n1", "n4 n6"),
            ("n1@a n2@b x1@c n3@b", "n1", "n2 x1"),
        ] {
            assert_eq!(seats(nodes, voters), expected, "{nodes}");
        }
    }
}
