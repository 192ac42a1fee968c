//! The user of the storage process, and the files that are handed over to it.
//!
//! It is `sheaf-storage` where the system has that user, a number above those of guests elsewhere,
//! and our own user if we are not root. It owns the directories `replicas` of all disks and may
//! create files in the directory of the process, whose sticky bit protects what is ours there; of
//! images it may read the complete ones.
//!
//! Files of a version that stored as root are given away when a process is started and when a disk
//! is checked. Each check compares owners, so that one that was interrupted is finished by the
//! next. Symbolic links are not followed, and nothing outside of disks is given away, whatever
//! the state of the storage process says.

mod handover;

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use self::handover::give_tree;

/// The name of the user that packages create.
const NAME: &str = "sheaf-storage";
/// Stands for it elsewhere: the first number behind those of guests.
const NUMBER: u32 = 0x7000_8000;
/// Others pass through, the user creates files, and no user removes files of others.
const SHARED_DIR: u32 = 0o1771;

/// The user that the storage process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StorageUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Why the storage process runs as root.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoUser {
    #[error("the file system of {} has no access control lists", path.display())]
    NoLists { path: PathBuf },
    #[error("user {uid} cannot enter {} (mode {mode:04o}): run `chmod o+x {}`", path.display(), path.display())]
    Unreachable { uid: u32, path: PathBuf, mode: u32 },
    #[error("cannot give {} to user {uid}", path.display())]
    Give { uid: u32, path: PathBuf, source: io::Error },
}

impl StorageUser {
    /// The user of this host; none if we are not root, and its files are ours.
    pub(crate) fn of_host() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        Some(named(&users).unwrap_or(Self { uid: NUMBER, gid: NUMBER }))
    }

    /// Gives the directory of the process and the replicas that its state lists to this user.
    pub(super) fn take_over(self, dir: &Path) -> Result<(), NoUser> {
        if !block::storage::supports_access_lists(dir) {
            return Err(NoUser::NoLists { path: dir.to_owned() });
        }
        self.enters(dir)?;
        self.share_dir(dir).map_err(self.failed(dir))?;
        for name in ["lock", "state.json", "control.sock", "records", "replicas", "witness", "nbd"]
        {
            let path = dir.join(name);
            give_tree(&path, self).map_err(self.failed(&path))?;
        }
        let state = std::fs::read(dir.join("state.json")).unwrap_or_default();
        for disk in handover::disks(&state) {
            self.take_disk(&disk)?;
        }
        Ok(())
    }

    /// Gives the replicas on a disk to this user, and lets it read the complete images.
    pub(super) fn take_disk(self, disk: &Path) -> Result<(), NoUser> {
        self.enters(disk)?;
        let replicas = disk.join(super::object::REPLICAS);
        give_tree(&replicas, self).map_err(self.failed(&replicas))?;
        for image in crate::backing_image::complete_images(disk) {
            self.share_image(&image).map_err(self.failed(&image))?;
        }
        Ok(())
    }

    /// Lets this user read a complete image and its checksums, which are ours.
    pub(crate) fn share_image(self, image: &Path) -> io::Result<()> {
        let sums = block::store::sums_path(image);
        for path in [image, sums.as_path()] {
            let file = match handover::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let found = file.metadata()?;
            let mode = found.mode() & 0o7777;
            if found.uid() == 0 && (found.gid(), mode) != (self.gid, 0o440) {
                std::os::unix::fs::fchown(&file, Some(0), Some(self.gid))?;
                file.set_permissions(std::fs::Permissions::from_mode(0o440))?;
            }
        }
        Ok(())
    }

    fn share_dir(self, dir: &Path) -> io::Result<()> {
        let file = handover::open(dir)?;
        std::os::unix::fs::fchown(&file, Some(0), Some(self.gid))?;
        file.set_permissions(std::fs::Permissions::from_mode(SHARED_DIR))
    }

    /// Fails if this user cannot pass through `dir` or a directory above it.
    fn enters(self, dir: &Path) -> Result<(), NoUser> {
        let real = dir.canonicalize().map_err(self.failed(dir))?;
        for path in real.ancestors() {
            let found = path.metadata().map_err(self.failed(path))?;
            let mode = found.mode() & 0o7777;
            if !self.passes(found.uid(), found.gid(), mode) {
                return Err(NoUser::Unreachable { uid: self.uid, path: path.to_owned(), mode });
            }
        }
        Ok(())
    }

    fn passes(self, uid: u32, gid: u32, mode: u32) -> bool {
        let own = if uid == self.uid {
            0o100
        } else if gid == self.gid {
            0o010
        } else {
            0o001
        };
        mode & own != 0
    }

    fn failed(self, path: &Path) -> impl FnOnce(io::Error) -> NoUser + use<> {
        let path = path.to_owned();
        move |source| NoUser::Give { uid: self.uid, path, source }
    }
}

/// The user in the text of `/etc/passwd`.
fn named(users: &str) -> Option<StorageUser> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|fields| fields.first() == Some(&NAME))?;
    let number = |at: usize| found.get(at)?.parse().ok();
    let user = StorageUser { uid: number(2)?, gid: number(3)? };
    (user.uid != 0).then_some(user)
}

/// Makes a directory that users of machines can pass through, and only pass. One that the user of
/// the storage process owns is left as it is, unless it is a link.
pub(super) fn passable(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir)?;
    let file = handover::open(dir)?;
    let mode = file.metadata()?.mode() & 0o7777;
    // The rights of the storage process stay.
    let passed = if mode == SHARED_DIR { mode } else { 0o711 };
    file.set_permissions(std::fs::Permissions::from_mode(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_the_package_is_taken_unless_it_is_root() {
        let line = |uid: u32| {
            format!("root:x:0:0::/root:/bin/sh\nsheaf-storage:x:{uid}:990::/:/bin/false\n")
        };
        assert_eq!(named(&line(991)), Some(StorageUser { uid: 991, gid: 990 }));
        assert_eq!(named(&line(0)), None);
        assert_eq!(named("sheaf-storage2:x:5:5::/:/bin/sh"), None);
        assert_eq!(named("sheaf-storage:x:many:5::/:/bin/sh"), None);
    }

    #[test]
    fn the_rights_of_the_first_class_that_fits_count() {
        let user = StorageUser { uid: 7, gid: 8 };
        for (uid, gid, mode, passes) in [
            (0, 0, 0o711, true),
            (0, 0, 0o710, false),
            (0, 8, 0o710, true),
            (0, 8, 0o701, false),
            (7, 0, 0o700, true),
            (7, 8, 0o011, false),
        ] {
            assert_eq!(user.passes(uid, gid, mode), passes, "{uid} {gid} {mode:o}");
        }
    }
}
