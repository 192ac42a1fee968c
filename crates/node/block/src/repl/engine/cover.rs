//! Translation between the addresses of the guest and those of the volume, and encryption.
//!
//! An encrypted volume begins with its header: the guest's first byte comes after it, and what it
//! writes is encrypted on its way to the replicas. Until the volume is unlocked only its header
//! can be reached, and nothing of the guest's.

use bytes::Bytes;

use super::Engine;
use super::event::{GuestError, GuestRequest};
use super::notice::{Fault, LockFault};
use crate::crypt::{Cipher, HEADER};

impl Engine {
    /// Bytes at the beginning of the volume that are not the guest's.
    pub(super) fn hidden(&self) -> u64 {
        match &self.cipher {
            Some(cipher) => cipher.start(),
            None if self.config.encrypted => HEADER,
            None => 0,
        }
    }

    pub(super) fn unlock(&mut self, result: Result<Cipher, LockFault>) {
        match result {
            Ok(cipher) if self.config.encrypted => self.cipher = Some(cipher),
            Ok(_) => {}
            Err(why) => self.fault(Fault::Locked(why)),
        }
    }

    /// The request with its range counted from the beginning of the volume, header included.
    pub(super) fn place(&self, request: GuestRequest) -> Result<GuestRequest, GuestError> {
        let hidden = self.hidden();
        let inside = |offset: u64, length: u64| offset.saturating_add(length) <= hidden;
        let locked = self.config.encrypted && self.cipher.is_none();
        Ok(match request {
            GuestRequest::ReadHeader { offset, length } => {
                match inside(offset, u64::from(length)) {
                    true => GuestRequest::Read { offset, length },
                    false => return Err(GuestError::Invalid),
                }
            }
            GuestRequest::WriteHeader { offset, data } => match inside(offset, data.len() as u64) {
                true => GuestRequest::Write { offset, data, fua: false },
                false => return Err(GuestError::Invalid),
            },
            GuestRequest::Resize { size } => {
                let size = size.checked_add(hidden).ok_or(GuestError::Invalid)?;
                GuestRequest::Resize { size }
            }
            GuestRequest::Read { .. }
            | GuestRequest::Write { .. }
            | GuestRequest::Map { .. }
            | GuestRequest::Discard { .. }
            | GuestRequest::WriteZeroes { .. }
                if locked =>
            {
                return Err(GuestError::Locked);
            }
            GuestRequest::Read { offset, length } => {
                GuestRequest::Read { offset: offset + hidden, length }
            }
            GuestRequest::Write { offset, data, fua } => {
                GuestRequest::Write { offset: offset + hidden, data, fua }
            }
            GuestRequest::Map { offset, length } => {
                let offset = offset.checked_add(hidden).ok_or(GuestError::Invalid)?;
                GuestRequest::Map { offset, length }
            }
            GuestRequest::Discard { offset, length } => {
                GuestRequest::Discard { offset: offset + hidden, length }
            }
            GuestRequest::WriteZeroes { offset, length, fua } => {
                GuestRequest::WriteZeroes { offset: offset + hidden, length, fua }
            }
            other => other,
        })
    }

    /// Whole blocks as they are stored.
    pub(super) fn cover(&self, offset: u64, data: Bytes) -> Bytes {
        match &self.cipher {
            Some(cipher) if offset >= cipher.start() => cipher.encrypt(offset, &data),
            _ => data,
        }
    }

    /// Whole blocks as they were written.
    pub(super) fn uncover(&self, offset: u64, data: Bytes) -> Bytes {
        match &self.cipher {
            Some(cipher) if offset >= cipher.start() => cipher.decrypt(offset, data),
            _ => data,
        }
    }
}
