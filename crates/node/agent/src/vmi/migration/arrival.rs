//! A guest that was handed over to this node: its volumes are claimed or have become this node's, and
//! it is resumed, once.

use std::time::Duration;

use qemu::qmp::RunState;
use qemu::{RunDir, RunningMachine};
use tracing::info;

use super::incoming::IncomingError;
use super::{INCOMING, MigrationNote, local_volume, progress};
use crate::context::Context;
use crate::machine::Vmi;

/// For QEMU to have the state of all devices, when memory follows later.
const DEVICES_TIMEOUT: Duration = Duration::from_secs(5);
const DEVICES_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The part of a guest that has arrived here.
#[derive(Debug)]
pub(in crate::vmi) enum Arrival {
    Whole,
    /// It runs, and some of its memory is still at the source.
    PostCopy(MigrationNote),
}

/// Claims all volumes of a note at once.
pub(super) async fn claim(
    context: &Context,
    note: Option<&MigrationNote>,
) -> Result<(), IncomingError> {
    let volumes = note.map_or(&[][..], |note| note.volumes.as_slice());
    let open = volumes
        .iter()
        .filter(|volume| !context.storage.served(volume).is_some_and(|served| served.is_active));
    let claims = open.map(|volume| context.storage.take_over(volume));
    for claimed in futures_util::future::join_all(claims).await {
        claimed?;
    }
    Ok(())
}

/// Waits until QEMU has the state of all devices: in post-copy, before all memory is there.
pub(super) async fn loaded(running: &RunningMachine) -> Result<(), IncomingError> {
    let qmp = running.qmp().await?;
    let loaded = async {
        // No event says so for a guest that is not to run yet.
        while qmp.run_state().await? == RunState::InMigrate {
            tokio::time::sleep(DEVICES_POLL_INTERVAL).await;
        }
        Ok(())
    };
    tokio::time::timeout(DEVICES_TIMEOUT, loaded).await.unwrap_or(Err(IncomingError::NotLoaded))
}

/// Whether the machine of a folder has a guest from another node that must not run here yet.
pub(crate) fn is_arriving(dir: &RunDir) -> bool {
    let note: Option<MigrationNote> = dir.load(INCOMING).ok().flatten();
    note.is_some_and(|note| !note.post_copy)
}

/// Lets a guest run that the object gives to this node: with all volumes claimed, and once.
pub(in crate::vmi) async fn arrive(
    context: &Context,
    vmi: &Vmi,
    dir: &RunDir,
    running: &RunningMachine,
) -> Result<Arrival, IncomingError> {
    let note: Option<MigrationNote> = dir.load(INCOMING).ok().flatten();
    let Some(note) = note else { return Ok(Arrival::Whole) };
    if note.post_copy {
        return Ok(Arrival::PostCopy(note));
    }
    claim(context, Some(&note)).await?;
    local_volume::until_here(context, &note).await?;
    let qmp = running.qmp().await?;
    if qmp.run_state().await? != RunState::Running {
        qmp.resume().await?;
    }
    let arrival = if progress::is_post_copy(vmi) {
        let note = MigrationNote { post_copy: true, ..note };
        let failed = |source| IncomingError::File { doing: "write", source };
        dir.store(INCOMING, &note).map_err(failed)?;
        Arrival::PostCopy(note)
    } else {
        let failed = |source| IncomingError::File { doing: "remove", source };
        std::fs::remove_file(dir.path().join(INCOMING)).map_err(failed)?;
        Arrival::Whole
    };
    info!("guest arrived and goes on here");
    qmp.announce().await?;
    running.begin().await?;
    Ok(arrival)
}
