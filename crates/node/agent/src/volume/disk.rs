//! The files of volumes: `volumes/<name>/disk.img` in the data directory, sparse and raw.
//!
//!   new             the mark of a directory whose volume may not exist yet
//!   copy            the mark of one whose volume is on another node, and may move here
//!   disk.img        the disk; whoever replaces it does so with a complete one
//!   fill-*          what is being fetched; of no worth to the next process
//!
//! Everything here blocks. Nothing here removes files that it does not know.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek, statvfs};

use super::plan::{DirectoryMark, FoundVolume};

const DISK: &str = "disk.img";
const MARKS: [(&str, DirectoryMark); 2] =
    [("new", DirectoryMark::New), ("copy", DirectoryMark::Copy)];
const SCRATCH: &str = "fill-";
/// Prefix of downloads for volumes that are kept elsewhere.
const LOOSE: &str = ".fill-";

/// The space that a new volume takes at once: a directory, an inode and their blocks. The disk
/// itself takes space as it is written.
pub(super) const ROOM: u64 = 16 << 20;

/// Freeing the blocks of a large file at once holds up other users of the file system.
const STEP: u64 = 1 << 30;
/// Copied between two checks of whether to go on.
const PIECE: usize = 16 << 20;

/// The directory of all volumes.
#[derive(Debug, Clone)]
pub(super) struct Disks {
    root: PathBuf,
}

/// Free and total bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystemSpace {
    pub(super) free: u64,
    pub(super) total: u64,
}

impl Disks {
    /// Users of machines pass through to their disks, and only pass.
    pub(super) fn open(root: PathBuf) -> io::Result<Self> {
        qemu::create_passable(&root)?;
        let root = root.canonicalize()?;
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(LOOSE) {
                gone(remove_slowly(&entry.path()))?;
            } else if name.starts_with(".pvc-") {
                // Directories that never got their name.
                remove_known(&entry.path())?;
            }
        }
        Ok(Self { root })
    }

    pub(super) fn dir(&self, volume: &str) -> PathBuf {
        self.root.join(volume)
    }

    pub(super) fn disk(&self, volume: &str) -> PathBuf {
        self.dir(volume).join(DISK)
    }

    /// A name for what is being fetched; no two are the same.
    pub(super) fn scratch(&self, volume: &str) -> PathBuf {
        let number = base::clock::now().as_nanosecond();
        if self.exists(volume) {
            return self.dir(volume).join(format!("{SCRATCH}{number:x}"));
        }
        // A volume that is kept elsewhere has no directory here.
        self.root.join(format!("{LOOSE}{volume}.{number:x}"))
    }

    pub(super) fn room(&self) -> io::Result<FileSystemSpace> {
        let stat = statvfs(&self.root)?;
        let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        // Some file systems have no fixed number of inodes and say so with zeros.
        let full = stat.f_files > 0 && stat.f_favail == 0;
        Ok(FileSystemSpace { free: if full { 0 } else { free }, total })
    }

    /// The existing directories, by the names of volumes.
    pub(super) fn scan(&self) -> io::Result<Vec<(String, FoundVolume)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.file_type()?.is_dir() && !name.starts_with('.') {
                found.push((name.clone(), self.inspect(&name)));
            }
        }
        Ok(found)
    }

    /// The state of one volume's directory.
    pub(super) fn inspect(&self, volume: &str) -> FoundVolume {
        let dir = self.dir(volume);
        let size = fs::metadata(dir.join(DISK)).ok().map(|data| data.len());
        let mark = MARKS.iter().find(|(name, _)| dir.join(name).exists());
        FoundVolume { mark: mark.map(|(_, mark)| *mark), size }
    }

    pub(super) fn exists(&self, volume: &str) -> bool {
        self.dir(volume).is_dir()
    }

    /// The volume whose disk a path is.
    pub(super) fn volume_of(&self, path: &Path) -> Option<String> {
        let dir = path.parent().filter(|_| path.file_name().is_some_and(|name| name == DISK))?;
        let name = dir.file_name().filter(|_| dir.parent() == Some(self.root.as_path()))?;
        name.to_str().map(str::to_owned)
    }

    /// Makes the directory with its mark, to distinguish it from one that holds data.
    pub(super) fn begin(&self, volume: &str, mark: DirectoryMark) -> io::Result<()> {
        let dir = self.dir(volume);
        if dir.is_dir() {
            return Ok(());
        }
        // The mark must be there as soon as the directory has its name.
        let temporary = self.root.join(format!(".{volume}"));
        let _ = remove_known(&temporary);
        qemu::create_passable(&temporary)?;
        for (name, _) in MARKS.iter().filter(|(_, own)| *own == mark) {
            File::create_new(temporary.join(name))?.sync_all()?;
        }
        sync(&temporary)?;
        fs::rename(&temporary, &dir)?;
        sync(&self.root)
    }

    /// Makes an empty disk of this length; one that is there is only made longer.
    pub(super) fn make(&self, volume: &str, size: u64) -> io::Result<()> {
        let path = self.disk(volume);
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        file.sync_all()?;
        sync(&self.dir(volume))
    }

    /// The volume exists; from now on only its removal removes the files.
    pub(super) fn settle(&self, volume: &str) -> io::Result<()> {
        let dir = self.dir(volume);
        for (name, _) in MARKS {
            gone(fs::remove_file(dir.join(name)))?;
        }
        sync(&dir)
    }

    /// Puts a complete disk into its place, at least `size` long.
    pub(super) fn publish(&self, volume: &str, complete: &Path, size: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(complete)?;
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(0), Some(0))?;
        }
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        file.sync_all()?;
        fs::rename(complete, self.disk(volume))?;
        sync(&self.dir(volume))
    }

    /// Removes what an earlier attempt left behind.
    pub(super) fn sweep(&self, volume: &str) -> io::Result<()> {
        let loose = format!("{LOOSE}{volume}.");
        for (dir, prefix) in [(self.dir(volume), SCRATCH), (self.root.clone(), loose.as_str())] {
            let entries = match fs::read_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(prefix) {
                    gone(remove_slowly(&entry.path()))?;
                }
            }
        }
        Ok(())
    }

    /// Removes a volume's files; it is no failure if they are gone.
    pub(super) fn remove(&self, volume: &str) -> io::Result<()> {
        remove_known(&self.dir(volume))?;
        sync(&self.root)
    }
}

