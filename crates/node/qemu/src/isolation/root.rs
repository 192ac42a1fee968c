//! The files and directories in the root of a guest's QEMU: those of the machine, and of the host as
//! far as it has them.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::FileType;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::machine::{Disk, DiskSource, FileImage, Firmware, Machine};

/// Programs and libraries. Links among them, as from `/lib`, stay links.
const SYSTEM: [&str; 9] =
    ["/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix", "/gnu"];
/// Settings that libraries read.
const SETTINGS: [&str; 7] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/crypto-policies",
    "/etc/gnutls",
    "/etc/localtime",
];
const DEVICES: [&str; 10] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/kvm",
    "/dev/vhost-net",
    "/dev/vhost-vsock",
    "/dev/userfaultfd",
    "/dev/hugepages",
];

/// Where the root is made: every host has the directory, and nothing of it is shown.
pub(super) const PLACE: &str = "/proc";

/// One step to the new root, in order. Paths are absolute; those in the root begin with the place
/// where it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Directory(CString),
    /// A file to bind another one over.
    File(CString),
    Link {
        target: CString,
        at: CString,
    },
    Bind {
        from: CString,
        to: CString,
        /// With what is mounted below.
        recursive: bool,
    },
    /// Makes the bind mount there read-only.
    ReadOnly(CString),
}

/// The root of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootPlan {
    pub(super) steps: Vec<Step>,
    /// The directory for `/proc`.
    pub(super) processes: CString,
    /// Where the program works.
    pub(super) work: CString,
}

/// The kind of something on the host that is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link(PathBuf),
}

impl RootPlan {
    /// For `program`, which works in `work` and sees these paths of the host: files to be read or
    /// written, and directories with what is in them. Paths that the host does not have are left
    /// out: the program says what it misses.
    pub(crate) fn new(program: &Path, work: &Path, paths: &BTreeSet<PathBuf>) -> io::Result<Self> {
        let mut builder = Builder::default();
        let system = SYSTEM.iter().map(Path::new);
        // A program that was installed elsewhere comes with its directory.
        let program = program.parent().filter(|dir| dir.is_absolute() && !is_system(dir));
        for path in system.chain(program) {
            builder.show(path, true)?;
        }
        for path in SETTINGS {
            builder.show(Path::new(path), true)?;
        }
        builder.show(Path::new("/sys"), true)?;
        for path in DEVICES {
            builder.show(Path::new(path), false)?;
        }
        // Files in a directory that is shown are there already.
        let dirs: Vec<&PathBuf> = paths.iter().filter(|path| path.is_dir()).collect();
        let is_below = |path: &Path| dirs.iter().any(|dir| path != **dir && path.starts_with(dir));
        for path in paths.iter().filter(|path| is_plain(path) && !is_system(path)) {
            if !is_below(path) {
                builder.show(path, false)?;
            }
        }
        let processes = builder.directory(Path::new("/proc"))?;
        Ok(Self { steps: builder.steps, processes, work: c(work)? })
    }
}

/// Whether a path is among the programs and libraries.
fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|top| path.starts_with(top))
}

#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
    /// Directories of the root that exist at this point.
    made: BTreeSet<PathBuf>,
}

impl Builder {
    /// Shows what the host has at `path`, if anything.
    fn show(&mut self, path: &Path, read_only: bool) -> io::Result<()> {
        let Some(kind) = kind(path) else { return Ok(()) };
        self.above(path)?;
        let (from, to) = (c(path)?, inside(path)?);
        match kind {
            Kind::Link(target) => {
                self.steps.push(Step::Link { target: c(&target)?, at: to });
                return Ok(());
            }
            Kind::Directory => drop(self.directory(path)?),
            Kind::File => self.steps.push(Step::File(to.clone())),
        }
        let recursive = SYSTEM.iter().any(|top| path == Path::new(top));
        self.steps.push(Step::Bind { from, to: to.clone(), recursive });
        if read_only {
            self.steps.push(Step::ReadOnly(to));
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path) -> io::Result<CString> {
        let inside = inside(path)?;
        self.above(path)?;
        if self.made.insert(path.to_owned()) {
            self.steps.push(Step::Directory(inside.clone()));
        }
        Ok(inside)
    }

    fn above(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.pop();
        for dir in above.into_iter().rev() {
            if self.made.insert(dir.to_owned()) {
                let inside = inside(dir)?;
                self.steps.push(Step::Directory(inside));
            }
        }
        Ok(())
    }
}

/// A path of the root as long as it is not the root.
fn inside(path: &Path) -> io::Result<CString> {
    c(&Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path)))
}

