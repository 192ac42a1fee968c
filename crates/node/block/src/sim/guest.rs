//! Guests: their requests, and the check of the answers.

use bytes::Bytes;

use super::Time;
use super::hosts::{Asked, AskedWhat};
use super::oracle::SECTOR;
use super::world::{What, World};
use crate::ids::{Generation, SnapshotId};
use crate::repl::engine::{Event, GuestError, GuestId, GuestReply, GuestRequest, GuestResult};
use crate::wire::BLOCK;

/// How long a request may take when no fault is left: longer than all timeouts of an engine here
/// together.
const LATENCY_BOUND: Time = Time::from_secs(2);

const PER_BLOCK: usize = BLOCK as usize / SECTOR;

impl World {
    pub(crate) fn guest_turn(&mut self, server: usize) {
        if !self.servers[server].busy || self.left == 0 || self.calm {
            return;
        }
        let pause = self.plan.length / u32::try_from(self.plan.requests).expect("few");
        let burst = if self.rng.chance(100) { self.plan.depth } else { 1 };
        for _ in 0..burst {
            let room = (self.servers[server].waiting.len() as u64) < self.plan.depth;
            if room && self.left > 0 {
                self.left -= 1;
                self.ask(server);
            }
        }
        let most = u64::try_from(pause.as_micros()).expect("short") * 2;
        let delay = self.rng.micros(1, most.max(2));
        self.after(delay, What::GuestTurn { server });
    }

    fn ask(&mut self, server: usize) {
        let dice = self.rng.below(1000);
        let reads = self.plan.reads;
        let flushes = reads + self.plan.flushes;
        let zeroes = flushes + self.plan.zeroes;
        if self.plan.faults.snapshots && self.rng.chance(40) {
            return self.ask_snapshot(server);
        }
        match dice {
            _ if dice < reads => {
                let (first, count) = self.range();
                self.ask_read(server, first, count);
            }
            _ if dice < flushes => self.request(server, AskedWhat::Flush, GuestRequest::Flush),
            _ if dice < zeroes => self.ask_zeroes(server),
            _ => self.ask_write(server),
        }
    }

    /// A few sectors, more often than not in the same corner of the volume.
    fn range(&mut self) -> (usize, usize) {
        let blocks = usize::try_from(self.plan.blocks).expect("few");
        let corner = if self.rng.chance(600) { blocks.min(4) } else { blocks };
        let first = self.rng.index(corner);
        let count = 1 + self.rng.index((blocks - first).min(5));
        let (mut start, mut end) = (first * PER_BLOCK, (first + count) * PER_BLOCK);
        if self.plan.ragged && self.rng.chance(500) {
            start += self.rng.index(PER_BLOCK);
            end -= self.rng.index(PER_BLOCK);
            end = end.max(start + 1);
        }
        (start, end - start)
    }

    pub(crate) fn ask_read(&mut self, server: usize, first: usize, count: usize) {
        let judged = !self.servers[server].standby || self.servers[server].active;
        let what = AskedWhat::Read { first, count, judged };
        let (offset, length) = bytes(first, count);
        let length = u32::try_from(length).expect("short");
        self.request(server, what, GuestRequest::Read { offset, length });
    }

    fn ask_write(&mut self, server: usize) {
        let (first, count) = self.range();
        let fua = self.rng.chance(100);
        let (tag, data) = self.oracle.write(self.now, first, count);
        let (offset, _) = bytes(first, count);
        let request = GuestRequest::Write { offset, data: Bytes::from(data), fua };
        self.request(server, AskedWhat::Write { tag, fua }, request);
    }

    fn ask_zeroes(&mut self, server: usize) {
        let (mut first, mut count) = self.range();
        let discard = self.rng.chance(500);
        if discard {
            // Only whole blocks are discarded for certain.
            let end = (first + count) / PER_BLOCK * PER_BLOCK;
            first = first.next_multiple_of(PER_BLOCK);
            if first >= end {
                return;
            }
            count = end - first;
        }
        let tag = self.oracle.zero(self.now, first, count);
        let (offset, length) = bytes(first, count);
        let request = match discard {
            true => GuestRequest::Discard { offset, length },
            false => GuestRequest::WriteZeroes { offset, length, fua: false },
        };
        self.request(server, AskedWhat::Write { tag, fua: false }, request);
    }

    fn ask_snapshot(&mut self, server: usize) {
        let known: Vec<SnapshotId> =
            self.hosts[0].disk.snapshots().iter().map(|info| info.id).collect();
        if known.len() > 2 || (!known.is_empty() && self.rng.chance(200)) {
            let id = known[self.rng.index(known.len())];
            return self.request(server, AskedWhat::Other, GuestRequest::DeleteSnapshot { id });
        }
        let id = SnapshotId::from_u128(self.rng.u128());
        let request = GuestRequest::Snapshot {
            id,
            name: format!("s{}", self.next_guest),
            created: "0".to_owned(),
            labels: std::collections::BTreeMap::new(),
        };
        self.request(server, AskedWhat::Snapshot { id }, request);
    }

    pub(crate) fn request(&mut self, server: usize, what: AskedWhat, request: GuestRequest) {
        let id = self.next_guest;
        self.next_guest += 1;
        self.trace(|| format!("engine {server}: request {id} {what:?} {}", brief(&request)));
        self.servers[server].waiting.insert(id, Asked { at: self.now, what });
        self.engine_event(server, Event::Guest { id, request });
    }

