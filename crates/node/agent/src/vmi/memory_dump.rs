//! Dumps of a guest's memory into a claim.
//!
//! A volume with a `memoryDump` source requests one dump. QEMU writes an ELF core file into a
//! pipe, and this task copies it to the beginning of the claim's image. The guest is stopped for
//! the dump; QEMU resumes it at the end, and also when this process ends and the pipe breaks. A
//! dump that a process did not complete is started again by the next one.

use std::io::{self, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, clock};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use qemu::machine::DiskSource;
use qemu::qmp::MemoryDumpError;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};
use tracing::{debug, info, warn};
use virt::v1::Volume;

use super::actor::VmiActor;
use super::resolve::Resolver;
use super::status::{DumpReport, Ended};
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi};
use crate::storage::NbdClient;

/// Bytes copied at a time.
const PIECE: usize = 1 << 20;
/// Writes to volumes are multiples of this.
const BLOCK: usize = 4096;
/// For QEMU to accept the request.
const ANSWER: Duration = Duration::from_secs(60);

/// Why a dump failed.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error(transparent)]
    Qemu(#[from] MemoryDumpError),
    #[error("cannot create a pipe")]
    Pipe(#[source] io::Error),
    #[error("cannot open the volume")]
    Open(#[source] io::Error),
    #[error("cannot read the dump from QEMU")]
    Read(#[source] io::Error),
    #[error("cannot write to the volume at offset {offset}")]
    Write { offset: u64, source: io::Error },
    #[error("the dump is larger than the volume, which has {size} bytes")]
    TooLarge { size: u64 },
    #[error("the volume is not a disk that memory can be dumped to")]
    Unsuitable,
}

/// A dump that this process has started.
pub(super) struct MemoryDump {
    report: watch::Receiver<DumpReport>,
    /// Dropped with this, which ends the task.
    _cancel: oneshot::Sender<()>,
}

impl MemoryDump {
    pub(super) fn report(&self) -> DumpReport {
        self.report.borrow().clone()
    }
}

impl VmiActor {
    /// Starts the dumps that the object requests; true if one must be tried again later.
    pub(super) async fn dump_memory(&mut self, vmi: &Arc<Vmi>, live: &LiveMachine) -> bool {
        let is_wanted = |name: &String| {
            vmi.spec.volumes.iter().any(|own| own.memory_dump.is_some() && own.name == *name)
        };
        self.disks.dumps.retain(|name, _| is_wanted(name));
        let mut open = false;
        for volume in &vmi.spec.volumes {
            if volume.memory_dump.is_none()
                || self.disks.dumps.contains_key(&volume.name)
                || has_ended(vmi, &volume.name)
            {
                continue;
            }
            // QEMU writes one dump at a time.
            if self.disks.dumps.values().any(|dump| dump.report().ended.is_none()) {
                open = true;
                continue;
            }
            open |= !self.start_dump(vmi, live, volume).await;
        }
        open
    }

    /// False if the volume is not there yet.
    async fn start_dump(&mut self, vmi: &Arc<Vmi>, live: &LiveMachine, volume: &Volume) -> bool {
        let Some(source) = &volume.memory_dump else { return true };
        let identity = live.running.spec().confinement.identity;
        let context = Arc::clone(&self.context);
        let resolver = Resolver {
            context: &context,
            vmi,
            dir: live.running.dir(),
            identity: identity.as_ref(),
            migration: None,
        };
        let found = match resolver.memory_dump(volume, source).boxed().await {
            Ok(found) => found,
            Err(failure) => {
                debug!(error = %Chain(&failure), "claim of a memory dump is not available");
                self.disks.pending.insert(volume.name.clone(), failure.trouble().message);
                return false;
            }
        };
        self.disks.pending.remove(&volume.name);
        let target = Target::of(&found.backing.source);
        self.disks.found.insert(volume.name.clone(), found);
        let report = DumpReport {
            claim: source.claim_name.clone(),
            file: file_name(&vmi.name, &volume.name, clock::now()),
            started: clock::now(),
            ended: None,
        };
        let (reports, receiver) = watch::channel(report);
        let (cancel, canceled) = oneshot::channel();
        let dump = MemoryDump { report: receiver, _cancel: cancel };
        self.disks.dumps.insert(volume.name.clone(), dump);
        let job = DumpJob { live: live.clone(), target, reports };
        let (name, about) = (volume.name.clone(), vmi.reference());
        self.tasks.spawn("memory dump", async move {
            tokio::select! {
                () = job.run() => {}
                _ = canceled => {
                    warn!(volume = name, "memory dump was canceled");
                    return;
                }
            }
            context.reporter.report(&about, job.note(&name)).await;
            context.notifier.notify();
        });
        true
    }
}

/// One dump on its way.
struct DumpJob {
    live: LiveMachine,
    target: Option<Target>,
    reports: watch::Sender<DumpReport>,
}

impl DumpJob {
    async fn run(&self) {
        let outcome = self.dump().await;
        let failure = outcome.as_ref().err().map(|failure| Chain(failure).to_string());
        match &outcome {
            Ok(bytes) => info!(bytes, "memory of the guest dumped"),
            Err(failure) => warn!(error = %Chain(failure), "cannot dump the memory of a guest"),
        }
        self.reports.send_modify(|report| {
            report.ended = Some(Ended { at: clock::now(), failure });
        });
        // The guest was stopped for as long as the dump took.
        self.live.set_clock_soon();
    }

    /// Answers the size of the dump.
    async fn dump(&self) -> Result<u64, DumpError> {
        let target = self.target.as_ref().ok_or(DumpError::Unsuitable)?;
        let output = Output::open(target).await.map_err(DumpError::Open)?;
        let (reader, writer) = io::pipe().map_err(DumpError::Pipe)?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader));
        let reader = reader.map_err(DumpError::Pipe)?;
        let qmp = self.live.running.qmp().await.map_err(MemoryDumpError::from)?;
        let dump = async {
            let dumped = qmp.with_limit(ANSWER).dump_memory(OwnedFd::from(writer)).await;
            dumped.map_err(DumpError::from)
        };
        let ((), bytes) = tokio::try_join!(dump, copy(reader, output))?;
        Ok(bytes)
    }

    fn note(&self, volume: &str) -> EventNote {
        let report = self.reports.borrow();
        match report.ended.as_ref().and_then(|ended| ended.failure.as_ref()) {
            Some(why) => {
                let message = format!("Memory dump to pvc {volume} failed: {why}");
                EventNote::warning("MemoryDumpError", message)
            }
            None => {
                let message = format!("Memory dump to Volume {volume} has completed successfully");
                EventNote::normal("VolumeReady", message)
            }
        }
    }
}

/// Whether an earlier dump to this volume has ended.
fn has_ended(vmi: &Vmi, volume: &str) -> bool {
    let all = vmi.status["volumeStatus"].as_array();
    let own = all.into_iter().flatten().find(|own| own["name"] == volume);
    let phase = own.and_then(|own| own["phase"].as_str()).unwrap_or_default();
    matches!(phase, "MemoryDumpCompleted" | "MemoryDumpFailed")
}

/// As upstream names the file of a dump.
fn file_name(vmi: &str, volume: &str, now: Timestamp) -> String {
    format!("{vmi}-{volume}-{}.memory.dump", now.strftime("%Y%m%d-%H%M%S"))
}

/// Where a dump is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Socket(PathBuf),
    File(PathBuf),
}

