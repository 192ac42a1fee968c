//! A support bundle's reports of nodes: the hardware, as the kernel lists it, and the last lines
//! of the log. Each node reports its own; the server requests all of them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};
use steve::{NodeReport, NodeReports};

use super::nodes::ClusterNodes;
use crate::logging;

/// How long a node may take to tell of itself.
const REPORT_TIMEOUT: Duration = Duration::from_secs(20);

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

/// The files of the node that this process runs on.
#[derive(Debug)]
pub(in crate::command) struct OwnFiles;

impl agent::NodeFiles for OwnFiles {
    fn files(&self) -> Vec<(String, String)> {
        // Colours of a terminal are of no use in a file.
        let log = anstream::adapter::strip_str(&logging::recent().text()).to_string();
        vec![("hardware.txt".to_owned(), hardware()), (steve::NODE_LOG.to_owned(), log)]
    }
}

/// Reports of all nodes of the cluster, each from its agent.
pub(super) struct ClusterReports {
    pub(super) client: kube::Client,
    pub(super) nodes: Arc<ClusterNodes>,
}

impl ClusterReports {
    async fn of(&self, node: String) -> NodeReport {
        let asked = gateway::report(&*self.nodes, &node);
        let files = match tokio::time::timeout(REPORT_TIMEOUT, asked).await {
            Ok(Ok(files)) => files,
            Ok(Err(error)) => vec![("error.txt".to_owned(), error)],
            Err(_) => vec![("error.txt".to_owned(), "the node does not answer".to_owned())],
        };
        let files = files.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
        NodeReport { node, files }
    }
}

impl NodeReports for ClusterReports {
    fn collect(&self) -> BoxFuture<'_, Result<Vec<NodeReport>, String>> {
        Box::pin(async move {
            let nodes = Api::<Node>::all(self.client.clone()).list(&Default::default()).await;
            let nodes = nodes.map_err(|error| client::Fault(error).to_string())?;
            Ok(join_all(nodes.items.iter().map(|node| self.of(node.name_any()))).await)
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
