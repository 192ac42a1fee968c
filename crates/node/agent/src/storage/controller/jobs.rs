//! The jobs that the controller starts: each works on one object, and ends with what it found.

use base::{Backoff, Chain, clock};
use block::run::AdminRequest;
use block::storage::StorageStatus;
use serde_json::Value;
use tracing::{debug, info, warn};

use super::{
    Disks, FIRST_RETRY_DELAY, JobEnd, JobFailure, JobResult, LONGEST_RETRY_DELAY, REREAD_TIMEOUT,
    StorageController,
};
use crate::storage::act::{ActError, WrittenKind};
use crate::storage::disk;
use crate::storage::object::{Engine, Replica};
use crate::storage::plan::{JobKey, StorageAction};

impl StorageController {
    pub(super) fn start(&mut self, action: StorageAction) {
        let key = action.key();
        let hands = self.hands.clone();
        let trouble = self.trouble(&key);
        let (pause, known) = (trouble.pauses.delay(), trouble.complaint.clone());
        let notifier = self.notifier.clone();
        debug!(?action, "storage");
        self.work.under_way.insert(key.clone());
        // An engine that gave up gives up again unless something changed: its reason stays visible,
        // and the record is not written in a loop.
        let again = matches!(action, StorageAction::Attach { again: true, .. });
        self.work.jobs.spawn(async move {
            if again {
                tokio::time::sleep(pause).await;
            }
            let result = match hands.act(action).await {
                Ok(()) if again => JobEnd::Again,
                Ok(()) => JobEnd::Done,
                Err(failure) => {
                    let end = complain(&failure, &known);
                    tokio::time::sleep(pause).await;
                    end
                }
            };
            notifier.notify();
            JobResult::Acted(key, result)
        });
    }

    pub(super) fn report_status(&mut self, kind: WrittenKind, name: String, patch: Value) {
        if !self.work.reporting.insert((kind, name.clone())) {
            return;
        }
        let hands = self.hands.clone();
        self.work.jobs.spawn(async move {
            let written = match hands.report_status(kind, &name, patch).await {
                Ok(object) => object.map(Box::new),
                Err(failure) => {
                    debug!(error = %Chain(&failure), "cannot report the status");
                    tokio::time::sleep(FIRST_RETRY_DELAY).await;
                    None
                }
            };
            JobResult::Reported(kind, name, written)
        });
    }

    /// Begins the next scrub if it is time for one.
    pub(super) fn scrub(&mut self, state: &StorageStatus) {
        let settings = self.seen.settings.all();
        let Some(volume) = self.scrubs.next(settings, state, clock::now()) else { return };
        let link = self.hands.link.clone();
        self.work.jobs.spawn(async move {
            match link.ask_volume(volume, AdminRequest::Scrub).await {
                Ok(_) => info!(%volume, "scheduled scrub started"),
                Err(failure) => warn!(%volume, error = %Chain(&failure), "cannot start a scrub"),
            }
            JobResult::ScrubBegun
        });
    }

    /// Reads the objects of a volume whose replica an engine waits for: the watch may be late.
    pub(super) fn reread(&mut self, volume: String) {
        if !self.work.reread.insert(volume.clone()) {
            return;
        }
        let of = |(_, engine): &(&String, &Engine)| engine.volume == volume;
        let engines = self.seen.engines.all().iter().filter(of);
        let engines: Vec<String> = engines.map(|(name, _)| name.clone()).collect();
        let hands = self.hands.clone();
        self.work.jobs.spawn(async move {
            let read =
                tokio::time::timeout(REREAD_TIMEOUT, hands.volume_objects(&volume, &engines));
            let found = match read.await {
                Ok(Ok(found)) => Some(found),
                Ok(Err(failure)) => {
                    debug!(volume, error = %Chain(&failure), "cannot read a volume again");
                    None
                }
                Err(_) => None,
            };
            JobResult::Reread(volume, found)
        });
    }

    pub(super) fn scan_disks(&mut self) {
        self.work.disks = Disks::Scanning;
        let own = |it: &&Replica| it.node == self.hands.node;
        let scan = disk::DiskScan {
            hands: self.hands.clone(),
            reporter: self.reporter.clone(),
            default_disk: self.default_disk.clone(),
            node: self.seen.node.iter().map(|(_, node)| node.clone()).next(),
            settings: self.seen.settings.all().clone(),
            replicas: self.seen.replicas.all().values().filter(own).cloned().collect(),
        };
        self.work.jobs.spawn(async move {
            if let Err(failure) = scan.run().await {
                debug!(error = %Chain(&failure), "cannot report this node's disks");
                tokio::time::sleep(FIRST_RETRY_DELAY).await;
            }
            JobResult::DisksScanned
        });
    }

    pub(super) fn trouble(&mut self, key: &JobKey) -> &mut JobFailure {
        self.work.troubles.entry(key.clone()).or_insert_with(|| JobFailure {
            complaint: String::new(),
            pauses: Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY),
        })
    }
}

fn complain(failure: &ActError, known: &str) -> JobEnd {
    let complaint = Chain(failure).to_string();
    // A persistent error is reported once; a temporary one is not reported at all.
    if complaint == known || failure.is_passing() {
        debug!(error = complaint, "a volume is still not as it should be");
    } else {
        warn!(error = complaint, "volume is degraded");
    }
    if failure.is_passing() { JobEnd::Again } else { JobEnd::Failed { complaint } }
}
