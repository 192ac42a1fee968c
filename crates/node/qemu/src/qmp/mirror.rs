//! Mirroring the disk of a running guest to another image, and switching the guest to it; or
//! leaving the guest where it is, when the copy is for another QEMU that it migrates to.
//!
//! A job copies everything once and sends each write of the guest to both images, so that it
//! becomes ready however much the guest writes. QEMU keeps a job that has ended until it is
//! dismissed: another process can read its result. A job that fails or is canceled leaves the
//! guest on the image that it had.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::hotplug::ignore_missing;
use super::{Qmp, QmpError};
use crate::argv;
use crate::machine::Disk;

/// How far a mirror is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorJob {
    /// QEMU has no such job.
    Absent,
    /// Bytes of how many.
    Copying {
        done: u64,
        total: u64,
    },
    /// Both images have the same content, and each write goes to both.
    Ready,
    /// It ends now.
    Ending,
    Ended {
        error: Option<String>,
    },
}

/// The data that a mirror copies before it is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MirrorScope {
    /// All data, that of the images below included.
    #[default]
    Full,
    /// The data of the topmost image: the target has the same images below.
    Top,
}

/// How a mirror copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorOptions {
    pub scope: MirrorScope,
    /// Bytes per second; nothing for as fast as possible.
    pub bandwidth: Option<u64>,
}

/// QEMU's view of a disk and of the mirror to its next image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorObservation {
    pub job: MirrorJob,
    /// The guest is on the next image.
    pub is_switched: bool,
}

/// Why a mirror was not started.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("disk {disk} is not attached to the guest")]
    NoDevice { disk: String },
    #[error("the target has {target} bytes, less than the {source_size} bytes of the source")]
    TooSmall { target: u64, source_size: u64 },
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct JobInfo {
    id: String,
    status: String,
    #[serde(default)]
    current_progress: u64,
    #[serde(default)]
    total_progress: u64,
    error: Option<String>,
}

impl MirrorJob {
    fn of(job: &JobInfo) -> Self {
        match job.status.as_str() {
            "ready" | "standby" => Self::Ready,
            "waiting" | "pending" | "aborting" => Self::Ending,
            "concluded" => Self::Ended { error: job.error.clone() },
            "null" => Self::Absent,
            // created, running, paused
            _ => Self::Copying { done: job.current_progress, total: job.total_progress },
        }
    }
}

impl Qmp {
    /// Reads the state of a disk and of the mirror to `next`.
    pub async fn observe_mirror(
        &self,
        disk: &Disk,
        next: &Disk,
    ) -> Result<MirrorObservation, MirrorError> {
        let jobs: Vec<JobInfo> = self.execute("query-jobs", json!({})).await?;
        let id = next.mirror_job();
        let job = jobs.iter().find(|job| job.id == id).map_or(MirrorJob::Absent, MirrorJob::of);
        // A guest is switched before the job says that it has ended, never after.
        let (node, _) = self.attached_node(disk).await?;
        Ok(MirrorObservation { job, is_switched: node == next.node() })
    }

    /// The topmost block node of a device, and its size.
    async fn attached_node(&self, disk: &Disk) -> Result<(String, u64), MirrorError> {
        let devices: Vec<Value> = self.execute("query-block", json!({})).await?;
        let id = disk.id();
        let is_its = |device: &&Value| {
            let path = device["qdev"].as_str().unwrap_or_default();
            path.split('/').any(|part| part == id)
        };
        let inserted = devices.iter().find(is_its).map(|device| &device["inserted"]);
        let node = inserted.and_then(|inserted| inserted["node-name"].as_str());
        let size = inserted.and_then(|inserted| inserted["image"]["virtual-size"].as_u64());
        match (node, size) {
            (Some(node), Some(size)) => Ok((node.to_owned(), size)),
            _ => Err(MirrorError::NoDevice { disk: disk.name.clone() }),
        }
    }

    /// The size of a disk as the guest sees it.
    pub async fn disk_size(&self, disk: &Disk) -> Result<u64, MirrorError> {
        Ok(self.attached_node(disk).await?.1)
    }

    /// The size of a block node; nothing if there is no such node.
    async fn node_size(&self, node: &str) -> Result<Option<u64>, QmpError> {
        let nodes: Vec<Value> =
            self.execute("query-named-block-nodes", json!({ "flat": true })).await?;
        let found = nodes.iter().find(|each| each["node-name"] == node);
        Ok(found.and_then(|found| found["image"]["virtual-size"].as_u64()))
    }

