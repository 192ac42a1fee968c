//! The data of a volume, read in order and sent to a client, as it is or compressed.
//!
//! One task answers all requests, and each export is a task of its own. A volume is marked as
//! read meanwhile, and a replicated one is attached here; both end with the client.

use std::collections::BTreeSet;
use std::io;

use base::{Chain, Stop};
use bytes::Bytes;
use client::Fault;
use http::StatusCode;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::warn;

use super::clone::user_of;
use super::controller::VolumeContext;
use super::object::{self, VolumePlace};
use crate::api::present;
use crate::gzip::GzipPieces;
use crate::storage::{HeldError, NbdClient};

/// Bytes read at a time.
const PIECE: u32 = 1 << 20;
/// Pieces on their way to a client.
const AHEAD: usize = 4;

/// Why a volume is not exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("volume {volume} is not on this node")]
    Elsewhere { volume: String },
    #[error("volume {volume} is being exported to another client")]
    Busy { volume: String },
    #[error("PersistentVolumeClaim {namespace}/{claim} is in use by VirtualMachineInstance {user}")]
    InUse { namespace: String, claim: String, user: String },
    #[error("cannot find out whether the claim is in use")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Held(#[from] HeldError),
    #[error("cannot read volume {volume}")]
    Open { volume: String, source: io::Error },
    #[error("the agent stops")]
    Stopped,
}

