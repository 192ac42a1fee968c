//! Clients of a volume, over NBD.

use bytes::BytesMut;

use super::Shard;
use super::admin::Answerer;
use super::sources::Source;
use super::vault::Waiter;
use crate::nbd::{
    Errno, Export, Extent, Handshake, HandshakeStep, Negotiated, Replies, Reply, Request,
    RequestKind, Requests,
};
use crate::repl::engine::{GuestError, GuestId, GuestReply, GuestRequest, GuestResult};
use crate::run::poll::{PollInterest, Ready, Token};
use crate::run::stream::{Filled, Stream};

/// A client whose requests and answers hold so many bytes is not listened to until some are gone.
const MAX_BYTES: usize = 64 << 20;

/// So many requests at once are more than any client needs.
const MAX_REQUESTS: usize = 1024;

/// Reads from one socket in a turn, so that the others get theirs.
const MAX_FILLS: usize = 16;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: Stream,
    pub(super) volume: usize,
    phase: Phase,
    input: BytesMut,
    /// Heads of replies that have not been handed to the stream.
    heads: BytesMut,
    /// Requests that were not answered, and the bytes that they hold.
    in_flight: usize,
    bytes: usize,
    /// Has said that it goes, once everything is answered.
    leaving: bool,
    /// The engine takes no more for now.
    held: bool,
    /// Is not listened to any more.
    closed: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Serving { requests: Requests, replies: Replies },
}

/// The step before an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Answer,
    Flush,
    /// Only the first run of a map was asked for.
    First,
}

/// The receiver of an engine's answer.
#[derive(Debug)]
pub(super) enum Origin {
    Client {
        token: Token,
        cookie: u64,
        offset: u64,
        bytes: usize,
        then: Then,
    },
    Admin(Answerer),
    /// A guest that shares its memory.
    Ring {
        token: Token,
        head: u16,
    },
    Thread(Waiter),
    /// A piece of a long request.
    Part {
        whole: u64,
        index: usize,
    },
}

impl Client {
    /// Puts everything that is to go out into the stream.
    pub(super) fn gather(&mut self) {
        if !self.heads.is_empty() {
            let heads = self.heads.split().freeze();
            self.stream.push(heads);
        }
    }

    pub(super) fn wants_more(&self) -> bool {
        !self.leaving
            && !self.closed
            && !self.held
            && self.in_flight < MAX_REQUESTS
            && self.bytes + self.stream.waiting() < MAX_BYTES
    }

    /// Stops reading requests; earlier ones are still answered.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    fn put(&mut self, cookie: u64, reply: Reply) {
        let Phase::Serving { replies, .. } = &self.phase else { return };
        if let Some(data) = replies.put(cookie, reply, &mut self.heads) {
            self.gather();
            self.stream.push(data);
        }
    }

    fn is_done(&self) -> bool {
        self.leaving && self.in_flight == 0 && self.stream.waiting() == 0 && self.heads.is_empty()
    }
}

