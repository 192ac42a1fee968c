//! Connections in use: frames on their way, late, damaged or lost.

use super::Time;
use super::net::{Way, Wire};
use super::world::{What, World};
use crate::ids::ReplicaId;
use crate::repl::engine::Event;
use crate::repl::session::SessionEvent;
use crate::wire::{self, Call};

impl World {
    pub(crate) fn connect(&mut self, server: usize, replica: ReplicaId, connection: u64) {
        let Some(host) = self.hosts.iter().position(|it| it.replica == replica) else { return };
        let wire = (server, connection);
        let from = self.servers[server].host;
        let cut = self.net.is_cut(from, host, Way::There) || self.net.is_cut(from, host, Way::Back);
        let delay = self.delay();
        if self.hosts[host].session.is_none() {
            let event = Event::Disconnected { replica, connection };
            return self.after(delay, What::ToEngine { server, event });
        }
        if !cut {
            self.after(delay, What::Accept { wire, replica: host });
        }
    }

    pub(crate) fn accept(&mut self, wire: Wire, host: usize) {
        let replica = self.hosts[host].replica;
        if self.hosts[host].session.is_none() {
            let event = Event::Disconnected { replica, connection: wire.1 };
            return self.after(Time::from_micros(10), What::ToEngine { server: wire.0, event });
        }
        self.net.open(wire, host, self.hosts[host].life);
        self.deliver(wire, Event::Connected { replica, connection: wire.1 });
    }

    pub(crate) fn delay(&mut self) -> Time {
        let most = if self.rng.chance(20) { self.plan.delay * 20 } else { self.plan.delay };
        self.rng.micros(20, most.max(21))
    }

    /// Sends something over a connection. While the way is cut it waits.
    pub(crate) fn send(&mut self, wire: Wire, way: Way, what: What) {
        let Some(conn) = self.net.conn(wire) else { return };
        let (engine_host, replica) = (self.servers[wire.0].host, conn.replica);
        let mut delay = self.delay();
        if self.net.is_cut(engine_host, replica, way) {
            // Sent again and again until it gets through, as TCP does.
            delay += self.rng.micros(50_000, 900_000);
        }
        let at = self.net.arrival(wire, way, self.now + delay);
        self.at(at, what);
    }

    pub(crate) fn deliver(&mut self, wire: Wire, event: Event) {
        self.send(wire, Way::Back, What::ToEngine { server: wire.0, event });
    }

    /// Now and then a frame takes the way through its bytes, and sometimes a bit flips there.
    pub(crate) fn through_the_codec(&mut self, wire: Wire, call: Call) -> Option<Call> {
        if !self.rng.chance(100) {
            return Some(call);
        }
        let encoded = wire::encode_call(&call);
        let mut bytes = [&encoded.head[..], &encoded.body[..]].concat();
        if self.plan.faults.network && !self.calm && self.rng.chance(20) {
            let at = self.rng.index(bytes.len());
            bytes[at] ^= 1 << self.rng.below(8);
        }
        let mut decoder = wire::Decoder::default();
        decoder.push(&bytes);
        match decoder.next_frame().and_then(|frame| frame.map(wire::decode_call).transpose()) {
            Ok(Some(call)) => Some(call),
            _ => {
                self.reset(wire);
                None
            }
        }
    }

    /// The end of an engine: frames that it had not given to the kernel are lost, from a different
    /// point on for each connection.
    pub(crate) fn lose_unsent(&mut self, wire: Wire) {
        let most = self.plan.delay * 2;
        let from = self.now + self.rng.micros(0, most);
        let lost: Vec<(Time, u64)> = self
            .queue
            .range((from, 0)..)
            .filter(|(_, what)| matches!(what, What::Frame { wire: on, .. } if *on == wire))
            .map(|(key, _)| *key)
            .collect();
        for key in lost {
            self.queue.remove(&key);
        }
    }

    pub(crate) fn disconnect_later(&mut self, wire: Wire) {
        self.send(wire, Way::There, What::Hangup { wire });
    }

    /// Both sides see the connection end.
    pub(crate) fn reset(&mut self, wire: Wire) {
        let Some(conn) = self.net.conn(wire) else { return };
        let replica = self.hosts[conn.replica].replica;
        self.send(wire, Way::There, What::Hangup { wire });
        self.deliver(wire, Event::Disconnected { replica, connection: wire.1 });
    }

    pub(crate) fn frame(&mut self, wire: Wire, call: Call) {
        let event = SessionEvent::Call { connection: session_connection(wire), call };
        self.session_event(wire, event);
    }

    pub(crate) fn hangup(&mut self, wire: Wire) {
        let event = SessionEvent::Closed { connection: session_connection(wire) };
        self.session_event(wire, event);
        self.net.close(wire);
    }

    fn session_event(&mut self, wire: Wire, event: SessionEvent) {
        let Some(conn) = self.net.conn(wire) else { return };
        if conn.life == self.hosts[conn.replica].life {
            self.session(conn.replica, event);
        }
    }
}

/// Sessions number connections for themselves; engines may use the same numbers.
fn session_connection(wire: Wire) -> u64 {
    wire.0 as u64 * 1_000_000 + wire.1
}

pub(crate) fn engine_wire(connection: u64) -> Wire {
    (usize::try_from(connection / 1_000_000).expect("few engines"), connection % 1_000_000)
}

pub(crate) fn reencode(op: wire::Op, answer: &wire::Answer) -> wire::Answer {
    let encoded = wire::encode_answer(op, answer);
    let mut decoder = wire::Decoder::default();
    decoder.push(&encoded.head);
    decoder.push(&encoded.body);
    let frame = decoder.next_frame().ok().flatten().expect("our own frame is whole");
    wire::decode_answer(frame).expect("our own frame is an answer")
}