impl ExportError {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::Elsewhere { .. } => StatusCode::NOT_FOUND,
            Self::Busy { .. } | Self::InUse { .. } => StatusCode::CONFLICT,
            Self::Held(_) | Self::Stopped | Self::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Open { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The volume to send, and its format.
#[derive(Debug, Clone)]
pub(crate) struct ExportSelection {
    pub(crate) volume: String,
    /// The claim of the volume, by which its users are found.
    pub(crate) namespace: String,
    pub(crate) claim: String,
    pub(crate) compressed: bool,
}

/// The data of a volume on its way.
#[derive(Debug)]
pub(crate) struct Export {
    /// Bytes in all, if that is known beforehand.
    pub(crate) length: Option<u64>,
    pub(crate) pieces: mpsc::Receiver<io::Result<Bytes>>,
}

pub(super) struct ExportRequest {
    pub(super) wanted: ExportSelection,
    pub(super) answer: oneshot::Sender<Result<Export, ExportError>>,
}

/// Answers requests until `stop`.
pub(super) async fn run(
    shared: VolumeContext,
    mut requests: mpsc::Receiver<ExportRequest>,
    mut stop: Stop,
) {
    let mut exports = JoinSet::new();
    let mut running = BTreeSet::new();
    loop {
        tokio::select! {
            Some(ExportRequest { wanted, answer }) = requests.recv() => {
                let volume = wanted.volume.clone();
                if !running.insert(volume.clone()) {
                    let _ = answer.send(Err(ExportError::Busy { volume }));
                    continue;
                }
                let shared = shared.clone();
                exports.spawn(async move {
                    serve(&shared, wanted, answer).await;
                    volume
                });
            }
            Some(ended) = exports.join_next() => match ended {
                Ok(volume) => {
                    running.remove(&volume);
                }
                // Which one it was is not known; none of them may be left out for good.
                Err(failure) => {
                    warn!(error = %failure, "export ended unexpectedly");
                    running.clear();
                }
            },
            () = stop.requested() => return,
        }
    }
}

async fn serve(
    shared: &VolumeContext,
    wanted: ExportSelection,
    answer: oneshot::Sender<Result<Export, ExportError>>,
) {
    let _mark = shared.readers.mark(&wanted.volume);
    let checked = check(shared, &wanted).await;
    if let Err(failure) = checked {
        let _ = answer.send(Err(failure));
        return;
    }
    match shared.handles.of(&wanted.volume) {
        Some(handle) => {
            let ticket = format!("export-{handle}");
            let held = match shared.storage.hold(&handle, &ticket).await {
                Ok(held) => held,
                Err(failure) => {
                    let _ = answer.send(Err(failure.into()));
                    return;
                }
            };
            match NbdClient::connect(&held.served.socket).await {
                Ok(reader) => send(Input::Replicated(reader), &wanted, answer).await,
                Err(source) => refuse(&wanted, source, answer),
            }
            held.release().await;
        }
        None => match File::open(shared.disks.disk(&wanted.volume)).await {
            Ok(file) => match file.metadata().await {
                Ok(facts) => send(Input::File(file, facts.len()), &wanted, answer).await,
                Err(source) => refuse(&wanted, source, answer),
            },
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => {
                let _ = answer.send(Err(ExportError::Elsewhere { volume: wanted.volume }));
            }
            Err(source) => refuse(&wanted, source, answer),
        },
    }
}

/// No machine writes to the volume, and it is this node's if it is a file.
async fn check(shared: &VolumeContext, wanted: &ExportSelection) -> Result<(), ExportError> {
    let (namespace, claim) = (wanted.namespace.clone(), wanted.claim.clone());
    let user = user_of(shared, &namespace, &claim).await;
    let user = user.map_err(|failure| ExportError::Unknown(Box::new(failure)))?;
    if let Some(user) = user {
        return Err(ExportError::InUse { namespace, claim, user });
    }
    let volume = wanted.volume.clone();
    if shared.handles.of(&volume).is_some() {
        return Ok(());
    }
    let found = Api::<PersistentVolume>::all(shared.client.clone()).get(&volume).await;
    let found = present(found).map_err(|failure| ExportError::Unknown(Box::new(Fault(failure))))?;
    let is_here = found.is_some_and(|found| {
        object::place(&found, &shared.node) == Some(VolumePlace::Here)
            && object::moves(&found).is_none()
    });
    if is_here { Ok(()) } else { Err(ExportError::Elsewhere { volume }) }
}

fn refuse(
    wanted: &ExportSelection,
    source: io::Error,
    answer: oneshot::Sender<Result<Export, ExportError>>,
) {
    let volume = wanted.volume.clone();
    let _ = answer.send(Err(ExportError::Open { volume, source }));
}

/// Where the data comes from.
enum Input {
    Replicated(NbdClient),
    File(File, u64),
}

impl Input {
    fn size(&self) -> u64 {
        match self {
            Self::Replicated(reader) => reader.size,
            Self::File(_, size) => *size,
        }
    }

    async fn read(&mut self, offset: u64, length: u32) -> io::Result<Bytes> {
        match self {
            Self::Replicated(reader) => reader.read(offset, length).await,
            Self::File(file, _) => {
                let mut data = vec![0; length as usize];
                file.read_exact(&mut data).await?;
                Ok(data.into())
            }
        }
    }
}

/// Sends until the end, or until the client is gone.
async fn send(
    mut input: Input,
    wanted: &ExportSelection,
    answer: oneshot::Sender<Result<Export, ExportError>>,
) {
    let size = input.size();
    let (sender, pieces) = mpsc::channel(AHEAD);
    let length = (!wanted.compressed).then_some(size);
    if answer.send(Ok(Export { length, pieces })).is_err() {
        return;
    }
    let mut packer = wanted.compressed.then(GzipPieces::default);
    let mut offset = 0;
    while offset < size {
        let length = u32::try_from(size - offset).unwrap_or(PIECE).min(PIECE);
        let mut piece = input.read(offset, length).await;
        if let (Some(packer), Ok(data)) = (&mut packer, &piece) {
            piece = packer.pack(data.clone()).await;
        }
        if let Err(failure) = &piece {
            warn!(volume = wanted.volume, error = %Chain(failure), "export cannot be read");
        }
        let failed = piece.is_err();
        if sender.send(piece).await.is_err() || failed {
            return;
        }
        offset += u64::from(length);
    }
    if let Some(packer) = packer {
        let _ = sender.send(packer.finish().await).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    async fn exported(size: usize, compressed: bool) -> (Option<u64>, Vec<u8>) {
        let data: Vec<u8> = (0..size).map(|at| (at / 4096) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        std::fs::write(&path, &data).unwrap();
        let wanted = ExportSelection {
            volume: "v".into(),
            namespace: "n".into(),
            claim: "c".into(),
            compressed,
        };
        let (answer, answered) = oneshot::channel::<Result<Export, ExportError>>();
        let input = Input::File(File::open(&path).await.unwrap(), size as u64);
        let receive = async {
            let mut export = answered.await.unwrap().unwrap();
            let mut all = Vec::new();
            while let Some(piece) = export.pieces.recv().await {
                all.extend_from_slice(&piece.unwrap());
            }
            (export.length, all)
        };
        let ((), received) = tokio::join!(send(input, &wanted, answer), receive);
        let (length, bytes) = received;
        let mut plain = bytes.clone();
        if compressed {
            plain.clear();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        }
        assert_eq!(plain, data);
        (length, bytes)
    }

    #[tokio::test]
    async fn a_volume_arrives_as_it_is_or_compressed() {
        let size = (PIECE as usize) * 2 + 4096;
        let (length, raw) = exported(size, false).await;
        assert_eq!((length, raw.len()), (Some(size as u64), size));
        let (length, packed) = exported(size, true).await;
        assert!(length.is_none() && packed.len() < size / 10);
    }
}
