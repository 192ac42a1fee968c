//! Moving a running machine from one QEMU to another: the monitor commands of both sides.
//!
//! The stream goes through a socket that the caller hands over, in both directions. The target
//! has everything when the source says `completed`, because of the return path.

use std::os::fd::OwnedFd;

use serde::Deserialize;
use serde_json::json;

use super::{Qmp, QmpError};

/// The name under which QEMU knows the stream.
const STREAM: &str = "migration";
/// Capabilities that every version since 4.2 has, and both sides must have alike.
const CAPABILITIES: &[&str] =
    &["events", "return-path", "pause-before-switchover", "validate-uuid"];
/// The target activates its disks with `cont`. QEMU 10 always does so and lacks the name.
const LATE_ACTIVATION: &str = "late-block-activate";
/// The guest may go on at the target before all of its memory is there.
const POST_COPY: &str = "postcopy-ram";
/// Faster than any network: limits are set by the policy.
const UNLIMITED: u64 = 1 << 40;
/// The longest pause that QEMU takes.
const MOST_DOWNTIME_MILLIS: u64 = 2_000_000;

/// Limits of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationLimits {
    /// Bytes per second; nothing for as fast as possible.
    pub bandwidth: Option<u64>,
    pub downtime_millis: u64,
    pub auto_converge: bool,
    /// Whether [`Qmp::start_post_copy`] may follow. The target has to allow it before.
    pub post_copy: bool,
}

/// Where a migration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStatus {
    /// There was none since QEMU started.
    None,
    /// Memory is on its way; the guest runs.
    Active,
    /// The guest has stopped and its disks are flushed.
    PreSwitchover,
    /// The state of devices is on its way.
    Device,
    /// The target has the state of devices, and fetches memory as its guest needs it.
    PostCopy,
    /// The same, and the stream broke: it can be continued over another.
    PostCopyPaused,
    Completed,
    /// It was cancelled or has failed.
    Failed,
}

impl MigrationStatus {
    fn from_name(name: &str) -> Self {
        match name {
            "" | "none" => Self::None,
            "pre-switchover" => Self::PreSwitchover,
            "device" => Self::Device,
            "postcopy-active" | "postcopy-recover" | "postcopy-recover-setup" => Self::PostCopy,
            "postcopy-paused" => Self::PostCopyPaused,
            "completed" => Self::Completed,
            "failed" | "cancelled" => Self::Failed,
            // Cancelling and failing are on their way to the end.
            _ => Self::Active,
        }
    }
}

