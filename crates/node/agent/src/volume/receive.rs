//! Volumes that come with a guest from another node: a file for the data, and the wait until the
//! volume is this node's.
//!
//! The controller of the cluster lets a node make a copy, by an annotation of the PersistentVolume,
//! and changes its node affinity once the guest is handed over. Refuses a copy of any other volume.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use base::Chain;
use client::Fault;
use hci::local_volume::LocalVolumeMove;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::runtime::wait::await_condition;
use tokio::sync::oneshot;
use tracing::{debug, info};

use super::Volumes;
use super::controller::VolumeContext;
use super::disk::ROOM;
use super::object::{self, VolumePlace};
use super::plan::DirectoryMark;
use crate::api::present;

/// Between two attempts to watch a volume.
const RETRY: Duration = Duration::from_millis(200);
/// For the controller to let this node make a copy.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(20);
/// For other work on a volume to end: its old files may be being removed.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// For the controller to change the node of a volume, before it is reported as missing.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the data of a volume cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("the controllers do not let volume {volume} move to this node")]
    NotExpected { volume: String },
    #[error("volume {volume} is busy on this node")]
    Busy { volume: String },
    #[error("this node has a directory of volume {volume} that no migration has made")]
    Occupied { volume: String },
    #[error("not enough space for volume {volume}: {free} bytes free, {need} needed")]
    NoRoom { volume: String, free: u64, need: u64 },
    #[error("volume {volume} is not this node's yet")]
    NotHere { volume: String },
    #[error("cannot read volume {volume}")]
    Request { volume: String, source: Fault },
    #[error("cannot make the file of volume {volume}")]
    Files { volume: String, source: io::Error },
    #[error("cannot inspect the directory of volumes")]
    Room(#[source] io::Error),
    #[error("the agent is stopping")]
    Stopped,
}

/// A volume whose data comes from another node.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedCopy {
    pub(crate) volume: String,
    /// The uid of the migration that it is expected with.
    pub(crate) migration: String,
    pub(crate) size: u64,
    /// The bytes that it takes on the other node.
    pub(crate) allocated: u64,
}

/// A request to the controller of volumes.
pub(super) struct PendingCopy {
    pub(super) copy: ReceivedCopy,
    pub(super) answer: oneshot::Sender<Result<PathBuf, ReceiveError>>,
}

impl Volumes {
    /// An empty file for the data of a volume, which the cluster expects to move here.
    pub(crate) async fn receive(&self, copy: &ReceivedCopy) -> Result<PathBuf, ReceiveError> {
        let is_expected = |found: &PersistentVolume| is_expected(found, &self.node, copy).is_some();
        if !self.wait_for(&copy.volume, EXPECT_TIMEOUT, is_expected).await {
            return Err(ReceiveError::NotExpected { volume: copy.volume.clone() });
        }
        let (answer, answered) = oneshot::channel();
        let pending = PendingCopy { copy: copy.clone(), answer };
        self.copies.send(pending).await.map_err(|_| ReceiveError::Stopped)?;
        let busy = |_| ReceiveError::Busy { volume: copy.volume.clone() };
        let answered = tokio::time::timeout(BUSY_TIMEOUT, answered).await.map_err(busy)?;
        answered.map_err(|_| ReceiveError::Stopped)?
    }

    /// Waits until the volume is this node's and moves no more: before that, nothing may write to it
    /// here.
    pub(crate) async fn until_here(&self, volume: &str) -> Result<(), ReceiveError> {
        let is_here = |found: &PersistentVolume| {
            object::place(found, &self.node) == Some(VolumePlace::Here)
                && object::moves(found).is_none()
        };
        match self.wait_for(volume, SETTLE_TIMEOUT, is_here).await {
            true => Ok(()),
            false => Err(ReceiveError::NotHere { volume: volume.to_owned() }),
        }
    }

    /// Whether a volume gets into a state in time.
    async fn wait_for(
        &self,
        volume: &str,
        limit: Duration,
        is_so: impl Fn(&PersistentVolume) -> bool,
    ) -> bool {
        let reached = async {
            loop {
                let volumes = Api::<PersistentVolume>::all(self.client.clone());
                let condition = |found: Option<&PersistentVolume>| found.is_some_and(&is_so);
                match Box::pin(await_condition(volumes, volume, condition)).await {
                    Ok(_) => return,
                    Err(failure) => debug!(error = %Chain(&failure), volume, "cannot watch"),
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::time::timeout(limit, reached).await.is_ok()
    }

    /// Writes what the node has of a volume to its disk.
    pub(crate) async fn sync(&self, volume: &str) -> io::Result<()> {
        let path = self.disks.disk(volume);
        let synced = tokio::task::spawn_blocking(move || std::fs::File::open(path)?.sync_all());
        synced.await.map_err(io::Error::other)?
    }
}

/// The move by which a copy is expected on a node.
fn is_expected(
    found: &PersistentVolume,
    node: &str,
    copy: &ReceivedCopy,
) -> Option<LocalVolumeMove> {
    let is_arriving = object::place(found, node) == Some(VolumePlace::Arriving);
    object::moves(found).filter(|own| is_arriving && own.migration == copy.migration)
}

/// Makes the file, in place of old ones.
pub(super) async fn make(
    shared: &VolumeContext,
    copy: &ReceivedCopy,
) -> Result<PathBuf, ReceiveError> {
    let volume = copy.volume.clone();
    let volumes = Api::<PersistentVolume>::all(shared.client.clone());
    let found = present(volumes.get(&volume).await).map_err(|source| {
        let volume = volume.clone();
        ReceiveError::Request { volume, source: Fault(source) }
    })?;
    let found = found.filter(|found| is_expected(found, &shared.node, copy).is_some());
    let Some(found) = found else { return Err(ReceiveError::NotExpected { volume }) };
    let is_old = object::has_left(&found, &shared.node);
    if shared.disks.exists(&volume)
        && !is_old
        && shared.disks.inspect(&volume).mark != Some(DirectoryMark::Copy)
    {
        return Err(ReceiveError::Occupied { volume });
    }
    let space = shared.disks.room().map_err(ReceiveError::Room)?;
    let need = copy.allocated.saturating_add(ROOM);
    if space.free < need {
        return Err(ReceiveError::NoRoom { volume, free: space.free, need });
    }
    let (disks, name, size) = (shared.disks.clone(), volume.clone(), copy.size);
    let made = tokio::task::spawn_blocking(move || {
        disks.remove(&name)?;
        disks.begin(&name, DirectoryMark::Copy)?;
        disks.make(&name, size)
    });
    let made = made.await.map_err(io::Error::other).flatten();
    made.map_err(|source| ReceiveError::Files { volume: volume.clone(), source })?;
    info!(volume, size, "file made for a volume that comes with a guest");
    Ok(shared.disks.disk(&volume))
}
