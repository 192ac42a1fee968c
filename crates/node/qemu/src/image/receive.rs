//! Taking in an image that arrives as a stream, compressed or not.
//!
//! Blocking: run it on a thread that may block, and give it its bytes through [`feed`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::header::{self, ImageKind, Refusal};
use super::sparse::copy_sparse;

/// Memory of the xz decoder: `xz -9` needs 65 MiB.
const XZ_MEMORY_MIB: u32 = 128;

/// Pieces between the network and the disk.
const IN_FLIGHT: usize = 16;

/// Why an image did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("cannot read the image")]
    Read(#[source] io::Error),
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the image is refused: {0}")]
    Refused(Refusal),
    #[error("the image is larger than {most} bytes")]
    TooLarge { most: u64 },
    #[error("the image is empty")]
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    /// Detects it by the first bytes.
    pub(super) fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub kind: ImageKind,
    pub compression: Compression,
    /// After decompression.
    pub bytes: u64,
}

/// Writes an image to `path`, which must not exist, decompressed and with holes. Images that
/// are refused never reach the disk. `progress` gets the bytes written so far.
pub fn receive(
    from: impl Read + Send + 'static,
    path: &Path,
    most: u64,
    progress: impl FnMut(u64),
) -> Result<Received, ReceiveError> {
    let (compression, mut plain) = decompress(from).map_err(ReceiveError::Read)?;
    let mut start = Vec::new();
    plain
        .by_ref()
        .take(header::HEADER_LIMIT)
        .read_to_end(&mut start)
        .map_err(ReceiveError::Read)?;
    if start.is_empty() {
        return Err(ReceiveError::Empty);
    }
    let kind = header::sniff(&start);
    header::check(kind, &start).map_err(ReceiveError::Refused)?;
    let failed = |source| ReceiveError::Write { path: path.to_owned(), source };
    let file = File::options().create_new(true).write(true).mode(0o600).open(path);
    let file = file.map_err(failed)?;
    let mut whole = Read::chain(io::Cursor::new(start), plain);
    let copied = copy_sparse(&mut whole, &file, most, progress);
    let bytes = copied.map_err(|source| {
        let _ = std::fs::remove_file(path);
        match source.kind() {
            io::ErrorKind::FileTooLarge => ReceiveError::TooLarge { most },
            // Errors of the decoders and the network.
            io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::Other => ReceiveError::Read(source),
            _ => failed(source),
        }
    })?;
    Ok(Received { kind, compression, bytes })
}

/// Detects a compression by its first bytes and undoes it.
pub fn decompress(
    from: impl Read + Send + 'static,
) -> io::Result<(Compression, Box<dyn Read + Send>)> {
    let mut from = BufReader::with_capacity(256 << 10, from);
    let mut magic = Vec::new();
    from.by_ref().take(6).read_to_end(&mut magic)?;
    let compression = Compression::of(&magic);
    let from = BufReader::with_capacity(256 << 10, Read::chain(io::Cursor::new(magic), from));
    let plain: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(from),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(from)),
        Compression::Xz => Box::new(BoundedXz(lzma_rust2::XzReader::new_mem_limit(
            from,
            true,
            XZ_MEMORY_MIB << 10,
        ))),
        Compression::Zstd => Box::new(Frames::new(from)?),
    };
    Ok((compression, plain))
}

/// An xz stream whose dictionary is bounded: a block header of a few bytes can ask for 4 GiB.
struct BoundedXz<R: Read>(lzma_rust2::XzReader<R>);

impl<R: Read> Read for BoundedXz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the xz stream needs more than {XZ_MEMORY_MIB} MiB of memory: compress the \
                     image with xz -9 or less"
                ),
            ),
            _ => error,
        })
    }
}

/// All frames of a Zstandard stream, one after the other.
struct Frames<R: BufRead> {
    decoder: Option<ZstdDecoder<R>>,
}

type ZstdDecoder<R> = ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>;

impl<R: BufRead> Frames<R> {
    fn new(from: R) -> io::Result<Self> {
        Ok(Self { decoder: Some(decoder(from)?) })
    }
}

fn decoder<R: BufRead>(from: R) -> io::Result<ZstdDecoder<R>> {
    ruzstd::decoding::StreamingDecoder::new(from)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(current) = &mut self.decoder else { return Ok(0) };
            let count = current.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let mut rest = self.decoder.take().expect("it was there above").into_inner();
            if rest.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.decoder = Some(decoder(rest)?);
        }
    }
}

/// A way for asynchronous code to give bytes to a blocking reader. Dropping the sender
/// ends the stream well; to end it badly, send an error.
pub fn feed() -> (mpsc::Sender<io::Result<Bytes>>, Feed) {
    let (sender, pieces) = mpsc::channel(IN_FLIGHT);
    (sender, Feed { pieces, current: Bytes::new() })
}

/// The reading end of [`feed`].
#[derive(Debug)]
pub struct Feed {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
