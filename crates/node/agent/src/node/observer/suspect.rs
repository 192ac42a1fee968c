//! A silent node that this one tries to reach: when it is tried next, and for how long it has not
//! been reached. Pure: time is given.

use std::net::SocketAddr;
use std::time::Duration;

use hci::failover::{PortState, Sighting};
use tokio::time::Instant;

/// Between two attempts.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// After failing for this long, a node is tried only when the controller asks again.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// A question of the controller to this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) suspect: String,
    pub(super) token: String,
    pub(super) agent: Option<SocketAddr>,
    pub(super) storage: Option<SocketAddr>,
}

#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) question: Question,
    /// The start of the first of the last attempts in a row that failed.
    unreached_since: Option<Instant>,
    /// The next attempt; none before the controller asks again.
    next: Option<Instant>,
}

impl Suspect {
    pub(super) fn new(question: Question, now: Instant) -> Self {
        Self { question, unreached_since: None, next: Some(now) }
    }

    /// The controller asks, perhaps with the question that is known already.
    pub(super) fn asked(&mut self, question: Question, now: Instant) {
        if question.token != self.question.token {
            self.next = Some(now);
        }
        self.question = question;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Takes an attempt into account, and answers the question.
    pub(super) fn tried(
        &mut self,
        started: Instant,
        now: Instant,
        agent: PortState,
        storage: PortState,
    ) -> Sighting {
        let is_reached = agent == PortState::Open || storage == PortState::Open;
        let since = match is_reached {
            true => None,
            false => Some(*self.unreached_since.get_or_insert(started)),
        };
        self.unreached_since = since;
        let unreached = since.map_or(Duration::ZERO, |since| now.duration_since(since));
        let goes_on = !is_reached && unreached < PROBE_LIMIT;
        self.next = goes_on.then(|| (started + PROBE_INTERVAL).max(now));
        let unreached = Some(unreached.as_secs());
        Sighting { token: self.question.token.clone(), agent, storage, unreached }
    }

    /// The answer could not be written.
    pub(super) fn try_again(&mut self, now: Instant) {
        self.next.get_or_insert(now + PROBE_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_an_answer_is_counted_over_questions() {
        use PortState::{Open, Refused, Silent};
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let question = |token: &str| Question {
            suspect: "n2".into(),
            token: token.into(),
            agent: None,
            storage: None,
        };
        let mut suspect = Suspect::new(question("a"), at(0));
        // (begin and end of an attempt, the ports, seconds that are reported, the next attempt)
        for (attempt, ports, seconds, next) in [
            ((0, 1000), (Silent, Silent), 1, Some(at(1000))),
            ((1000, 1001), (Refused, Silent), 1, Some(at(2000))),
            ((2000, 3900), (Silent, Silent), 3, Some(at(3900))),
            ((4000, 4001), (Silent, Open), 0, None),
            ((9000, 9700), (Silent, Silent), 0, Some(at(10_000))),
            ((70_000, 71_000), (Silent, Silent), 62, None),
        ] {
            let seen = suspect.tried(at(attempt.0), at(attempt.1), ports.0, ports.1);
            assert_eq!((seen.unreached, suspect.due()), (Some(seconds), next), "{attempt:?}");
        }
        suspect.asked(question("a"), at(72_000));
        assert_eq!(suspect.due(), None, "this was answered");
        suspect.asked(question("b"), at(72_000));
        assert_eq!(suspect.due(), Some(at(72_000)));
    }
}