/// The kind that `path` of the host gets in the root: a link only if it is one of the system.
fn kind(path: &Path) -> Option<Kind> {
    let found = std::fs::symlink_metadata(path).ok()?;
    let is_system = SYSTEM.iter().any(|top| path == Path::new(top));
    if is_system && found.is_symlink() {
        return Some(Kind::Link(std::fs::read_link(path).ok()?));
    }
    let of = |kind: FileType| if kind.is_dir() { Kind::Directory } else { Kind::File };
    std::fs::metadata(path).ok().map(|found| of(found.file_type()))
}

/// The paths of the host that QEMU opens for a machine, each once.
pub(crate) fn machine_paths(machine: &Machine) -> BTreeSet<PathBuf> {
    let mut all: BTreeSet<PathBuf> = machine.disks.iter().flat_map(disk_paths).collect();
    if let Firmware::Efi(efi) = &machine.firmware {
        all.extend([efi.code.clone(), efi.vars.clone()]);
    }
    if let Some(kernel) = &machine.kernel {
        all.insert(kernel.image.clone());
        all.extend(kernel.initrd.clone());
    }
    all
}

/// Whether a path leads down only.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// The paths of the host that QEMU opens for a disk: files, devices, and directories of sockets.
pub(crate) fn disk_paths(disk: &Disk) -> Vec<PathBuf> {
    let beside = |socket: &Path| socket.parent().map(Path::to_owned);
    let found: Vec<PathBuf> = match &disk.source {
        DiskSource::Empty => Vec::new(),
        DiskSource::File(image) => chain(image),
        DiskSource::BlockDevice { path } => vec![path.clone()],
        DiskSource::Nbd { socket, .. } | DiskSource::VhostUser { socket } => {
            beside(socket).into_iter().collect()
        }
        DiskSource::Overlay { path, socket, .. } => {
            [path.clone()].into_iter().chain(beside(socket)).collect()
        }
    };
    found.into_iter().filter(|path| path.is_absolute() && is_plain(path)).collect()
}

/// An image and those below it.
fn chain(image: &FileImage) -> Vec<PathBuf> {
    let mut all = vec![image.path.clone()];
    all.extend(image.backing.iter().flat_map(|below| chain(below)));
    all
}

fn c(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Bus;

    fn machine(sources: Vec<DiskSource>) -> Machine {
        let mut machine = Machine::new("m", "u", 1 << 20);
        let disks = sources.into_iter().enumerate();
        machine.disks =
            disks.map(|(at, it)| Disk::new(format!("d{at}"), Bus::Virtio, it)).collect();
        machine
    }

    #[test]
    fn a_machine_is_shown_what_its_disks_are_made_of() {
        let mut overlay = FileImage::qcow2("/data/top.qcow2");
        overlay.backing = Some(Box::new(FileImage::raw("/cache/base")));
        let sources = vec![
            DiskSource::File(overlay),
            DiskSource::File(FileImage::raw("/data/../etc/shadow")),
            DiskSource::BlockDevice { path: "/dev/sdz".into() },
            DiskSource::Nbd {
                socket: "/n/7.sock".into(),
                export: String::new(),
                reconnect_delay: 1,
            },
            DiskSource::Empty,
        ];
        let shown: Vec<PathBuf> = machine_paths(&machine(sources)).into_iter().collect();
        let expected = ["/cache/base", "/data/top.qcow2", "/dev/sdz", "/n"].map(PathBuf::from);
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_root_has_the_run_directory_and_the_disks_and_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["run/one/vm", "run/two", "disks"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for disk in ["disks/one", "disks/two"] {
            std::fs::write(at(disk), "").unwrap();
        }
        let machine = machine(vec![
            DiskSource::File(FileImage::raw(at("disks/one"))),
            DiskSource::File(FileImage::raw(at("run/one/seed.iso"))),
            DiskSource::File(FileImage::raw(at("disks/missing"))),
        ]);
        let own = at("run/one");
        let program = Path::new("/usr/bin/qemu-system-x86_64");
        let mut paths = machine_paths(&machine);
        paths.insert(own.clone());
        let plan = RootPlan::new(program, &own.join("vm"), &paths).unwrap();
        let bound: Vec<PathBuf> = plan
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Bind { from, .. } => Some(PathBuf::from(from.to_str().unwrap())),
                _ => None,
            })
            .filter(|path| path.starts_with(dir.path()))
            .collect();
        assert_eq!(bound, [at("disks/one"), own]);
        for secret in ["/root", "/home", "/etc/shadow", "/etc", "/var", "/run", "/tmp", "/dev"] {
            let from = CString::new(secret).unwrap();
            let shows = |step: &Step| matches!(step, Step::Bind { from: it, .. } if *it == from);
            assert!(!plan.steps.iter().any(shows), "{secret}");
        }
    }
}
