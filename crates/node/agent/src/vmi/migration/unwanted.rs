//! Reasons to end a migration before the guest has stopped: an abort, a stop of the machine or of
//! the agent, another owner.

use std::future::Future;

use base::Stop;
use tokio::sync::watch;

use super::failure::MigrationFailure;
use super::progress::{self, MigrationRequest};
use crate::machine::{KnownMachine, Vmi};

#[derive(Clone)]
pub(super) struct Unwanted {
    pub(super) object: watch::Receiver<KnownMachine>,
    pub(super) stop: Stop,
    pub(super) node: String,
    pub(super) request: MigrationRequest,
}

impl Unwanted {
    /// Does `work` for as long as the migration is wanted.
    pub(super) async fn guard<T>(
        mut self,
        work: impl Future<Output = Result<T, MigrationFailure>>,
    ) -> Result<T, MigrationFailure> {
        tokio::select! {
            done = work => done,
            why = self.wait() => Err(why),
        }
    }

    async fn wait(&mut self) -> MigrationFailure {
        loop {
            let known = self.object.borrow_and_update().clone();
            if let KnownMachine::Present(vmi) = known
                && let Some(why) = self.objection(&vmi)
            {
                return why;
            }
            tokio::select! {
                changed = self.object.changed() => if changed.is_err() {
                    return MigrationFailure::AgentStops;
                },
                () = self.stop.requested() => return MigrationFailure::AgentStops,
            }
        }
    }

    fn objection(&self, vmi: &Vmi) -> Option<MigrationFailure> {
        let state = progress::state(vmi);
        let is_ours = state.migration_uid.as_deref() == Some(&self.request.migration);
        if is_ours && state.abort_requested == Some(true) {
            return Some(MigrationFailure::Aborted);
        }
        if vmi.deleted.is_some() || vmi.shut_down_by().is_some() {
            return Some(MigrationFailure::Stopping);
        }
        (progress::owner(vmi) != self.node).then_some(MigrationFailure::Refused)
    }
}
