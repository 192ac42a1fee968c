//! Reading into memory that was not cleared before: for long reads, clearing costs as much as
//! the read itself.

#![expect(unsafe_code, reason = "memory that only the kernel has written to")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use bytes::{Bytes, BytesMut};
use rustix::net::RecvFlags;

/// Receives into the room at the end of `buffer`.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut BytesMut) -> rustix::io::Result<usize> {
    let (_, count) = rustix::net::recv(fd, buffer.spare_capacity_mut(), RecvFlags::empty())?;
    let length = buffer.len() + count;
    // SAFETY: the kernel has written the first `count` bytes of the spare capacity.
    unsafe { buffer.set_len(length) };
    Ok(count)
}

/// Reads from the kernel's page cache; nothing if the disk would have to be read, or on any error.
/// Data past the end of the file reads as zeroes.
pub(super) fn read_cached(file: &File, offset: u64, len: usize) -> Option<Bytes> {
    let mut data = BytesMut::with_capacity(len);
    while data.len() < len {
        let left = len - data.len();
        let room = &mut data.spare_capacity_mut()[..left];
        let vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let at = i64::try_from(offset + (len - left) as u64).ok()?;
        // SAFETY: the vector names writable memory that is borrowed for the duration of the call.
        let count =
            unsafe { libc::preadv2(file.as_raw_fd(), &raw const vector, 1, at, libc::RWF_NOWAIT) };
        match usize::try_from(count) {
            Ok(0) => data.resize(len, 0),
            // SAFETY: the kernel has written `count` bytes from the end of what was there.
            Ok(count) => unsafe { data.set_len(data.len() + count) },
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(data.freeze())
}
