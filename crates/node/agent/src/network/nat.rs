//! The guest network of the node: one bridge with NAT, DHCP and DNS, and the state of the guests on
//! it for services, policies and other nodes. Refuses a bridge that another server of the host uses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use base::{Chain, Tasks};
use ipnet::Ipv4Net;
use net::{Bridge, Dhcp, Dns, GuestPolicies, HostGuard, LinkName, Mac};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

use super::ownership::own;
use super::port::bare_port;
use super::{Attachment, ConnectError, plan};
use crate::dhcp::BridgedInterfaces;
use crate::guest_name::ZONE;
use crate::machine::{Vmi, tap_key};
use crate::overlay::RemoteGuests;
use crate::policy::LocalGuests;

/// Why there is no guest network on this node.
#[derive(Debug, thiserror::Error)]
pub(super) enum NatError {
    #[error(transparent)]
    Host(#[from] net::Unavailable),
    #[error(transparent)]
    Prefix(#[from] ipnet::PrefixLenError),
    #[error(transparent)]
    TapName(#[from] net::LinkNameError),
    #[error("another process has the bridge {bridge}; choose another name")]
    Taken { bridge: LinkName },
    #[error(transparent)]
    Network(#[from] net::NetworkError),
    #[error(transparent)]
    Zone(#[from] net::NamesError),
}

pub(super) struct Nat {
    pub(super) network: net::Network,
    pub(super) dhcp: Option<Dhcp>,
    pub(super) dns: Option<Dns>,
    pub(super) pool: net::Pool,
    pub(super) used: Mutex<BTreeSet<Ipv4Addr>>,
    /// Guests that are connected, so that their policies can be evaluated.
    pub(super) guests: watch::Sender<LocalGuests>,
    /// Interfaces that are connected to bridges, so that pools can give them addresses.
    pub(super) bridged: watch::Sender<BridgedInterfaces>,
    /// Guests of other nodes on the same network.
    pub(super) remote: watch::Sender<Arc<RemoteGuests>>,
    /// Keeps other processes of this network namespace from the same bridge.
    _claim: UnixListener,
}

impl Nat {
    /// Brings the bridge up with the attachments that exist, and DHCP and DNS beside it.
    pub(super) async fn start(
        bridge: &LinkName,
        cidr: Ipv4Net,
        host_tcp: &BTreeSet<u16>,
        existing: &[Attachment],
        tasks: &Tasks,
    ) -> Result<Self, NatError> {
        net::available().await?;
        let first = Ipv4Addr::from(u32::from(cidr.network()) + 1);
        let gateway = Ipv4Net::new(first, cidr.prefix_len())?;
        let mut wanted = Bridge::new(gateway);
        wanted.name = bridge.clone();
        wanted.host_tcp.clone_from(host_tcp);
        if bridge.as_str() != "sheaf0" {
            // A second server on one host must not remove the taps of the first one as unused.
            let (prefix, table) = plan::names(bridge.as_str());
            wanted.tap_prefix = prefix.parse()?;
            wanted.table = table;
        }
        let claim =
            own(bridge.as_str()).ok_or_else(|| NatError::Taken { bridge: bridge.clone() })?;
        let used = existing.iter().filter_map(Attachment::address).collect();
        let ports = existing.iter().filter_map(bare_port).collect();
        let want = net::DesiredNetwork {
            bridge: wanted,
            ports,
            services: None,
            hosts: HostGuard::Unknown,
            policies: GuestPolicies::Unknown,
            overlay: net::GuestOverlay::Unknown,
            dhcp: BTreeMap::new(),
        };
        let network = net::Network::start(want, tasks).await?;
        let dhcp = Dhcp::start(&network, tasks);
        let dns = Dns::start(&network, net::Upstreams::file("/etc/resolv.conf"), tasks).await;
        let dhcp =
            dhcp.inspect_err(|why| warn!(error = %Chain(why), "DHCP is unavailable to guests"));
        let dns = dns.inspect_err(|why| warn!(error = %Chain(why), "DNS is unavailable to guests"));
        if let Ok(dns) = &dns {
            dns.modify(|names| {
                names.own_network(gateway.trunc());
                names.own_zone(ZONE)
            })?;
        }
        info!(%bridge, network = %gateway.trunc(), "guest network is up");
        let pool = net::Pool::new(gateway, [gateway.addr()]);
        let (dhcp, dns) = (dhcp.ok(), dns.ok());
        let (guests, _) = watch::channel(LocalGuests::new());
        let (remote, _) = watch::channel(Arc::default());
        let (bridged, _) = watch::channel(BridgedInterfaces::new());
        let used = Mutex::new(used);
        Ok(Self { network, dhcp, dns, pool, used, guests, bridged, remote, _claim: claim })
    }

    pub(super) fn tap(&self, vmi: &Vmi, interface: &str) -> String {
        self.network.bridge().tap_name(&tap_key(&vmi.uid, interface)).to_string()
    }

    /// Adds a guest to DHCP and DNS.
    pub(super) fn add_guest(
        &self,
        vmi: &Vmi,
        interface: &virt::v1::Interface,
        mac: Mac,
        address: Ipv4Addr,
    ) -> Result<(), ConnectError> {
        let options = plan::dhcp_options(vmi, interface);
        if let Some(dhcp) = &self.dhcp {
            let lease = net::Lease { mac, address, options };
            dhcp.insert(lease).map_err(|source| ConnectError::Options {
                interface: interface.name.clone(),
                source,
            })?;
        }
        if let Some(dns) = &self.dns {
            dns.modify(|names| {
                for name in plan::names_of(vmi) {
                    if let Err(failure) = names.insert(&name, address) {
                        warn!(name, error = %failure, "cannot serve a name");
                    }
                }
            });
        }
        Ok(())
    }
}
