//! The host's description of itself. Reads files below `/proc`, `/sys` and `/etc`; missing facts
//! are left empty.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::host::{GuestIsolation, Virtualization};
use crate::network::NetworkShortcoming;

/// The host as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostFacts {
    pub(crate) hostname: String,
    pub(crate) kernel: String,
    pub(crate) os_image: String,
    pub(crate) machine_id: String,
    pub(crate) system_uuid: String,
    pub(crate) boot_id: String,
    pub(crate) cpu: Cpu,
    pub(crate) memory: HostMemory,
    pub(crate) disk: HostFileSystem,
    /// Addresses on all networks of the host; nothing if they cannot be listed.
    pub(crate) addresses: Option<BTreeSet<Ipv4Addr>>,
    pub(crate) findings: Findings,
}

/// Facts that need more than reading a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) virtualization: Virtualization,
    /// The limitation of guests without a network of the node, if they have none.
    pub(crate) network: Option<NetworkShortcoming>,
    /// How far guests' QEMU is apart from the host; nothing while that is not known.
    pub(crate) isolation: Option<GuestIsolation>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub(crate) count: u64,
    /// As `/proc/cpuinfo` has it: `GenuineIntel`, `AuthenticAMD`.
    pub(crate) vendor: String,
    pub(crate) model: String,
    pub(crate) features: Vec<String>,
}

/// Sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostMemory {
    pub(crate) total: u64,
    pub(crate) available: u64,
    /// Size of a page and how much memory is reserved in such pages.
    pub(crate) huge_pages: Vec<(u64, u64)>,
}

/// The file system of the data directory; sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HostFileSystem {
    pub(crate) total: u64,
    pub(crate) free: u64,
}

/// Reads everything but [`HostFacts::findings`], which take a trial, and addresses.
pub(crate) fn read(data_dir: &Path) -> HostFacts {
    let uname = rustix::system::uname();
    let id = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    HostFacts {
        hostname: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        os_image: os_image(&id("/etc/os-release")),
        machine_id: id("/etc/machine-id"),
        system_uuid: id("/sys/class/dmi/id/product_uuid"),
        boot_id: id("/proc/sys/kernel/random/boot_id"),
        cpu: cpu(&id("/proc/cpuinfo")),
        memory: memory(&id("/proc/meminfo"), huge_pages()),
        disk: disk(data_dir),
        addresses: None,
        findings: Findings::default(),
    }
}

fn os_image(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".into(), |name| name.trim_matches('"').to_owned())
}

fn cpu(info: &str) -> Cpu {
    let mut cpu = Cpu::default();
    for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key.trim() {
            "processor" => cpu.count += 1,
            "vendor_id" if cpu.vendor.is_empty() => cpu.vendor = value.into(),
            "model name" if cpu.model.is_empty() => cpu.model = value.into(),
            "flags" if cpu.features.is_empty() => {
                cpu.features = value.split_whitespace().map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    cpu
}

fn memory(info: &str, huge_pages: Vec<(u64, u64)>) -> HostMemory {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes =
            line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
        kibibytes.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    HostMemory { total: field("MemTotal"), available: field("MemAvailable"), huge_pages }
}

fn huge_pages() -> Vec<(u64, u64)> {
    let Ok(entries) = fs::read_dir("/sys/kernel/mm/hugepages") else { return Vec::new() };
    let mut pages: Vec<(u64, u64)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()?;
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            Some((size * 1024, size * 1024 * count.trim().parse::<u64>().ok()?))
        })
        .collect();
    pages.sort_unstable();
    pages
}

fn disk(data_dir: &Path) -> HostFileSystem {
    let Ok(stat) = rustix::fs::statvfs(data_dir) else { return HostFileSystem::default() };
    HostFileSystem { total: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_and_named() {
        let info = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu vmx\n\n\
                    processor\t: 1\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu vmx\n";
        let want = Cpu {
            count: 2,
            vendor: "GenuineIntel".into(),
            model: "Xeon".into(),
            features: vec!["fpu".into(), "vmx".into()],
        };
        assert_eq!(cpu(info), want);
    }

    #[test]
    fn memory_is_in_bytes() {
        let info = "MemTotal:       2048 kB\nMemFree:  1 kB\nMemAvailable:    1024 kB\n";
        let memory = memory(info, Vec::new());
        assert_eq!((memory.total, memory.available), (2 << 20, 1 << 20));
    }

    #[test]
    fn the_system_is_called_by_its_pretty_name() {
        assert_eq!(os_image("ID=debian\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
        assert_eq!(os_image(""), "Linux");
    }
}
