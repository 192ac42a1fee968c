//! Control groups: which of the two hierarchies the host has, and a group per machine.
//!
//! Groups lie in a `sheaf` group at the top, not below the one that we were started in: a
//! service manager that stops us ends everything in ours.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const PARENT: &str = "sheaf";
const PERIOD_MICROS: u64 = 100_000;
/// Missing where the kernel has neither BFQ nor io.cost, or its `io` controller is used elsewhere.
const IO_WEIGHT: &str = "io.weight";

/// Where the host keeps the controllers that we use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One hierarchy with all controllers.
    Unified { root: PathBuf },
    /// A hierarchy per controller.
    Split { cpu: Option<PathBuf>, memory: Option<PathBuf> },
}

/// Resource limits of a machine; `None` is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Share of the processors when they are scarce; 100 is ordinary, 1 to 10000.
    pub cpu_weight: Option<u32>,
    /// Thousandths of a processor.
    pub cpu_quota: Option<u32>,
    /// Share of the host's disks when they are busy; 100 is ordinary, 1 to 10000. Needs a unified
    /// hierarchy and a kernel that divides disks.
    pub io_weight: Option<u32>,
    /// The expected use. Memory above it is reclaimed first, and nothing is killed: an estimate is
    /// no reason to end a guest.
    pub memory: Option<u64>,
}

/// Decides from `/proc/self/mountinfo`, and from which controllers a unified mount offers.
pub fn choose(mountinfo: &str, controllers: impl Fn(&Path) -> String) -> Option<Layout> {
    let mounts: Vec<(PathBuf, &str, Vec<&str>)> = mountinfo.lines().filter_map(mount).collect();
    for (point, kind, _) in &mounts {
        let offered = controllers(point);
        let offers = |name: &str| offered.split_whitespace().any(|word| word == name);
        if *kind == "cgroup2" && offers("cpu") && offers("memory") {
            return Some(Layout::Unified { root: point.clone() });
        }
    }
    let find = |controller: &str| {
        let of = mounts
            .iter()
            .find(|(_, kind, options)| *kind == "cgroup" && options.contains(&controller));
        of.map(|(point, ..)| point.clone())
    };
    let (cpu, memory) = (find("cpu"), find("memory"));
    (cpu.is_some() || memory.is_some()).then_some(Layout::Split { cpu, memory })
}

/// Mount point, type and super-block options of a line of mountinfo.
fn mount(line: &str) -> Option<(PathBuf, &str, Vec<&str>)> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    let mut after = after.split(' ');
    let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
    Some((PathBuf::from(point), kind, options.split(',').collect()))
}

/// The cgroup layout of this host.
pub fn detect() -> io::Result<Option<Layout>> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let controllers =
        |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    Ok(choose(&mountinfo, controllers))
}

/// The files to write for these limits, relative to the machine's group.
fn settings(layout: &Layout, limits: &Limits) -> Vec<(PathBuf, &'static str, String)> {
    let mut settings = Vec::new();
    match layout {
        Layout::Unified { root } => {
            if let Some(weight) = limits.cpu_weight {
                settings.push((root.clone(), "cpu.weight", weight.clamp(1, 10_000).to_string()));
            }
            if let Some(quota) = limits.cpu_quota {
                let micros = quota_micros(quota);
                settings.push((root.clone(), "cpu.max", format!("{micros} {PERIOD_MICROS}")));
            }
            if let Some(memory) = limits.memory {
                settings.push((root.clone(), "memory.high", memory.to_string()));
            }
            if let Some(weight) = limits.io_weight {
                let weight = weight.clamp(1, 10_000);
                settings.push((root.clone(), IO_WEIGHT, format!("default {weight}")));
            }
        }
        Layout::Split { cpu, memory } => {
            if let (Some(root), Some(weight)) = (cpu, limits.cpu_weight) {
                // The two scales: an ordinary group weighs 100 in one and 1024 in the other.
                let shares = (u64::from(weight) * 1024 / 100).clamp(2, 262_144);
                settings.push((root.clone(), "cpu.shares", shares.to_string()));
            }
            if let (Some(root), Some(quota)) = (cpu, limits.cpu_quota) {
                settings.push((root.clone(), "cpu.cfs_period_us", PERIOD_MICROS.to_string()));
                let micros = quota_micros(quota);
                settings.push((root.clone(), "cpu.cfs_quota_us", micros.to_string()));
            }
            if let (Some(root), Some(bytes)) = (memory, limits.memory) {
                settings.push((root.clone(), "memory.soft_limit_in_bytes", bytes.to_string()));
            }
        }
    }
    settings
}