impl Target {
    fn of(source: &DiskSource) -> Option<Self> {
        match source {
            DiskSource::Nbd { socket, .. } => Some(Self::Socket(socket.clone())),
            DiskSource::File(image) => Some(Self::File(image.path.clone())),
            DiskSource::BlockDevice { path } => Some(Self::File(path.clone())),
            _ => None,
        }
    }
}

/// A volume that is being written from its beginning.
enum Output {
    Volume(NbdClient),
    File { file: File, size: u64 },
}

impl Output {
    async fn open(target: &Target) -> io::Result<Self> {
        match target {
            Target::Socket(socket) => NbdClient::connect(socket).await.map(Self::Volume),
            Target::File(path) => {
                let mut file = File::options().write(true).open(path).await?;
                let size = file.seek(SeekFrom::End(0)).await?;
                file.seek(SeekFrom::Start(0)).await?;
                Ok(Self::File { file, size })
            }
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Volume(client) => client.size,
            Self::File { size, .. } => *size,
        }
    }

    async fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Volume(client) => client.write(offset, data).await,
            Self::File { file, .. } => file.write_all(data).await,
        }
    }

    async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Volume(client) => client.flush().await,
            Self::File { file, .. } => {
                file.flush().await?;
                file.sync_all().await
            }
        }
    }
}

/// Copies until the end of the pipe; the last block is filled with zeroes.
async fn copy(mut from: pipe::Receiver, mut to: Output) -> Result<u64, DumpError> {
    let size = to.size();
    let mut piece = vec![0; PIECE];
    let mut copied = 0;
    loop {
        let filled = fill(&mut from, &mut piece).await.map_err(DumpError::Read)?;
        if filled == 0 {
            break;
        }
        let padded = filled.next_multiple_of(BLOCK);
        piece[filled..padded].fill(0);
        if copied + padded as u64 > size {
            return Err(DumpError::TooLarge { size });
        }
        let written = to.write(copied, &piece[..padded]).await;
        written.map_err(|source| DumpError::Write { offset: copied, source })?;
        copied += filled as u64;
        if filled < PIECE {
            break;
        }
    }
    to.finish().await.map_err(|source| DumpError::Write { offset: copied, source })?;
    Ok(copied)
}

/// Reads until the piece is full or the pipe ends.
async fn fill(from: &mut pipe::Receiver, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match from.read(&mut piece[filled..]).await? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    async fn copied(length: usize, volume: u64) -> Result<Vec<u8>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        std::fs::write(&path, vec![7; usize::try_from(volume).unwrap()]).unwrap();
        let output = Output::open(&Target::File(path.clone())).await.unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).unwrap();
        let write = tokio::task::spawn_blocking(move || drop(writer.write_all(&vec![1; length])));
        let copied = copy(reader, output).await;
        write.await.unwrap();
        match copied {
            Ok(bytes) => {
                assert_eq!(bytes, length as u64);
                Ok(std::fs::read(&path).unwrap())
            }
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[tokio::test]
    async fn a_dump_begins_at_the_first_byte_and_its_last_block_is_filled_with_zeroes() {
        for length in [0, 100, PIECE, PIECE + 5000] {
            let volume = 2 * PIECE as u64;
            let written = copied(length, volume).await.unwrap();
            assert!(written[..length].iter().all(|byte| *byte == 1), "{length}");
            let padded = length.next_multiple_of(BLOCK);
            assert!(written[length..padded].iter().all(|byte| *byte == 0), "{length}");
            assert!(written[padded..].iter().all(|byte| *byte == 7), "{length}");
            assert_eq!(written.len() as u64, volume);
        }
        assert_eq!(
            copied(PIECE + 1, PIECE as u64).await,
            Err("the dump is larger than the volume, which has 1048576 bytes".to_owned())
        );
    }

    #[test]
    fn files_of_dumps_are_named_as_upstream_names_them() {
        let now = "2026-11-16T08:09:10Z".parse().unwrap();
        assert_eq!(file_name("vm", "claim", now), "vm-claim-20261116-080910.memory.dump");
    }
}
