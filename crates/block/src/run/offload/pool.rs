//! Threads that carry out one operation after the other. They start when there is work for them.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use rustix::fs::FallocateFlags;
use rustix::io::ReadWriteFlags;

use super::{Done, Job, Op, fault};
use crate::run::poll::Waker;

/// Enough for a few syncs and cold reads at once.
const MAX_THREADS: usize = 8;

/// The kernel caches what is written at once in one piece, and a later small write into a piece
/// costs as much as the piece is long: a fifth of the time with this than with a megabyte.
const PIECE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    done: Vec<Done>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(super) fn new(waker: Waker) -> Self {
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), waker };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn push(&self, job: Job) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < MAX_THREADS {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("block-files".to_owned());
            match thread.stack_size(256 << 10).spawn(move || shared.run()) {
                Ok(_) => state.threads += 1,
                // Without a single thread it would wait for ever.
                Err(error) if state.threads == 0 => {
                    if let Some(job) = state.jobs.pop_back() {
                        let result = Err(fault(&error));
                        state.done.push(Done { key: job.key, result, created: None });
                        self.shared.waker.wake();
                    }
                }
                Err(_) => {}
            }
        }
        self.shared.work.notify_one();
    }

    pub(super) fn reap(&self, out: &mut Vec<Done>) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        out.append(&mut state.done);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                let done = perform(job);
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.done.push(done);
                self.waker.wake();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

fn perform(job: Job) -> Done {
    let mut created = None;
    let result = carry_out(job.op, &mut created).map_err(|error| fault(&error));
    Done { key: job.key, result, created }
}

fn carry_out(op: Op, created: &mut Option<File>) -> io::Result<Bytes> {
    match op {
        Op::Read { file, offset, len } => return read_at(&file, offset, len),
        Op::Write { file, offset, data, durable } => write_at(&file, offset, &data, durable)?,
        Op::Sync { file } => file.sync_data()?,
        Op::Punch { file, offset, len } => {
            allocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?;
        }
        Op::Allocate { file, offset, len } => {
            allocate(&file, FallocateFlags::empty(), offset, len)?;
        }
        Op::Truncate { file, len } => file.set_len(len)?,
        Op::Create { path } => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            *created = Some(options.open(path)?);
        }
        Op::Remove { path } => match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        },
        Op::SyncDirectory { path } => File::open(path)?.sync_all()?,
    }
    Ok(Bytes::new())
}

/// A file system without holes or reservations keeps or takes the space as it goes.
fn allocate(file: &File, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, flags, offset, len) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What is past the end of the file reads as zeroes.
pub(crate) fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut data = BytesMut::zeroed(len);
    let mut done = 0;
    while done < len {
        match file.read_at(&mut data[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(data.freeze())
}

/// Writes in pieces of [`PIECE`].
pub(crate) fn write_at(file: &File, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
    let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    let mut done = 0;
    while done < data.len() {
        let end = data.len().min(done + PIECE);
        let rest = [IoSlice::new(&data[done..end])];
        match rustix::io::pwritev2(file, &rest, offset + done as u64, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