    /// Opens the image of `next`, and begins to copy to it.
    pub async fn start_mirror(
        &self,
        disk: &Disk,
        next: &Disk,
        options: MirrorOptions,
    ) -> Result<(), MirrorError> {
        self.discard_mirror(next).await?;
        let started = self.open_and_mirror(disk, next, options).await;
        if started.is_err() {
            self.remove_nodes(next).await?;
        }
        started
    }

    async fn open_and_mirror(
        &self,
        disk: &Disk,
        next: &Disk,
        options: MirrorOptions,
    ) -> Result<(), MirrorError> {
        let (source, source_size) = self.attached_node(disk).await?;
        self.show(next).await?;
        for mut node in argv::disk::nodes(next) {
            if node["node-name"] == next.node() {
                let target = self.node_size(&next.storage_node()).await?.unwrap_or(0);
                if target < source_size {
                    return Err(MirrorError::TooSmall { target, source_size });
                }
                // QEMU mirrors between images of one size only.
                if target > source_size {
                    node["size"] = json!(source_size);
                }
            }
            self.run("blockdev-add", node).await?;
        }
        let mirror = json!({
            "job-id": next.mirror_job(),
            "device": source,
            "target": next.node(),
            "sync": match options.scope {
                MirrorScope::Full => "full",
                MirrorScope::Top => "top",
            },
            // Zero is no limit.
            "speed": options.bandwidth.unwrap_or(0),
            "copy-mode": "write-blocking",
            "auto-dismiss": false,
        });
        Ok(self.run("blockdev-mirror", mirror).await?)
    }

    /// Switches the guest to the next image, of which the mirror is ready.
    pub async fn complete_mirror(&self, next: &Disk) -> Result<(), QmpError> {
        self.run("job-complete", json!({ "id": next.mirror_job() })).await
    }

    /// Ends a mirror that is ready: the target has all data, and the guest stays on its image.
    pub async fn end_mirror(&self, next: &Disk) -> Result<(), QmpError> {
        self.run("block-job-cancel", json!({ "device": next.mirror_job(), "force": false })).await
    }

    /// Ends a mirror without a switch.
    pub async fn cancel_mirror(&self, next: &Disk) -> Result<(), QmpError> {
        ignore_missing(self.run("job-cancel", json!({ "id": next.mirror_job() })).await)
    }

    /// Forgets a mirror that has ended without a switch, and closes its image.
    pub async fn discard_mirror(&self, next: &Disk) -> Result<(), QmpError> {
        self.dismiss(next).await?;
        self.remove_nodes(next).await
    }

    async fn dismiss(&self, next: &Disk) -> Result<(), QmpError> {
        ignore_missing(self.run("job-dismiss", json!({ "id": next.mirror_job() })).await)
    }

    /// Closes the image that the guest was switched from, and shows it all of the one that it is
    /// on. May be repeated.
    pub async fn tidy_mirror(&self, disk: &Disk) -> Result<(), QmpError> {
        self.dismiss(disk).await?;
        let Some(moves) = disk.moves.checked_sub(1) else { return Ok(()) };
        self.remove_nodes(&Disk { moves, ..disk.clone() }).await?;
        let shown = self.node_size(&disk.node()).await?;
        let whole = self.node_size(&disk.storage_node()).await?;
        if let (Some(shown), Some(whole)) = (shown, whole)
            && shown < whole
            && let Some(top) = argv::disk::nodes(disk).pop()
        {
            self.run("blockdev-reopen", json!({ "options": [top] })).await?;
            self.resize_block(&disk.node(), whole).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_of_a_job_has_a_meaning() {
        let job = |status: &str, error: Option<&str>| {
            MirrorJob::of(&JobInfo {
                id: "m1-root".into(),
                status: status.into(),
                current_progress: 1,
                total_progress: 4,
                error: error.map(str::to_owned),
            })
        };
        for status in ["created", "running", "paused"] {
            assert_eq!(job(status, None), MirrorJob::Copying { done: 1, total: 4 });
        }
        for status in ["ready", "standby"] {
            assert_eq!(job(status, None), MirrorJob::Ready);
        }
        for status in ["waiting", "pending", "aborting"] {
            assert_eq!(job(status, None), MirrorJob::Ending);
        }
        assert_eq!(job("concluded", None), MirrorJob::Ended { error: None });
        let error = Some("Operation canceled".to_owned());
        assert_eq!(job("concluded", error.as_deref()), MirrorJob::Ended { error });
        assert_eq!(job("null", None), MirrorJob::Absent);
    }
}
