//! A migration that failed: the guest stays at the source, or is resumed there.

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, clock};
use qemu::qmp::{MigrationStatus, QmpError, RunState};
use tracing::{info, warn};

use super::failure::MigrationFailure;
use super::outgoing::{Written, settled};
use super::peer::Peer;
use super::progress::{self, MigrationRequest};
use super::recovery::{self, Ownership, Recovery};
use super::{MigrationNote, OUTGOING, path, ticket};
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi};
use crate::vmi::actor::{LoopControl, VmiActor};
use crate::vmi::resolve::held_volumes;

const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);
/// For QEMU to end a migration that was cancelled.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts to write the object.
const RETRY: Duration = Duration::from_millis(300);

impl VmiActor {
    /// The guest goes on here, unless its object says that it is the target's.
    pub(super) async fn roll_back(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        request: &MigrationRequest,
        failure: &MigrationFailure,
    ) -> LoopControl {
        if matches!(failure, MigrationFailure::AgentStops) {
            // The guest goes on if it never stopped; the next process settles the rest.
            let _ = self.cancel(live).await;
            self.abandon_disk_copies(vmi, live).await;
            return LoopControl::Again;
        }
        let why = Chain(failure).to_string();
        warn!(namespace = vmi.namespace, name = vmi.name, error = why, "migration failed");
        let status = match live.running.qmp().await {
            Ok(qmp) => qmp.migration_progress().await.map(|now| now.status),
            Err(failure) => Err(failure),
        };
        let status = status.unwrap_or(MigrationStatus::None);
        let mut next = recovery::source(status, Ownership::Source);
        if next == Recovery::NeverResume {
            return self.continue_post_copy(vmi, request);
        }
        if next == Recovery::Cancel
            && let Err(failure) = self.cancel(live).await
        {
            warn!(error = %Chain(&failure), "cannot cancel a migration");
        }
        self.abandon_disk_copies(vmi, live).await;
        let is_aborted = matches!(failure, MigrationFailure::Aborted);
        let now = clock::now();
        let failed = |vmi: &Vmi| Some(progress::failed(vmi, &why, is_aborted, now));
        loop {
            let owner = match self.write_until_known(vmi, request, failed).await {
                Ok(Written::Yes) => Ownership::Source,
                Ok(Written::Refused(now)) if progress::owner(&now) == request.target => {
                    Ownership::Target
                }
                Ok(Written::Refused(_) | Written::Gone) => Ownership::Source,
                Err(MigrationFailure::AgentStops) => return LoopControl::Again,
                Err(_) => Ownership::Unknown,
            };
            next = recovery::source(status, owner);
            if next != Recovery::AskAgain {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        match next {
            Recovery::Yield | Recovery::NeverResume => return LoopControl::Again,
            Recovery::RecordThenResume => resume(live).await,
            Recovery::Cancel | Recovery::AskAgain => {}
        }
        self.withdraw(vmi, request).await;
        self.forget_migration();
        let message = format!(
            "VirtualMachineInstance migration uid {} failed. reason:{why}",
            request.migration
        );
        self.report(vmi, EventNote::warning("Migrated", message));
        LoopControl::Again
    }

    /// QEMU has switched, whatever the note says: its source serves memory from now on.
    fn continue_post_copy(&mut self, vmi: &Vmi, request: &MigrationRequest) -> LoopControl {
        let found: Option<MigrationNote> = self.dir.load(OUTGOING).ok().flatten();
        let note = found.unwrap_or_else(|| MigrationNote {
            target: request.target.clone(),
            ..MigrationNote::new(&request.migration, vmi)
        });
        match self.dir.store(OUTGOING, &MigrationNote { post_copy: true, ..note }) {
            Ok(()) => LoopControl::Again,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot write the note of a migration");
                self.later()
            }
        }
    }

    /// Has QEMU give up a migration, and the guest go on.
    async fn cancel(&self, live: &LiveMachine) -> Result<(), QmpError> {
        let qmp = live.running.qmp().await?;
        let now = qmp.migration_progress().await?.status;
        // QEMU would cancel this as well, and the guest would run on two nodes.
        if matches!(now, MigrationStatus::PostCopy | MigrationStatus::PostCopyPaused) {
            return Ok(());
        }
        if matches!(
            now,
            MigrationStatus::Active | MigrationStatus::PreSwitchover | MigrationStatus::Device
        ) {
            qmp.cancel_migration().await?;
            let settled = settled(&qmp);
            let _ = tokio::time::timeout(SETTLE_TIMEOUT, settled).await;
        }
        if matches!(qmp.run_state().await?, RunState::FinishMigrate | RunState::PostMigrate)
            && qmp.migration_progress().await?.status != MigrationStatus::Completed
        {
            qmp.resume().await?;
        }
        Ok(())
    }

    /// Cancels at the target, and takes its tickets back in case that it cannot.
    async fn withdraw(&self, vmi: &Vmi, request: &MigrationRequest) {
        let cancelled = async {
            let peer = Peer::find(&self.context, &self.tasks, &request.target).await?;
            let mut connection = peer.connect().await?;
            connection.put(&path(&request.migration, "cancel"), Vec::new(), CANCEL_TIMEOUT).await
        };
        let cancelled = tokio::time::timeout(CANCEL_TIMEOUT, cancelled).await;
        if !matches!(cancelled, Ok(Ok(_))) {
            warn!(target = request.target, "cannot notify the target of the cancellation");
        }
        let ticket = ticket(&vmi.uid, &request.migration);
        for volume in held_volumes(&self.dir) {
            if let Err(failure) = self.context.storage.forgo(&volume, &ticket).await {
                warn!(volume, error = %Chain(&failure), "cannot take back the target's ticket");
            }
        }
    }

    pub(super) fn forget_migration(&self) {
        let removed = std::fs::remove_file(self.dir.path().join(OUTGOING));
        if let Err(failure) = removed
            && failure.kind() != std::io::ErrorKind::NotFound
        {
            warn!(error = %Chain(&failure), "cannot remove the note of a migration");
        }
    }
}

async fn resume(live: &LiveMachine) {
    let resumed = async { live.running.qmp().await?.resume().await };
    match resumed.await {
        Ok(()) => info!("guest goes on here"),
        Err(failure) => warn!(error = %Chain(&failure), "cannot let the guest go on"),
    }
}