    pub(crate) fn guest_answered(
        &mut self,
        server: usize,
        generation: Generation,
        id: GuestId,
        result: GuestResult,
    ) {
        let Some(asked) = self.servers[server].waiting.remove(&id) else {
            return self.wrong(format!("request {id} was answered twice"));
        };
        let limit = asked.at.max(self.troubled) + LATENCY_BOUND;
        if self.now > limit {
            let since = self.now - asked.at.max(self.troubled);
            self.wrong(format!("{:?} was answered {since:?} after the last fault", asked.what));
        }
        self.trace(|| match &result {
            Ok(GuestReply::Data(data)) => {
                let tags: Vec<_> = data
                    .chunks(SECTOR)
                    .map(|sector| u64::from_le_bytes(sector[..8].try_into().expect("8 bytes")))
                    .collect();
                format!("engine {server}: answer {id} {tags:?}")
            }
            other => format!("engine {server}: answer {id} {other:?}"),
        });
        match (asked.what, result) {
            (AskedWhat::Read { first, judged, .. }, Ok(GuestReply::Data(data))) => {
                self.outcome.reads += 1;
                if judged && let Err(error) = self.oracle.read(self.now, asked.at, first, &data) {
                    self.wrong(error);
                }
            }
            (AskedWhat::Read { .. }, Err(GuestError::Shutdown)) => {}
            (AskedWhat::Read { first, count, .. }, Err(GuestError::Io))
                if self.is_disputed(server, first, count) => {}
            (AskedWhat::Read { first, .. }, other) => {
                self.wrong(format!("read of sector {first} answered {other:?}"));
            }
            (AskedWhat::Write { tag, fua }, Ok(_)) => {
                self.outcome.acked_writes += 1;
                self.acknowledged(generation, asked.at);
                self.oracle.acked(self.now, tag, fua);
            }
            (AskedWhat::Write { tag, .. }, Err(error)) => {
                let (first, count) = self.oracle.sectors(tag);
                self.oracle.unknown(self.now, tag);
                let full = self.plan.faults.no_space && error == GuestError::NoSpace;
                let disputed = error == GuestError::Io && self.is_disputed(server, first, count);
                if error != GuestError::Shutdown && !full && !disputed {
                    self.wrong(format!("a write failed: {error}"));
                }
            }
            (AskedWhat::Flush, Ok(_)) => {
                self.outcome.flushes += 1;
                self.acknowledged(generation, asked.at);
                self.oracle.flushed(asked.at);
            }
            (AskedWhat::Snapshot { id }, Ok(_)) => {
                self.outcome.snapshots += 1;
                self.acknowledged(generation, asked.at);
                self.snapshots.insert(id, self.oracle.view(asked.at));
            }
            (AskedWhat::Other, Ok(_)) => self.acknowledged(generation, asked.at),
            (AskedWhat::Flush, Err(GuestError::Shutdown)) => {}
            (AskedWhat::Flush, Err(error)) => self.wrong(format!("a flush failed: {error}")),
            // Nothing depends on a snapshot that was refused; that it is the same everywhere, or
            // nowhere, is seen at the end.
            (AskedWhat::Snapshot { .. } | AskedWhat::Other, Err(_)) => {}
        }
    }

    /// The engine will not answer any more.
    pub(crate) fn forget_requests(&mut self, server: usize) {
        for asked in std::mem::take(&mut self.servers[server].waiting).into_values() {
            if let AskedWhat::Write { tag, .. } = asked.what {
                self.oracle.unknown(self.now, tag);
            }
        }
    }

    /// The guest's memory is gone, and with it what it believed to be on disk.
    pub(crate) fn guest_crashed(&mut self) {
        self.guest_is_dead = true;
        self.oracle.guest_crashed(self.now);
    }

    /// At a migration the guest has stopped at the source; when everything is answered there, it
    /// goes on at the target.
    pub(crate) fn arrived(&mut self, from: usize, to: usize) {
        if self.calm {
            return;
        }
        if self.servers[from].engine.is_some() && !self.servers[from].waiting.is_empty() {
            self.servers[from].busy = false;
            return self.after(Time::from_millis(5), What::Arrived { from, to });
        }
        if self.servers[to].engine.is_some() {
            self.servers[from].busy = false;
            self.servers[to].busy = true;
            self.engine_event(to, Event::Command(crate::repl::engine::Command::Switch));
            self.after(Time::from_micros(10), What::GuestTurn { server: to });
        }
    }
}

/// A request without its data.
fn brief(request: &GuestRequest) -> String {
    match request {
        GuestRequest::Write { offset, data, fua } => {
            let (first, count) = (offset / SECTOR as u64, data.len() / SECTOR);
            format!("write {first}+{count} fua {fua}")
        }
        GuestRequest::Discard { offset, length }
        | GuestRequest::WriteZeroes { offset, length, .. } => {
            format!("zero {}+{}", offset / SECTOR as u64, length / SECTOR as u64)
        }
        GuestRequest::Read { offset, length } => {
            format!("read {}+{}", offset / SECTOR as u64, *length as usize / SECTOR)
        }
        other => format!("{other:?}"),
    }
}

fn bytes(first: usize, count: usize) -> (u64, u64) {
    ((first * SECTOR) as u64, (count * SECTOR) as u64)
}
