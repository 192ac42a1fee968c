//! How a shard waits for the next event.
//!
//! A write is answered when the last of its replicas has answered. To wake up for each of them
//! costs a lone write more than anything else, so while there is only one request, the shard
//! sleeps on one socket alone: that of the replica that it expects to be the last. Data from the
//! others stays in their sockets until then, for [`LINGER`] at most.

use std::io;
use std::time::Duration;

use super::Shard;
use super::sources::Source;
use crate::run::poll::{Ready, Token, is_readable_within};

/// Several round trips to a replica in memory, and little beside one to a disk.
const LINGER: Duration = Duration::from_micros(200);

impl Shard {
    /// Waits until something can be done.
    pub(super) fn wait(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let readable = |token: &Token| Ready { token: *token, readable: true, writable: false };
        if !self.waiting_rings.is_empty() {
            ready.extend(self.waiting_rings.iter().map(readable));
            self.waiting_rings.clear();
            return self.poll.wait(Duration::ZERO, ready);
        }
        let patience = self.patience();
        if patience > LINGER
            && let Some(last) = self.last_of_a_lone_request()
            && let Some(source) = self.sources.get(last)
            && is_readable_within(source, LINGER)?
        {
            ready.extend(self.awaited.iter().map(readable));
            return Ok(());
        }
        self.poll.wait(patience, ready)
    }

    /// An answer is expected from this replica.
    pub(super) fn await_answer(&mut self, token: Token) {
        if let Some(Source::Replica(outbound)) = self.sources.get_mut(token) {
            outbound.unanswered += 1;
            if !std::mem::replace(&mut outbound.awaited, true) {
                self.awaited.push(token);
            }
        }
    }

    /// The socket to sleep on while several replicas have not answered and no other request waits.
    fn last_of_a_lone_request(&mut self) -> Option<Token> {
        let sources = &mut self.sources;
        self.awaited.retain(|token| match sources.get_mut(*token) {
            Some(Source::Replica(outbound)) => {
                outbound.awaited = outbound.unanswered > 0;
                outbound.awaited
            }
            _ => false,
        });
        let requests: usize = self.volumes.iter().map(|volume| volume.in_flight.len()).sum();
        if self.awaited.len() < 2 || requests != 1 {
            return None;
        }
        // The replica that was last before is likely to be last again; else the one that was sent
        // to last.
        let before = self.awaited.iter().find(|token| **token == self.last_to_answer);
        self.last_to_answer = *before.or(self.awaited.last())?;
        Some(self.last_to_answer)
    }
}
