//! Egress of imports: connections to this node, link-local addresses and the cluster are refused
//! unless the administrator allows them. A tenant chooses the URL of an import, and the server at
//! that URL chooses the targets of redirects.
//!
//! Names are resolved here, the addresses are checked, and the connection goes to an address that
//! was checked: a name that resolves differently the next time changes nothing. Registries are
//! pulled from by a library that resolves names itself; it gets a proxy that does the same.
//!
//! Where a proxy of the site is used, it resolves names and decides: the proxy of setting
//! `http-proxy` (`outbound`), or one of the environment of this process.

mod cluster;
mod outbound;
mod policy;
mod proxy;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use ipnet::IpNet;
use parking_lot::RwLock;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect;
use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use self::cluster::{ClusterRanges, NodeRanges};
pub(crate) use self::outbound::Outbound;
pub use self::outbound::{OutboundError, outbound_client};
pub(crate) use self::policy::{Denied, EgressPolicy};
use crate::config::{Config, Network};

/// As many redirects as reqwest follows by default.
const MAX_REDIRECTS: usize = 10;
/// How long to wait for the first list of the nodes of the cluster.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a host cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressError {
    #[error("connections to {host} are not allowed")]
    Denied { host: String, source: Denied },
    #[error("cannot resolve {host}")]
    Resolve { host: String, source: io::Error },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error("cannot check {host}: the addresses of the cluster's nodes are not known yet")]
    UnknownCluster { host: String },
}

/// Connections of imports; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Egress(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    policy: EgressPolicy,
    /// Sends the ranges of the cluster to the policy.
    cluster: Option<watch::Sender<ClusterRanges>>,
    /// The URL of the proxy for registries, unless the environment names one.
    proxy: Option<String>,
    /// The environment of the process names a proxy, which resolves names and decides.
    has_proxy: bool,
    /// Proxy and certificates of the settings of the cluster.
    outbound: RwLock<Arc<Outbound>>,
}

impl Egress {
    /// Starts the proxy.
    pub(crate) fn start(config: &Config, tasks: &Tasks) -> io::Result<Self> {
        let mut denied = config.cluster_ranges.clone();
        denied.extend(config.addresses.iter().map(|address| IpNet::from(*address)));
        if let Network::Nat { cidr, .. } = &config.network {
            denied.push((*cidr).into());
        }
        let (cluster, ranges) = watch::channel(None);
        let policy = EgressPolicy::new(config.import_allow.clone(), denied).following(ranges);
        let has_proxy = config.has_proxy;
        let proxy = if has_proxy { None } else { Some(proxy::start(policy.clone(), tasks)?) };
        let (cluster, outbound) = (Some(cluster), RwLock::default());
        Ok(Self(Arc::new(Inner { policy, cluster, proxy, has_proxy, outbound })))
    }

    /// Follows the settings `http-proxy` and `additional-ca`, and the addresses of the cluster; ends
    /// with `tasks`.
    pub(crate) fn follow(&self, client: kube::Client, tasks: &Tasks) {
        if let Some(known) = self.0.cluster.clone() {
            let run = cluster::follow(client.clone(), known, tasks.stop_signal());
            tasks.spawn("cluster-addresses", run);
        }
        let run = outbound::follow(client, self.clone(), tasks.stop_signal());
        tasks.spawn("outbound-settings", run);
    }

    /// Addresses that are none of this node, of other nodes, services or guest networks.
    pub(crate) fn outside_cluster(&self) -> EgressPolicy {
        self.0.policy.strict()
    }

    /// The addresses of the nodes of the cluster, as they come and go.
    pub(crate) fn cluster(&self) -> Option<watch::Receiver<ClusterRanges>> {
        self.0.cluster.as_ref().map(watch::Sender::subscribe)
    }

    /// Proxy and certificates of the settings of the cluster, as they are now.
    pub(crate) fn outbound(&self) -> Arc<Outbound> {
        Arc::clone(&self.0.outbound.read())
    }

    fn set_outbound(&self, outbound: Outbound) {
        let mut now = self.0.outbound.write();
        if **now != outbound {
            *now = Arc::new(outbound);
        }
    }

    /// The URL of the proxy that a library which resolves names itself has to use, unless the
    /// settings name one.
    pub(crate) fn proxy(&self) -> Option<&str> {
        self.0.proxy.as_deref()
    }

    /// Whether a host may be connected to, a name or an address.
    pub(crate) async fn check(&self, host: &str) -> Result<(), EgressError> {
        let has_proxy = self.0.has_proxy || self.outbound().has_proxy();
        if has_proxy && policy::literal(host).is_none() {
            return Ok(());
        }
        self.0.policy.resolve(host, 0).await.map(drop)
    }

    /// Follows redirects as usual, but not to addresses that are not allowed. Names are checked
    /// when they are resolved.
    pub(crate) fn redirects(&self) -> redirect::Policy {
        let policy = self.0.policy.clone();
        redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > MAX_REDIRECTS {
                return attempt.error("too many redirects");
            }
            let literal = attempt.url().host_str().and_then(policy::literal);
            match literal.map(|address| (address, policy.check(address))) {
                Some((address, Err(source))) => {
                    let host = address.to_string();
                    attempt.error(EgressError::Denied { host, source })
                }
                _ => attempt.follow(),
            }
        })
    }
}

impl Resolve for Egress {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.clone();
        Box::pin(async move {
            let found = egress.0.policy.resolve(name.as_str(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl EgressPolicy {
    /// The addresses of a host that may be connected to; one that has none is refused.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, EgressError> {
        let found: Vec<SocketAddr> = match policy::literal(host) {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => {
                let unresolved = |source| EgressError::Resolve { host: host.to_owned(), source };
                tokio::net::lookup_host((host, port)).await.map_err(unresolved)?.collect()
            }
        };
        let unknown = || EgressError::UnknownCluster { host: host.to_owned() };
        timeout(CLUSTER_TIMEOUT, self.cluster_is_known()).await.map_err(|_| unknown())?;
        let mut denied = None;
        let mut allowed = Vec::new();
        for address in found {
            match self.check(address.ip()) {
                Ok(()) => allowed.push(address),
                Err(source) => denied = Some(source),
            }
        }
        match denied {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(source) => Err(EgressError::Denied { host: host.to_owned(), source }),
            None => Err(EgressError::NoAddress { host: host.to_owned() }),
        }
    }
}

/// Whether an error is one of a connection that is not allowed: trying again is of no use.
pub(crate) fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref::<EgressError>(), Some(EgressError::Denied { .. })) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Whether an address is one of this node: the kernel would use it to reach itself.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let route = || {
        let socket = std::net::UdpSocket::bind((any, 0))?;
        // Nothing is sent: this only asks for the route.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    route().is_ok_and(|local| local.ip() == address)
}
