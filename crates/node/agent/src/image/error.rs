//! Why an import has failed, in the words that people read in conditions.

use std::io;

use base::Chain;
use qemu::image::ReceiveError;

use super::clone::CloneError;
use super::export::ExportError;
use crate::volume::{ConvertError, FetchError};

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImportError {
    // Harvester's words.
    #[error("got {code} status code from {url}")]
    Status { code: u16, url: String },
    #[error("{}{}", Chain(.0), if is_unresolved(.0) { ": no such host" } else { "" })]
    Fetch(FetchError),
    #[error("the image exceeds the {most} bytes available")]
    TooLarge { most: u64 },
    #[error("the image has more than {most} bytes, the limit of this node (--max-image-size)")]
    OverLimit { most: u64 },
    #[error("the image needs {needed} bytes; {free} bytes are available")]
    NoRoom { needed: u64, free: u64 },
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error("checksum mismatch: expected {expected}, got {found}")]
    Mismatch { expected: String, found: String },
    #[error("spec.checksum {text:?} is not a SHA-512: it must have 128 hexadecimal digits")]
    BadChecksum { text: String },
    #[error("{got} bytes came instead of {expected}")]
    Cut { got: u64, expected: u64 },
    // Longhorn's words, in part.
    #[error("the uploaded file size {size} should be a multiple of 512 bytes")]
    Odd { size: u64 },
    #[error("{what} is not supported")]
    Unsupported { what: String },
    #[error("cannot {doing}")]
    File { doing: &'static str, source: io::Error },
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Clone(#[from] CloneError),
    #[error("the import was interrupted")]
    Interrupted,
}

impl ImportError {
    /// Whether what was sent so far is good, and only the rest is missing.
    pub(super) fn is_broken_off(&self) -> bool {
        let kind = io::ErrorKind::ConnectionAborted;
        matches!(self, Self::File { source, .. } if source.kind() == kind)
    }
}

fn is_unresolved(failure: &FetchError) -> bool {
    Chain(failure).to_string().contains("failed to lookup address information")
}
