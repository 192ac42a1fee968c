//! The files of an image, in `backing-images/<name>-<uid>/` on its disk.
//!
//!   download        what was fetched so far, as it came, but for what went to the disk
//!   disk            what of it is known to belong to the disk, at its place (see `intake`)
//!   download.json   of which content that is a part, so that it can be gone on with
//!   work-*          what it is unpacked to; of no worth to the next process
//!   image.json      the facts to report of the complete image; written before it
//!   backing         the complete image: raw, never written again
//!   backing.sums, checked.json   see `check`
//!
//! A complete image may be used before it is summed; `download` goes when it is. After a crash
//! of the process all that was written is there. After one of the machine only what was synced
//! is, so how much that is is noted from time to time.
//!
//! Everything here blocks. Nothing here removes files that it does not know.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use bytes::Bytes;
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha512};

use super::check::FILES;
use super::intake::{self, ImageForm, ImageIntake};
use crate::backing_image::complete;
use crate::storage::StorageUser;
use crate::volume::{ContentMark, hex, remove_slowly, sync};

const DOWNLOAD: &str = "download";
const DISK: &str = "disk";
const MARK: &str = "download.json";
const FACTS: &str = "image.json";
const WORK: &str = "work-";
/// The mark of an upload, which no server gives to a download.
pub(super) const UPLOAD: &str = "upload";
/// Disks are whole sectors.
const SECTOR: u64 = 512;
/// Comes in before it is synced, beside what comes next.
const SYNCED: u64 = 64 << 20;
/// Chunks between who writes and who sums.
const IN_FLIGHT: usize = 8;

/// Reported properties of a complete image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageFacts {
    /// Bytes of what was fetched, and their SHA-512, empty as long as it is unknown.
    pub(super) size: u64,
    pub(super) checksum: String,
    /// Bytes of the disk.
    pub(super) virtual_size: u64,
    pub(super) real_size: u64,
    /// Bytes of the file, where it holds more than the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file_size: Option<u64>,
}

/// Result of a download.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) size: u64,
    /// Empty unless it was asked for.
    pub(super) checksum: String,
    /// Bytes of the disk in it, where it holds more than that.
    pub(super) disk: Option<u64>,
    pub(super) form: ImageForm,
}

