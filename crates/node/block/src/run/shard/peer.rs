//! Connections between engines and replicas: frames in, frames out, or neither when both are in
//! this shard.

use std::time::Duration;

use super::grant::HeldHello;
use super::sources::Source;
use super::{Shard, Wanted};
use crate::grant::Peer;
use crate::ids::ReplicaId;
use crate::repl::engine::{Connection, Event};
use crate::repl::session::{ConnectionId, SessionAction, SessionEvent};
use crate::run::poll::{PollInterest, Ready, Token};
use crate::run::stream::{Address, Filled, Stream};
use crate::wire::{
    Call, Decoder, Encoded, Refusal, decode_answer, decode_call, encode_answer, encode_call,
};

/// An engine whose answers wait for so many bytes is not listened to until it has taken some.
const MAX_WAITING: usize = 64 << 20;

/// Reads from one socket in a turn, so that the others get theirs.
const MAX_FILLS: usize = 16;

/// Which engine uses a connection, as which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) volume: usize,
    pub(super) replica: ReplicaId,
    pub(super) connection: Connection,
}

/// An engine elsewhere.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) stream: Stream,
    decoder: Decoder,
    /// Which replica it speaks to, once it has said so.
    pub(super) replica: Option<ReplicaId>,
    /// When it connected, and when it last sent a whole call.
    pub(super) since: Duration,
    pub(super) last_received: Duration,
    /// Its identity; known after its greeting.
    pub(super) peer: Peer,
    /// Its greeting, while its node has no grant for the replica.
    pub(super) held: Option<HeldHello>,
    /// Since when no grant names its node any more.
    pub(super) revoked: Option<Duration>,
}

impl Inbound {
    pub(super) fn new(stream: Stream, now: Duration) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
            replica: None,
            since: now,
            last_received: now,
            peer: Peer::Unknown,
            held: None,
            revoked: None,
        }
    }

    pub(super) fn wants_more(&self) -> bool {
        self.stream.waiting() < MAX_WAITING && self.held.is_none()
    }
}

/// A replica elsewhere.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) stream: Stream,
    decoder: Decoder,
    pub(super) link: Link,
    pub(super) address: Address,
    connecting: bool,
    /// Calls without an answer.
    pub(super) unanswered: u32,
    /// Is on the list of those that answers are awaited from.
    pub(super) awaited: bool,
}

