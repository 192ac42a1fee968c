//! Volumes of a running guest that move to another claim on the same node: QEMU mirrors the disk
//! and switches the guest to it, without a restart.
//!
//! `status.migratedVolumes` of the object names both claims of each volume, and its specification
//! the one that is wanted. The state of QEMU is read before each step (`plan`). A guest is
//! switched only after the object says so: after a crash, the next start of the machine depends on
//! whether the source has all data. A failure leaves the guest where it is and is tried again.

mod plan;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain};
use futures_util::FutureExt as _;
use qemu::machine::Disk;
use qemu::qmp::{MirrorError, MirrorJob, MirrorOptions, Qmp, QmpError};
use tokio::time::Instant;
use tracing::{info, warn};
use virt::reason::VolumesChange;
use virt::v1::Volume;

use self::plan::{MirrorEvidence, MirrorStep, Side};
pub(super) use self::request::is_moving;
use self::request::{MoveRequest, claim_name, is_announced, requests, with_claim};
use super::actor::VmiActor;
use super::resolve::{self, ResolveError, Resolved, Resolver};
use super::running::record;
use super::status::{VolumeMove, VolumeMoveState};
use super::translate;
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi};

/// Which claims disks were switched to since the start of the guest, in its folder.
const RECORD: &str = "switched-claims.json";
/// For a volume that is being attached, besides the events of the storage process.
const ATTACH_RETRY: Duration = Duration::from_secs(1);
/// For QEMU to answer; opening a volume may take a moment.
const ANSWER: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// Steps that are taken in one turn; each way to a wait is shorter.
const MOST_STEPS: usize = 8;

