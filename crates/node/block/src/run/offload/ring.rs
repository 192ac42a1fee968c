//! The same operations through io_uring.
//!
//! Completions wake the owner through an eventfd, as everything else does. An operation keeps
//! what the kernel works with (the file, the data, the room to read into) until it is done; the
//! ring is emptied before it is dropped.

#![expect(
    unsafe_code,
    reason = "the kernel reads and writes memory that operations name by address"
)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use bytes::BytesMut;
use io_uring::{IoUring, opcode, squeue, types};

use super::{Done, Job, Op, fault};
use crate::run::poll::Waker;
use crate::store::IoResult;

const ENTRIES: u32 = 256;

/// One call transfers at most this much.
const MAX_TRANSFER: usize = 1 << 30;

pub(super) struct Ring {
    ring: IoUring,
    /// Indexed by what the kernel gives back.
    running: Vec<Option<Running>>,
    free: Vec<usize>,
    /// Did not fit into the queue.
    waiting: VecDeque<usize>,
    pushed: bool,
}

struct Running {
    job: Job,
    /// The buffer of a read.
    room: BytesMut,
    done: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.running.iter().flatten().count();
        f.debug_struct("Ring").field("running", &running).finish_non_exhaustive()
    }
}

impl Ring {
    /// Fails where io_uring is not allowed or lacks what is needed.
    pub(super) fn new(waker: &Waker) -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed =
            [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_eventfd(waker.fd().as_raw_fd())?;
        let (running, free) = (Vec::new(), Vec::new());
        Ok(Self { ring, running, free, waiting: VecDeque::new(), pushed: false })
    }

    /// Takes an operation, or gives it back if it is not for a ring.
    pub(super) fn push(&mut self, job: Job) -> Result<(), Job> {
        let room = match &job.op {
            Op::Read { len, .. } => BytesMut::zeroed(*len),
            Op::Write { durable: true, .. }
            | Op::Sync { .. }
            | Op::Punch { .. }
            | Op::Allocate { .. } => BytesMut::new(),
            // A long copy into the kernel's cache, which no ring makes shorter.
            Op::Write { durable: false, .. }
            | Op::Truncate { .. }
            | Op::Create { .. }
            | Op::Remove { .. }
            | Op::SyncDirectory { .. }
            | Op::CheckName { .. } => {
                return Err(job);
            }
        };
        let running = Running { job, room, done: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.running[index] = Some(running);
                index
            }
            None => {
                self.running.push(Some(running));
                self.running.len() - 1
            }
        };
        self.queue(index);
        Ok(())
    }

    fn queue(&mut self, index: usize) {
        let Some(running) = &mut self.running[index] else { return };
        let entry = running.entry().user_data(index as u64);
        // SAFETY: the entry points into `running[index]`: bytes behind a `Bytes` or `BytesMut`,
        // which do not move when the vector grows, and a file that is kept open. All of it stays
        // until the completion with this index has been taken.
        match unsafe { self.ring.submission().push(&entry) } {
            Ok(()) => self.pushed = true,
            Err(_) => self.waiting.push_back(index),
        }
    }

    pub(super) fn enter(&mut self) -> io::Result<()> {
        while self.pushed {
            self.pushed = false;
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(16) => self.pushed = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.pushed = true,
                Err(error) => return Err(error),
            }
            for _ in 0..self.waiting.len().min(ENTRIES as usize) {
                if let Some(index) = self.waiting.pop_front() {
                    self.queue(index);
                }
            }
        }
        Ok(())
    }

    pub(super) fn reap(&mut self, out: &mut Vec<Done>) {
        let completions: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (index, result) in completions {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let Some(slot) = self.running.get_mut(index) else { continue };
            let Some(running) = slot else { continue };
            match running.advance(result) {
                None => self.queue(index),
                Some(result) => {
                    let key = running.job.key;
                    *slot = None;
                    self.free.push(index);
                    out.push(Done { key, result, created: None });
                }
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.running.iter().any(Option::is_some) {
            if self.ring.submit_and_wait(1).is_err() {
                // The kernel may still write into these: better lost than freed.
                std::mem::forget(std::mem::take(&mut self.running));
                return;
            }
            self.reap(&mut done);
        }
    }
}

impl Running {
    fn entry(&mut self) -> squeue::Entry {
        let fd = |file: &std::fs::File| -> types::Fd { types::Fd(file.as_raw_fd() as RawFd) };
        match &self.job.op {
            Op::Read { file, offset, .. } => {
                let rest = &mut self.room[self.done..];
                let len = rest.len().min(MAX_TRANSFER) as u32;
                let offset = offset + self.done as u64;
                opcode::Read::new(fd(file), rest.as_mut_ptr(), len).offset(offset).build()
            }
            Op::Write { file, offset, data, durable } => {
                let rest = &data[self.done..];
                let len = rest.len().min(MAX_TRANSFER) as u32;
                let flags = if *durable { durable_flag() } else { 0 };
                let offset = offset + self.done as u64;
                opcode::Write::new(fd(file), rest.as_ptr(), len)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            Op::Punch { file, offset, len } => {
                let mode =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                let entry = opcode::Fallocate::new(fd(file), *len).offset(*offset);
                entry.mode(mode.bits() as i32).build()
            }
            Op::Allocate { file, offset, len } => {
                opcode::Fallocate::new(fd(file), *len).offset(*offset).build()
            }
            Op::Sync { file } | Op::Truncate { file, .. } => {
                opcode::Fsync::new(fd(file)).flags(types::FsyncFlags::DATASYNC).build()
            }
            Op::Create { .. }
            | Op::Remove { .. }
            | Op::SyncDirectory { .. }
            | Op::CheckName { .. } => {
                unreachable!("operations on names are not pushed")
            }
        }
    }

    /// The result of a completion; nothing if the operation continues.
    fn advance(&mut self, result: i32) -> Option<IoResult> {
        let space = matches!(self.job.op, Op::Punch { .. } | Op::Allocate { .. });
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            return match -result {
                // Interrupted, or again: the same once more.
                4 | 11 => None,
                95 if space => Some(Ok(bytes::Bytes::new())),
                _ => Some(Err(fault(&error))),
            };
        }
        self.done += result as usize;
        match &self.job.op {
            // Data past the end of the file reads as zeroes, which the buffer contains.
            Op::Read { len, .. } if result == 0 || self.done >= *len => {
                Some(Ok(std::mem::take(&mut self.room).freeze()))
            }
            Op::Read { .. } => None,
            Op::Write { data, .. } if self.done >= data.len() => Some(Ok(bytes::Bytes::new())),
            Op::Write { .. } if result == 0 => Some(Err(fault(&io::ErrorKind::WriteZero.into()))),
            Op::Write { .. } => None,
            _ => Some(Ok(bytes::Bytes::new())),
        }
    }
}

fn durable_flag() -> i32 {
    rustix::io::ReadWriteFlags::DSYNC.bits() as i32
}
