//! Disk images: detecting their format, and converting them for machines.
//!
//! Images come from strangers. QEMU's formats can name other files, and a stranger's image
//! that names a file of the host would hand it to the guest. So an image's kind is decided by
//! its first bytes and by us, never guessed by QEMU; headers are read here first, and an
//! image that points outside itself is refused before any tool opens it. Tools run with
//! bounded memory and time, and as another user if there is one.

mod header;
mod layout;
pub mod receive;
mod sparse;
mod tool;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

pub use header::{ImageKind, Refusal, sniff};
pub use layout::{Layout, PartPosition};
pub use receive::{ReceiveError, Received, feed};
pub use sparse::copy_sparse;
pub use tool::{Tool, ToolError};

use crate::machine::{FileImage, ImageFormat};

/// Properties of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    pub kind: ImageKind,
    /// The size of the disk that the guest sees.
    pub virtual_size: u64,
    /// The space that it takes on the host now.
    pub actual_size: u64,
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("cannot read image {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("image {} is refused: {refusal}", path.display())]
    Refused { path: PathBuf, refusal: Refusal },
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("cannot parse the output of qemu-img for {}", path.display())]
    Unexpected { path: PathBuf, source: serde_json::Error },
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct QemuImgInfo {
    virtual_size: u64,
    #[serde(default)]
    actual_size: u64,
    backing_filename: Option<String>,
    #[serde(default)]
    encrypted: bool,
    #[serde(default)]
    format_specific: serde_json::Value,
}

/// Examines an image that may be hostile.
pub async fn inspect(tool: &Tool, path: &Path) -> Result<ImageInfo, ImageError> {
    let kind = check_header(path)?;
    if kind == ImageKind::Raw {
        let failed = |source| ImageError::Read { path: path.to_owned(), source };
        let data = std::fs::metadata(path).map_err(failed)?;
        let actual_size = std::os::unix::fs::MetadataExt::blocks(&data) * 512;
        return Ok(ImageInfo { kind, virtual_size: data.len(), actual_size });
    }
    let arguments = ["info".into(), "--output=json".into(), "-U".into(), source(path, kind).into()];
    let said = tool.run(&arguments, &[path]).await?;
    let said: QemuImgInfo = serde_json::from_str(&said)
        .map_err(|source| ImageError::Unexpected { path: path.to_owned(), source })?;
    // The header was checked already; QEMU's report is a second opinion.
    let refuse = |refusal| ImageError::Refused { path: path.to_owned(), refusal };
    if let Some(file) = said.backing_filename {
        return Err(refuse(Refusal::Backing { file }));
    }
    if said.encrypted {
        return Err(refuse(Refusal::Encrypted));
    }
    if said.format_specific["data"].get("data-file").is_some_and(|file| !file.is_null()) {
        return Err(refuse(Refusal::DataFile));
    }
    if !one_extent(&said.format_specific["data"], path) {
        return Err(refuse(Refusal::Extents));
    }
    Ok(ImageInfo { kind, virtual_size: said.virtual_size, actual_size: said.actual_size })
}

/// A VMDK lists the files that it is made of; only itself may be among them.
fn one_extent(specific: &serde_json::Value, path: &Path) -> bool {
    let Some(extents) = specific["extents"].as_array() else { return true };
    let name = path.to_string_lossy();
    extents.iter().all(|extent| {
        extent["filename"].as_str().is_some_and(|file| file == name || file.starts_with("json:"))
    })
}

/// Detects the kind of an image by its first bytes, and refuses what points outside.
pub fn check_header(path: &Path) -> Result<ImageKind, ImageError> {
    let failed = |source| ImageError::Read { path: path.to_owned(), source };
    let mut start = Vec::new();
    // The open does not wait for a pipe that was put there instead of a file.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(nonblock).open(path).map_err(failed)?;
    file.take(header::HEADER_LIMIT).read_to_end(&mut start).map_err(failed)?;
    let kind = sniff(&start);
    header::check(kind, &start)
        .map_err(|refusal| ImageError::Refused { path: path.to_owned(), refusal })?;
    Ok(kind)
}

/// An image as qemu-img is to open it: the format is given, and nothing below it is followed.
fn source(path: &Path, kind: ImageKind) -> String {
    let mut image = json!({
        "driver": kind.driver(),
        "file": { "driver": "file", "filename": path },
    });
    if kind == ImageKind::Qcow2 {
        image["backing"] = serde_json::Value::Null;
    }
    format!("json:{image}")
}

/// Turns an image that was inspected into one that machines use. `progress` gets percents.
///
/// Holes stay holes. An existing target is overwritten; a failed one is removed.
pub async fn convert(
    tool: &Tool,
    from: (&Path, ImageKind),
    to: (&Path, ImageFormat),
    progress: impl FnMut(f32) + Send,
) -> Result<(), ImageError> {
    check_header(from.0)?;
    let arguments = [
        "convert".into(),
        "-p".into(),
        "-O".into(),
        to.1.name().into(),
        source(from.0, from.1).into(),
        to.0.as_os_str().to_owned(),
    ];
    let converted = tool.run_with_progress(&arguments, &[from.0, to.0], progress).await;
    if converted.is_err() {
        let _ = std::fs::remove_file(to.0);
    }
    Ok(converted?)
}

