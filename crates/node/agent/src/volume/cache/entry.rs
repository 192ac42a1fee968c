//! The directory of container disks. Blocking, except for [`Shelf::find`] and the like, which
//! read a few small files.
//!
//!   images/<key>/disk.img     the raw disk
//!                             key: the digest, and a hash of repository and file
//!   images/<key>/info.json    the names that it was pulled by; its age is that of the last use
//!   images/.pull-*/           what is being pulled; of no worth to the next process

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ContainerDisk;
use crate::volume::checksum::hex;
use crate::volume::disk::{remove_slowly, sync};

const DISK: &str = "disk.img";
const INFO: &str = "info.json";
const PULLING: &str = ".pull-";

/// An unused image is kept this long.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// And this long when room is short: a machine may use it soon.
const KEPT_WHEN_TIGHT: SignedDuration = SignedDuration::from_mins(5);
/// Parts of a hundred that are free when room is short.
const TIGHT: u64 = 15;

/// Groups that may read container disks, beside those of shared disks.
const GROUPS: u32 = 0x7300_0000;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Info {
    images: BTreeSet<String>,
    /// Namespaces that the registry has given the image to, with their own credentials.
    #[serde(default)]
    namespaces: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

/// The directory; clones share it.
#[derive(Debug, Clone)]
pub(super) struct CacheDir {
    root: PathBuf,
    /// Held by who changes names or removes.
    changing: Arc<Mutex<()>>,
}

/// The images that machines of this node use, and the files in them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used(BTreeSet<(String, Option<String>)>);

impl Used {
    pub(super) fn of<'a>(vmis: impl Iterator<Item = &'a Value>) -> Self {
        let live = vmis
            .filter(|vmi| !matches!(vmi["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
        Self(live.flat_map(|vmi| disks(vmi).chain(kernel(vmi))).collect())
    }

    fn has(&self, info: &Info) -> bool {
        info.images.iter().any(|image| self.0.contains(&(image.clone(), info.path.clone())))
    }
}

fn used(image: &Value, path: &Value) -> Option<(String, Option<String>)> {
    Some((image.as_str()?.to_owned(), path.as_str().map(str::to_owned)))
}

fn disks(vmi: &Value) -> impl Iterator<Item = (String, Option<String>)> + '_ {
    let volumes = vmi["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| {
        let disk = &volume["containerDisk"];
        used(&disk["image"], &disk["path"])
    })
}

fn kernel(vmi: &Value) -> impl Iterator<Item = (String, Option<String>)> + '_ {
    let container = &vmi["spec"]["domain"]["firmware"]["kernelBoot"]["container"];
    let paths = ["kernelPath", "initrdPath"].map(|path| &container[path]);
    paths.into_iter().filter_map(|path| used(&container["image"], path))
}

/// The name of the directory for one file of an image. The same digest in another repository is
/// another entry: its registry proves that it has the layers only by sending them. A manifest is no
/// secret, and any registry can serve a copy of one.
pub(super) fn key(repository: &str, digest: &str, path: Option<&str>) -> String {
    let digest = digest.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    // No repository has the character in between.
    let origin = format!("{repository}\n{}", path.unwrap_or_default());
    format!("{digest}-{}", &hex(&Sha256::digest(origin))[..16])
}

/// A directory that goes when it is dropped, with what is left in it.
#[derive(Debug)]
pub(super) struct Pulling(PathBuf);

impl Pulling {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl CacheDir {
    pub(super) fn open(root: PathBuf) -> io::Result<Self> {
        qemu::create_passable(&root)?;
        for entry in fs::read_dir(&root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PULLING) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self { root: root.canonicalize()?, changing: Arc::default() })
    }

    /// A place to pull to. The reader of images must be able to pass through.
    pub(super) fn begin(&self) -> io::Result<Pulling> {
        let folder = self.root.join(format!("{PULLING}{:x}", clock::now().as_nanosecond()));
        qemu::create_passable(&folder)?;
        Ok(Pulling(folder))
    }

    /// The disk that was pulled by this name last. A namespace that has not pulled it has to ask
    /// the registry first.
    pub(super) fn find(
        &self,
        namespace: &str,
        image: &str,
        path: Option<&str>,
    ) -> Option<ContainerDisk> {
        let entries = fs::read_dir(&self.root).ok()?;
        let newest = entries
            .filter_map(|entry| {
                let key = entry.ok()?.file_name().into_string().ok()?;
                let info = self.info(&key)?;
                let named = info.images.contains(image) && info.path.as_deref() == path;
                let age = fs::metadata(self.root.join(&key).join(INFO)).ok()?.modified().ok()?;
                named.then_some((age, key, info.namespaces.contains(namespace)))
            })
            .max()
            .filter(|(.., is_authorized)| *is_authorized)?;
        let disk = self.disk(&newest.1);
        self.touch(&newest.1);
        disk.path.exists().then_some(disk)
    }

