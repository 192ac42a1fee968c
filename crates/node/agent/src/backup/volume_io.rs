//! A volume that is attached to this node, as the source or the destination of a backup.

use std::io;

use ::backup::{BlockReader, BlockWriter};
use bytes::{Bytes, BytesMut};

use crate::storage::NbdClient;

/// Bytes of one request to the storage process.
const PIECE: u64 = 1 << 20;

pub(super) struct AttachedDisk(pub(super) NbdClient);

impl BlockReader for AttachedDisk {
    fn size(&self) -> u64 {
        self.0.size
    }

    async fn read(&mut self, offset: u64, length: u64) -> io::Result<Bytes> {
        let mut data = BytesMut::with_capacity(usize::try_from(length).unwrap_or_default());
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let piece = u32::try_from((end - at).min(PIECE)).map_err(io::Error::other)?;
            data.extend_from_slice(&self.0.read(at, piece).await?);
            at += u64::from(piece);
        }
        Ok(data.freeze())
    }
}

impl BlockWriter for AttachedDisk {
    fn size(&self) -> u64 {
        self.0.size
    }

    async fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in data.chunks(usize::try_from(PIECE).map_err(io::Error::other)?) {
            self.0.write(at, piece).await?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }
}
