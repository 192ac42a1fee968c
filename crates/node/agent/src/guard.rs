//! Pauses guests whose volumes another node may have taken over.
//!
//! On a node that is cut off, the replicas on other nodes do not answer the storage process, and it
//! cannot remove them from the volume's record either: after seconds the volume may belong to an
//! engine on another node. The storage process reports this (`unproven`), and the guest is paused.
//! It is resumed when the replicas answer in the same generation. If the volume was taken over it
//! stays paused, and the task of its machine kills it when the API says that its instance has ended.
//!
//! Nothing here reads from the API. A file in the folder of a guest records that it was paused.

mod plan;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, clock};
use block::storage::StorageStatus;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use qemu::RunDir;
use qemu::machine::DiskSource;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::plan::{GuardAction, claims, decide};
use crate::event::{EventNote, Reporter};
use crate::machine::{LiveMachine, Machines, Vmi};

/// In the folder of a machine that the guard has paused.
const RECORD: &str = "guard.json";
/// QEMU stops the processors first and answers when its requests are over, which may be never.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// When QEMU is asked again to stop a guest.
const PAUSE_AGAIN: Duration = Duration::from_secs(10);
/// How often guests are checked while one is paused or should be.
const RETRY: Duration = Duration::from_secs(1);

/// Since when a guest is paused.
#[derive(Debug, Serialize, Deserialize)]
struct PauseRecord {
    since: Timestamp,
}

/// The task that pauses guests and lets them go on.
pub(crate) struct GuestGuard {
    machines: Machines,
    reporter: Reporter,
    /// When QEMU was asked to stop each guest that is paused, by folder.
    stop_requests: BTreeMap<PathBuf, Instant>,
}

impl GuestGuard {
    pub(crate) fn new(machines: Machines, reporter: Reporter) -> Self {
        Self { machines, reporter, stop_requests: BTreeMap::new() }
    }

    /// Runs until `stop`, checking guests whenever the storage process reports a change.
    pub(crate) async fn run(
        mut self,
        mut reported: watch::Receiver<Option<Arc<StorageStatus>>>,
        mut stop: Stop,
    ) {
        loop {
            let status = reported.borrow_and_update().clone();
            let is_busy = self.check_guests(status.as_deref()).await;
            tokio::select! {
                changed = reported.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY), if is_busy => {}
                () = stop.requested() => return,
            }
        }
    }

    /// Checks all guests; returns whether one of them has to be checked again soon.
    async fn check_guests(&mut self, status: Option<&StorageStatus>) -> bool {
        let mut is_busy = false;
        for (live, vmi) in self.machines.running() {
            let dir = live.running.dir();
            let paused: Option<PauseRecord> = dir.load(RECORD).ok().flatten();
            let claims = claims(status, &sockets(&live));
            let action = decide(&claims, paused.is_some(), live.running.state().as_ref());
            is_busy |= paused.is_some() || action != GuardAction::Nothing;
            match action {
                GuardAction::Nothing => {}
                GuardAction::Pause if self.is_stop_requested(dir) => {}
                GuardAction::Pause => pause(&live, vmi.as_deref(), paused).await,
                GuardAction::Forget => forget(dir),
                GuardAction::Resume => self.resume(&live, vmi.as_deref(), paused).await,
            }
        }
        is_busy
    }

    /// Whether QEMU was asked to stop a guest lately. If not, the caller asks next.
    fn is_stop_requested(&mut self, dir: &RunDir) -> bool {
        let now = Instant::now();
        self.stop_requests.retain(|_, at| now < *at + PAUSE_AGAIN);
        let known = self.stop_requests.contains_key(dir.path());
        self.stop_requests.entry(dir.path().to_owned()).or_insert(now);
        known
    }

    async fn resume(&mut self, live: &LiveMachine, vmi: Option<&Vmi>, paused: Option<PauseRecord>) {
        let resumed = async { live.running.qmp().await?.with_limit(ANSWER_TIMEOUT).resume().await };
        if let Err(failure) = resumed.await {
            return warn!(error = %Chain(&failure), "cannot resume a guest whose storage is back");
        }
        forget(live.running.dir());
        self.stop_requests.remove(live.running.dir().path());
        let Some(vmi) = vmi else { return };
        let since = paused.map_or_else(clock::now, |record| record.since);
        let seconds = clock::now().duration_since(since).as_secs();
        info!(
            namespace = vmi.namespace,
            name = vmi.name,
            seconds,
            "storage is back; guest resumed"
        );
        let message =
            format!("The guest was paused for {seconds} s: storage peers did not answer.");
        let about = ObjectReference {
            api_version: Some("kubevirt.io/v1".into()),
            kind: Some("VirtualMachineInstance".into()),
            name: Some(vmi.name.clone()),
            namespace: Some(vmi.namespace.clone()),
            uid: Some(vmi.uid.clone()),
            ..ObjectReference::default()
        };
        let note = EventNote::warning("StoragePeersSilent", message);
        // The API may be away, and other guests wait.
        let _ = tokio::time::timeout(RETRY, self.reporter.report(&about, note)).await;
    }
}

async fn pause(live: &LiveMachine, vmi: Option<&Vmi>, paused: Option<PauseRecord>) {
    let dir = live.running.dir();
    let name = vmi.map(|vmi| format!("{}/{}", vmi.namespace, vmi.name)).unwrap_or_default();
    warn!(name, "storage peers do not answer: the volume may be taken over; pausing guest");
    // First, so that whoever comes after this process resumes it.
    if paused.is_none()
        && let Err(failure) = dir.store(RECORD, &PauseRecord { since: clock::now() })
    {
        warn!(error = %Chain(&failure), "cannot record that a guest is paused");
    }
    let paused = async { live.running.qmp().await?.with_limit(ANSWER_TIMEOUT).pause().await };
    if let Err(failure) = paused.await {
        warn!(name, error = %Chain(&failure), "QEMU has not confirmed that the guest is paused");
    }
}

fn forget(dir: &RunDir) {
    match std::fs::remove_file(dir.path().join(RECORD)) {
        Err(failure) if failure.kind() != std::io::ErrorKind::NotFound => {
            warn!(error = %Chain(&failure), "cannot forget that a guest was paused");
        }
        _ => {}
    }
}

/// The sockets of the replicated volumes of a guest.
fn sockets(live: &LiveMachine) -> Vec<PathBuf> {
    let machine = live.running.spec().machine;
    let socket = |source: &DiskSource| match source {
        DiskSource::Nbd { socket, .. } | DiskSource::Overlay { socket, .. } => Some(socket.clone()),
        _ => None,
    };
    machine.disks.iter().filter_map(|disk| socket(&disk.source)).collect()
}
