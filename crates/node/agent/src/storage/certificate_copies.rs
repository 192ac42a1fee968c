//! Copies of the node's certificate for the storage process, which cannot read the node's own files.
//!
//! They lie in a directory of ours, so that the process cannot lead us elsewhere, and are compared
//! with the originals now and then: the process reads them again when they have changed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::user::StorageUser;
use crate::config::StorageWire;

/// Certificates are renewed days before they end.
pub(super) const REFRESH: Duration = Duration::from_secs(60);

/// Where the copies are, and the user who reads them.
#[derive(Debug, Clone)]
pub(super) struct CertificateCopies {
    pub(super) dir: PathBuf,
    pub(super) user: StorageUser,
}

impl CertificateCopies {
    /// Brings the copies up to date and returns their paths. Files that are missing are not copied.
    pub(super) fn refresh(&self, wire: &StorageWire) -> io::Result<StorageWire> {
        qemu::create_passable(&self.dir)?;
        Ok(StorageWire {
            address: wire.address,
            ca: self.copy(&wire.ca, "ca.pem")?,
            // A pair that does not fit is not used, and read again.
            certificate: self.copy(&wire.certificate, "certificate.pem")?,
            key: self.copy(&wire.key, "key.pem")?,
        })
    }

    fn copy(&self, from: &Path, name: &str) -> io::Result<PathBuf> {
        let to = self.dir.join(name);
        let wanted = match fs::read(from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(to),
            wanted => wanted?,
        };
        let is_given = fs::metadata(&to).is_ok_and(|found| found.uid() == self.user.uid);
        if is_given && fs::read(&to).is_ok_and(|found| found == wanted) {
            return Ok(to);
        }
        let aside = self.dir.join(format!("{name}.new"));
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&aside)?;
        file.write_all(&wanted)?;
        std::os::unix::fs::fchown(&file, Some(self.user.uid), Some(self.user.gid))?;
        fs::rename(&aside, &to)?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_certificate_is_copied_for_its_reader_only() {
        assert!(rustix::process::geteuid().is_root(), "this test gives files away: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let wire = StorageWire {
            address: ([127, 0, 0, 1], 1).into(),
            ca: at("ca"),
            certificate: at("crt"),
            key: at("key"),
        };
        let user = StorageUser { uid: 0x7000_9001, gid: 0x7000_9002 };
        let copies = CertificateCopies { dir: at("copies"), user };
        for (name, text) in [("ca", "a"), ("crt", "c"), ("key", "k1")] {
            fs::write(at(name), text).unwrap();
        }
        let copied = copies.refresh(&wire).unwrap();
        let found = fs::metadata(&copied.key).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (user.uid, user.gid, 0o400));
        fs::write(at("key"), "k2").unwrap();
        copies.refresh(&wire).unwrap();
        assert_eq!(fs::read(&copied.key).unwrap(), b"k2");
        let before = fs::metadata(&copied.ca).unwrap().ino();
        copies.refresh(&wire).unwrap();
        assert_eq!(fs::metadata(&copied.ca).unwrap().ino(), before, "it is the same");
    }
}
