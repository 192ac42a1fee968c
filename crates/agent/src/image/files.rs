//! The files of an image, in `backing-images/<name>-<uid>/` on its disk.
//!
//!   download        what was fetched so far, as it came
//!   download.json   of which content that is a part, so that it can be gone on with
//!   work-*          what it is unpacked to; of no worth to the next process
//!   image.json      what is to be told of the complete image; written before it
//!   backing         the complete image: raw, never written again
//!
//! Everything here blocks. Nothing here removes files that it does not know.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha512};

use super::object::complete;
use crate::volume::{Mark, hex, remove_slowly, sync};

const DOWNLOAD: &str = "download";
const MARK: &str = "download.json";
const FACTS: &str = "image.json";
const WORK: &str = "work-";
/// What an upload is noted as, which no server says of a download.
pub(super) const UPLOAD: &str = "upload";
/// Disks are whole sectors.
const SECTOR: u64 = 512;

/// What is told of a complete image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// Bytes of what was fetched, and their SHA-512.
    pub(super) size: u64,
    pub(super) checksum: String,
    /// Bytes of the disk.
    pub(super) virtual_size: u64,
    pub(super) real_size: u64,
    /// Bytes of the file, where it holds more than the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file_size: Option<u64>,
}

/// What was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) size: u64,
    pub(super) checksum: String,
    /// Bytes of the disk in it, where it holds more than that.
    pub(super) disk: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// Makes it, and removes what is of no worth.
    pub(super) fn open(&self) -> io::Result<()> {
        // Who converts images passes through, and only passes.
        DirBuilder::new().recursive(true).mode(0o711).create(&self.0)?;
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(WORK) {
                remove_slowly(&entry.path())?;
            }
        }
        Ok(())
    }

    pub(super) fn download(&self) -> PathBuf {
        self.0.join(DOWNLOAD)
    }

    /// A name for what is being made; no two are the same.
    pub(super) fn work(&self) -> PathBuf {
        self.0.join(format!("{WORK}{:x}", base::clock::now().as_nanosecond()))
    }

    /// Bytes that can be written.
    pub(super) fn room(&self) -> io::Result<u64> {
        let stat = statvfs(&self.0)?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// Whether everything is there, and what there is to say of it.
    pub(super) fn facts(&self) -> Option<Facts> {
        let facts: Facts = serde_json::from_slice(&fs::read(self.0.join(FACTS)).ok()?).ok()?;
        let length = fs::metadata(complete(&self.0)).ok()?.len();
        (length == facts.file_size.unwrap_or(facts.virtual_size)).then_some(facts)
    }

    /// What there is of a download, and of which.
    pub(super) fn partial(&self) -> Option<(u64, Mark)> {
        let mark = serde_json::from_slice(&fs::read(self.0.join(MARK)).ok()?).ok()?;
        let length = fs::metadata(self.download()).ok()?.len();
        (length > 0).then_some((length, mark))
    }

    /// How much there is of an upload that may go on.
    pub(super) fn uploaded(&self) -> u64 {
        let part = self.partial().filter(|(_, mark)| mark.validator == UPLOAD);
        part.map_or(0, |(length, _)| length)
    }

    pub(super) fn note(&self, mark: Option<&Mark>) -> io::Result<()> {
        match mark {
            Some(mark) => self.replace(MARK, &serde_json::to_vec(mark)?),
            None => gone(fs::remove_file(self.0.join(MARK))),
        }
    }

    /// Forgets what was fetched.
    pub(super) fn start_over(&self) -> io::Result<()> {
        gone(fs::remove_file(self.0.join(MARK)))?;
        gone(remove_slowly(&self.download()))
    }

    /// Writes what comes, after the first `at` bytes that are there already.
    pub(super) fn store(&self, mut from: impl Read, at: u64) -> io::Result<Fetched> {
        let mut hasher = Sha512::new();
        let mut buffer = vec![0; 1 << 20];
        let path = self.download();
        if at > 0 {
            let mut before = File::open(&path)?.take(at);
            while let count @ 1.. = before.read(&mut buffer)? {
                hasher.update(&buffer[..count]);
            }
        }
        let options =
            OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
        let mut file = options?;
        file.set_len(at)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(at))?;
        let mut size = at;
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&buffer[..count]);
            file.write_all(&buffer[..count])?;
            size += count as u64;
        }
        Ok(Fetched { size, checksum: hex(&hasher.finalize()), disk: None })
    }

    /// Puts a raw disk into its place; from then on it is complete.
    pub(super) fn publish(&self, disk: &Path, fetched: &Fetched) -> io::Result<Facts> {
        let file = OpenOptions::new().write(true).open(disk)?;
        let length = file.metadata()?.len().next_multiple_of(SECTOR);
        file.set_len(length)?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(0), Some(0))?;
        }
        file.set_permissions(fs::Permissions::from_mode(0o400))?;
        file.sync_all()?;
        let facts = Facts {
            size: fetched.size,
            checksum: fetched.checksum.clone(),
            virtual_size: fetched.disk.unwrap_or(length),
            real_size: file.metadata()?.blocks() * 512,
            file_size: fetched.disk.map(|_| length),
        };
        self.replace(FACTS, &serde_json::to_vec(&facts)?)?;
        fs::rename(disk, complete(&self.0))?;
        sync(&self.0)?;
        self.start_over()?;
        Ok(facts)
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let aside = self.work();
        let mut file = File::create_new(&aside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(aside, self.0.join(name))?;
        sync(&self.0)
    }

    /// Removes the image; it is no failure if it is gone.
    pub(super) fn remove(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        // Without these nobody takes the rest for an image.
        gone(fs::remove_file(self.0.join(FACTS)))?;
        let backing = complete(&self.0);
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_known = [DOWNLOAD, MARK].contains(&name.as_str()) || name.starts_with(WORK);
            if is_known || path == backing {
                gone(remove_slowly(&path))?;
            }
        }
        gone(fs::remove_dir(&self.0))
    }
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder(dir.path().join("backing-images/i-1"));
        folder.open().unwrap();
        (dir, folder)
    }

    #[test]
    fn a_download_goes_on_where_it_was_and_has_the_sum_of_all() {
        let (_dir, folder) = folder();
        let whole = folder.store(&b"abcdef"[..], 0).unwrap();
        folder.start_over().unwrap();
        folder.store(&b"abcd"[..], 0).unwrap();
        let mark = Mark { validator: "\"one\"".into(), length: Some(6) };
        folder.note(Some(&mark)).unwrap();
        assert_eq!(folder.partial(), Some((4, mark)));
        let resumed = folder.store(&b"ef"[..], 4).unwrap();
        assert_eq!((resumed.size, &resumed.checksum), (6, &whole.checksum));
        assert_eq!(fs::read(folder.download()).unwrap(), b"abcdef");
    }

    #[test]
    fn an_image_is_there_completely_or_not_at_all() {
        let (_dir, folder) = folder();
        let fetched = folder.store(&b"data"[..], 0).unwrap();
        assert_eq!(folder.facts(), None);
        let work = folder.work();
        fs::copy(folder.download(), &work).unwrap();
        let facts = folder.publish(&work, &fetched).unwrap();
        assert_eq!((facts.size, facts.virtual_size), (4, 512));
        assert_eq!(folder.facts(), Some(facts));
        assert!(!folder.download().exists(), "what it was made of is gone");
        fs::write(folder.work(), "left by a crash").unwrap();
        folder.open().unwrap();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
        folder.remove().unwrap();
        assert!(!folder.0.exists());
        folder.remove().unwrap();
    }

    #[test]
    fn files_of_others_stay() {
        let (_dir, folder) = folder();
        fs::write(folder.0.join("notes"), "mine").unwrap();
        assert!(folder.remove().is_err());
        assert!(folder.0.join("notes").exists());
    }
}
