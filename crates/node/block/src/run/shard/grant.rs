//! Engines of other nodes and the grants of replicas: which are admitted, which wait, which are
//! refused.
//!
//! ```text
//!  HELLO ──granted──► session          another grant arrives ──► checked again
//!    └──not granted──► held ───────────┤
//!                                      └ GRANT_TIMEOUT ──► refused, with a reason in the log
//! ```
//!
//! A new engine and the grant for it are caused by the same change of the volume, but arrive on
//! different paths: an engine that is faster waits a moment here instead of failing. The
//! connection of a node that the grant names no more is closed after [`REVOKE_DELAY`], since the
//! two ends of a migration are reported by several changes, in any order.

use std::time::Duration;

use super::Shard;
use super::peer::push;
use super::sources::Source;
use crate::grant::{GrantDenial, Peer, ReplicaGrants};
use crate::ids::{Generation, ReplicaId};
use crate::repl::control::NodeName;
use crate::repl::session::SessionEvent;
use crate::run::poll::Token;
use crate::wire::{Answer, Call, Op, Refusal, Request, encode_answer};

/// How long an engine waits for its grant: less than it waits for an answer.
pub(super) const GRANT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection goes on that no grant names any more.
const REVOKE_DELAY: Duration = Duration::from_secs(5);

/// A greeting that waits for a grant.
#[derive(Debug)]
pub(super) struct HeldHello {
    call: Call,
    replica: ReplicaId,
    denial: GrantDenial,
    since: Duration,
}

/// The state of grants in a shard.
pub(super) struct GrantState {
    grants: ReplicaGrants,
    timeout: Duration,
    /// Connections and sessions that were refused since the start.
    refused: u64,
    /// Called when an engine begins to wait.
    waiting: Box<dyn Fn() + Send>,
}

impl std::fmt::Debug for GrantState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { grants, refused, .. } = self;
        f.debug_struct("GrantState").field("grants", grants).field("refused", refused).finish()
    }
}

impl Default for GrantState {
    fn default() -> Self {
        let grants = ReplicaGrants::default();
        Self { grants, timeout: GRANT_TIMEOUT, refused: 0, waiting: Box::new(|| {}) }
    }
}

impl Shard {
    /// Replaces what is granted. Engines that wait are checked again.
    pub fn set_grants(&mut self, grants: ReplicaGrants) {
        self.granted.grants = grants;
        for token in self.engines_where(|inbound| inbound.held.is_some()) {
            let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { continue };
            let Some(held) = inbound.held.take() else { continue };
            match self.granted.grants.check_peer(&inbound.peer, held.replica) {
                Err(denial) => inbound.held = Some(HeldHello { denial, ..held }),
                Ok(()) => {
                    inbound.replica = Some(held.replica);
                    self.greet_held(token, held);
                }
            }
        }
    }

    /// `notify` is called when an engine begins to wait for a grant.
    pub fn on_waiting_engine(&mut self, notify: impl Fn() + Send + 'static) {
        self.granted.waiting = Box::new(notify);
    }

    /// Refuses engines that wait for a grant for so long.
    pub fn expect_grant_within(&mut self, limit: Duration) {
        self.granted.timeout = limit;
    }

    /// The nodes whose engines wait, and for which replica.
    pub fn waiting_engines(&self) -> Vec<(ReplicaId, NodeName)> {
        let waiting = |(_, source): (Token, &Source)| {
            let Source::Engine(inbound) = source else { return None };
            let held = inbound.held.as_ref()?;
            match &inbound.peer {
                Peer::Node(node) => Some((held.replica, node.clone())),
                Peer::Local | Peer::Unknown => None,
            }
        };
        self.sources.tokens().filter_map(waiting).collect()
    }

    /// How often an engine was refused since the start.
    pub fn refused_engines(&self) -> u64 {
        self.granted.refused
    }