impl Shard {
    /// Lets in who has connected.
    pub(super) fn accept(&mut self, token: Token) {
        loop {
            let (accepted, volume, remote) = match self.sources.get(token) {
                Some(Source::NbdListener { volume, listener }) => {
                    (listener.accept(), Some(*volume), listener.is_remote())
                }
                Some(Source::EngineListener(listener)) => {
                    (listener.accept(), None, listener.is_remote())
                }
                _ => return,
            };
            let stream = match accepted {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    return;
                }
            };
            let source = match volume {
                None => match self.admit(stream, remote) {
                    Some(inbound) => Source::Engine(Box::new(inbound)),
                    None => continue,
                },
                Some(volume) => Source::Client(Box::new(self.greet(stream, volume))),
            };
            let token = self.sources.insert(source);
            let Some(source) = self.sources.get(token) else { continue };
            if self.poll.add(source, token, PollInterest::READ).is_err() {
                self.lose(token);
            }
            self.mark_dirty(token);
        }
    }

    fn greet(&self, stream: Stream, at: usize) -> Client {
        let volume = &self.volumes[at];
        let export = Export {
            name: volume.name.clone(),
            size: volume.engine.status().size,
            read_only: false,
        };
        let mut heads = BytesMut::new();
        let handshake = Handshake::begin(export, &mut heads);
        Client {
            stream,
            volume: at,
            phase: Phase::Handshake(handshake),
            input: BytesMut::new(),
            heads,
            in_flight: 0,
            bytes: 0,
            leaving: false,
            held: false,
            closed: false,
        }
    }

    pub(super) fn client_ready(&mut self, event: Ready) {
        if event.writable {
            self.send_to(event.token);
        }
        for _ in 0..MAX_FILLS {
            let Some(Source::Client(client)) = self.sources.get_mut(event.token) else { return };
            if !event.readable || !client.wants_more() {
                break;
            }
            let missing = match &client.phase {
                Phase::Handshake(_) => 0,
                Phase::Serving { .. } => Requests::missing(&client.input),
            };
            let filled = match client.stream.fill(&mut client.input, missing) {
                Ok(Filled::Nothing) => break,
                Ok(Filled::End) | Err(_) => return self.lose(event.token),
                Ok(filled) => filled,
            };
            if !self.client_input(event.token) {
                return;
            }
            if filled == Filled::Last {
                break;
            }
        }
        self.pause(event.token);
    }

    /// Takes what has arrived. False when the client is no more.
    fn client_input(&mut self, token: Token) -> bool {
        loop {
            let Some(Source::Client(client)) = self.sources.get_mut(token) else { return false };
            match &mut client.phase {
                Phase::Handshake(handshake) => {
                    let step = handshake.on(&mut client.input, &mut client.heads);
                    match step {
                        Ok(HandshakeStep::NeedMore) => break,
                        Ok(HandshakeStep::Go(negotiated)) => client.phase = serving(&negotiated),
                        Ok(HandshakeStep::End) => {
                            client.leaving = true;
                            break;
                        }
                        Err(error) => {
                            tracing::info!(%error, "protocol error from NBD client");
                            self.lose(token);
                            return false;
                        }
                    }
                }
                Phase::Serving { requests, .. } => match requests.next(&mut client.input) {
                    Ok(Some(request)) => self.client_asks(token, request),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::info!(%error, "client sent an invalid request");
                        self.lose(token);
                        return false;
                    }
                },
            }
        }
        self.mark_dirty(token);
        true
    }

    fn client_asks(&mut self, token: Token, request: Request) {
        let Some(Source::Client(client)) = self.sources.get_mut(token) else { return };
        let Request { cookie, kind } = request;
        let (offset, bytes, then) = match &kind {
            RequestKind::Read { offset, length } => (*offset, *length as usize, Then::Answer),
            RequestKind::Write { data, .. } => (0, data.len(), Then::Answer),
            RequestKind::Trim { fua: true, .. } => (0, 0, Then::Flush),
            RequestKind::BlockStatus { one: true, .. } => (0, 0, Then::First),
            _ => (0, 0, Then::Answer),
        };
        let request = match kind {
            RequestKind::Read { length: 0, .. } => {
                return client.put(cookie, Reply::Data { offset, data: bytes::Bytes::new() });
            }
            RequestKind::Write { data, .. } if data.is_empty() => {
                return client.put(cookie, Reply::Done);
            }
            RequestKind::Read { offset, length } => GuestRequest::Read { offset, length },
            RequestKind::Write { offset, data, fua } => GuestRequest::Write { offset, data, fua },
            RequestKind::Flush => GuestRequest::Flush,
            RequestKind::Trim { offset, length, .. } => {
                GuestRequest::Discard { offset, length: length.into() }
            }
            RequestKind::WriteZeroes { offset, length, fua, .. } => {
                GuestRequest::WriteZeroes { offset, length: length.into(), fua }
            }
            RequestKind::BlockStatus { offset, length, .. } => {
                GuestRequest::Map { offset, length: length.into() }
            }
            RequestKind::Disconnect => {
                client.leaving = true;
                return;
            }
            RequestKind::Bad(errno) => return client.put(cookie, Reply::Failed(errno)),
        };
        client.in_flight += 1;
        client.bytes += bytes;
        let origin = Origin::Client { token, cookie, offset, bytes, then };
        self.volumes[client.volume].ask(origin, request);
    }

    /// The engine has answered.
    pub(super) fn guest_answered(&mut self, at: usize, id: GuestId, result: GuestResult) {
        if let Some(origin) = self.volumes[at].in_flight.remove(&id) {
            self.deliver(at, origin, result);
        }
    }

    fn deliver(&mut self, at: usize, origin: Origin, result: GuestResult) {
        match origin {
            Origin::Client { token, cookie, offset, bytes, then } => {
                if then == Then::Flush && result.is_ok() {
                    let origin =
                        Origin::Client { token, cookie, offset, bytes, then: Then::Answer };
                    return self.volumes[at].ask(origin, GuestRequest::Flush);
                }
                let Some(Source::Client(client)) = self.sources.get_mut(token) else { return };
                client.in_flight -= 1;
                client.bytes -= bytes;
                let mut reply = reply(offset, result);
                if let (Then::First, Reply::Extents(extents)) = (then, &mut reply) {
                    extents.truncate(1);
                }
                client.put(cookie, reply);
                self.mark_dirty(token);
            }
            Origin::Thread(waiter) => waiter.send(result),
            Origin::Admin(answerer) => self.admin_answered(at, answerer, result),
            Origin::Ring { token, head } => self.ring_answered(token, head, result),
            Origin::Part { whole, index } => {
                if let Some((origin, result)) = self.volumes[at].part_answered(whole, index, result)
                {
                    self.deliver(at, origin, result);
                }
            }
        }
    }

    /// Stops listening to a client that has asked for much.
    fn pause(&mut self, token: Token) {
        let Some(Source::Client(client)) = self.sources.get_mut(token) else { return };
        client.held = self.volumes[client.volume].engine.is_saturated();
        self.more |= !client.input.is_empty();
        if !client.wants_more() {
            self.paused.push(token);
        }
        self.set_interest(token);
    }

    /// Listens again to those for whom there is room now, and closes clients that are leaving.
    pub(super) fn resume(&mut self) {
        for token in std::mem::take(&mut self.paused) {
            if let Some(Source::Ring(_)) = self.sources.get(token) {
                self.ring_ready(token);
                continue;
            }
            let Some(Source::Client(client)) = self.sources.get_mut(token) else { continue };
            client.held = self.volumes[client.volume].engine.is_saturated();
            if client.leaving {
                self.send_to(token);
                if let Some(Source::Client(client)) = self.sources.get(token) {
                    match client.is_done() {
                        true => self.lose(token),
                        false => self.paused.push(token),
                    }
                }
            } else if client.wants_more() {
                self.set_interest(token);
                // Data that arrived before it was paused may contain whole requests.
                self.client_ready(Ready { token, readable: true, writable: false });
            } else {
                self.paused.push(token);
            }
        }
    }

    /// A client disconnected. Its requests are carried out all the same.
    pub(super) fn client_lost(&mut self, client: &Client) {
        tracing::debug!(in_flight = client.in_flight, "a client is gone");
    }

    /// The volume has another size.
    pub(super) fn resized(&mut self, at: usize, size: u64) {
        self.guests_grow(at);
        let tokens: Vec<Token> = self.sources.tokens().map(|(token, _)| token).collect();
        for token in tokens {
            if let Some(Source::Client(client)) = self.sources.get_mut(token)
                && client.volume == at
                && let Phase::Serving { requests, .. } = &mut client.phase
            {
                requests.resize(size);
            }
        }
    }
}

fn serving(negotiated: &Negotiated) -> Phase {
    Phase::Serving { requests: Requests::new(*negotiated), replies: Replies::new(negotiated) }
}

fn reply(offset: u64, result: GuestResult) -> Reply {
    match result {
        Ok(GuestReply::Done) => Reply::Done,
        Ok(GuestReply::Data(data)) => Reply::Data { offset, data },
        Ok(GuestReply::Map(extents)) => Reply::Extents(extents.iter().map(extent).collect()),
        Err(error) => Reply::Failed(match error {
            GuestError::Invalid | GuestError::NoSnapshot => Errno::Invalid,
            GuestError::NoSpace => Errno::NoSpace,
            GuestError::Shutdown => Errno::ShuttingDown,
            GuestError::Io | GuestError::Busy | GuestError::Locked => Errno::Io,
        }),
    }
}

fn extent(extent: &crate::repl::engine::Extent) -> Extent {
    // The length of one reply is far below the maximum of the field.
    Extent { length: u32::try_from(extent.length).unwrap_or(u32::MAX), hole: extent.hole }
}