fn quota_micros(thousandths: u32) -> u64 {
    // The kernel refuses less than a millisecond.
    (u64::from(thousandths) * PERIOD_MICROS / 1000).max(1000)
}

fn roots(layout: &Layout) -> Vec<&PathBuf> {
    match layout {
        Layout::Unified { root } => vec![root],
        Layout::Split { cpu, memory } => {
            let mut roots: Vec<&PathBuf> = cpu.iter().chain(memory).collect();
            roots.dedup();
            roots
        }
    }
}

/// Makes the group of a machine and opens the files through which its process enters.
pub(crate) fn create(layout: &Layout, name: &str, limits: &Limits) -> io::Result<Vec<File>> {
    let mut entrances = Vec::new();
    for root in roots(layout) {
        let parent = root.join(PARENT);
        fs::create_dir_all(&parent)?;
        if let Layout::Unified { .. } = layout {
            for group in [root, &parent] {
                let control = group.join("cgroup.subtree_control");
                fs::write(&control, "+cpu +memory")?;
                // Each guest gets the same share of a busy disk then. It is no reason not to start
                // one if that cannot be had.
                let _ = fs::write(&control, "+io");
            }
        }
        fs::create_dir_all(parent.join(name))?;
        let entrance = parent.join(name).join("cgroup.procs");
        entrances.push(OpenOptions::new().write(true).open(entrance)?);
    }
    apply(layout, name, limits)?;
    Ok(entrances)
}

/// Changes the limits of a machine that runs.
pub fn apply(layout: &Layout, name: &str, limits: &Limits) -> io::Result<()> {
    for (root, file, value) in settings(layout, limits) {
        let path = root.join(PARENT).join(name).join(file);
        if file != IO_WEIGHT || path.exists() {
            fs::write(path, value)?;
        }
    }
    Ok(())
}

/// Removes the group of a machine whose process is gone.
pub fn remove(layout: &Layout, name: &str) -> io::Result<()> {
    for root in roots(layout) {
        match fs::remove_dir(root.join(PARENT).join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw shared:2 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
";

    #[test]
    fn a_unified_hierarchy_counts_only_with_the_controllers() {
        let split = choose(HYBRID, |_| "hugetlb".to_owned());
        let cpu = Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"));
        let memory = Some(PathBuf::from("/sys/fs/cgroup/memory"));
        assert_eq!(split, Some(Layout::Split { cpu, memory }));
        let root = PathBuf::from("/sys/fs/cgroup/unified");
        let offers = |point: &Path| {
            if point.ends_with("unified") { "cpuset cpu memory".to_owned() } else { String::new() }
        };
        assert_eq!(choose(HYBRID, offers), Some(Layout::Unified { root }));
        assert_eq!(choose("22 1 0:5 / /proc rw - proc proc rw\n", |_| String::new()), None);
    }

    #[test]
    fn limits_are_written_in_the_units_of_the_hierarchy() {
        let limits = Limits {
            cpu_weight: Some(200),
            cpu_quota: Some(1500),
            io_weight: Some(50),
            memory: Some(1 << 30),
        };
        let written = |layout: &Layout| -> Vec<String> {
            let all = settings(layout, &limits).into_iter();
            all.map(|(_, file, value)| format!("{file}={value}")).collect()
        };
        assert_eq!(
            written(&Layout::Unified { root: "/c".into() }),
            [
                "cpu.weight=200",
                "cpu.max=150000 100000",
                "memory.high=1073741824",
                "io.weight=default 50"
            ]
        );
        assert_eq!(
            written(&Layout::Split { cpu: Some("/c".into()), memory: Some("/m".into()) }),
            [
                "cpu.shares=2048",
                "cpu.cfs_period_us=100000",
                "cpu.cfs_quota_us=150000",
                "memory.soft_limit_in_bytes=1073741824"
            ]
        );
        assert_eq!(written(&Layout::Split { cpu: None, memory: None }), [""; 0]);
    }

    #[test]
    fn a_guest_starts_also_where_the_kernel_does_not_divide_disks() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let group = root.join(PARENT).join("vm-1");
        fs::create_dir_all(&group).unwrap();
        let layout = Layout::Unified { root };
        let limits = Limits { io_weight: Some(100), ..Limits::default() };
        apply(&layout, "vm-1", &limits).unwrap();
        assert!(!group.join(IO_WEIGHT).exists());
        fs::write(group.join(IO_WEIGHT), "default 100\n").unwrap();
        let limits = Limits { io_weight: Some(300), ..limits };
        apply(&layout, "vm-1", &limits).unwrap();
        assert_eq!(fs::read_to_string(group.join(IO_WEIGHT)).unwrap(), "default 300");
    }
}
