//! The end of a machine: shutdown, kill, the reported result, and cleanup.

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, clock};
use qemu::qmp::RunState;
use tracing::{debug, info, warn};
use virt::reason::NotSynchronized;

use super::actor::{LocalMachine, LoopControl, VmiActor};
use super::migration;
use super::plan::RunOutcome;
use super::resolve;
use super::status::{MachineProblem, View};
use crate::event::EventNote;
use crate::machine::{ATTACHMENTS, Attachment, Vmi};

impl VmiActor {
    pub(super) async fn press_button(&mut self, vmi: &Arc<Vmi>) -> LoopControl {
        let LocalMachine::Running(live) = &self.local else { return LoopControl::Again };
        let asked = vmi.deleted.or_else(|| vmi.eviction_began());
        if self.process.pressed.is_none_or(|pressed| asked.is_some_and(|asked| pressed < asked)) {
            info!(namespace = vmi.namespace, name = vmi.name, "shutting down");
            self.report(vmi, EventNote::normal("ShuttingDown", "Signaled Graceful Shutdown"));
        }
        self.process.pressed = Some(clock::now());
        // It would go on before its volumes are this node's.
        if migration::is_arriving(&self.dir)
            && let Err(failure) =
                migration::arrive(&self.context, vmi, &self.dir, &live.running).await
        {
            warn!(error = %Chain(&failure), "cannot shut down a guest that has not arrived");
            return self.later();
        }
        let pressed = async {
            let qmp = live.running.qmp().await?.with_limit(Duration::from_secs(2));
            // A paused guest cannot shut down.
            if qmp.run_state().await? == RunState::Paused {
                qmp.resume().await?;
            }
            qmp.power_down().await
        };
        let limit = Duration::from_secs(3);
        match tokio::time::timeout(limit, pressed).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => debug!(error = %Chain(&failure), "cannot press the power button"),
            Err(_) => debug!("QEMU does not answer"),
        }
        LoopControl::Again
    }

    pub(super) async fn kill(&mut self) -> LoopControl {
        let LocalMachine::Running(live) = &self.local else { return LoopControl::Again };
        info!(pid = live.running.process().pid, "killing a guest");
        let exit = live.running.kill().await;
        self.end(exit);
        LoopControl::Again
    }

    pub(super) async fn finish(&mut self, vmi: &Arc<Vmi>, outcome: RunOutcome) -> LoopControl {
        let trouble =
            self.condemned.take().map(|why| MachineProblem::new(NotSynchronized::Liveness, why));
        let unhealthy = trouble.as_ref().map(|trouble| trouble.message.clone());
        let view = View { phase: outcome.phase(), trouble, guest: None };
        match self.write(vmi, &view).await {
            Ok(()) => {
                if let Some(why) = unhealthy {
                    let message = format!("Liveness probe failed: {why}");
                    self.report(vmi, EventNote::warning("Unhealthy", message));
                }
                let evicted = vmi.deleted.is_none() && vmi.shut_down_by().is_some();
                let note = match outcome {
                    _ if evicted => EventNote::normal(
                        "Stopped",
                        "The VirtualMachineInstance was shut down because its pod was evicted.",
                    ),
                    RunOutcome::Succeeded => {
                        EventNote::normal("Stopped", "The VirtualMachineInstance was shut down.")
                    }
                    RunOutcome::Failed => {
                        EventNote::warning("Stopped", "The VirtualMachineInstance crashed.")
                    }
                };
                self.report(vmi, note);
                self.retry.succeeded();
                LoopControl::Again
            }
            Err(after) => after,
        }
    }

    pub(super) async fn clean_up(&mut self) -> LoopControl {
        let attachments: Vec<Attachment> =
            self.dir.load(ATTACHMENTS).ok().flatten().unwrap_or_default();
        for attachment in &attachments {
            self.context.networks.disconnect(attachment).await;
        }
        let uid = self.dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Err(failure) = resolve::release(&self.context, &self.dir, &uid, None).await {
            warn!(error = %Chain(&failure), "cannot release volumes of machine");
            return self.later();
        }
        self.remove_moved_state().await;
        if let Err(failure) = self.context.launcher.clean_up(&self.dir).await {
            warn!(error = %Chain(&failure), "cannot clean up after a machine");
            return self.later();
        }
        if let Some(uid) = self.uid.take() {
            self.context.users.release(uid);
        }
        let name = self.dir.path().file_name().unwrap_or_default().to_string_lossy();
        self.context.processors.release(&name);
        self.local = LocalMachine::Nothing;
        self.retry.succeeded();
        LoopControl::Again
    }
}
