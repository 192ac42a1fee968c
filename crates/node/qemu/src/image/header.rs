//! The first bytes of images: the format, and whether the image refers to other files.

/// How much of an image is read; a VMDK's description lies within it.
pub(super) const HEADER_LIMIT: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A disk as it is, or an ISO, or whatever has no mark of its own.
    Raw,
    Qcow2,
    Vmdk,
    Vdi,
    Vhdx,
    Vpc,
}

impl ImageKind {
    /// QEMU's name of the format.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhdx => "vhdx",
            Self::Vpc => "vpc",
        }
    }
}

/// Why an image is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it needs another image, {file:?}; only complete images can be used")]
    Backing { file: String },
    #[error("its data is in another file; only complete images can be used")]
    DataFile,
    #[error("it is made of several files; only complete images can be used")]
    Extents,
    #[error("it is encrypted")]
    Encrypted,
    #[error("it is a description of an image in other files, not an image")]
    Description,
    #[error("its header is cut short or damaged")]
    Damaged,
    #[error("it would shrink from {from} to {to} bytes")]
    Shrink { from: u64, to: u64 },
}

/// Detects the kind of an image by its start.
pub fn sniff(start: &[u8]) -> ImageKind {
    let begins = |magic: &[u8]| start.starts_with(magic);
    if begins(b"QFI\xfb") {
        ImageKind::Qcow2
    } else if begins(b"KDMV") || begins(b"COWD") || begins(b"# Disk DescriptorFile") {
        ImageKind::Vmdk
    } else if begins(b"vhdxfile") {
        ImageKind::Vhdx
    } else if begins(b"conectix") {
        ImageKind::Vpc
    } else if start.get(64..68) == Some(&[0x7f, 0x10, 0xda, 0xbe]) {
        ImageKind::Vdi
    } else {
        ImageKind::Raw
    }
}

/// Refuses a header that leads to other files.
pub(super) fn check(kind: ImageKind, start: &[u8]) -> Result<(), Refusal> {
    match kind {
        ImageKind::Qcow2 => qcow2(start),
        ImageKind::Vmdk => vmdk(start),
        ImageKind::Vhdx => vhdx(start),
        ImageKind::Vpc => vpc(start),
        ImageKind::Vdi | ImageKind::Raw => Ok(()),
    }
}

fn be32(bytes: &[u8], at: usize) -> Result<u32, Refusal> {
    let slice = bytes.get(at..at + 4).ok_or(Refusal::Damaged)?;
    Ok(u32::from_be_bytes(slice.try_into().map_err(|_| Refusal::Damaged)?))
}

fn be64(bytes: &[u8], at: usize) -> Result<u64, Refusal> {
    Ok(u64::from(be32(bytes, at)?) << 32 | u64::from(be32(bytes, at + 4)?))
}

fn le64(bytes: &[u8], at: usize) -> Result<u64, Refusal> {
    Ok(be64(bytes, at)?.swap_bytes())
}

/// QEMU's `docs/interop/qcow2.txt`: 8 backing offset, 16 its length, 32 encryption, 72 the
/// features that a reader must know.
fn qcow2(start: &[u8]) -> Result<(), Refusal> {
    const DATA_FILE: u64 = 1 << 2;
    let version = be32(start, 4)?;
    if !(2..=3).contains(&version) {
        return Err(Refusal::Damaged);
    }
    let backing = be64(start, 8)?;
    if backing != 0 {
        let length = usize::try_from(be32(start, 16)?).unwrap_or(0).min(1023);
        let at = usize::try_from(backing).unwrap_or(usize::MAX);
        let name = at.checked_add(length).and_then(|end| start.get(at..end)).unwrap_or_default();
        return Err(Refusal::Backing { file: String::from_utf8_lossy(name).into_owned() });
    }
    if be32(start, 32)? != 0 {
        return Err(Refusal::Encrypted);
    }
    if version == 3 && be64(start, 72)? & DATA_FILE != 0 {
        return Err(Refusal::DataFile);
    }
    Ok(())
}

/// A sparse extent with its description inside; 12 capacity, 28 where the description is and
/// 36 how long, in sectors.
fn vmdk(start: &[u8]) -> Result<(), Refusal> {
    if !start.starts_with(b"KDMV") {
        return Err(Refusal::Description);
    }
    // A capacity of zero makes QEMU believe the description, wherever that leads.
    if le64(start, 12)? == 0 {
        return Err(Refusal::Description);
    }
    let sector = |at| -> Result<usize, Refusal> {
        let value = le64(start, at)?;
        usize::try_from(value).ok().and_then(|value| value.checked_mul(512)).ok_or(Refusal::Damaged)
    };
    let (at, length) = (sector(28)?, sector(36)?);
    let end = at.saturating_add(length).min(start.len());
    let description = String::from_utf8_lossy(start.get(at..end).unwrap_or_default());
    let value = |line: &str| {
        let value = line.split_once('=').map(|(_, value)| value).unwrap_or_default();
        value.trim().trim_end_matches('\0').trim_matches('"').to_owned()
    };
    for line in description.lines() {
        let line = line.trim();
        if line.starts_with("parentFileNameHint") {
            return Err(Refusal::Backing { file: value(line) });
        }
        let is_alone = ["monolithicSparse", "streamOptimized"].contains(&value(line).as_str());
        if line.starts_with("createType") && !is_alone {
            return Err(Refusal::Extents);
        }
    }
    Ok(())
}

/// A differencing disk names its parent in its metadata; QEMU refuses those itself, and the
/// regions are beyond what is read here.
fn vhdx(start: &[u8]) -> Result<(), Refusal> {
    if start.len() < 512 { Err(Refusal::Damaged) } else { Ok(()) }
}

/// Byte 60 of the footer's copy: 2 fixed, 3 dynamic, 4 differencing.
fn vpc(start: &[u8]) -> Result<(), Refusal> {
    if be32(start, 60)? == 4 {
        return Err(Refusal::Backing { file: "its parent".to_owned() });
    }
    Ok(())
}