/// The directory of a socket, or of a file that is to be made.
fn beside(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// An NBD server on a unix socket, as qemu-img takes it.
fn served(socket: &Path) -> String {
    let disk = json!({
        "driver": "raw",
        "file": {
            "driver": "nbd",
            "server": { "type": "unix", "path": socket },
            "reconnect-delay": RECONNECT,
        },
    });
    format!("json:{disk}")
}

/// Writes a raw disk to an NBD server on a unix socket, holes as zeroes, and has it flushed.
pub async fn write_to_socket(tool: &Tool, disk: &Path, socket: &Path) -> Result<(), ImageError> {
    let arguments = [
        "convert".into(),
        // The target exists; and what is not flushed is not written.
        "-n".into(),
        "-t".into(),
        "writeback".into(),
        "-p".into(),
        "-W".into(),
        "-O".into(),
        "raw".into(),
        source(disk, ImageKind::Raw).into(),
        served(socket).into(),
    ];
    Ok(tool.run_with_progress(&arguments, &[disk, beside(socket)], |_| {}).await?)
}

/// Reads all of an NBD server on a unix socket into a raw disk, zeros as holes. `progress` gets
/// percents.
pub async fn read_from_socket(
    tool: &Tool,
    socket: &Path,
    disk: &Path,
    progress: impl FnMut(f32) + Send,
) -> Result<(), ImageError> {
    let arguments = [
        "convert".into(),
        "-p".into(),
        "-O".into(),
        "raw".into(),
        served(socket).into(),
        disk.as_os_str().to_owned(),
    ];
    Ok(tool.run_with_progress(&arguments, &[beside(socket), disk], progress).await?)
}

/// Seconds for which a server that is gone is waited for.
const RECONNECT: u32 = 120;

/// Makes an empty image.
pub async fn create(
    tool: &Tool,
    path: &Path,
    format: ImageFormat,
    size: u64,
) -> Result<(), ImageError> {
    match format {
        ImageFormat::Raw => {
            let failed = |source| ImageError::Read { path: path.to_owned(), source };
            let file = File::options().create_new(true).write(true).mode(0o600).open(path);
            let file = file.map_err(failed)?;
            file.set_len(size).and_then(|()| file.sync_all()).map_err(failed)
        }
        ImageFormat::Qcow2 => {
            let size = size.to_string();
            let head = ["create", "-q", "-f", "qcow2"].map(Into::into);
            let arguments = [&head[..], &[path.into(), size.into()]].concat();
            tool.run(&arguments, &[beside(path)]).await?;
            Ok(())
        }
    }
}

/// Makes a qcow2 image that keeps what is written and takes the rest from `backing`.
///
/// The backing image is one of ours; machines get it in their configuration (see
/// [`FileImage::backing`]), and the name in the header is for people.
pub async fn create_overlay(
    tool: &Tool,
    path: &Path,
    backing: &FileImage,
    size: Option<u64>,
) -> Result<(), ImageError> {
    let mut arguments: Vec<std::ffi::OsString> =
        ["create", "-q", "-f", "qcow2", "-F", backing.format.name(), "-b"].map(Into::into).into();
    arguments.push(backing.path.clone().into());
    arguments.push(path.into());
    arguments.extend(size.map(|size| size.to_string().into()));
    tool.run(&arguments, &[&backing.path, beside(path)]).await?;
    Ok(())
}

/// Makes an image larger. Making one smaller would cut off data and is refused.
pub async fn grow(
    tool: &Tool,
    path: &Path,
    format: ImageFormat,
    size: u64,
) -> Result<(), ImageError> {
    match format {
        ImageFormat::Raw => {
            let failed = |source| ImageError::Read { path: path.to_owned(), source };
            let file = File::options().write(true).open(path).map_err(failed)?;
            let now = file.metadata().map_err(failed)?.len();
            if size < now {
                let refusal = Refusal::Shrink { from: now, to: size };
                return Err(ImageError::Refused { path: path.to_owned(), refusal });
            }
            file.set_len(size).and_then(|()| file.sync_all()).map_err(failed)
        }
        // qemu-img refuses to shrink without --shrink.
        ImageFormat::Qcow2 => {
            let size = size.to_string();
            let head = ["resize", "-q", "-f", "qcow2"].map(Into::into);
            let arguments = [&head[..], &[path.into(), size.into()]].concat();
            tool.run(&arguments, &[path]).await?;
            Ok(())
        }
    }
}

/// Finds out whether a qcow2 image is in order.
pub async fn check(tool: &Tool, path: &Path) -> Result<(), ImageError> {
    check_header(path)?;
    let image = source(path, ImageKind::Qcow2).into();
    tool.run(&["check".into(), "-q".into(), image], &[path]).await?;
    Ok(())
}

/// Whether files in the folder of `path` can be read past the host's page cache.
pub fn supports_direct_io(path: &Path) -> bool {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
    File::options().read(true).custom_flags(direct).open(path).is_ok()
}

#[cfg(test)]
mod tests;
