//! File operations that may take long, away from the thread that serves.
//!
//! Reads, writes, syncs and allocations go to io_uring where the kernel allows it. Where it does
//! not, and for operations on names, a few threads do the same. Which it is is found out by trying.

mod pool;
mod ring;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use self::pool::Pool;
pub(super) use self::pool::write_at;
use self::ring::Ring;
use super::poll::Waker;
use crate::store::{IoFault, IoResult};

/// One operation.
#[derive(Debug)]
pub(super) struct Job {
    /// Comes back with the result.
    pub(super) key: u64,
    pub(super) op: Op,
}

impl Job {
    /// Whether it is long for what it copies into the kernel's cache, and not because it waits.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self.op, Op::Write { durable: false, .. })
    }
}

#[derive(Debug)]
pub(super) enum Op {
    Read {
        file: Arc<File>,
        offset: u64,
        len: usize,
    },
    Write {
        file: Arc<File>,
        offset: u64,
        data: Bytes,
        durable: bool,
    },
    Sync {
        file: Arc<File>,
    },
    Punch {
        file: Arc<File>,
        offset: u64,
        len: u64,
    },
    Allocate {
        file: Arc<File>,
        offset: u64,
        len: u64,
    },
    Truncate {
        file: Arc<File>,
        len: u64,
    },
    /// Makes the file, or empties it.
    Create {
        path: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    SyncDirectory {
        path: PathBuf,
    },
    /// Whether the path still is that of the file.
    CheckName {
        file: Arc<File>,
        path: PathBuf,
    },
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) key: u64,
    pub(super) result: IoResult,
    /// The file that was made.
    pub(super) created: Option<File>,
}

/// How operations are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// io_uring if it works here, threads if not.
    #[default]
    Best,
    Uring,
    Threads,
}

#[derive(Debug)]
pub(super) struct Offload {
    ring: Option<Ring>,
    pool: Pool,
}

impl Offload {
    /// `waker` is woken when something is done.
    pub(super) fn new(driver: Driver, waker: &Waker) -> io::Result<Self> {
        let ring = match driver {
            Driver::Threads => None,
            Driver::Uring => Some(Ring::new(waker)?),
            Driver::Best => match Ring::new(waker) {
                Ok(ring) => Some(ring),
                Err(error) => {
                    tracing::info!(%error, "io_uring cannot be used here; files are served by threads");
                    None
                }
            },
        };
        Ok(Self { ring, pool: Pool::new(waker.clone()) })
    }

    pub(super) fn uses_uring(&self) -> bool {
        self.ring.is_some()
    }

    pub(super) fn submit(&mut self, job: Job) {
        match &mut self.ring {
            Some(ring) => {
                if let Err(job) = ring.push(job) {
                    self.pool.push(job);
                }
            }
            None => self.pool.push(job),
        }
    }

    /// Carries out an operation here and now.
    pub(super) fn carry_out(&self, job: Job) -> Done {
        pool::perform(job)
    }

    /// Hands everything that was submitted in this turn to the kernel.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.ring.as_mut().map_or(Ok(()), Ring::enter)
    }

    /// Takes what is done.
    pub(super) fn reap(&mut self, out: &mut Vec<Done>) {
        if let Some(ring) = &mut self.ring {
            ring.reap(out);
        }
        self.pool.reap(out);
    }
}

pub(super) fn fault(error: &io::Error) -> IoFault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => IoFault::NoSpace,
        _ => IoFault::Errno(error.raw_os_error().unwrap_or(5)),
    }
}
