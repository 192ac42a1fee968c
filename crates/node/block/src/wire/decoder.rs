//! Frames out of a stream of bytes.

use bytes::{Bytes, BytesMut};

use super::{HEADER, Header, WireError};

/// A frame whose header and payload are undamaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub header: Header,
    pub payload: Bytes,
}

/// Cuts a stream into frames. After an error the stream has no known boundaries any more and
/// must be closed.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    header: Option<Header>,
}

impl Decoder {
    /// Where the next bytes from the stream are to be put.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes are certainly missing until the next frame is whole.
    pub fn missing(&self) -> usize {
        let whole = self.header.map_or(HEADER, |header| header.payload as usize);
        whole.saturating_sub(self.buffer.len())
    }

    /// The next frame, if it is complete.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = self.buffer.first_chunk::<HEADER>() else { return Ok(None) };
                let header = Header::decode(bytes)?;
                let _ = self.buffer.split_to(HEADER);
                *self.header.insert(header)
            }
        };
        if self.buffer.len() < header.payload as usize {
            self.buffer.reserve(header.payload as usize - self.buffer.len());
            return Ok(None);
        }
        self.header = None;
        let payload = self.buffer.split_to(header.payload as usize).freeze();
        check(&header, &payload)?;
        Ok(Some(Frame { header, payload }))
    }
}

pub(super) fn check(header: &Header, payload: &[u8]) -> Result<(), WireError> {
    let computed = crate::checksum::crc32c(&payload[..header.summed()]);
    match header.payload_crc == computed {
        true => Ok(()),
        false => Err(WireError::PayloadChecksum { found: header.payload_crc, computed }),
    }
}