    /// Whether a call is for the replica's session. If not, it waits or was refused.
    pub(super) fn may_call(&mut self, token: Token, call: &Call) -> bool {
        let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { return false };
        let grants = &self.granted.grants;
        match &call.request {
            Request::Hello(hello) => {
                let replica = hello.replica;
                inbound.peer = inbound.stream.peer();
                // One that is not here is refused by its absence.
                let is_here = self.hosts.contains_key(&replica);
                let checked = grants.check_peer(&inbound.peer, replica);
                let Some(denial) = checked.err().filter(|_| is_here) else {
                    inbound.replica = Some(replica);
                    return true;
                };
                if denial.may_pass() {
                    let (call, since) = (call.clone(), self.now);
                    inbound.held = Some(HeldHello { call, replica, denial, since });
                    (self.granted.waiting)();
                } else {
                    self.refuse(token, call.id, Op::Hello, Refusal::NotGranted, &denial);
                }
                false
            }
            Request::Open(_) => {
                let Some(replica) = inbound.replica else { return true };
                let checked = grants.check_generation(&inbound.peer, replica, call.generation);
                let Err(denial) = checked else { return true };
                self.refuse(token, call.id, Op::Open, Refusal::Fenced, &denial);
                false
            }
            _ => true,
        }
    }

    /// A greeting that has waited goes to its session, and what came after it.
    fn greet_held(&mut self, token: Token, held: HeldHello) {
        let HeldHello { call, replica, .. } = held;
        if !self.hosts.contains_key(&replica) {
            return self.lose(token);
        }
        self.idle_since = None;
        self.session_event(replica, SessionEvent::Call { connection: token, call });
        if self.engine_calls(token) {
            self.set_interest(token);
        }
    }

    /// Answers a call with a refusal; the engine may disconnect, or is closed for its silence.
    fn refuse(&mut self, token: Token, id: u64, op: Op, refusal: Refusal, denial: &GrantDenial) {
        self.granted.refused += 1;
        tracing::warn!(reason = %denial, "engine of another node refused");
        let generation = match denial {
            // The engine is to know that it was superseded.
            GrantDenial::StaleGeneration { oldest, .. } => *oldest,
            _ => Generation(0),
        };
        let now = self.now;
        let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { return };
        let answer = Answer { id, generation, result: Err(refusal) };
        push(&mut inbound.stream, encode_answer(op, &answer));
        let left = inbound.replica.take();
        inbound.since = now;
        if let Some(replica) = left {
            self.session_event(replica, SessionEvent::Closed { connection: token });
        }
        self.mark_dirty(token);
        self.set_interest(token);
    }

    /// Refuses those that have waited for too long, and closes connections that no grant names.
    pub(super) fn enforce_grants(&mut self, now: Duration) {
        let limit = self.granted.timeout;
        let late = |held: &HeldHello| now >= held.since + limit;
        for token in self.engines_where(|inbound| inbound.held.as_ref().is_some_and(late)) {
            let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { continue };
            let Some(held) = inbound.held.take() else { continue };
            self.refuse(token, held.call.id, Op::Hello, Refusal::NotGranted, &held.denial);
        }
        for token in self.engines_where(|inbound| inbound.replica.is_some()) {
            let Some(Source::Engine(inbound)) = self.sources.get_mut(token) else { continue };
            let Some(replica) = inbound.replica else { continue };
            match self.granted.grants.check_peer(&inbound.peer, replica) {
                Ok(()) => inbound.revoked = None,
                Err(denial) if now >= *inbound.revoked.get_or_insert(now) + REVOKE_DELAY => {
                    self.granted.refused += 1;
                    tracing::warn!(reason = %denial, "engine connection closed: grant revoked");
                    self.lose(token);
                }
                Err(_) => {}
            }
        }
    }

    fn engines_where(&self, is: impl Fn(&super::peer::Inbound) -> bool) -> Vec<Token> {
        let chosen = |(token, source): (Token, &Source)| match source {
            Source::Engine(inbound) if is(inbound) => Some(token),
            _ => None,
        };
        self.sources.tokens().filter_map(chosen).collect()
    }
}