/// QEMU's report of a migration's progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationProgress {
    pub status: MigrationStatus,
    /// Why it failed, if QEMU says so.
    pub error: Option<String>,
    /// Milliseconds that the guest was paused, once it is over.
    pub downtime: Option<u64>,
    pub total_time: Option<u64>,
    /// Bytes that were sent so far.
    pub transferred: u64,
    pub remaining: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Answer {
    status: String,
    error_desc: Option<String>,
    downtime: Option<u64>,
    total_time: Option<u64>,
    ram: Option<Ram>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ram {
    transferred: u64,
    remaining: u64,
}

impl Qmp {
    /// Prepares either side; both must be prepared before the stream begins.
    pub async fn set_migration_capabilities(&self) -> Result<(), QmpError> {
        let on = |name: &str| json!({"capability": name, "state": true});
        let all: Vec<_> = CAPABILITIES.iter().map(|name| on(name)).collect();
        self.run("migrate-set-capabilities", json!({ "capabilities": all })).await?;
        let late = json!({ "capabilities": [on(LATE_ACTIVATION)] });
        match self.run("migrate-set-capabilities", late).await {
            Err(QmpError::Refused { .. }) => Ok(()),
            set => set,
        }
    }

    /// Begins to send the machine over `stream`. Events `MIGRATION` report its progress.
    pub async fn migrate(&self, stream: OwnedFd, limits: MigrationLimits) -> Result<(), QmpError> {
        let capabilities = json!([
            {"capability": "auto-converge", "state": limits.auto_converge},
            {"capability": POST_COPY, "state": limits.post_copy},
        ]);
        self.run("migrate-set-capabilities", json!({ "capabilities": capabilities })).await?;
        let bandwidth = limits.bandwidth.unwrap_or(UNLIMITED);
        let parameters = json!({"max-bandwidth": bandwidth, "max-postcopy-bandwidth": bandwidth,
            "downtime-limit": limits.downtime_millis});
        self.run("migrate-set-parameters", parameters).await?;
        self.run_with_fds("getfd", json!({ "fdname": STREAM }), vec![stream]).await?;
        self.run("migrate", json!({"uri": format!("fd:{STREAM}")})).await
    }

    /// Lets the guest be paused for as long as it takes to send the rest.
    pub async fn allow_any_downtime(&self) -> Result<(), QmpError> {
        self.run("migrate-set-parameters", json!({"downtime-limit": MOST_DOWNTIME_MILLIS})).await
    }

    /// Allows post-copy on the target. Refused where QEMU may not use userfaultfd.
    pub async fn allow_post_copy(&self) -> Result<(), QmpError> {
        let on = json!([{"capability": POST_COPY, "state": true}]);
        self.run("migrate-set-capabilities", json!({ "capabilities": on })).await
    }

    /// Stops the guest as soon as possible, for [`Self::continue_migration`] to have it go on at
    /// the target while the rest of its memory is sent.
    pub async fn start_post_copy(&self) -> Result<(), QmpError> {
        self.run("migrate-start-postcopy", json!({})).await
    }

    /// Continues a post-copy whose stream broke: at its source, after the target.
    pub async fn resume_post_copy(&self, stream: OwnedFd) -> Result<(), QmpError> {
        self.run_with_fds("getfd", json!({ "fdname": STREAM }), vec![stream]).await?;
        self.run("migrate", json!({"uri": format!("fd:{STREAM}"), "resume": true})).await
    }

    /// Continues a post-copy whose stream broke: at its target, which listens on the socket `path`.
    ///
    /// The main loop of that QEMU may wait for memory that only the stream brings, so it can be
    /// asked for nothing else.
    pub(crate) async fn recover_post_copy(&self, path: &str) -> Result<(), QmpError> {
        self.run_urgently("migrate-recover", json!({"uri": format!("unix:{path}")})).await
    }

    /// Begins to take a machine in that comes over `stream`.
    pub async fn take_in(&self, stream: OwnedFd) -> Result<(), QmpError> {
        self.run_with_fds("getfd", json!({ "fdname": STREAM }), vec![stream]).await?;
        self.run("migrate-incoming", json!({"uri": format!("fd:{STREAM}")})).await
    }

    /// Goes on from `pre-switchover`.
    pub async fn continue_migration(&self) -> Result<(), QmpError> {
        self.run("migrate-continue", json!({"state": "pre-switchover"})).await
    }

    /// Ends a migration that is under way: the guest goes on here.
    pub async fn cancel_migration(&self) -> Result<(), QmpError> {
        self.run("migrate_cancel", json!({})).await
    }

    pub async fn migration_progress(&self) -> Result<MigrationProgress, QmpError> {
        let answer: Answer = self.execute("query-migrate", json!({})).await?;
        let ram = answer.ram.unwrap_or_default();
        Ok(MigrationProgress {
            status: MigrationStatus::from_name(&answer.status),
            error: answer.error_desc,
            downtime: answer.downtime,
            total_time: answer.total_time,
            transferred: ram.transferred,
            remaining: ram.remaining,
        })
    }

    /// Has the interfaces announce themselves to their networks.
    pub async fn announce(&self) -> Result<(), QmpError> {
        let rounds = json!({"initial": 50, "max": 550, "rounds": 5, "step": 100});
        self.run("announce-self", rounds).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_qemu_writes_them() {
        for (name, status) in [
            ("", MigrationStatus::None),
            ("setup", MigrationStatus::Active),
            ("active", MigrationStatus::Active),
            ("cancelling", MigrationStatus::Active),
            ("pre-switchover", MigrationStatus::PreSwitchover),
            ("device", MigrationStatus::Device),
            ("postcopy-active", MigrationStatus::PostCopy),
            ("postcopy-recover", MigrationStatus::PostCopy),
            ("postcopy-paused", MigrationStatus::PostCopyPaused),
            ("completed", MigrationStatus::Completed),
            ("cancelled", MigrationStatus::Failed),
            ("failed", MigrationStatus::Failed),
        ] {
            assert_eq!(MigrationStatus::from_name(name), status, "{name}");
        }
    }
}
