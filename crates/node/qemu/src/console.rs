//! The guest's serial port for any number of people.
//!
//! QEMU serves one connection per port. The hub holds that one: it keeps the last of what the
//! guest said in a file and in memory, sends it to all listeners, and passes on what
//! they type. A late listener first gets the recent output; a listener that reads too
//! slowly is dropped. Nothing that a listener does or leaves undone reaches the guest.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Backoff, Stop, Tasks};
use bytes::{Bytes, BytesMut};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tracing::{debug, warn};

use crate::run_dir::{RunDir, SERIAL};

/// Bytes of earlier output that a new listener receives.
const TAIL: usize = 16 << 10;
/// The log is kept in two files of at most this size.
const LONGEST_LOG: u64 = 1 << 20;
/// Pieces that a listener may be behind. A busy host lets a guest print byte by byte, so a piece
/// may be as little as that; a place costs about 60 bytes per machine.
const BEHIND: usize = 2048;
/// Pieces that were typed and not yet taken by the guest.
const TYPED: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error("the console is closed")]
    Closed,
    #[error("the console's listener was too slow")]
    TooSlow,
}

/// The hub of one serial port; clones share it.
#[derive(Debug, Clone)]
pub struct Console {
    shared: Arc<ConsoleShared>,
    typed: mpsc::Sender<Bytes>,
}

#[derive(Debug)]
struct ConsoleShared {
    recent: Mutex<Recent>,
}

/// The tail and the listeners change together, so that no listener misses or repeats a byte.
#[derive(Debug)]
struct Recent {
    tail: VecDeque<u8>,
    /// Gone when the hub has ended.
    listeners: Option<broadcast::Sender<Bytes>>,
}

impl Recent {
    fn push(&mut self, bytes: &Bytes) {
        let excess = (self.tail.len() + bytes.len()).saturating_sub(TAIL);
        self.tail.drain(..excess.min(self.tail.len()));
        let kept = bytes.len().min(TAIL);
        self.tail.extend(&bytes[bytes.len() - kept..]);
        if let Some(listeners) = &self.listeners {
            let _ = listeners.send(bytes.clone());
        }
    }
}

/// A listener.
#[derive(Debug)]
pub struct Listener {
    /// Earlier output; delivered first.
    past: Option<Bytes>,
    pieces: broadcast::Receiver<Bytes>,
}

impl Listener {
    /// The next output of the guest. Cancel-safe.
    pub async fn next(&mut self) -> Result<Bytes, ConsoleError> {
        if let Some(past) = self.past.take() {
            return Ok(past);
        }
        match self.pieces.recv().await {
            Ok(piece) => Ok(piece),
            Err(RecvError::Lagged(_)) => Err(ConsoleError::TooSlow),
            Err(RecvError::Closed) => Err(ConsoleError::Closed),
        }
    }
}

impl Console {
    /// Takes the serial port of the machine in `dir`, until every handle is gone.
    pub async fn open(dir: RunDir, tasks: &Tasks) -> Self {
        let log = Log::open(dir.serial_log()).await;
        let tail = log.tail().await;
        let recent = Recent { tail, listeners: Some(broadcast::channel(BEHIND).0) };
        let shared = Arc::new(ConsoleShared { recent: Mutex::new(recent) });
        let (typed, queue) = mpsc::channel(TYPED);
        let hub = ConsoleHub { dir, shared: Arc::clone(&shared), log };
        // Connected before we return, so that a guest that begins now is recorded from the start.
        let first = hub.dir.connect(SERIAL).await;
        tasks.spawn("console", hub.run(first, queue, tasks.stop_signal()));
        Self { shared, typed }
    }

    /// Listens from now on, after what was said lately.
    pub fn listen(&self) -> Result<Listener, ConsoleError> {
        let recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = recent.listeners.as_ref().ok_or(ConsoleError::Closed)?;
        let (front, back) = recent.tail.as_slices();
        let past = Bytes::from([front, back].concat());
        let past = Some(past).filter(|past| !past.is_empty());
        Ok(Listener { past, pieces: listeners.subscribe() })
    }

    /// Types for the guest. Waits while the guest does not read.
    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<(), ConsoleError> {
        self.typed.send(bytes.into()).await.map_err(|_| ConsoleError::Closed)
    }
}