/// Why a step was not taken.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Translate(#[from] translate::TranslateError),
    #[error("claim {claim} is the one that the guest uses")]
    SameImage { claim: String },
    #[error("claim {claim} is no disk")]
    NoDisk { claim: String },
    #[error("QEMU cannot copy the disk: {why}")]
    Job { why: String },
    #[error("cannot record that the guest uses claim {claim}")]
    Record { claim: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// The state of a moving volume that this process keeps.
pub(super) struct MovingVolume {
    pub(super) state: VolumeMoveState,
    backoff: Backoff,
    retry_at: Option<Instant>,
}

impl MovingVolume {
    /// As the object says, until QEMU was asked.
    fn found(vmi: &Vmi) -> Self {
        let state = match is_announced(vmi) {
            true => VolumeMoveState::Switching,
            false => VolumeMoveState::Copying,
        };
        Self { state, backoff: Backoff::new(FIRST_RETRY, LAST_RETRY), retry_at: None }
    }
}

impl VmiActor {
    /// Takes the next steps of all volumes that move; says when to check again.
    pub(super) async fn migrate_volumes(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
    ) -> Option<Instant> {
        let requests = requests(vmi);
        self.disks.moving.retain(|name, _| requests.iter().any(|request| request.volume == *name));
        let mut again = None;
        for request in &requests {
            let found = || MovingVolume::found(vmi);
            self.disks.moving.entry(request.volume.clone()).or_insert_with(found);
            if let Err(failure) = self.move_volume(vmi, live, request).boxed().await {
                self.move_failed(vmi, request, &failure);
            }
            let retry_at =
                self.disks.moving.get(&request.volume).and_then(|moving| moving.retry_at);
            again = [again, retry_at].into_iter().flatten().min();
        }
        again
    }

    fn move_failed(&mut self, vmi: &Vmi, request: &MoveRequest, failure: &StepError) {
        let MoveRequest { volume, source, target } = request;
        let waits = match failure {
            StepError::Resolve(failure) => failure.awaited(&vmi.namespace),
            _ => None,
        };
        let why = Chain(failure).to_string();
        let Some(moving) = self.disks.moving.get_mut(volume) else { return };
        let is_attaching = matches!(failure, StepError::Resolve(ResolveError::Attaching { .. }));
        moving.retry_at = match (&waits, is_attaching) {
            // Its change wakes this task.
            (Some(_), _) => None,
            (None, true) => Some(Instant::now() + ATTACH_RETRY),
            (None, false) => Some(Instant::now() + moving.backoff.delay()),
        };
        self.disks.awaited_by_moves.extend(waits.clone());
        // The guest may be switched: nothing else must be said before QEMU was asked.
        if moving.state == VolumeMoveState::Switching && !matches!(failure, StepError::Job { .. }) {
            warn!(volume, error = why, "volume migration cannot go on yet");
            return;
        }
        if waits.is_some() || is_attaching {
            moving.state = VolumeMoveState::Waiting(why);
            return;
        }
        let message =
            format!("cannot move volume {volume} from claim {source} to claim {target}: {why}");
        let state = VolumeMoveState::Failed(message.clone());
        if moving.state != state {
            moving.state = state;
            warn!(volume, source, target, error = why, "volume migration failed");
            self.report(vmi, EventNote::warning(VolumesChange::Failed.as_str(), message));
        }
    }

    async fn move_volume(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        request: &MoveRequest,
    ) -> Result<(), StepError> {
        let qmp = live.running.qmp().await?.with_limit(ANSWER);
        for _ in 0..MOST_STEPS {
            let machine = live.running.spec().machine;
            let disk = machine.disks.into_iter().find(|disk| disk.name == request.volume);
            let volume = vmi.spec.volumes.iter().find(|volume| volume.name == request.volume);
            let (Some(disk), Some(volume)) = (disk, volume) else {
                // There is nothing to copy from, or it is no longer wanted.
                self.set_move(request, VolumeMoveState::Canceled);
                return Ok(());
            };
            let next = Disk { moves: disk.moves + 1, ..disk.clone() };
            let seen = self.situation(vmi, request, volume, &qmp, (&disk, &next)).await?;
            let step = plan::next(&seen);
            tracing::debug!(volume = request.volume, ?seen, ?step, "volume migration");
            let at =
                MirrorContext { vmi, live, request, volume, qmp: &qmp, disk: &disk, next: &next };
            if !self.take_step(&at, &seen, step).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn situation(
        &self,
        vmi: &Vmi,
        request: &MoveRequest,
        volume: &Volume,
        qmp: &Qmp,
        (disk, next): (&Disk, &Disk),
    ) -> Result<MirrorEvidence, StepError> {
        let observed = qmp.observe_mirror(disk, next).await?;
        let switched: BTreeMap<String, String> =
            self.dir.load(RECORD).ok().flatten().unwrap_or_default();
        let is_on_target = switched.get(&request.volume) == Some(&request.target);
        let recorded = if is_on_target { Side::Target } else { Side::Source };
        let wanted = match claim_name(volume) {
            Some(claim) if claim == request.target => Side::Target,
            Some(claim) if claim == request.source => Side::Source,
            _ => recorded,
        };
        let retry_at = self.disks.moving.get(&request.volume).and_then(|moving| moving.retry_at);
        Ok(MirrorEvidence {
            wanted,
            recorded,
            is_switched: observed.is_switched,
            job: observed.job,
            is_announced: is_announced(vmi),
            is_due: retry_at.is_none_or(|at| at <= Instant::now()),
        })
    }

    /// True if another step may follow at once.
    async fn take_step(
        &mut self,
        at: &MirrorContext<'_>,
        seen: &MirrorEvidence,
        step: MirrorStep,
    ) -> Result<bool, StepError> {
        let MirrorContext { vmi, request, qmp, .. } = *at;
        let other = request.claim(seen.recorded.other());
        match step {
            MirrorStep::Wait => {
                if matches!(seen.job, MirrorJob::Copying { .. }) {
                    self.set_move(request, VolumeMoveState::Copying);
                }
                return Ok(false);
            }
            MirrorStep::WaitUntilDue => return Ok(false),
            MirrorStep::Start => {
                let (next, _) = self.other_image(at, other).await?;
                if next.source == at.disk.source {
                    return Err(StepError::SameImage { claim: other.to_owned() });
                }
                qmp.start_mirror(at.disk, &next, MirrorOptions::default()).await?;
                self.set_move(request, VolumeMoveState::Copying);
                info!(volume = request.volume, claim = other, "copying a disk of a running guest");
                let message = format!("Copying volume {} to claim {other}", request.volume);
                self.report(vmi, EventNote::normal(VolumesChange::Copying.as_str(), message));
            }
            MirrorStep::Announce => {
                // The status is written at the end of this turn, and its change begins the next.
                self.set_move(request, VolumeMoveState::Switching);
                return Ok(false);
            }
            MirrorStep::Complete => {
                self.set_move(request, VolumeMoveState::Switching);
                qmp.complete_mirror(at.next).await?;
                return Ok(false);
            }
            MirrorStep::Adopt => {
                let (next, found) = self.other_image(at, other).await?;
                self.adopt_image(at, other, next)?;
                self.disks.found.insert(request.volume.clone(), found);
            }
            MirrorStep::Cancel => {
                qmp.cancel_mirror(at.next).await?;
                info!(volume = request.volume, "volume migration canceled");
            }
            MirrorStep::Forget => qmp.discard_mirror(at.next).await?,
            MirrorStep::Fail(why) => {
                qmp.discard_mirror(at.next).await?;
                return Err(StepError::Job { why });
            }
            MirrorStep::Finish => {
                self.finish_move(at, seen).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn set_move(&mut self, request: &MoveRequest, state: VolumeMoveState) {
        if let Some(moving) = self.disks.moving.get_mut(&request.volume) {
            moving.state = state;
            moving.retry_at = None;
        }
    }

    /// The disk with the bytes of another claim behind it.
    async fn other_image(
        &self,
        at: &MirrorContext<'_>,
        claim: &str,
    ) -> Result<(Disk, Resolved), StepError> {
        let no_disk = || StepError::NoDisk { claim: claim.to_owned() };
        let found = self.resolve_claim(at, claim).await?.ok_or_else(no_disk)?;
        let disks = &at.vmi.spec.domain.devices.disks;
        let spec = disks.iter().find(|disk| disk.name == at.request.volume).ok_or_else(no_disk)?;
        let made = translate::disk(at.vmi, spec, Some(&found.backing))?;
        // The device stays as it is; only what is behind it changes.
        let next =
            Disk { source: made.source, cache: made.cache, aio: made.aio, ..at.next.clone() };
        Ok((next, found))
    }

    async fn resolve_claim(
        &self,
        at: &MirrorContext<'_>,
        claim: &str,
    ) -> Result<Option<Resolved>, ResolveError> {
        let identity = at.live.running.spec().confinement.identity;
        let resolver = Resolver {
            context: &self.context,
            vmi: at.vmi,
            dir: at.live.running.dir(),
            identity: identity.as_ref(),
            migration: None,
        };
        resolver.volume(&with_claim(at.volume, claim)).boxed().await
    }

    /// Notes that the guest uses another image, so that the next process knows of it.
    fn adopt_image(
        &self,
        at: &MirrorContext<'_>,
        claim: &str,
        next: Disk,
    ) -> Result<(), StepError> {
        let volume = &at.request.volume;
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| StepError::Record {
            claim: claim.to_owned(),
            source,
        };
        let mut switched: BTreeMap<String, String> =
            self.dir.load(RECORD).ok().flatten().unwrap_or_default();
        switched.insert(volume.clone(), claim.to_owned());
        self.dir.store(RECORD, &switched).map_err(|source| failed(source.into()))?;
        let change = |machine: &mut qemu::Machine| {
            if let Some(disk) = machine.disks.iter_mut().find(|disk| disk.name == *volume) {
                *disk = next;
            }
        };
        record(at.live, change).map_err(|source| failed(source.into()))
    }

    /// The guest is where it is wanted: what is left of the other side goes.
    async fn finish_move(
        &mut self,
        at: &MirrorContext<'_>,
        seen: &MirrorEvidence,
    ) -> Result<(), StepError> {
        let MirrorContext { vmi, request, .. } = *at;
        at.qmp.discard_mirror(at.next).await?;
        at.qmp.tidy_mirror(at.disk).await?;
        let claim = request.claim(seen.recorded);
        // Found again last, so that it is the one that the machine holds.
        if let Some(found) = self.resolve_claim(at, claim).await? {
            self.disks.found.insert(request.volume.clone(), found);
        }
        resolve::leave_others(at.live.running.dir(), &request.volume, &at.disk.source);
        let (state, note) = match seen.recorded {
            Side::Target => {
                let message = format!("Volume {} uses claim {claim} now", request.volume);
                (VolumeMoveState::Switched, EventNote::normal("VolumeMigrated", message))
            }
            Side::Source => {
                let message = format!("Volume {} stays on claim {claim}", request.volume);
                let reason = VolumesChange::Canceled.as_str();
                (VolumeMoveState::Canceled, EventNote::normal(reason, message))
            }
        };
        let is_news = self.disks.moving.get(&request.volume).is_none_or(|own| own.state != state);
        self.set_move(request, state);
        if is_news {
            info!(volume = request.volume, claim, "volume migration ended");
            self.report(vmi, note);
        }
        Ok(())
    }

    /// For the status.
    pub(super) fn volume_moves(&self) -> Vec<VolumeMove> {
        let report = |(name, moving): (&String, &MovingVolume)| VolumeMove {
            volume: name.clone(),
            state: moving.state.clone(),
        };
        self.disks.moving.iter().map(report).collect()
    }
}

/// The objects that a step concerns.
#[derive(Clone, Copy)]
struct MirrorContext<'a> {
    vmi: &'a Arc<Vmi>,
    live: &'a LiveMachine,
    request: &'a MoveRequest,
    volume: &'a Volume,
    qmp: &'a Qmp,
    disk: &'a Disk,
    next: &'a Disk,
}
