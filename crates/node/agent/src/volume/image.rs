//! From an image of any kind to a raw disk: inspected, measured against the claim, converted.
//!
//! qemu-img reads images of strangers. If we are root it runs as a user who owns nothing but
//! the two files at hand.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use qemu::image::{self, ImageError, ImageKind, Tool};
use qemu::machine::ImageFormat;
use qemu::process::ProcessUser;

use super::disk::remove_slowly;
use super::fetch::FETCHING;
use super::gauge::Gauge;
use crate::host;

/// An image is not unpacked into the last of the storage, which running machines write to.
pub(crate) const RESERVE: u64 = 64 << 20;
/// Less than a disk can fill the reserve in.
const RECHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);
/// Beside the users and groups of machines. Each conversion has one of its own.
const READERS: u32 = 0x7200_0000;
const READER_COUNT: u32 = 0x8000;

/// Why an image does not become a disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConvertError {
    #[error(transparent)]
    Image(#[from] ImageError),
    // CDI's words.
    #[error(
        "Virtual image size {size} is larger than the reported available storage {room}. A larger \
         PVC is required."
    )]
    TooLarge { size: u64, room: u64 },
    /// A small image may hold a large disk, on purpose even.
    #[error("not enough storage to unpack the image ({free} bytes available)")]
    NoRoom { free: u64 },
    #[error("cannot prepare {}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl ConvertError {
    /// Whether the image is at fault, so that trying again is of no use.
    pub(super) fn is_final(&self) -> bool {
        use qemu::image::ToolError;
        match self {
            Self::TooLarge { .. } => true,
            Self::Image(ImageError::Refused { .. } | ImageError::Unexpected { .. }) => true,
            // These are not the image's fault, and an administrator may put them right.
            Self::Image(ImageError::Tool(ToolError::Failed { said, .. })) => {
                !["No space left on device", "Permission denied"]
                    .iter()
                    .any(|problem| said.contains(problem))
            }
            _ => false,
        }
    }
}

/// The tool, run by whom it can do the least harm.
pub(crate) fn tool() -> Tool {
    // A process of an agent that was killed may still run as one of the first.
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(std::process::id()));
    let identity = rustix::process::geteuid().is_root().then(|| {
        let reader = READERS + NEXT.fetch_add(1, Ordering::Relaxed) % READER_COUNT;
        ProcessUser { uid: reader, gid: reader, groups: Vec::new() }
    });
    Tool { identity, is_isolated: host::has_namespaces(), ..Tool::default() }
}

/// Makes a raw disk of the image at `from`; `at` is a name for it beside. Returns its path, which
/// is `from` itself if that is a raw disk already; files that are not needed are removed.
pub(super) async fn to_disk(
    from: &Path,
    at: &Path,
    room: Option<u64>,
    gauge: &Gauge,
) -> Result<PathBuf, ConvertError> {
    let made = disk_of(from, at, room, gauge).await?;
    if made != from {
        let _ = remove_slowly(from);
    }
    Ok(made)
}

/// The same, and the image stays.
pub(crate) async fn disk_of(
    from: &Path,
    at: &Path,
    room: Option<u64>,
    gauge: &Gauge,
) -> Result<PathBuf, ConvertError> {
    let tool = tool();
    hand_to_reader(from, &tool)?;
    let info = image::inspect(&tool, from).await?;
    if let Some(room) = room
        && info.virtual_size > room
    {
        return Err(ConvertError::TooLarge { size: info.virtual_size, room });
    }
    if info.kind == ImageKind::Raw {
        return Ok(from.to_owned());
    }
    if info.kind == ImageKind::Qcow2 {
        check(&tool, from).await?;
    }
    let failed = |source| ConvertError::File { path: at.to_owned(), source };
    let target = OpenOptions::new().create_new(true).write(true).mode(0o600).open(at);
    drop(target.map_err(failed)?);
    hand_to_reader(at, &tool)?;
    let progress = |percent: f32| gauge.set(FETCHING + percent / 100.0 * (1.0 - FETCHING));
    let converted = image::convert(&tool, (from, info.kind), (at, ImageFormat::Raw), progress);
    let converted = tokio::select! {
        converted = converted => converted.map_err(ConvertError::from),
        free = shortage(at) => Err(ConvertError::NoRoom { free }),
    };
    if converted.is_err() {
        let _ = remove_slowly(at);
    }
    converted?;
    Ok(at.to_owned())
}

/// Resolves when what is left of the storage belongs to those who run already.
pub(crate) async fn shortage(at: &Path) -> u64 {
    loop {
        if let Ok(stat) = rustix::fs::statvfs(at) {
            let free = stat.f_bavail * stat.f_frsize;
            if free < RESERVE {
                return free;
            }
        }
        tokio::time::sleep(RECHECK_INTERVAL).await;
    }
}

/// QEMU reads zeros where a damaged or shortened image has nothing. Room that was lost inside
/// of the image does no harm.
async fn check(tool: &Tool, path: &Path) -> Result<(), ConvertError> {
    use qemu::image::ToolError;
    match image::check(tool, path).await {
        Err(ImageError::Tool(ToolError::Failed { said, program })) if said.contains("ERROR") => {
            let said = said.lines().find(|line| line.contains("ERROR")).unwrap_or_default().into();
            Err(ImageError::Tool(ToolError::Failed { program, said }).into())
        }
        Err(ImageError::Tool(ToolError::Failed { .. })) | Ok(()) => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

pub(crate) fn hand_to_reader(path: &Path, tool: &Tool) -> Result<(), ConvertError> {
    let failed = |source| ConvertError::File { path: path.to_owned(), source };
    if let Some(identity) = &tool.identity {
        std::os::unix::fs::chown(path, Some(identity.uid), Some(identity.gid)).map_err(failed)?;
    }
    Ok(())
}

/// The allowed length of an incoming image: formats have tables besides the data.
pub(super) fn most(room: u64) -> u64 {
    room.saturating_add(room / 4).saturating_add(64 << 20)
}

/// Removes a file when it goes out of scope, unless it has been renamed by then.
#[derive(Debug)]
pub(crate) struct TemporaryFile(pub(crate) PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
