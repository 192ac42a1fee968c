//! The paths of all files on a backup target. Pure.

use object_store::path::Path;
use sha2::{Digest as _, Sha512};

/// A name that would not be a file name of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "name {name:?} is invalid: it must begin with a letter or digit and consist of letters, \
     digits, '_', '.' and '-'"
)]
pub struct NameError {
    pub name: String,
}

/// Whether a volume or a backup may have this name.
pub fn is_valid_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    name.len() >= 2
        && name.len() <= 253
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(inner)
}

pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    if is_valid_name(name) { Ok(()) } else { Err(NameError { name: name.to_owned() }) }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The files of a target, below the path of its URL.
#[derive(Debug, Clone)]
pub(crate) struct TargetLayout {
    root: Path,
}

impl TargetLayout {
    /// `prefix` is the path of the target's URL.
    pub(crate) fn new(prefix: &str) -> Self {
        Self { root: Path::from(prefix) }
    }

    /// A file outside of the backups of volumes.
    pub(crate) fn file(&self, path: &str) -> Path {
        path.split('/').fold(self.root.clone(), |root, part| root.join(part))
    }

    pub(crate) fn volumes(&self) -> Path {
        self.file("backupstore/volumes")
    }

    pub(crate) fn volume(&self, volume: &str) -> Path {
        let hash = hex(&Sha512::digest(volume.as_bytes())[..2]);
        self.volumes().join(&hash[..2]).join(&hash[2..4]).join(volume)
    }

    pub(crate) fn volume_config(&self, volume: &str) -> Path {
        self.volume(volume).join("volume.cfg")
    }

    pub(crate) fn backups(&self, volume: &str) -> Path {
        self.volume(volume).join("backups")
    }

    pub(crate) fn backup_config(&self, volume: &str, backup: &str) -> Path {
        self.backups(volume).join(format!("backup_{backup}.cfg"))
    }

    pub(crate) fn blocks(&self, volume: &str) -> Path {
        self.volume(volume).join("blocks")
    }

    /// A block by its checksum, which has at least four characters.
    pub(crate) fn block(&self, volume: &str, checksum: &str) -> Path {
        let (first, second) = (&checksum[..2], &checksum[2..4]);
        self.blocks(volume).join(first).join(second).join(format!("{checksum}.blk"))
    }

    pub(crate) fn locks(&self, volume: &str) -> Path {
        self.volume(volume).join("locks")
    }

    pub(crate) fn lock(&self, volume: &str, lock: &str) -> Path {
        self.locks(volume).join(format!("{lock}.lck"))
    }
}

/// The backup that a file of the directory `backups` describes.
pub(crate) fn backup_of(file: &str) -> Option<&str> {
    let name = file.strip_prefix("backup_")?.strip_suffix(".cfg")?;
    is_valid_name(name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_longhorn_looks_for_them() {
        let layout = TargetLayout::new("");
        assert_eq!(layout.volume("bench").as_ref(), "backupstore/volumes/67/b5/bench");
        let layout = TargetLayout::new("/some/prefix/");
        assert_eq!(
            layout.backup_config("bench", "backup-1").as_ref(),
            "some/prefix/backupstore/volumes/67/b5/bench/backups/backup_backup-1.cfg"
        );
        assert_eq!(
            layout.block("bench", "ec36fb").as_ref(),
            "some/prefix/backupstore/volumes/67/b5/bench/blocks/ec/36/ec36fb.blk"
        );
        assert_eq!(backup_of("backup_backup-1.cfg"), Some("backup-1"));
        assert_eq!(backup_of("backup_a.cfg.tmp.1"), None);
    }

    #[test]
    fn names_are_single_parts_of_a_path() {
        for good in ["pvc-1", "a.b_c-d", "0x"] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", "a", "..", "../x", "a/b", "-a", ".hidden", "a b", "a\n"] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }
}
