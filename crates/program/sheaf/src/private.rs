//! Permissions of files: the umask, and directories that an earlier version has left readable for
//! other users.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::cli::Command;

/// Other users get no rights to new files and directories, unless they are given on purpose.
const UMASK: u32 = 0o077;

/// Sets the umask for commands that write state of the server. It has to be called before there
/// is a second thread.
pub(crate) fn set_umask(command: &Command) {
    let keeps_state = matches!(
        command,
        Command::Server(_)
            | Command::Witness(_)
            | Command::KubeApiserver { .. }
            | Command::Controllers(_)
            | Command::Token(_)
            | Command::Store(_)
            | Command::Replica(_)
            | Command::Storage(_)
            | Command::UpgradeTrial(_)
            | Command::Preflight(_)
            | Command::Dev(_)
    );
    if keeps_state {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(UMASK));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Directory,
    /// Anything but a directory: files and sockets.
    File,
}

/// The mode that an entry gets instead of `mode`; nothing if it is private. Directories that can
/// be passed through stay so: below them are files of guests.
fn private_mode(kind: EntryKind, mode: u32) -> Option<u32> {
    let kept = match kind {
        EntryKind::Directory => mode & 0o7711,
        EntryKind::File => mode & 0o7700,
    };
    (kept != mode).then_some(kept)
}

/// Takes the rights of other users from `dir` and from everything of ours below it. Files of
/// another user or group were given to guests and are left alone; symbolic links are not followed.
/// Returns how many entries were changed.
pub(crate) fn tighten(dir: &Path) -> io::Result<usize> {
    let ours = fs::metadata(dir)?;
    let mut changed = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        let found = match fs::symlink_metadata(&path) {
            // A process of an earlier server may have removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        if found.uid() != ours.uid() || found.is_symlink() {
            continue;
        }
        let kind = if found.is_dir() { EntryKind::Directory } else { EntryKind::File };
        let is_given = found.gid() != ours.gid();
        if let Some(mode) = private_mode(kind, found.mode() & 0o7777).filter(|_| !is_given) {
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            changed += 1;
        }
        if found.is_dir() {
            for entry in fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lose_the_rights_of_others() {
        for (kind, mode, expected) in [
            (EntryKind::File, 0o644, Some(0o600)),
            (EntryKind::File, 0o600, None),
            (EntryKind::File, 0o444, Some(0o400)),
            (EntryKind::File, 0o666, Some(0o600)),
            (EntryKind::Directory, 0o755, Some(0o711)),
            (EntryKind::Directory, 0o777, Some(0o711)),
            (EntryKind::Directory, 0o700, None),
            (EntryKind::Directory, 0o711, None),
        ] {
            assert_eq!(private_mode(kind, mode), expected, "{kind:?} {mode:o}");
        }
    }

    #[test]
    fn open_permissions_of_an_earlier_version_are_closed() {
        let home = tempfile::tempdir().unwrap();
        let (below, outside) = (home.path().join("data/below"), home.path().join("outside"));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join("secret"), "").unwrap();
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, below.join("link")).unwrap();
        for (path, mode) in [(&below, 0o755), (&below.join("secret"), 0o644), (&outside, 0o644)] {
            open(path, mode).unwrap();
        }
        let data = home.path().join("data");
        open(&data, 0o755).unwrap();
        assert_eq!(tighten(&data).unwrap(), 3);
        assert_eq!((mode(&data), mode(&below)), (0o711, 0o711));
        assert_eq!((mode(&below.join("secret")), mode(&outside)), (0o600, 0o644));
        assert_eq!(tighten(&data).unwrap(), 0);
    }
}
