//! Waiting for many sockets at once, and being woken from other threads.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

/// Names what is waited for; chosen by the caller.
pub(super) type Token = u64;

/// The readiness of one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) token: Token,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// The events of a socket to poll for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PollInterest {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl PollInterest {
    pub(super) const READ: Self = Self { read: true, write: false };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags
    }
}

pub(super) struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poll").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poll {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(128) })
    }

    pub(super) fn add(
        &self,
        fd: impl AsFd,
        token: Token,
        interest: PollInterest,
    ) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    pub(super) fn change(
        &self,
        fd: impl AsFd,
        token: Token,
        interest: PollInterest,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Waits until something happens or the time is over; a wait that is interrupted is over.
    pub(super) fn wait(&mut self, limit: Duration, out: &mut Vec<Ready>) -> io::Result<()> {
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timespec(limit))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // A socket that is gone is both: reading or writing it says why.
        let gone = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        out.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            Ready {
                token: { event.data }.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | gone),
                writable: flags.intersects(epoll::EventFlags::OUT | gone),
            }
        }));
        Ok(())
    }
}

/// Waits for one socket alone: whether something has come, or it is gone. A wait that is
/// interrupted is over.
pub(super) fn is_readable_within(fd: impl AsFd, limit: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    match poll(&mut fds, Some(&timespec(limit))) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn timespec(limit: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    }
}

/// Wakes a thread out of [`Poll::wait`].
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(super) fn wake(&self) {
        // Fails only when it would overflow, and then the other thread is awake already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// To be called by the woken thread, before it checks the reason.
    pub(super) fn rest(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn one_socket_is_waited_for_until_something_comes_or_it_is_gone() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(!is_readable_within(&ours, Duration::from_millis(1)).unwrap());
        theirs.write_all(b"x").unwrap();
        assert!(is_readable_within(&ours, Duration::from_secs(60)).unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(is_readable_within(&ours, Duration::from_secs(60)).unwrap());
    }
}
