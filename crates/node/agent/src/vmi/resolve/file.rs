//! Files that QEMU is to use: made, handed to its user, and examined.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use qemu::image::Tool;
use qemu::machine::ImageFormat;
use qemu::process::ProcessUser;
use qemu::seed::SeedFile;
use rustix::fs::OFlags;

use crate::vmi::seed::Seed;

/// The block size of storage.
const BLOCK: u64 = 4096;
/// Groups for disks that several machines share: beside the users of machines.
const SHARED_GROUPS: u32 = 0x7100_0000;

/// Properties of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileFacts {
    pub(super) size: u64,
    pub(super) direct: bool,
    pub(super) allocated: bool,
}

pub(super) fn facts(path: &Path) -> FileFacts {
    let Ok(metadata) = fs::metadata(path) else { return FileFacts::default() };
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    FileFacts {
        size: metadata.len(),
        // Some file systems take the flag and fail later; those that matter refuse it here. QEMU
        // refuses to go past the cache with half a block at the end.
        direct: metadata.len() % BLOCK == 0
            && OpenOptions::new().read(true).custom_flags(flags).open(path).is_ok(),
        allocated: metadata.len() > 0 && metadata.blocks() * 512 >= metadata.len(),
    }
}

/// Makes a file of this size without blocks; one that exists is left as it is. A link that the
/// machine's user has put there is refused.
pub(super) fn sparse(path: &Path, size: u64) -> io::Result<()> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(no_links())
        .open(path)?;
    if file.metadata()?.len() < size {
        file.set_len(size)?;
    }
    Ok(())
}

/// Writes a whole file, or leaves the one that was there.
pub(super) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    absent(fs::remove_file(&temporary))?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    fs::rename(&temporary, path)
}

/// Gives a file to the machine's user. Links are not followed into foreign files.
pub(super) fn hand_over(path: &Path, identity: Option<&ProcessUser>, mode: u32) -> io::Result<()> {
    let file = open(path)?;
    if let Some(identity) = identity {
        std::os::unix::fs::fchown(&file, Some(identity.uid), Some(identity.gid))?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Gives a file to a group of its own, so that several machines may write to it.
pub(super) fn share(path: &Path, key: &str) -> io::Result<u32> {
    let group = shared_group(key);
    let file = open(path)?;
    std::os::unix::fs::fchown(&file, None, Some(group))?;
    file.set_permissions(fs::Permissions::from_mode(0o660))?;
    Ok(group)
}

/// The group of those who share what has this name.
pub(super) fn shared_group(key: &str) -> u32 {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(key.as_bytes());
    SHARED_GROUPS + (u32::from(hash[0]) << 8) + u32::from(hash[1])
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(no_links()).open(path)
}

/// Opens neither what a link leads to, nor waits for the other end of a pipe.
pub(super) fn no_links() -> i32 {
    i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0)
}

/// A file that is not there is as good as removed.
fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The ISO image of a seed.
pub(super) fn iso(seed: &Seed) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let files: Vec<_> = seed
        .files
        .iter()
        .map(|(path, content)| SeedFile::new(path.clone(), content.clone()))
        .collect();
    Ok(qemu::seed::medium(&seed.label, &files)?)
}

/// An empty qcow2 image of this size, made anew: in `private`, a directory that the machine's user
/// cannot write to, since the tool follows links and runs with our rights.
pub(super) async fn overlay(
    private: &Path,
    path: &Path,
    size: u64,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let name = path.file_name().unwrap_or_default();
    let made = private.join(name).with_extension("overlay");
    absent(fs::remove_file(&made))?;
    qemu::image::create(&Tool::default(), &made, ImageFormat::Qcow2, size).await?;
    Ok(fs::rename(&made, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_machines_user_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("disk.img"));
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(sparse(&link, 1 << 20).is_err());
        std::os::unix::fs::symlink(&target, folder.path().join("seed.new")).unwrap();
        write(&folder.path().join("seed.iso"), b"new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        assert_eq!(fs::read(folder.path().join("seed.iso")).unwrap(), b"new");
    }
}
