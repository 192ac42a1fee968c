//! Giving files to the storage process, which may have prepared their directories to mislead us:
//! every entry is reached through the descriptor of its directory, and links are not followed.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use serde_json::Value;

use super::StorageUser;

/// Opens what is at `path` to change its owner or mode, but no link and no pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_dir() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Gives `path` and everything below it to the user. It need not exist.
pub(super) fn give_tree(path: &Path, user: StorageUser) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let above = match open(above) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        above => above?,
    };
    match give(above.as_fd(), name.as_bytes(), user) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        given => Ok(given?),
    }
}

fn give(above: BorrowedFd<'_>, name: &[u8], user: StorageUser) -> rustix::io::Result<()> {
    let found = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(above, name, flags, Mode::empty())?;
            for entry in Dir::read_from(&dir)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                match give(dir.as_fd(), name, user) {
                    // Removed meanwhile.
                    Err(rustix::io::Errno::NOENT) => {}
                    given => given?,
                }
            }
            let found = rustix::fs::fstat(&dir)?;
            if is_others(&found, user) {
                let (uid, gid) = ids(user);
                rustix::fs::fchown(&dir, uid, gid)?;
            }
            Ok(())
        }
        // A second name could be that of a file elsewhere.
        FileType::RegularFile if found.st_nlink != 1 => Ok(()),
        FileType::RegularFile | FileType::Socket if is_others(&found, user) => {
            let (uid, gid) = ids(user);
            rustix::fs::chownat(above, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        }
        _ => Ok(()),
    }
}

fn is_others(found: &Stat, user: StorageUser) -> bool {
    (found.st_uid, found.st_gid) != (user.uid, user.gid)
}

fn ids(user: StorageUser) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))
}

/// The disks on which the replicas of a state lie. The storage process writes that state: a
/// directory counts as a disk only if we have named it one.
pub(super) fn disks(state: &[u8]) -> BTreeSet<PathBuf> {
    let state: Value = serde_json::from_slice(state).unwrap_or_default();
    let replicas = state["replicas"].as_object().into_iter().flatten();
    let dirs = replicas.filter_map(|(_, replica)| replica["dir"].as_str().map(Path::new));
    dirs.filter_map(disk_of).filter(|disk| is_disk(disk)).collect()
}

/// The disk in whose directory `replicas` this is.
fn disk_of(replica: &Path) -> Option<PathBuf> {
    let replicas = replica.parent().filter(|it| it.ends_with(super::super::object::REPLICAS))?;
    replicas.parent().filter(|disk| disk.is_absolute()).map(Path::to_owned)
}

fn is_disk(disk: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let mark = std::fs::symlink_metadata(disk.join(super::super::disk::CONFIG));
    mark.is_ok_and(|mark| mark.is_file() && mark.uid() == own)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const USER: StorageUser = StorageUser { uid: 0x7000_9001, gid: 0x7000_9002 };

    fn owner(path: &Path) -> (u32, u32) {
        let found = std::fs::symlink_metadata(path).unwrap();
        (found.uid(), found.gid())
    }

    #[test]
    fn a_tree_is_given_without_what_links_in_it_lead_to() {
        assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("replicas/r1")).unwrap();
        for file in ["replicas/r1/super", "secret", "second"] {
            std::fs::write(at(file), "").unwrap();
        }
        symlink(at("secret"), at("replicas/r1/link")).unwrap();
        symlink(dir.path(), at("replicas/up")).unwrap();
        std::fs::hard_link(at("second"), at("replicas/r1/second")).unwrap();
        let given = (USER.uid, USER.gid);
        for _ in 0..2 {
            give_tree(&at("replicas"), USER).unwrap();
            for path in ["replicas", "replicas/r1", "replicas/r1/super"] {
                assert_eq!(owner(&at(path)), given, "{path}");
            }
            for path in ["secret", "second", "", "replicas/r1/link", "replicas/up"] {
                assert_eq!(owner(&at(path)), (0, 0), "{path}");
            }
        }
        symlink(at("secret"), at("planted")).unwrap();
        give_tree(&at("planted"), USER).unwrap();
        give_tree(&at("missing"), USER).unwrap();
        assert_eq!(owner(&at("secret")), (0, 0));
        open(&at("planted")).unwrap_err();
    }

    #[test]
    fn only_directories_that_were_named_disks_are_given() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        let other = dir.path().join("etc");
        for dir in [&disk, &other] {
            std::fs::create_dir_all(dir.join("replicas/r")).unwrap();
        }
        std::fs::write(disk.join("longhorn-disk.cfg"), "{}").unwrap();
        std::os::unix::fs::symlink(disk.join("longhorn-disk.cfg"), other.join("longhorn-disk.cfg"))
            .unwrap();
        let state = serde_json::json!({"replicas": {
            "a": {"dir": disk.join("replicas/r")},
            "b": {"dir": other.join("replicas/r")},
            "c": {"dir": "/etc"},
            "d": {"dir": "replicas/r"},
            "e": {"volume": "v"},
        }});
        assert_eq!(disks(state.to_string().as_bytes()), BTreeSet::from([disk]));
        assert!(disks(b"{").is_empty());
    }
}
