//! Engines that connect to replicas here: admission, and the end of idle connections.

use std::time::Duration;

use super::Shard;
use super::peer::Inbound;
use super::sources::Source;
use crate::run::poll::Token;
use crate::run::stream::Stream;

/// How long a peer may take to say what it wants.
pub(super) const GREETING: Duration = Duration::from_secs(10);

/// An engine sends a heartbeat every few seconds, however idle: one that was silent for so long
/// is gone, and the network did not say so.
const SILENCE: Duration = Duration::from_secs(60);

/// Peers that have not sent a greeting; above this number new ones are rejected.
const MAX_STRANGERS: usize = 64;

impl Shard {
    /// Lets an engine in that has connected, unless too many have that say nothing.
    pub(super) fn admit(&mut self, mut stream: Stream, remote: bool) -> Option<Inbound> {
        if self.strangers() >= MAX_STRANGERS {
            tracing::warn!("too many idle connections; rejecting connection");
            return None;
        }
        if let (Some(tls), true) = (&mut self.tls, remote) {
            match tls.current().accept() {
                Ok(session) => stream.secure(session),
                Err(error) => {
                    tracing::error!(%error, "TLS handshake failed");
                    return None;
                }
            }
        }
        Some(Inbound::new(stream, self.now()))
    }

    /// Engines that have connected and said nothing yet.
    fn strangers(&self) -> usize {
        let strange = |source: &Source| matches!(source, Source::Engine(inbound) if inbound.replica.is_none());
        self.sources.tokens().filter(|(_, source)| strange(source)).count()
    }

    /// Ends connections whose other end does not speak.
    pub(super) fn close_silent_peers(&mut self, now: Duration) {
        let limit = self.greeting;
        let silent = |(token, source): (Token, &Source)| match source {
            // It has said what it wants, and waits for us.
            Source::Engine(inbound) if inbound.held.is_some() => None,
            Source::Engine(inbound) if inbound.replica.is_none() => {
                (now >= inbound.since + limit).then_some((token, "it did not say what it wants"))
            }
            Source::Engine(inbound) => {
                (now >= inbound.last_received + SILENCE).then_some((token, "it was silent"))
            }
            _ => None,
        };
        let found: Vec<(Token, &str)> = self.sources.tokens().filter_map(silent).collect();
        for (token, why) in found {
            tracing::warn!(why, "engine connection closed");
            self.lose(token);
        }
    }
}