struct ConsoleHub {
    dir: RunDir,
    shared: Arc<ConsoleShared>,
    log: Log,
}

impl ConsoleHub {
    async fn run(
        mut self,
        first: io::Result<UnixStream>,
        mut typed: mpsc::Receiver<Bytes>,
        mut stop: Stop,
    ) {
        tokio::select! {
            () = self.serve(first, &mut typed) => {}
            () = stop.requested() => {}
        }
        let mut recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.listeners = None;
    }

    /// Stays connected; returns when the last handle is gone or the machine's folder is.
    async fn serve(&mut self, first: io::Result<UnixStream>, typed: &mut mpsc::Receiver<Bytes>) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let mut next = Some(first);
        loop {
            let stream = match next.take() {
                Some(stream) => stream,
                None => self.dir.connect(SERIAL).await,
            };
            match stream {
                Ok(stream) => {
                    backoff.reset();
                    if self.attend(stream, typed).await.is_break() {
                        return;
                    }
                }
                // QEMU is gone, and with it everything that could be said.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => debug!(%error, "cannot connect to the serial port"),
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    /// One connection, until it is lost (`Continue`) or it is no longer wanted (`Break`).
    async fn attend(
        &mut self,
        mut stream: UnixStream,
        typed: &mut mpsc::Receiver<Bytes>,
    ) -> std::ops::ControlFlow<()> {
        let (mut read, mut write) = stream.split();
        let receive = async {
            let mut buffer = BytesMut::with_capacity(4096);
            loop {
                match read.read_buf(&mut buffer).await {
                    Ok(0) | Err(_) => return std::ops::ControlFlow::Continue(()),
                    Ok(_) => {}
                }
                let piece = buffer.split().freeze();
                self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner).push(&piece);
                self.log.append(&piece).await;
                buffer.reserve(4096);
            }
        };
        // Apart from the reads: output of a guest that does not read must still be recorded.
        let send = async {
            loop {
                let Some(bytes) = typed.recv().await else {
                    return std::ops::ControlFlow::Break(());
                };
                if write.write_all(&bytes).await.is_err() {
                    return std::ops::ControlFlow::Continue(());
                }
            }
        };
        tokio::select! {
            end = receive => end,
            end = send => end,
        }
    }
}

/// The last one to two megabytes of what a guest said.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: Option<File>,
    length: u64,
}

impl Log {
    async fn open(path: PathBuf) -> Self {
        let opened = append_to(&path).await;
        let (file, length) = match opened {
            Ok((file, length)) => (Some(file), length),
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot open the serial log");
                (None, 0)
            }
        };
        Self { path, file, length }
    }

    /// A log that cannot be written does not stop the console.
    async fn append(&mut self, bytes: &[u8]) {
        if self.length >= LONGEST_LOG {
            self.rotate().await;
        }
        let Some(file) = &mut self.file else { return };
        let written = async {
            file.write_all(bytes).await?;
            file.flush().await
        };
        match written.await {
            Ok(()) => self.length += bytes.len() as u64,
            Err(error) => {
                warn!(path = %self.path.display(), %error, "cannot write the serial log");
                self.file = None;
            }
        }
    }

    async fn rotate(&mut self) {
        let _ = tokio::fs::rename(&self.path, older(&self.path)).await;
        *self = Self::open(std::mem::take(&mut self.path)).await;
    }

    async fn tail(&self) -> VecDeque<u8> {
        let mut bytes = Vec::new();
        let read = async {
            let mut file = File::open(&self.path).await?;
            let start = self.length.saturating_sub(TAIL as u64);
            file.seek(io::SeekFrom::Start(start)).await?;
            file.take(TAIL as u64).read_to_end(&mut bytes).await
        };
        if let Err(error) = read.await {
            debug!(%error, "cannot read the serial log");
        }
        bytes.into()
    }
}

async fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).await?;
    let length = file.metadata().await?.len();
    Ok((file, length))
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Everything that is kept of what the guest in `dir` said, oldest first.
pub async fn log(dir: &RunDir) -> io::Result<Vec<u8>> {
    let path = dir.serial_log();
    let mut bytes = Vec::new();
    for path in [older(&path), path] {
        match tokio::fs::read(&path).await {
            Ok(part) => bytes.extend(part),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
