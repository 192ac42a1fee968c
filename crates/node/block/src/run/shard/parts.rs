//! Requests that are too long for one call to a replica, cut and put together again.

use bytes::{Bytes, BytesMut};

use super::client::Origin;
use super::engine::Volume;
use crate::repl::engine::{Event, GuestError, GuestReply, GuestRequest, GuestResult};
use crate::wire::{BLOCK, MAX_DATA};

/// A request that was cut.
#[derive(Debug)]
pub(super) struct Whole {
    origin: Origin,
    left: usize,
    error: Option<GuestError>,
    /// The data that was read, in order.
    data: Vec<Bytes>,
}

impl Volume {
    /// Hands a request to the engine, in pieces if it is long.
    pub(super) fn ask(&mut self, origin: Origin, request: GuestRequest) {
        let pieces = match &request {
            GuestRequest::Read { offset, length } => cut(*offset, u64::from(*length)),
            GuestRequest::Write { offset, data, .. } => cut(*offset, data.len() as u64),
            _ => Vec::new(),
        };
        if pieces.len() <= 1 {
            return self.ask_one(origin, request);
        }
        let number = self.guest_id();
        let data = vec![Bytes::new(); pieces.len()];
        let whole = Whole { origin, left: pieces.len(), error: None, data };
        self.wholes.insert(number, whole);
        for (index, (start, length)) in pieces.into_iter().enumerate() {
            let request = match &request {
                GuestRequest::Write { offset, data, fua } => {
                    let from = (start - offset) as usize;
                    let data = data.slice(from..from + length as usize);
                    GuestRequest::Write { offset: start, data, fua: *fua }
                }
                _ => GuestRequest::Read { offset: start, length: length as u32 },
            };
            self.ask_one(Origin::Part { whole: number, index }, request);
        }
    }

    fn ask_one(&mut self, origin: Origin, request: GuestRequest) {
        let id = self.guest_id();
        self.in_flight.insert(id, origin);
        self.events.push_back(Event::Guest { id, request });
    }

    /// One piece was answered. Gives the answer of the whole when it is the last.
    pub(super) fn part_answered(
        &mut self,
        number: u64,
        index: usize,
        result: GuestResult,
    ) -> Option<(Origin, GuestResult)> {
        let whole = self.wholes.get_mut(&number)?;
        whole.left -= 1;
        match result {
            Ok(GuestReply::Data(data)) => whole.data[index] = data,
            Ok(GuestReply::Done | GuestReply::Map(_)) => {}
            Err(error) => whole.error = Some(error),
        }
        if whole.left > 0 {
            return None;
        }
        let whole = self.wholes.remove(&number)?;
        let length = whole.data.iter().map(Bytes::len).sum();
        let result = match whole.error {
            Some(error) => Err(error),
            None if length == 0 => Ok(GuestReply::Done),
            None => {
                let mut all = BytesMut::with_capacity(length);
                whole.data.iter().for_each(|data| all.extend_from_slice(data));
                Ok(GuestReply::Data(all.freeze()))
            }
        };
        Some((whole.origin, result))
    }
}

/// Pieces of a range, none of which needs more than one call after it was widened to blocks.
fn cut(offset: u64, length: u64) -> Vec<(u64, u64)> {
    let most = u64::from(MAX_DATA);
    let end = offset + length;
    if end.next_multiple_of(BLOCK) - offset / BLOCK * BLOCK <= most {
        return Vec::new();
    }
    let mut pieces = Vec::new();
    let mut start = offset;
    while start < end {
        let next = (start / most * most + most).min(end);
        pieces.push((start, next - start));
        start = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_into_a_call_and_make_up_the_range() {
        const MIB: u64 = 1 << 20;
        for (offset, length, count) in [
            (0, 4 * MIB, 0),
            (512, 4 * MIB, 2),
            (4 * MIB - 512, 1024, 0),
            (0, 32 * MIB, 8),
            (MIB, 32 * MIB, 9),
        ] {
            let pieces = cut(offset, length);
            assert_eq!(pieces.len(), count, "{offset} {length}");
            let mut at = offset;
            for (start, length) in &pieces {
                assert_eq!(*start, at);
                at += length;
            }
            assert!(pieces.is_empty() || at == offset + length);
        }
    }
}
