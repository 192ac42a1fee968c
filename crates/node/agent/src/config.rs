//! The agent's configuration from `sheaf`, for the node it runs on.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;
use net::LinkName;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;

/// The configuration that the agent is started with.
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
    /// The version of the Kubernetes API, as `v1.37.0`: shown in the Node as its kubelet's.
    pub kubernetes_version: String,
    pub network: Network,
    /// Ranges of this node or the cluster that imports may connect to nevertheless.
    pub import_allow: Vec<IpNet>,
    /// Ranges of the cluster: services, for instance.
    pub cluster_ranges: Vec<IpNet>,
    /// Whether the environment names a proxy for requests to the outside.
    pub has_proxy: bool,
    /// The role of the node in the cluster.
    pub role: NodeRole,
    /// Labels that the Node gets with its first report.
    pub labels: Vec<(String, String)>,
    /// Annotations that the Node has with each report.
    pub annotations: Vec<(String, String)>,
    /// How other nodes reach this one; a node alone has none.
    pub wire: NodeWire,
    /// Directories whose files HostDisk volumes may be; none by default.
    pub host_disk_paths: Vec<PathBuf>,
    /// Bytes that a downloaded or uploaded image may have, as it comes and as a disk.
    pub max_image_size: u64,
    /// This node's part of support bundles.
    pub report: Arc<dyn NodeFiles>,
}

/// Files about a node for a support bundle.
pub trait NodeFiles: std::fmt::Debug + Send + Sync {
    /// Names and contents. May block.
    fn files(&self) -> Vec<(String, String)>;
}

/// The role of a node in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    /// It runs the control plane, too, and no other node does.
    Management,
    /// It is one of several that run the control plane: the others judge whether it is alive.
    ManagementPeer,
    /// It runs machines and stores volumes; the control plane says so in its labels.
    Worker,
    /// It votes in etcd and runs nothing; the control plane says so in its labels.
    Witness,
}

/// Where a node listens for others, over TLS only.
#[derive(Debug, Clone, Default)]
pub struct NodeWire {
    /// Consoles, screens, ports and uploads for the gateway, machines that move for other nodes.
    pub endpoint: Option<EndpointWire>,
    /// How the endpoints of other nodes are reached.
    pub peers: Option<PeerWire>,
    /// Replicas, for the engines of other nodes.
    pub storage: Option<StorageWire>,
}

/// Where the node endpoint listens besides its socket.
#[derive(Debug, Clone)]
pub struct EndpointWire {
    pub address: SocketAddr,
    /// The TLS configuration that accepts connections now; nothing while there is no certificate.
    pub tls: watch::Receiver<Option<Arc<ServerConfig>>>,
    /// The peer that a certificate names, which TLS has accepted.
    pub identify: fn(&CertificateDer<'_>) -> Option<EndpointPeer>,
    /// Verifies the grants of requests; nothing while there is no certificate.
    pub grants: watch::Receiver<Option<Arc<dyn GrantVerification>>>,
}

/// Verifies who has signed a grant and until when it is valid.
pub trait GrantVerification: fmt::Debug + Send + Sync {
    fn verify(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<RequestGrant, Box<dyn std::error::Error + Send + Sync>>;
}

/// One request that a management node has allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestGrant {
    pub node: String,
    pub method: String,
    /// Path and query.
    pub path: String,
    pub user: String,
    /// The uid of the machine, if the request concerns one.
    pub machine: Option<String>,
    /// No other grant has this.
    pub id: String,
    pub expires: Timestamp,
}

/// The peer of a connection to a node endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointPeer {
    /// The API server, which has decided about its requests.
    Gateway,
    /// Another node of the cluster: it may bring machines that it has.
    Node(String),
}

/// How connections to the endpoints of other nodes are opened.
#[derive(Debug, Clone)]
pub struct PeerWire {
    pub tls: watch::Receiver<Option<Arc<ClientConfig>>>,
    /// The name that the certificate of a node's endpoint must have.
    pub name: fn(&str) -> String,
}

