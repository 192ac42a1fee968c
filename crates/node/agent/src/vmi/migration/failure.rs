//! Reasons for which a guest stays at the source of its migration.

use std::time::Duration;

use client::Fault;
use qemu::qmp::{MirrorError, QmpError};

use super::offer::UnfitMachine;
use super::peer::PeerError;

/// Why a guest stays where it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum MigrationFailure {
    #[error(transparent)]
    Unfit(#[from] UnfitMachine),
    #[error("the guest is paused")]
    Paused,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error("disk {disk} cannot be copied: {why}")]
    DiskCopy { disk: String, why: String },
    #[error("the target cannot take disk {disk}, which is a file of this node: upgrade it first")]
    NoDiskCopy { disk: String },
    #[error("QEMU could not send the guest: {message}")]
    Stream { message: String },
    #[error("Live migration is not completed after {} sec and has been aborted", limit.as_secs())]
    Deadline { limit: Duration },
    #[error("Live migration stuck for {} sec and has been aborted", limit.as_secs())]
    Stalled { limit: Duration },
    #[error(
        "the connection to the source was lost for {} sec in post-copy: the memory that was still \
         there is lost, and with it the guest", limit.as_secs()
    )]
    PostCopyLost { limit: Duration },
    #[error("Live migration aborted by user")]
    Aborted,
    #[error("the machine is being stopped")]
    Stopping,
    #[error("the agent of the source node is being stopped")]
    AgentStops,
    #[error("the agent of the source node was started again")]
    AgentRestarted,
    #[error("cannot {doing} a file of the machine")]
    File { doing: &'static str, source: std::io::Error },
    #[error("the machine cannot be given to the target: its object asks for something else now")]
    Refused,
    #[error("cannot write the machine")]
    Write(#[source] Fault),
}