impl Shard {
    /// Connects an engine to one of its replicas: to an address, where the named node has to be; inside of the shard without one.
    pub(super) fn connect(&mut self, link: Link, place: Option<(Address, Option<String>)>) {
        let Some((address, node)) = place else { return self.connect_inside(link) };
        let stream = match self.connect_to(&address, node.as_deref()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(replica = %link.replica, %address, %error, "cannot connect");
                return self.disconnected(link);
            }
        };
        let connecting = matches!(address, Address::Tcp(_));
        let decoder = Decoder::default();
        let outbound =
            Outbound { stream, decoder, link, address, connecting, unanswered: 0, awaited: false };
        let token = self.sources.insert(Source::Replica(Box::new(outbound)));
        let interest = PollInterest { read: true, write: connecting };
        let Some(Source::Replica(outbound)) = self.sources.get_mut(token) else { return };
        outbound.stream.interest = interest;
        if self.poll.add(&outbound.stream, token, interest).is_err() {
            return self.lose(token);
        }
        self.volumes[link.volume].links.insert(link.replica, (link.connection, token));
        if !connecting {
            self.connected(link);
        }
    }

    /// Data that leaves the machine must be encrypted.
    fn connect_to(&mut self, address: &Address, node: Option<&str>) -> std::io::Result<Stream> {
        let session = match (&mut self.tls, address) {
            (Some(tls), Address::Tcp(_)) => Some(tls.current().connect(node)?),
            (None, address) if !address.is_local() => {
                let text = "this node has no certificate for replicas of other nodes";
                return Err(std::io::Error::other(text));
            }
            _ => None,
        };
        let mut stream = Stream::connect(address)?;
        session.into_iter().for_each(|session| stream.secure(session));
        Ok(stream)
    }

    fn connect_inside(&mut self, link: Link) {
        if !self.hosts.contains_key(&link.replica) {
            return self.disconnected(link);
        }
        let id = self.next_local;
        self.next_local += 1;
        self.local.insert(id, link);
        self.volumes[link.volume].links.insert(link.replica, (link.connection, id));
        self.connected(link);
    }

    fn connected(&mut self, link: Link) {
        let event = Event::Connected { replica: link.replica, connection: link.connection };
        self.volumes[link.volume].events.push_back(event);
    }

    pub(super) fn disconnected(&mut self, link: Link) {
        let volume = &mut self.volumes[link.volume];
        if volume.links.get(&link.replica).is_some_and(|(it, _)| *it == link.connection) {
            volume.links.remove(&link.replica);
        }
        let event = Event::Disconnected { replica: link.replica, connection: link.connection };
        volume.events.push_back(event);
    }

    /// An engine here calls a replica.
    pub(super) fn call(&mut self, to: ConnectionId, replica: ReplicaId, call: Call) {
        if self.local.contains_key(&to) {
            self.session_event(replica, SessionEvent::Call { connection: to, call });
        } else if let Some(Source::Replica(outbound)) = self.sources.get_mut(to) {
            push(&mut outbound.stream, encode_call(&call));
            self.await_answer(to);
            self.mark_dirty(to);
        }
    }

    /// An engine here ends a connection.
    pub(super) fn disconnect(&mut self, to: ConnectionId, replica: ReplicaId) {
        if self.local.remove(&to).is_some() {
            self.session_event(replica, SessionEvent::Closed { connection: to });
        } else {
            self.sources.remove(to);
        }
    }

    pub(super) fn session_event(&mut self, replica: ReplicaId, event: SessionEvent) {
        let Some(host) = self.hosts.get_mut(&replica) else { return };
        let mut wanted = Wanted::default();
        host.on(event, &mut wanted);
        self.wanted(replica, wanted);
    }

    pub(super) fn session_action(&mut self, replica: ReplicaId, action: SessionAction) {
        match action {
            SessionAction::Answer { connection, op, answer } => {
                if let Some(link) = self.local.get(&connection) {
                    let (volume, connection) = (link.volume, link.connection);
                    let event = Event::Answer { replica, connection, answer };
                    self.volumes[volume].events.push_back(event);
                } else if let Some(Source::Engine(inbound)) = self.sources.get_mut(connection) {
                    push(&mut inbound.stream, encode_answer(op, &answer));
                    self.mark_dirty(connection);
                }
            }
            SessionAction::Drop { connection } => match self.local.remove(&connection) {
                Some(link) => self.disconnected(link),
                // The session has forgotten it already.
                None => {
                    self.sources.remove(connection);
                    self.count_engines();
                }
            },
            SessionAction::Disk { .. } => unreachable!("hosts keep these for themselves"),
        }
    }

    /// A replica has begun another life: no connection may continue as if it had not.
    pub(super) fn drop_connections_to(&mut self, replica: ReplicaId) {
        let local: Vec<ConnectionId> = self
            .local
            .iter()
            .filter(|(_, link)| link.replica == replica)
            .map(|(id, _)| *id)
            .collect();
        for id in local {
            if let Some(link) = self.local.remove(&id) {
                self.disconnected(link);
            }
        }
        let remote: Vec<Token> = self
            .sources
            .tokens()
            .filter_map(|(token, source)| match source {
                Source::Engine(inbound) if inbound.replica == Some(replica) => Some(token),
                _ => None,
            })
            .collect();
        for token in remote {
            self.sources.remove(token);
        }
        self.count_engines();
    }

    /// Something came from an engine elsewhere.
    pub(super) fn engine_ready(&mut self, event: Ready) {
        if event.writable {
            self.send_to(event.token);
        }
        for _ in 0..MAX_FILLS {
            let Some(Source::Engine(inbound)) = self.sources.get_mut(event.token) else { return };
            if !event.readable || !inbound.wants_more() {
                break;
            }
            let filled = match fill(&mut inbound.stream, &mut inbound.decoder) {
                Ok(Filled::Nothing) => break,
                Ok(Filled::End) => return self.lose(event.token),
                Ok(filled) => filled,
                Err(error) => {
                    tracing::warn!(%error, "engine connection failed");
                    return self.lose(event.token);
                }
            };
            if !self.engine_calls(event.token) {
                return;
            }
            if filled == Filled::Last {
                break;
            }
        }
        if let Some(Source::Engine(inbound)) = self.sources.get_mut(event.token) {
            self.more |= !inbound.decoder.buffer().is_empty();
        }
        self.set_interest(event.token);
    }

    /// Takes the whole calls that have arrived. False when the connection is no more.
    pub(super) fn engine_calls(&mut self, token: Token) -> bool {
        let now = self.now();
        loop {
            let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { return false };
            if inbound.held.is_some() {
                return true;
            }
            let decoded =
                inbound.decoder.next_frame().and_then(|frame| frame.map(decode_call).transpose());
            let call = match decoded {
                Ok(Some(call)) => call,
                Ok(None) => return true,
                Err(error) => {
                    tracing::warn!(%error, "invalid call from engine");
                    self.lose(token);
                    return false;
                }
            };
            inbound.last_received = now;
            if !self.may_call(token, &call) {
                continue;
            }
            let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { return false };
            let Some(replica) = inbound.replica.filter(|it| self.hosts.contains_key(it)) else {
                tracing::warn!("engine requested a replica that is not on this node");
                self.lose(token);
                return false;
            };
            self.idle_since = None;
            self.session_event(replica, SessionEvent::Call { connection: token, call });
        }
    }

    pub(super) fn inbound_lost(&mut self, token: Token, inbound: &Inbound) {
        if let Some(replica) = inbound.replica {
            self.session_event(replica, SessionEvent::Closed { connection: token });
        }
        self.count_engines();
    }

    /// Notes when the last engine has gone.
    fn count_engines(&mut self) {
        let any = self.sources.tokens().any(|(_, source)| matches!(source, Source::Engine(_)));
        let now: Duration = self.now();
        if !any {
            self.idle_since.get_or_insert(now);
        }
    }

    /// Something came from a replica elsewhere, or it can be reached now.
    pub(super) fn replica_ready(&mut self, event: Ready) {
        let Some(Source::Replica(outbound)) = self.sources.get_mut(event.token) else { return };
        if outbound.connecting && event.writable {
            if outbound.stream.connect_error().is_err() {
                return self.lose(event.token);
            }
            outbound.connecting = false;
            let link = outbound.link;
            self.connected(link);
            self.set_interest(event.token);
            return;
        }
        if event.writable {
            self.send_to(event.token);
        }
        for _ in 0..MAX_FILLS {
            let Some(Source::Replica(outbound)) = self.sources.get_mut(event.token) else { return };
            if !event.readable {
                return;
            }
            let filled = match fill(&mut outbound.stream, &mut outbound.decoder) {
                Ok(Filled::Nothing) => return self.set_interest(event.token),
                Ok(Filled::End) => return self.lose(event.token),
                Ok(filled) => filled,
                Err(error) => {
                    let replica = outbound.link.replica;
                    tracing::warn!(%replica, %error, "replica connection failed");
                    return self.lose(event.token);
                }
            };
            if !self.replica_answers(event.token) || filled == Filled::Last {
                return;
            }
        }
    }

    fn replica_answers(&mut self, token: Token) -> bool {
        loop {
            let Some(Source::Replica(outbound)) = self.sources.get_mut(token) else { return false };
            let decoded = outbound
                .decoder
                .next_frame()
                .and_then(|frame| frame.map(decode_answer).transpose());
            let Link { volume, replica, connection } = outbound.link;
            match decoded {
                Ok(Some(answer)) => {
                    outbound.unanswered = outbound.unanswered.saturating_sub(1);
                    if answer.result == Err(Refusal::NotGranted) {
                        tracing::warn!(%replica, "replica refuses this node: it has no grant");
                    }
                    let event = Event::Answer { replica, connection, answer };
                    self.volumes[volume].events.push_back(event);
                }
                Ok(None) => return true,
                Err(error) => {
                    tracing::warn!(%replica, %error, "invalid reply from replica");
                    self.lose(token);
                    return false;
                }
            }
        }
    }

    pub(super) fn outbound_lost(&mut self, outbound: &Outbound) {
        self.disconnected(outbound.link);
    }
}

fn fill(stream: &mut Stream, decoder: &mut Decoder) -> std::io::Result<Filled> {
    let missing = decoder.missing();
    stream.fill(decoder.buffer(), missing)
}

pub(super) fn push(stream: &mut Stream, frame: Encoded) {
    let Encoded { head, body } = frame;
    stream.push(head);
    stream.push(body);
}
