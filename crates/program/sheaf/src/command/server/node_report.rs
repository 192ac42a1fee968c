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

/// How long a node that is not ready may take to send its report: it may have no agent that answers.
const UNREADY_TIMEOUT: Duration = Duration::from_secs(20);

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
    (
        "hwinfo --bios (/sys/class/dmi)",
        "/sys/class/dmi",
        &["sys_vendor", "product_name", "board_name", "bios_vendor", "bios_version", "bios_date"],
    ),
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
        vec![(steve::NODE_HARDWARE.to_owned(), hardware()), (steve::NODE_LOG.to_owned(), log)]
    }
}

/// Reports of all nodes of the cluster, each from its agent.
pub(super) struct ClusterReports {
    pub(super) client: kube::Client,
    pub(super) nodes: Arc<ClusterNodes>,
}

impl ClusterReports {
    async fn of(&self, node: &Node, limit: Option<Duration>) -> NodeReport {
        let (limit, node) = (limit_for(node, limit), node.name_any());
        let asked = gateway::report(&*self.nodes, &node);
        let answer = match limit {
            Some(limit) => tokio::time::timeout(limit, asked).await,
            None => Ok(asked.await),
        };
        let files = match answer {
            Ok(Ok(files)) => files,
            Ok(Err(error)) => vec![(steve::NODE_ERROR.to_owned(), error.to_string())],
            Err(_) => vec![(steve::NODE_ERROR.to_owned(), cut_off(limit.unwrap_or_default()))],
        };
        let files = files.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
        NodeReport { node, files }
    }
}

impl NodeReports for ClusterReports {
    fn collect(
        &self,
        limit: Option<Duration>,
    ) -> BoxFuture<'_, Result<Vec<NodeReport>, client::Fault>> {
        Box::pin(async move {
            let nodes = Api::<Node>::all(self.client.clone()).list(&Default::default()).await;
            let nodes = nodes.map_err(client::Fault)?;
            Ok(join_all(nodes.items.iter().map(|node| self.of(node, limit))).await)
        })
    }
}

/// The limit for the part of one node.
fn limit_for(node: &Node, limit: Option<Duration>) -> Option<Duration> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.into_iter();
    let is_ready = conditions.any(|own| own.type_ == "Ready" && own.status == "True");
    if is_ready { limit } else { Some(limit.unwrap_or(UNREADY_TIMEOUT).min(UNREADY_TIMEOUT)) }
}

fn cut_off(limit: Duration) -> String {
    format!(
        "the node did not send its part within {} s, so the part is missing \
         (setting support-bundle-node-collection-timeout; {} s for nodes that are not ready)",
        limit.as_secs(),
        UNREADY_TIMEOUT.as_secs()
    )
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
        for part in ["### lscpu", "### hwinfo", "### lsusb", "### lspci", "### lsblk"] {
            assert!(text.contains(part), "{part} is missing");
        }
        assert!(text.contains("MemTotal"));
    }

    #[test]
    fn a_node_that_is_not_ready_is_waited_for_less() {
        let node = |ready: &str| -> Node {
            let ready = serde_json::json!({"type": "Ready", "status": ready});
            let node = serde_json::json!({"metadata": {"name": "one"},
                "status": {"conditions": [ready]}});
            serde_json::from_value(node).unwrap()
        };
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(limit_for(&node("True"), hour), hour);
        assert_eq!(limit_for(&node("True"), None), None);
        assert_eq!(limit_for(&node("Unknown"), hour), Some(UNREADY_TIMEOUT));
        assert_eq!(limit_for(&node("Unknown"), None), Some(UNREADY_TIMEOUT));
    }
}