fn remove_known(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_mark = MARKS.iter().any(|(mark, _)| name == *mark);
        if name == DISK || is_mark || name.starts_with(SCRATCH) {
            gone(remove_slowly(&entry.path()))?;
        }
    }
    gone(fs::remove_dir(dir))
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Shortens a file step by step before its name goes.
pub(crate) fn remove_slowly(path: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(path)?;
    // A file with another link is not truncated: it stays whole under the other name.
    if data.is_file() && data.nlink() == 1 && data.blocks() * 512 > STEP {
        let file = OpenOptions::new().write(true).open(path)?;
        let mut length = data.len();
        while length > STEP {
            length -= STEP;
            file.set_len(length)?;
        }
    }
    fs::remove_file(path)
}

pub(crate) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Copies a disk into a new file: shared blocks where the file system can, else the data
/// without the holes. `progress` gets the part that is done and says whether to go on.
pub(super) fn duplicate(
    from: &Path,
    to: &Path,
    mut progress: impl FnMut(f32) -> bool,
) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(to)?;
    if ioctl_ficlone(&target, &source).is_ok() {
        return target.sync_all();
    }
    let copied = copy(&source, &target, &mut progress).and_then(|()| target.sync_all());
    if copied.is_err() {
        let _ = fs::remove_file(to);
    }
    copied
}

