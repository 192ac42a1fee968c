//! The state of a whole machine, memory and devices, written to a file and read from one.

use std::os::fd::OwnedFd;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::{Qmp, QmpError, RunState};

/// The name under which QEMU knows the file.
const FILE: &str = "state";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A guest that changes its memory faster than it can be written is stopped after so long.
const LIVE: Duration = Duration::from_secs(30);
/// Faster than any disk: nothing else is to be spared.
const BANDWIDTH: u64 = 1 << 40;

/// Why a state was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("QEMU cannot write or read the machine's state: {message}")]
    Failed { message: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Migration {
    #[serde(default)]
    status: String,
    #[serde(default)]
    error_desc: String,
}

impl Qmp {
    /// Writes the machine's state while the guest runs, and stops it at the instant of the state.
    /// A caller that continues from there resumes it.
    pub async fn save_state(&self, to: OwnedFd) -> Result<(), StateError> {
        let parameters = json!({"max-bandwidth": BANDWIDTH, "downtime-limit": 300});
        self.run("migrate-set-parameters", parameters).await?;
        self.run_with_fds("getfd", json!({"fdname": FILE}), vec![to]).await?;
        self.run("migrate", json!({"uri": format!("fd:{FILE}")})).await?;
        let begun = tokio::time::Instant::now();
        let mut stopped = false;
        loop {
            if self.has_migrated().await? {
                return Ok(());
            }
            if begun.elapsed() > LIVE && !stopped {
                stopped = true;
                self.pause().await?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Loads a state; the guest goes on from there, unless it is to be paused.
    pub async fn load_state(&self, from: OwnedFd) -> Result<(), StateError> {
        self.run_with_fds("getfd", json!({"fdname": FILE}), vec![from]).await?;
        self.run("migrate-incoming", json!({"uri": format!("fd:{FILE}")})).await?;
        loop {
            self.has_migrated().await?;
            if self.run_state().await? != RunState::InMigrate {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Ends the writing of a state that is no longer wanted.
    pub async fn cancel_state(&self) -> Result<(), QmpError> {
        self.run("migrate_cancel", json!({})).await
    }

    async fn has_migrated(&self) -> Result<bool, StateError> {
        let now: Migration = self.execute("query-migrate", json!({})).await?;
        match now.status.as_str() {
            "completed" => Ok(true),
            "failed" | "cancelled" | "cancelling" => {
                let message = match now.error_desc.as_str() {
                    "" => now.status,
                    why => why.to_owned(),
                };
                Err(StateError::Failed { message })
            }
            _ => Ok(false),
        }
    }
}
