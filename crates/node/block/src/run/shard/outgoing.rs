//! Sending at the end of a turn: once per socket, with its next poll interest.

use std::io;

use super::Shard;
use super::sources::Source;
use crate::run::poll::{PollInterest, Token};

impl Shard {
    /// Sends what has been gathered.
    pub(super) fn send(&mut self) -> io::Result<()> {
        for token in std::mem::take(&mut self.dirty) {
            if let Some(dirty) = self.sources.dirty(token) {
                *dirty = false;
            }
            self.send_to(token);
        }
        self.ring_guests();
        self.listen_to_rings();
        self.offload.enter()
    }

    pub(super) fn send_to(&mut self, token: Token) {
        let Some(stream) = self.sources.get_mut(token).and_then(Source::outgoing) else { return };
        if stream.flush().is_err() {
            self.lose(token);
            return;
        }
        self.set_interest(token);
    }

    /// Sets the events that the poll waits for on a socket.
    pub(super) fn set_interest(&mut self, token: Token) {
        let gathering = self.sources.dirty(token).is_some_and(|dirty| *dirty);
        let Some(source) = self.sources.get_mut(token) else { return };
        let read = source.wants_more();
        let Some(stream) = source.stream() else { return };
        // Data gathered in this turn is sent when it ends, and then fits in most cases.
        let interest = PollInterest { read, write: stream.wants_write() && !gathering };
        if stream.interest != interest {
            stream.interest = interest;
            // Fails for a socket that is gone, and reading that will say so.
            let _ = self.poll.change(&*stream, token, interest);
        }
    }

    pub(super) fn mark_dirty(&mut self, token: Token) {
        if let Some(dirty) = self.sources.dirty(token)
            && !*dirty
        {
            *dirty = true;
            self.dirty.push(token);
        }
    }
}