fn copy(source: &File, target: &File, progress: &mut dyn FnMut(f32) -> bool) -> io::Result<()> {
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while at < length {
        let data = match seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = seek(source, SeekFrom::Hole(data))?;
        at = data;
        while at < hole {
            #[expect(clippy::cast_precision_loss, reason = "a percentage")]
            let part = at as f32 / length as f32;
            if !progress(part) {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            let most = usize::try_from(hole - at).unwrap_or(PIECE).min(PIECE);
            let copied = piece(source, target, at, most)?;
            if copied == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            at += copied as u64;
        }
    }
    Ok(())
}

/// In the kernel, or through here where the kernel cannot.
fn piece(source: &File, target: &File, at: u64, most: usize) -> io::Result<usize> {
    use rustix::io::Errno;
    use std::os::unix::fs::FileExt as _;
    let (mut from, mut to) = (at, at);
    match copy_file_range(source, Some(&mut from), target, Some(&mut to), most) {
        Ok(copied) => Ok(copied),
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            let mut buffer = vec![0; most.min(1 << 20)];
            let read = source.read_at(&mut buffer, at)?;
            target.write_all_at(&buffer[..read], at)?;
            Ok(read)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn disks() -> (tempfile::TempDir, Disks) {
        let folder = tempfile::tempdir().unwrap();
        let disks = Disks::open(folder.path().join("volumes")).unwrap();
        (folder, disks)
    }

    #[test]
    fn a_volume_is_made_settled_and_removed_and_each_step_may_be_repeated() {
        let (_folder, disks) = disks();
        for _ in 0..2 {
            disks.begin("pvc-1", DirectoryMark::New).unwrap();
            assert_eq!(disks.inspect("pvc-1").mark, Some(DirectoryMark::New));
            disks.make("pvc-1", 1 << 30).unwrap();
        }
        for _ in 0..2 {
            disks.settle("pvc-1").unwrap();
        }
        let found = disks.scan().unwrap();
        assert_eq!(found, [("pvc-1".into(), FoundVolume { mark: None, size: Some(1 << 30) })]);
        assert_eq!(fs::metadata(disks.disk("pvc-1")).unwrap().blocks(), 0);
        assert_eq!(disks.volume_of(&disks.disk("pvc-1")).as_deref(), Some("pvc-1"));
        assert_eq!(disks.volume_of(&disks.disk("a/pvc-1")), None, "it is in another directory");
        disks.make("pvc-1", 1 << 20).unwrap();
        assert_eq!(disks.inspect("pvc-1").size, Some(1 << 30), "a disk never shrinks");
        for _ in 0..2 {
            disks.remove("pvc-1").unwrap();
        }
        assert!(!disks.exists("pvc-1"));
    }

    #[test]
    fn foreign_files_stay() {
        let (_folder, disks) = disks();
        disks.begin("pvc-1", DirectoryMark::New).unwrap();
        fs::write(disks.dir("pvc-1").join("notes.txt"), "mine").unwrap();
        assert!(disks.remove("pvc-1").is_err());
        assert!(disks.dir("pvc-1").join("notes.txt").exists());
    }

    #[test]
    fn leftovers_are_swept_and_the_disk_stays() {
        let (_folder, disks) = disks();
        disks.begin("pvc-1", DirectoryMark::New).unwrap();
        disks.make("pvc-1", 4096).unwrap();
        fs::write(disks.scratch("pvc-1"), "half").unwrap();
        disks.sweep("pvc-1").unwrap();
        let names: Vec<_> = fs::read_dir(disks.dir("pvc-1")).unwrap().collect();
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn a_copy_has_the_data_and_the_holes() {
        let (folder, _) = disks();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        let source = File::create_new(&from).unwrap();
        source.set_len(64 << 20).unwrap();
        source.write_all_at(b"begin", 0).unwrap();
        source.write_all_at(b"middle", 20 << 20).unwrap();
        duplicate(&from, &to, |_| true).unwrap();
        let copy = File::open(&to).unwrap();
        let mut seen = [0; 6];
        copy.read_exact_at(&mut seen, 20 << 20).unwrap();
        assert_eq!(&seen, b"middle");
        let data = copy.metadata().unwrap();
        assert_eq!(data.len(), 64 << 20);
        assert!(data.blocks() * 512 < 4 << 20, "{} blocks", data.blocks());
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    }

    #[test]
    fn a_copy_that_is_stopped_leaves_nothing() {
        let (folder, _) = disks();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&from, vec![1; 1 << 20]).unwrap();
        // Where blocks are shared there is nothing to stop.
        if duplicate(&from, &to, |_| false).is_err() {
            assert!(!to.exists());
        }
    }
}