/// Metadata of a download besides its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct DownloadRecord {
    /// Nothing if it cannot be gone on with.
    mark: Option<ContentMark>,
    /// The start of the machine since which everything is there that was written.
    boot: String,
    /// The bytes that are present after any other start of the machine.
    synced: u64,
    /// It was put together again.
    is_whole: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// Makes it, and removes what is of no worth.
    pub(super) fn open(&self) -> io::Result<()> {
        // The image converter's user may traverse the folder, and do nothing else.
        qemu::create_passable(&self.0)?;
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

    pub(super) fn disk(&self) -> PathBuf {
        self.0.join(DISK)
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
    pub(super) fn facts(&self) -> Option<ImageFacts> {
        let facts: ImageFacts = serde_json::from_slice(&fs::read(self.0.join(FACTS)).ok()?).ok()?;
        let length = fs::metadata(complete(&self.0)).ok()?.len();
        (length == facts.file_size.unwrap_or(facts.virtual_size)).then_some(facts)
    }

    /// The length of a partial download, and the mark of its content.
    pub(super) fn partial(&self) -> Option<(u64, ContentMark)> {
        let note = self.noted()?;
        let length = fs::metadata(self.download()).ok()?.len();
        let length = if note.boot == boot() { length } else { length.min(note.synced) };
        Some((length, note.mark?)).filter(|(length, _)| *length > 0)
    }

    fn noted(&self) -> Option<DownloadRecord> {
        serde_json::from_slice(&fs::read(self.0.join(MARK)).ok()?).ok()
    }

    /// How much there is of an upload that may go on.
    pub(super) fn uploaded(&self) -> u64 {
        let part = self.partial().filter(|(_, mark)| mark.validator == UPLOAD);
        part.map_or(0, |(length, _)| length)
    }

    /// Records the start of a download, with the data needed to resume it.
    pub(super) fn note(&self, mark: Option<&ContentMark>) -> io::Result<()> {
        self.write(&DownloadRecord {
            mark: mark.cloned(),
            boot: boot(),
            synced: 0,
            is_whole: false,
        })
    }

    fn write(&self, note: &DownloadRecord) -> io::Result<()> {
        self.replace(MARK, &serde_json::to_vec(note)?)
    }

    /// Forgets what was fetched.
    pub(super) fn start_over(&self) -> io::Result<()> {
        gone(remove_slowly(&self.download()))?;
        gone(remove_slowly(&self.disk()))?;
        gone(fs::remove_file(self.0.join(MARK)))
    }

    /// Takes what comes, after the first `at` bytes that are there already, and sums all of it
    /// if that is wanted.
    pub(super) fn store(&self, mut from: impl Read, at: u64, sums: bool) -> io::Result<Fetched> {
        let note = self.noted();
        let is_whole = note.as_ref().is_some_and(|note| note.is_whole);
        let mut intake = ImageIntake::open(&self.download(), &self.disk(), at, is_whole)?;
        let files = intake.files()?;
        std::thread::scope(|scope| {
            let (due, dues) = mpsc::sync_channel(1);
            scope.spawn(move || self.sync(note, &files, &dues));
            let (tap, came) = mpsc::sync_channel(IN_FLIGHT);
            let summing = sums.then(|| scope.spawn(move || self.sum_along(at, is_whole, &came)));
            let mut synced = at;
            let taken = intake.take(&mut from, |bytes, at| {
                if sums {
                    // A receiver that is gone has failed, and reports its error in the end.
                    let _ = tap.send(Bytes::copy_from_slice(bytes));
                }
                if at >= synced + SYNCED {
                    synced = at;
                    let _ = due.try_send(at);
                }
            });
            drop((due, tap));
            let sum = summing.map(|thread| thread.join().expect("it does not panic"));
            let (size, form) = taken?;
            let checksum = sum.transpose()?.unwrap_or_default();
            Ok(Fetched { size, checksum, disk: None, form })
        })
    }

    /// Has what came written while more comes, and notes how much is safe.
    fn sync(
        &self,
        mut note: Option<DownloadRecord>,
        files: &(File, File),
        dues: &mpsc::Receiver<u64>,
    ) {
        while let Ok(at) = dues.recv() {
            let synced = files.0.sync_data().and_then(|()| files.1.sync_data());
            if let Some(note) = note.as_mut().filter(|note| synced.is_ok() && note.mark.is_some()) {
                (note.boot, note.synced) = (boot(), at);
                if let Err(error) = self.write(note) {
                    tracing::debug!(%error, "cannot note how much of an image is safe");
                }
            }
        }
    }

    fn sum_along(
        &self,
        at: u64,
        is_whole: bool,
        came: &mpsc::Receiver<Bytes>,
    ) -> io::Result<String> {
        let mut hasher = Sha512::new();
        if at > 0 {
            let each = |part: &[u8]| {
                hasher.update(part);
                true
            };
            intake::replay(&self.download(), &self.disk(), at, is_whole, each)?;
        }
        while let Ok(bytes) = came.recv() {
            hasher.update(&bytes);
        }
        Ok(hex(&hasher.finalize()))
    }

    /// Puts together again what was taken apart in vain.
    pub(super) fn restore(&self, size: u64) -> io::Result<()> {
        intake::restore(&self.download(), &self.disk(), size)?;
        let (boot, mark) = (boot(), self.noted().and_then(|note| note.mark));
        self.write(&DownloadRecord { mark, boot, synced: 0, is_whole: true })?;
        remove_slowly(&self.disk())
    }

    /// Puts a raw disk into its place; from then on it is complete.
    pub(super) fn publish(&self, disk: &Path, fetched: &Fetched) -> io::Result<ImageFacts> {
        let file = OpenOptions::new().write(true).open(disk)?;
        let length = file.metadata()?.len().next_multiple_of(SECTOR);
        file.set_len(length)?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(0), Some(0))?;
        }
        file.set_permissions(fs::Permissions::from_mode(0o400))?;
        file.sync_all()?;
        let facts = ImageFacts {
            size: fetched.size,
            checksum: fetched.checksum.clone(),
            virtual_size: fetched.disk.unwrap_or(length),
            real_size: file.metadata()?.blocks() * 512,
            file_size: fetched.disk.map(|_| length),
        };
        self.replace(FACTS, &serde_json::to_vec(&facts)?)?;
        fs::rename(disk, complete(&self.0))?;
        self.share()?;
        sync(&self.0)?;
        Ok(facts)
    }

    /// Lets the storage process read the complete image and its checksums.
    pub(super) fn share(&self) -> io::Result<()> {
        StorageUser::of_host().map_or(Ok(()), |user| user.share_image(&complete(&self.0)))
    }

    /// Whether nothing is left of what a complete image was made of.
    pub(super) fn is_settled(&self) -> bool {
        ![DOWNLOAD, DISK, MARK].iter().any(|name| self.0.join(name).exists())
    }

    /// The properties of a complete image, summed if that has not been done and its source is
    /// still there. `goes_on` says whether to go on.
    pub(super) fn sum(&self, goes_on: impl Fn() -> bool) -> io::Result<Option<ImageFacts>> {
        let Some(mut facts) = self.facts() else { return Ok(None) };
        let has_all = fs::metadata(self.download()).is_ok_and(|data| data.len() == facts.size);
        if facts.checksum.is_empty() && has_all {
            let is_whole = self.noted().is_some_and(|note| note.is_whole);
            let mut hasher = Sha512::new();
            let each = |part: &[u8]| {
                hasher.update(part);
                goes_on()
            };
            intake::replay(&self.download(), &complete(&self.0), facts.size, is_whole, each)?;
            facts.checksum = hex(&hasher.finalize());
            self.replace(FACTS, &serde_json::to_vec(&facts)?)?;
        }
        Ok(Some(facts))
    }

    pub(super) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
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
        // Without these the rest is not taken for an image.
        gone(fs::remove_file(self.0.join(FACTS)))?;
        let backing = complete(&self.0);
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_known = [DOWNLOAD, DISK, MARK].iter().chain(&FILES).any(|known| *known == name)
                || name.starts_with(WORK);
            if is_known || path == backing {
                gone(remove_slowly(&path))?;
            }
        }
        gone(fs::remove_dir(&self.0))
    }
}

/// The start of this machine.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
