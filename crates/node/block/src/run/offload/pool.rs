//! Threads that carry out one operation after the other. They start when there is work for them.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
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
    state: Mutex<PoolState>,
    work: Condvar,
    waker: Waker,
}

#[derive(Debug, Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    lanes: Vec<Lane>,
    done: Vec<Done>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// A file with a write among the jobs or in the hands of a thread, and the writes that come after
/// it: the kernel lets one at a time into a file, and the others would only spin.
#[derive(Debug)]
struct Lane {
    file: Arc<File>,
    waiting: VecDeque<Job>,
}

impl Pool {
    pub(super) fn new(waker: Waker) -> Self {
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), waker };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn push(&self, job: Job) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(job) = state.line_up(job) else { return };
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < MAX_THREADS {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("block-files".to_owned());
            match thread.stack_size(256 << 10).spawn(move || shared.run()) {
                Ok(_) => state.threads += 1,
                // Without a single thread it would wait for ever.
                Err(error) if state.threads == 0 => {
                    if let Some(job) = state.jobs.pop_back() {
                        state.leave(lane_of(&job).cloned());
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
                let lane = lane_of(&job).cloned();
                let done = perform(job);
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.leave(lane);
                state.done.push(done);
                // If there are other results, the receiver was already woken for them.
                if state.done.len() == 1 {
                    self.waker.wake();
                }
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

impl PoolState {
    /// Gives back a job that can begin; others wait for the one before them.
    fn line_up(&mut self, job: Job) -> Option<Job> {
        let Some(file) = lane_of(&job) else { return Some(job) };
        match self.lanes.iter_mut().find(|lane| Arc::ptr_eq(&lane.file, file)) {
            Some(lane) => {
                lane.waiting.push_back(job);
                None
            }
            None => {
                self.lanes.push(Lane { file: file.clone(), waiting: VecDeque::new() });
                Some(job)
            }
        }
    }

    /// A write to the file is over: the next can begin.
    fn leave(&mut self, file: Option<Arc<File>>) {
        let Some(file) = file else { return };
        let Some(at) = self.lanes.iter().position(|lane| Arc::ptr_eq(&lane.file, &file)) else {
            return;
        };
        match self.lanes[at].waiting.pop_front() {
            Some(next) => self.jobs.push_back(next),
            None => {
                self.lanes.swap_remove(at);
            }
        }
    }
}

/// The file that a job must have for itself. Those that wait for the disk are better off together.
fn lane_of(job: &Job) -> Option<&Arc<File>> {
    match &job.op {
        Op::Write { file, durable: false, .. } => Some(file),
        _ => None,
    }
}

pub(super) fn perform(job: Job) -> Done {
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
        Op::CheckName { file, path } => check_name(&file, &path)?,
    }
    Ok(Bytes::new())
}

fn check_name(file: &File, path: &Path) -> io::Result<()> {
    let (named, ours) = (std::fs::metadata(path)?, file.metadata()?);
    match (named.dev(), named.ino()) == (ours.dev(), ours.ino()) {
        true => Ok(()),
        false => Err(rustix::io::Errno::STALE.into()),
    }
}

/// A file system without holes or reservations keeps or takes the space as it goes.
fn allocate(file: &File, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, flags, offset, len) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Data past the end of the file reads as zeroes.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::poll::is_readable_within;

    /// Carries out jobs and gives what became of them, in the order in which they ended.
    fn carried_out(jobs: Vec<Job>) -> Vec<Done> {
        let waker = Waker::new().unwrap();
        let pool = Pool::new(waker.clone());
        let count = jobs.len();
        jobs.into_iter().for_each(|job| pool.push(job));
        let mut done = Vec::new();
        while done.len() < count {
            let limit = std::time::Duration::from_secs(60);
            assert!(is_readable_within(waker.fd(), limit).unwrap(), "{done:?}");
            waker.rest();
            pool.reap(&mut done);
        }
        let state = pool.shared.state.lock().unwrap();
        assert!(state.lanes.is_empty(), "{:?}", state.lanes);
        drop(state);
        done
    }

    #[test]
    fn long_writes_to_a_file_go_one_after_the_other_and_those_to_others_beside_them() {
        const LENGTH: usize = 300 << 10;
        let files = [(); 3].map(|()| Arc::new(tempfile::tempfile().unwrap()));
        let job = |key: usize| {
            let (file, at) = (files[key % 3].clone(), (key / 3) as u64);
            let data = Bytes::from(vec![key as u8; LENGTH]);
            Job { key: key as u64, op: Op::Write { file, offset: at * 100, data, durable: false } }
        };
        let done = carried_out((0..60).map(job).collect());
        for at in 0..3 {
            let keys: Vec<u64> = done.iter().map(|it| it.key).filter(|key| key % 3 == at).collect();
            assert!(keys.is_sorted(), "{keys:?}");
        }
        assert!(done.iter().all(|it| it.result.is_ok()), "{done:?}");
        for (at, file) in files.iter().enumerate() {
            // Later writes overwrite earlier ones.
            let found = read_at(file, 0, 19 * 100 + LENGTH).unwrap();
            let expected = |byte: usize| (byte / 100).min(19) * 3 + at;
            assert!(found.iter().enumerate().all(|(byte, it)| usize::from(*it) == expected(byte)));
        }
    }

    #[test]
    fn a_write_that_fails_lets_the_next_begin() {
        let file = Arc::new(File::open("/dev/null").unwrap());
        let job = |key| {
            let (file, data) = (file.clone(), Bytes::from_static(b"x"));
            Job { key, op: Op::Write { file, offset: 0, data, durable: false } }
        };
        let done = carried_out((0..5).map(job).collect());
        assert!(done.iter().all(|it| it.result.is_err()), "{done:?}");
    }
}
