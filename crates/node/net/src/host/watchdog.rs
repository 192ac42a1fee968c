//! The watchdog of a trial: a process of its own that rolls the change back at its deadline, whatever
//! has become of the server. A trial that is over by then needs nothing.

use std::io;
use std::time::Duration;

use base::{Chain, Tasks, clock};
use tracing::{error, info, warn};

use super::record::{RecordError, RecordFile};
use super::trial::{HostRecord, TrialEvent, host_parts};
use crate::observe::ObserveError;
use crate::uplink::{UplinkReport, Uplinks};

/// A deadline further away than this is not waited for.
const LONGEST: Duration = Duration::from_secs(3600);
/// How often a roll-back is repeated while steps fail.
const ATTEMPTS: u32 = 10;
/// Between two attempts.
const RETRY: Duration = Duration::from_secs(2);

/// Why a watchdog gave up.
#[derive(Debug, thiserror::Error)]
pub enum WatchdogError {
    #[error("cannot change links")]
    Netlink { source: io::Error },
    #[error("cannot read the links of this node")]
    Observe { source: ObserveError },
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{problems} after {ATTEMPTS} attempts to roll back")]
    Incomplete { problems: String },
}

/// Waits for the deadline of a trial and rolls it back unless it is over. `ready` is called once the
/// trial is known and nothing but the deadline is missing.
pub async fn run(
    file: RecordFile,
    id: u64,
    tasks: &Tasks,
    ready: impl FnOnce(),
) -> Result<(), WatchdogError> {
    let uplinks = Uplinks::start(tasks).map_err(|source| WatchdogError::Netlink { source })?;
    let Some(trial) = file.load()?.trial.filter(|trial| trial.id == id) else { return Ok(()) };
    ready();
    let left = trial.deadline - clock::now().as_second();
    let left = Duration::from_secs(u64::try_from(left).unwrap_or(0)).min(LONGEST);
    tokio::time::sleep(left).await;
    let late = TrialEvent::Late("the server did not confirm it".to_owned());
    match file.on(id, late) {
        Err(RecordError::Over { .. }) => {
            info!(id, "change of the host's network was confirmed or rolled back already");
            Ok(())
        }
        Err(failure) => Err(failure.into()),
        Ok(record) => {
            warn!(id, "change of the host's network was not confirmed; rolling it back");
            roll_back(&file, &uplinks, id, record).await
        }
    }
}

async fn roll_back(
    file: &RecordFile,
    uplinks: &Uplinks,
    id: u64,
    record: HostRecord,
) -> Result<(), WatchdogError> {
    let mut problems = String::new();
    for _ in 0..ATTEMPTS {
        match restore(uplinks, &record).await {
            Ok(report) if report.failed.is_empty() => {
                return match file.on(id, TrialEvent::Restored) {
                    // The server was faster.
                    Ok(_) | Err(RecordError::Over { .. }) => Ok(()),
                    Err(failure) => Err(failure.into()),
                };
            }
            Ok(report) => problems = report.failed.join("; "),
            Err(failure) => problems = Chain(&failure).to_string(),
        }
        error!(id, %problems, "cannot roll back the host's network yet");
        tokio::time::sleep(RETRY).await;
    }
    Err(WatchdogError::Incomplete { problems })
}

/// Puts in place what a record says has to be.
pub async fn restore(uplinks: &Uplinks, record: &HostRecord) -> Result<UplinkReport, ObserveError> {
    let (wanted, interfaces) = host_parts(&record.active());
    uplinks.apply_host(&wanted, &interfaces).await
}