    /// Notes that a disk which is here has this name now, and may be used by a namespace.
    pub(super) fn name(
        &self,
        key: &str,
        namespace: &str,
        image: &str,
        path: Option<&str>,
    ) -> io::Result<Option<ContainerDisk>> {
        let _changing = self.changing.lock();
        let disk = self.disk(key);
        if !disk.path.exists() {
            return Ok(None);
        }
        // A tag that has moved on means the newer image.
        for other in self.keys()? {
            if other != key
                && let Some(mut info) = self.info(&other)
                && info.path.as_deref() == path
                && info.images.remove(image)
            {
                write(&self.root.join(&other), &info)?;
            }
        }
        let mut info = self.info(key).unwrap_or_default();
        info.path = path.map(str::to_owned);
        info.images.insert(image.to_owned());
        info.namespaces.insert(namespace.to_owned());
        write(&self.root.join(key), &info)?;
        Ok(Some(disk))
    }

    /// Takes a complete disk in.
    pub(super) fn keep(
        &self,
        key: &str,
        folder: &Pulling,
        disk: &Path,
        wanted: (&str, &str, Option<&str>),
    ) -> io::Result<ContainerDisk> {
        let (namespace, image, path) = wanted;
        let file = File::open(disk)?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(0), Some(group(key)))?;
            file.set_permissions(fs::Permissions::from_mode(0o440))?;
        } else {
            file.set_permissions(fs::Permissions::from_mode(0o400))?;
        }
        file.sync_all()?;
        fs::rename(disk, folder.path().join(DISK))?;
        sync(folder.path())?;
        match fs::rename(folder.path(), self.root.join(key)) {
            // Another pull of the same has ended.
            Err(_) if self.disk(key).path.exists() => {}
            renamed => renamed?,
        }
        sync(&self.root)?;
        let kept = self.name(key, namespace, image, path)?;
        kept.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Removes unused images; answers their names.
    pub(super) fn collect(&self, used: &Used, now: Timestamp) -> io::Result<Vec<String>> {
        let stat = rustix::fs::statvfs(&self.root)?;
        let tight = stat.f_bavail * 100 < stat.f_blocks * TIGHT;
        let _changing = self.changing.lock();
        let mut removed = Vec::new();
        for key in self.keys()? {
            let info = self.info(&key).unwrap_or_default();
            let age =
                self.last_use(&key).map_or(SignedDuration::MAX, |last| now.duration_since(last));
            if !used.has(&info) && is_old(age, tight) {
                let dir = self.root.join(&key);
                remove_slowly(&dir.join(DISK))?;
                fs::remove_dir_all(&dir)?;
                removed.push(key);
            }
        }
        Ok(removed)
    }

    fn keys(&self) -> io::Result<Vec<String>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            match entry?.file_name().into_string() {
                Ok(name) if name.starts_with("sha") => keys.push(name),
                _ => {}
            }
        }
        Ok(keys)
    }

    fn disk(&self, key: &str) -> ContainerDisk {
        let group = rustix::process::geteuid().is_root().then(|| group(key));
        ContainerDisk { path: self.root.join(key).join(DISK), group }
    }

    fn info(&self, key: &str) -> Option<Info> {
        serde_json::from_slice(&fs::read(self.root.join(key).join(INFO)).ok()?).ok()
    }

    fn last_use(&self, key: &str) -> Option<Timestamp> {
        let modified = fs::metadata(self.root.join(key).join(INFO)).ok()?.modified().ok()?;
        Timestamp::try_from(modified).ok()
    }

    fn touch(&self, key: &str) {
        let now = Duration::try_from(clock::now().as_duration()).unwrap_or_default();
        if let Ok(file) = File::options().write(true).open(self.root.join(key).join(INFO)) {
            let _ = file.set_modified(std::time::UNIX_EPOCH + now);
        }
    }
}

/// Whether an unused image may be removed.
fn is_old(age: SignedDuration, tight: bool) -> bool {
    age > if tight { KEPT_WHEN_TIGHT } else { KEPT }
}

fn group(key: &str) -> u32 {
    let hash = Sha256::digest(key);
    GROUPS + (u32::from(hash[0]) << 8) + u32::from(hash[1])
}

fn write(dir: &Path, info: &Info) -> io::Result<()> {
    let temporary = dir.join("info.new");
    fs::write(&temporary, serde_json::to_vec(info)?)?;
    File::open(&temporary)?.sync_all()?;
    fs::rename(&temporary, dir.join(INFO))
}

#[cfg(test)]
mod tests;
