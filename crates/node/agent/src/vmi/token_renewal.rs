//! Tokens of service accounts on the disks of a running machine: they live for a day, and the agent
//! replaces them before.

use std::sync::Arc;
use std::time::Duration;

use base::Chain;
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::actor::VmiActor;
use super::resolve::Resolver;
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi};

/// How often a renewal that failed is tried again.
const RETRY: Duration = Duration::from_secs(600);

impl VmiActor {
    /// Replaces the tokens that are due; says when to check again.
    pub(super) async fn renew_tokens(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
    ) -> Option<Instant> {
        if self.process.tokens_due.is_some_and(|due| Instant::now() < due) {
            return self.process.tokens_due;
        }
        let identity = live.running.spec().confinement.identity;
        let context = Arc::clone(&self.context);
        let resolver = Resolver {
            context: &context,
            vmi,
            dir: live.running.dir(),
            identity: identity.as_ref(),
            migration: None,
        };
        let mut next = None;
        for volume in &vmi.spec.volumes {
            let wait = match resolver.renew_token(volume).boxed().await {
                Ok(None) => continue,
                Ok(Some(seconds)) => Duration::from_secs(seconds),
                Err(failure) => {
                    let reason = Chain(&failure).to_string();
                    warn!(volume = volume.name, reason, "cannot replace the token on a disk");
                    let message =
                        format!("The token on volume {} is not replaced: {reason}", volume.name);
                    self.report(vmi, EventNote::warning("TokenNotReplaced", message));
                    RETRY
                }
            };
            let due = Instant::now() + wait;
            debug!(volume = volume.name, seconds = wait.as_secs(), "next token of a disk");
            next = next.map_or(Some(due), |next: Instant| Some(next.min(due)));
        }
        self.process.tokens_due = next;
        next
    }
}
