//! Disk images in local files, checked before they are sent.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// How compressed files begin; only the node that unpacks them knows their content.
const COMPRESSED: [(&[u8], &str); 3] =
    [(b"\x1f\x8b", "gzip"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];
/// The smallest unit of a disk.
const SECTOR: u64 = 512;

/// The size of an image, determined without sending it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskSize {
    /// The size of the disk that the guest will see.
    Known(u64),
    /// The image is compressed, or qemu-img is not installed; why.
    Unknown(String),
}

/// Checks that a file is a disk image, and returns the size of the disk.
pub(super) fn inspect(file: &Path) -> Result<DiskSize> {
    let shown = file.display();
    let length = check_not_empty(file)?;
    if let Some(format) = compression(file)? {
        return Ok(DiskSize::Unknown(format!("{shown} is compressed with {format}")));
    }
    let output = std::process::Command::new("qemu-img")
        .args(["info", "--output=json", "--"])
        .arg(file)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(failure) => return Ok(DiskSize::Unknown(format!("qemu-img cannot be run: {failure}"))),
    };
    if !output.status.success() {
        bail!("{shown} is not a disk image: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let info: Value =
        serde_json::from_slice(&output.stdout).context("cannot read the output of qemu-img")?;
    if info["format"] == "raw" && !length.is_multiple_of(SECTOR) {
        bail!(
            "{shown} is not a disk image: its format is not known, and its {length} bytes are not \
             a multiple of {SECTOR} as a raw disk has"
        );
    }
    let size = info["virtual-size"].as_u64();
    size.map(DiskSize::Known).with_context(|| format!("cannot read the size of {shown}"))
}

/// The length of a file that has at least one byte.
pub(super) fn check_not_empty(file: &Path) -> Result<u64> {
    let shown = file.display();
    let data = std::fs::metadata(file).with_context(|| format!("cannot read {shown}"))?;
    if !data.is_file() {
        bail!("{shown} is not a file");
    }
    if data.len() == 0 {
        bail!("{shown} is empty");
    }
    Ok(data.len())
}

fn compression(file: &Path) -> Result<Option<&'static str>> {
    let mut begin = Vec::new();
    std::fs::File::open(file)
        .and_then(|input| input.take(8).read_to_end(&mut begin))
        .with_context(|| format!("cannot read {}", file.display()))?;
    Ok(COMPRESSED.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, name)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disk_images_are_sent() {
        let dir = tempfile::tempdir().unwrap();
        let inspected = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            inspect(&path).map_err(|error| error.to_string())
        };
        assert!(inspected("empty", b"").unwrap_err().ends_with("is empty"));
        assert!(inspect(dir.path()).unwrap_err().to_string().ends_with("is not a file"));
        let gzip = inspected("gzip", b"\x1f\x8b\x08rest");
        assert!(matches!(gzip, Ok(DiskSize::Unknown(why)) if why.contains("gzip")));
        let text = inspected("text", b"hello\n");
        if let Ok(DiskSize::Unknown(why)) = &text {
            // Without qemu-img the node decides.
            assert!(why.contains("qemu-img"), "{why}");
            return;
        }
        assert!(text.unwrap_err().contains("is not a disk image"));
        assert_eq!(inspected("raw", &[0; 1024]), Ok(DiskSize::Known(1024)));
    }
}
