//! Shuffle sharding: which few of a level's queues a flow may wait in. Two flows seldom have all
//! of them in common, so a flood leaves the other a queue of its own.

/// A hand of distinct cards out of `deck`, the same for the same flow.
pub(super) fn hand_of(flow: u64, deck: usize, hand: usize) -> Vec<usize> {
    let mut rest = flow;
    let mut cards: Vec<usize> = Vec::with_capacity(hand);
    for dealt in 0..hand.min(deck) {
        let left = (deck - dealt) as u64;
        let mut card = usize::try_from(rest % left).unwrap_or(0);
        rest /= left;
        // The card counts among those not dealt yet.
        let mut sorted = cards.clone();
        sorted.sort_unstable();
        for taken in sorted {
            if card >= taken {
                card += 1;
            }
        }
        cards.push(card);
    }
    cards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_are_dealt_without_repetition() {
        let mut seen = std::collections::BTreeSet::new();
        for flow in (0..2000_u64).map(|flow| flow.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let hand = hand_of(flow, 64, 6);
            let distinct: std::collections::BTreeSet<_> = hand.iter().collect();
            assert_eq!(distinct.len(), 6, "{hand:?}");
            assert!(hand.iter().all(|card| *card < 64));
            seen.extend(hand);
        }
        assert_eq!(seen.len(), 64, "all queues are used");
        assert_eq!(hand_of(7, 2, 6).len(), 2);
    }
}
