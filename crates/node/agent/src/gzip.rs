//! Data that is compressed while it is sent: nothing of it is kept but the state of the encoder.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses piece after piece, on threads for that.
#[derive(Debug)]
pub(crate) struct GzipPieces(Option<GzEncoder<Vec<u8>>>);

impl Default for GzipPieces {
    fn default() -> Self {
        Self(Some(GzEncoder::new(Vec::new(), Compression::fast())))
    }
}

impl GzipPieces {
    /// Takes a piece, and returns what is ready of the compressed data: often nothing.
    pub(crate) async fn pack(&mut self, data: Bytes) -> io::Result<Bytes> {
        let mut encoder = self.0.take().ok_or_else(|| io::Error::other("compression failed"))?;
        let packed = tokio::task::spawn_blocking(move || {
            encoder.write_all(&data)?;
            let ready = std::mem::take(encoder.get_mut());
            Ok::<_, io::Error>((encoder, ready))
        });
        let (encoder, ready) = packed.await.map_err(io::Error::other)??;
        self.0 = Some(encoder);
        Ok(ready.into())
    }

    /// The end of the compressed data.
    pub(crate) async fn finish(self) -> io::Result<Bytes> {
        let encoder = self.0.ok_or_else(|| io::Error::other("compression failed"))?;
        let finished = tokio::task::spawn_blocking(move || encoder.finish());
        Ok(finished.await.map_err(io::Error::other)??.into())
    }
}
