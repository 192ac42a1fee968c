//! What a support bundle says about this node: its hardware, as the kernel lists it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use futures_util::future::BoxFuture;
use steve::{NodeReport, NodeReports};

/// Title of a section and the file that it shows.
const FILES: &[(&str, &str)] = &[
    ("lscpu (/proc/cpuinfo)", "/proc/cpuinfo"),
    ("free (/proc/meminfo)", "/proc/meminfo"),
    ("uname (/proc/version)", "/proc/version"),
    ("lsmod (/proc/modules)", "/proc/modules"),
    ("mount (/proc/mounts)", "/proc/mounts"),
    ("partitions (/proc/partitions)", "/proc/partitions"),
    ("os-release", "/etc/os-release"),
];
/// Title of a section, the folder with an entry for each device, and the files of an entry.
const DEVICES: &[(&str, &str, &[&str])] = &[
    ("lspci (/sys/bus/pci)", "/sys/bus/pci/devices", &["vendor", "device", "class"]),
    (
        "lsusb (/sys/bus/usb)",
        "/sys/bus/usb/devices",
        &["idVendor", "idProduct", "manufacturer", "product"],
    ),
    ("lsblk (/sys/block)", "/sys/block", &["size", "ro", "queue/rotational", "device/model"]),
    ("ip link (/sys/class/net)", "/sys/class/net", &["address", "mtu", "operstate", "speed"]),
];

/// Reports of the node that this process runs on.
#[derive(Debug)]
pub(super) struct OwnNodeReport {
    pub(super) node: String,
}

impl NodeReports for OwnNodeReport {
    fn collect(&self) -> BoxFuture<'_, Vec<NodeReport>> {
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(hardware).await;
            let files = vec![("hardware.txt".to_owned(), read.unwrap_or_default().into_bytes())];
            vec![NodeReport { node: self.node.clone(), files }]
        })
    }
}

fn hardware() -> String {
    let mut text = String::new();
    for (title, path) in FILES {
        let content = fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
        section(&mut text, title, &content);
    }
    for (title, folder, files) in DEVICES {
        section(&mut text, title, &devices(Path::new(folder), files));
    }
    text
}

fn section(text: &mut String, title: &str, content: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "### {title}\n{}\n", content.trim_end());
}

/// One line for each device: its name, and what its files say.
fn devices(folder: &Path, files: &[&str]) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut lines: Vec<String> = entries
        .map(|entry| {
            let values = files.iter().filter_map(|file| {
                let value = fs::read_to_string(entry.path().join(file)).ok()?;
                Some(format!("{file}={}", value.trim()))
            });
            let values: Vec<String> = values.collect();
            format!("{} {}", entry.file_name().to_string_lossy(), values.join(" "))
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hardware_is_listed_by_section() {
        let text = hardware();
        for part in ["### lscpu", "### lsusb", "### lspci", "### lsblk"] {
            assert!(text.contains(part), "{part} is missing");
        }
        assert!(text.contains("MemTotal"));
    }
}