/// Where the storage process listens, and the files of its certificates.
#[derive(Debug, Clone)]
pub struct StorageWire {
    pub address: SocketAddr,
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The network that guests are on unless they ask for another.
#[derive(Debug, Clone)]
pub enum Network {
    /// A bridge of our own, with NAT, DHCP and DNS; user-mode where that cannot be had.
    Nat {
        /// Name of the bridge on the host.
        bridge: LinkName,
        /// The network of the guests of this node; the first address is the node's own.
        cidr: Ipv4Net,
        /// Ports of the node that guests may reach there, the API's for instance.
        host_tcp: BTreeSet<u16>,
    },
    /// QEMU's user-mode network, which needs no rights.
    User,
}

/// Which network guests are to get, as it is written on a command line: `user` or the address
/// range of a NAT network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestNetwork {
    Nat(Ipv4Net),
    User,
}

/// Why a text is no [`GuestNetwork`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `user`, or an IPv4 network with a prefix length of 1 to 29 that is not loopback, \
     link-local, multicast or reserved, for example 10.52.0.0/24"
)]
pub struct GuestNetworkError;

/// Ranges whose addresses have another meaning on every host: this host, loopback, link-local,
/// multicast and reserved.
const SPECIAL_RANGES: [Ipv4Net; 4] = [
    Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Whether two networks have an address in common.
fn overlap(one: &Ipv4Net, two: &Ipv4Net) -> bool {
    one.contains(&two.network()) || two.contains(&one.network())
}

impl FromStr for GuestNetwork {
    type Err = GuestNetworkError;

    fn from_str(text: &str) -> Result<Self, GuestNetworkError> {
        if text == "user" {
            return Ok(Self::User);
        }
        let network: Ipv4Net = text.parse().map_err(|_| GuestNetworkError)?;
        let is_special = SPECIAL_RANGES.iter().any(|range| overlap(range, &network));
        match network.prefix_len() {
            1..=29 if !is_special => Ok(Self::Nat(network.trunc())),
            _ => Err(GuestNetworkError),
        }
    }
}

impl GuestNetwork {
    /// Whether guests would have addresses of this range.
    pub fn overlaps(self, range: &IpNet) -> bool {
        match (self, range) {
            (Self::Nat(network), IpNet::V4(range)) => overlap(&network, range),
            _ => false,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_network_is_user_or_an_ipv4_network() {
        let nat = |text: &str| Ok(GuestNetwork::Nat(text.parse().unwrap()));
        for (text, expected) in [
            ("user", Ok(GuestNetwork::User)),
            ("10.52.0.0/24", nat("10.52.0.0/24")),
            ("10.52.0.7/24", nat("10.52.0.0/24")),
            ("10.52.0.0/29", nat("10.52.0.0/29")),
            ("", Err(GuestNetworkError)),
            ("banana", Err(GuestNetworkError)),
            ("User", Err(GuestNetworkError)),
            ("10.52.0.0", Err(GuestNetworkError)),
            ("10.52.0.0/33", Err(GuestNetworkError)),
            ("10.52.0.0/30", Err(GuestNetworkError)),
            ("0.0.0.0/0", Err(GuestNetworkError)),
            ("fd00::/64", Err(GuestNetworkError)),
            ("0.1.0.0/16", Err(GuestNetworkError)),
            ("127.0.0.0/8", Err(GuestNetworkError)),
            ("127.5.0.0/24", Err(GuestNetworkError)),
            ("64.0.0.0/2", Err(GuestNetworkError)),
            ("169.254.7.0/24", Err(GuestNetworkError)),
            ("224.0.0.0/24", Err(GuestNetworkError)),
            ("240.0.0.0/8", Err(GuestNetworkError)),
        ] {
            assert_eq!(text.parse::<GuestNetwork>(), expected, "{text}");
        }
    }

    #[test]
    fn networks_overlap_if_one_contains_the_other() {
        let network: GuestNetwork = "10.52.0.0/16".parse().unwrap();
        for (range, expected) in [
            ("10.52.0.0/16", true),
            ("10.52.7.0/24", true),
            ("10.0.0.0/8", true),
            ("10.53.0.0/16", false),
            ("fd00::/8", false),
        ] {
            assert_eq!(network.overlaps(&range.parse().unwrap()), expected, "{range}");
        }
        assert!(!GuestNetwork::User.overlaps(&"10.0.0.0/8".parse().unwrap()));
    }
}
