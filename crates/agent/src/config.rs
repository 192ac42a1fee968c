//! What `sheaf` tells the agent of the node it runs on.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Everything the agent is told from outside.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the Node object; a DNS subdomain.
    pub node_name: String,
    /// The data directory; the agent keeps to `agent/` and `volumes/` in it.
    pub data_dir: PathBuf,
    /// How others reach the node, best first.
    pub addresses: Vec<IpAddr>,
    /// Sheaf's own version.
    pub version: String,
    /// The version of the Kubernetes API, as `v1.37.0`: what the Node shows as its kubelet's.
    pub kubernetes_version: String,
    pub network: Network,
}

/// The network that guests are on unless they ask for another.
#[derive(Debug, Clone)]
pub enum Network {
    /// A bridge of our own, with NAT, DHCP and DNS; user-mode where that cannot be had.
    Nat {
        /// Name of the bridge on the host.
        bridge: String,
        /// The network of the guests of this node; the first address is the node's own.
        cidr: String,
        /// Ports of the node that guests may reach there, the API's for instance.
        host_tcp: BTreeSet<u16>,
    },
    /// QEMU's user-mode network, which needs no rights.
    User,
}

impl Config {
    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.data_dir.join("agent")
    }

    /// Where the node endpoint listens.
    pub fn socket(&self) -> PathBuf {
        socket(&self.data_dir)
    }

    pub(crate) fn machines_dir(&self) -> PathBuf {
        self.agent_dir().join("vmis")
    }
}

/// Where the node endpoint of a data directory listens.
fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("agent/agent.sock")
}
