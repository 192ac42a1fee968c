//! The jobs that the controller starts: one at a time per volume, and uploads that begin when their
//! claim waits for one.

use base::{Backoff, Chain};
use tracing::{debug, warn};

use super::{
    FIRST_RETRY_DELAY, JobFailure, JobResult, LONGEST_RETRY_DELAY, VolumeContext, VolumeController,
    WrittenObject,
};
use crate::volume::fill::Job;
use crate::volume::object::{Claim, FillProgress, VolumePlace};
use crate::volume::plan::{LongAction, VolumeAction};
use crate::volume::provision::{self, ProvisionError};
use crate::volume::receive::{self, PendingCopy};
use crate::volume::source::FillSource;
use crate::volume::status_writer::ClaimStatusWriter;
use crate::volume::upload::{PendingUpload, UploadError, upload};

impl VolumeController {
    pub(super) fn start(&mut self, action: VolumeAction) {
        let shared = self.shared.clone();
        let claim = |uid: &str| self.claims.get(uid).cloned();
        match action {
            VolumeAction::Provision { claim: uid } => {
                let Some(claim) = claim(&uid) else { return };
                let volume = claim.volume_name();
                let known = self.trouble(&volume).complaint.clone();
                self.spawn(volume, LongAction::Other, |_| make(shared, claim, known));
            }
            VolumeAction::Fill { volume, claim: uid, source } => {
                let Some(claim) = claim(&uid) else { return };
                self.spawn(volume, LongAction::Filling, |volume| async move {
                    Ok(WrittenObject::claim(Job { shared, volume, claim, source }.run().await?))
                });
            }
            VolumeAction::Grow { volume, claim: uid, size } => {
                let Some(claim) = claim(&uid) else { return };
                self.spawn(volume, LongAction::Other, move |volume| async move {
                    let grown = provision::grow(&shared, &volume, &claim, size).await;
                    if let Err(failure) = &grown {
                        provision::report_growth_failure(&shared, &volume, &claim, failure).await;
                    }
                    Ok(WrittenObject::claim(Some(grown?)))
                });
            }
            VolumeAction::Settle { volume } => {
                self.spawn(volume, LongAction::Other, |volume| async move {
                    provision::settle(&shared, &volume).await.map(|()| WrittenObject::Nothing)
                })
            }
            VolumeAction::Remove { volume } => {
                self.spawn(volume, LongAction::Other, |volume| async move {
                    provision::remove(&shared, &volume).await.map(|()| WrittenObject::Gone)
                })
            }
            VolumeAction::Release { volume } => {
                self.spawn(volume, LongAction::Other, |volume| async move {
                    provision::release(&shared, &volume).await.map(|()| WrittenObject::Gone)
                })
            }
            VolumeAction::Leave { volume } => {
                self.spawn(volume, LongAction::Other, |volume| async move {
                    provision::leave(&shared, &volume).await.map(|()| WrittenObject::Nothing)
                })
            }
            VolumeAction::Discard { volume } => {
                self.spawn(volume, LongAction::Other, |volume| async move {
                    provision::discard(&shared, &volume).await.map(|()| WrittenObject::Nothing)
                })
            }
            VolumeAction::Cancel { volume } => {
                if let Some((_, handle)) = self.under_way.get(&volume) {
                    debug!(volume, "filling is stopped");
                    handle.abort();
                }
            }
        }
    }

    /// Starts work on a volume; after a failure it rests before it counts as ended.
    fn spawn<F>(&mut self, volume: String, doing: LongAction, work: impl FnOnce(String) -> F)
    where
        F: Future<Output = Result<WrittenObject, ProvisionError>> + Send + 'static,
    {
        let trouble = self.trouble(&volume);
        let (pause, known) = (trouble.pauses.delay(), trouble.complaint.clone());
        let (name, work) = (volume.clone(), work(volume.clone()));
        let handle = self.jobs.spawn(async move {
            let result = work.await;
            if let Err(failure) = &result {
                let complaint = Chain(failure).to_string();
                // A persistent error is reported once.
                if complaint == known || failure.is_waiting() {
                    debug!(volume = name, error = complaint, "volume is still not as it should be");
                } else {
                    warn!(volume = name, error = complaint, "volume is degraded");
                }
                tokio::time::sleep(pause).await;
            }
            JobResult { volume: name, result }
        });
        self.under_way.insert(volume, (doing, handle));
    }

    pub(super) fn trouble(&mut self, volume: &str) -> &mut JobFailure {
        self.troubles.entry(volume.to_owned()).or_insert_with(|| JobFailure {
            complaint: String::new(),
            pauses: Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY),
        })
    }

    /// An upload begins if its claim waits for one.
    pub(super) fn receive(&mut self, arrival: PendingUpload) {
        let volume = arrival.volume.clone();
        let here = self.volumes.get(&volume).filter(|volume| volume.place == VolumePlace::Here);
        let owner = here.map(|volume| volume.owner.clone());
        let claim = owner.and_then(|owner| self.claims.get(&owner)).filter(|claim| {
            claim.source == Some(FillSource::Upload)
                && claim.progress == FillProgress::Ready
                && claim.is_bound
                && claim.volume.as_deref() == Some(&volume)
                && !claim.is_deleting
        });
        let Some(claim) = claim.cloned() else {
            return arrival.refuse(UploadError::NotExpected { volume });
        };
        if self.under_way.contains_key(&volume) {
            return arrival.refuse(UploadError::Busy { volume });
        }
        let PendingUpload { body, answer, .. } = arrival;
        let shared = self.shared.clone();
        self.spawn(volume, LongAction::Filling, |volume| async move {
            let mut writer = ClaimStatusWriter::new(shared.client.clone(), &claim);
            let result = upload(&shared, &claim, &volume, body, &mut writer).await;
            let _ = answer.send(result);
            Ok(WrittenObject::claim(writer.into_claim()))
        });
    }
}

impl VolumeController {
    /// Makes a file for the data of a volume that a guest brings from another node.
    pub(super) fn receive_copy(&mut self, copy: PendingCopy) {
        if self.under_way.contains_key(&copy.copy.volume) {
            self.waiting_copies.insert(copy.copy.volume.clone(), copy);
            return;
        }
        let PendingCopy { copy, answer } = copy;
        let shared = self.shared.clone();
        self.spawn(copy.volume.clone(), LongAction::Other, |_| async move {
            let _ = answer.send(receive::make(&shared, &copy).await);
            Ok(WrittenObject::Nothing)
        });
    }
}

/// `known` is the last report in the claim.
async fn make(
    shared: VolumeContext,
    claim: Claim,
    known: String,
) -> Result<WrittenObject, ProvisionError> {
    match Box::pin(provision::provision(&shared, &claim)).await {
        Ok(volume) => {
            Ok(volume
                .map_or(WrittenObject::Nothing, |volume| WrittenObject::Volume(Box::new(volume))))
        }
        Err(failure) => {
            if Chain(&failure).to_string() != known {
                provision::complain(&shared, &claim, &failure).await;
            }
            Err(failure)
        }
    }
}
