//! The networks of this node's guests: which tap and which address an interface has.
//!
//! The network chosen for a machine is an [`Attachment`], which is written into the machine's
//! folder before it is set up. After a restart all of them are read again, and anything else of
//! ours on the host is removed.
//!
//! Where this process may not make networks, or another one has the bridge already, machines on the
//! guest network do not start. QEMU's user-mode network (out works, in works through the node endpoint
//! only) is used where the administrator asked for it.

mod claim;
mod nat;
mod ownership;
mod plan;
mod port;

use std::net::Ipv4Addr;
use std::path::Path;

use base::{Chain, Tasks};
use ipnet::Ipv4Net;
use kube::Client;
use net::{LinkName, Mac};
use tracing::{info, warn};

use crate::config::Network as Settings;
use crate::dhcp::DhcpTarget;
use crate::machine::{Attachment, NetworkLocation, Vmi, mac};
use crate::overlay::OverlayTarget;
use crate::policy::{LocalGuest, PolicyTarget};
use crate::uplink::UplinkTarget;

use nat::Nat;
use ownership::own;
pub(crate) use plan::{Binding, binding, definition_of, inbound_ports};
use port::{is_bridge, port};

/// Where an interface ends on the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InterfaceBackend {
    pub(crate) backend: qemu::machine::NicBackend,
    pub(crate) mtu: Option<u16>,
}

/// Why an interface cannot be connected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("interface {interface}: all addresses of {network} are in use")]
    NoAddress { interface: String, network: Ipv4Net },
    #[error("interface {interface}: the addresses of the guest network cannot be listed")]
    Claims { interface: String, source: client::Fault },
    #[error("interface {interface}: {what}")]
    Unsupported { interface: String, what: String },
    #[error("interface {interface}: the host has no bridge {bridge}")]
    NoBridge { interface: String, bridge: String },
    #[error("interface {interface} cannot be connected")]
    Network { interface: String, source: net::NetworkError },
    #[error("interface {interface}: its DHCP options are wrong")]
    Options { interface: String, source: net::OptionError },
    #[error("interface {interface}: {text:?} is not an Ethernet address")]
    Mac { interface: String, text: String },
}

/// The networks of the node.
pub(crate) struct Networks {
    mode: Mode,
    client: Client,
    /// Whether the kernel may move the packets.
    vhost: bool,
}

enum Mode {
    Nat(Box<Nat>),
    /// QEMU's user-mode networks, as the administrator asked.
    User,
    /// No network: the guest network could not be made. User-mode networks in its place would
    /// give guests the connections of the node itself.
    Unavailable {
        why: String,
    },
}

/// The limitation where guests have no network of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NetworkShortcoming {
    /// User-mode networks were asked for.
    UserMode,
    /// The network could not be made, for this reason.
    Unavailable(String),
}

impl Networks {
    /// Brings the node's network up with the attachments that exist, and removes all else.
    pub(crate) async fn start(
        client: Client,
        settings: &Settings,
        existing: &[Attachment],
        tasks: &Tasks,
    ) -> Self {
        let mode = match settings {
            Settings::User => {
                info!("guests get user-mode networks, as asked");
                Mode::User
            }
            Settings::Nat { bridge, cidr, host_tcp } => {
                match Nat::start(bridge, *cidr, host_tcp, existing, tasks).await {
                    Ok(nat) => Mode::Nat(Box::new(nat)),
                    Err(failure) => {
                        let why = Chain(&failure).to_string();
                        warn!(reason = why, "guest network is not available");
                        Mode::Unavailable { why }
                    }
                }
            }
        };
        Self { mode, client, vhost: Path::new("/dev/vhost-net").exists() }
    }

    /// The limitation of guests without a network of the node, if they have none.
    pub(crate) fn shortcoming(&self) -> Option<NetworkShortcoming> {
        match &self.mode {
            Mode::Nat(_) => None,
            Mode::User => Some(NetworkShortcoming::UserMode),
            Mode::Unavailable { why } => Some(NetworkShortcoming::Unavailable(why.clone())),
        }
    }

    /// Where services are made reachable, and the network of the guests who reach them.
    pub(crate) fn services(&self) -> Option<(crate::service::ServiceTarget, Ipv4Net)> {
        let Mode::Nat(nat) = &self.mode else { return None };
        let target = crate::service::ServiceTarget {
            network: nat.network.clone(),
            dns: nat.dns.clone(),
            remote: nat.remote.subscribe(),
        };
        Some((target, nat.network.bridge().gateway.trunc()))
    }

    /// Where network policies are enforced.
    pub(crate) fn policies(&self, node: &str) -> Option<PolicyTarget> {
        let Mode::Nat(nat) = &self.mode else { return None };
        let (network, guests) = (nat.network.clone(), nat.guests.subscribe());
        let (remote, bridged) = (nat.remote.subscribe(), nat.bridged.subscribe());
        Some(PolicyTarget { node: node.to_owned(), network, guests, remote, bridged })
    }

    /// Where guests are kept from the hosts of the cluster.
    pub(crate) fn guarded(&self) -> Option<net::Network> {
        let Mode::Nat(nat) = &self.mode else { return None };
        Some(nat.network.clone())
    }

    /// Tunnel and routes to guests of other nodes.
    pub(crate) fn overlay(&self, node: &str) -> Option<OverlayTarget> {
        let Mode::Nat(nat) = &self.mode else { return None };
        let (network, dns) = (nat.network.clone(), nat.dns.clone());
        let remote = nat.remote.clone();
        Some(OverlayTarget { node: node.to_owned(), network, dns, remote })
    }

    /// Where DHCP requests of guests on bridges are answered.
    pub(crate) fn dhcp(&self, node: &str) -> Option<DhcpTarget> {
        let Mode::Nat(nat) = &self.mode else { return None };
        let (network, interfaces) = (nat.network.clone(), nat.bridged.subscribe());
        Some(DhcpTarget { node: node.to_owned(), network, interfaces })
    }

    /// Whether services are reachable through this node, so that it can announce their addresses.
    pub(crate) fn has_services(&self) -> bool {
        matches!(self.mode, Mode::Nat(_))
    }

    /// The uplinks, unless another process of the network namespace owns them.
    pub(crate) fn uplinks(&self) -> Option<UplinkTarget> {
        let Mode::Nat(nat) = &self.mode else { return None };
        let Some(claim) = own("uplinks") else {
            info!("another process has the uplinks of this node");
            return None;
        };
        Some(UplinkTarget { network: nat.network.clone(), _claim: claim })
    }

    /// Chooses how `interface` is connected; an attachment that exists is kept.
    pub(crate) async fn choose(
        &self,
        vmi: &Vmi,
        interface: &virt::v1::Interface,
        binding: Binding,
        owner: u32,
    ) -> Result<Attachment, ConnectError> {
        let name = &interface.name;
        let place = match (binding, &self.mode) {
            (Binding::Pod, Mode::User) => NetworkLocation::User,
            (Binding::Pod, Mode::Nat(nat)) => {
                let claims = claim::list(&self.client)
                    .await
                    .map_err(|source| ConnectError::Claims { interface: name.clone(), source })?;
                let network = nat.network.bridge().gateway.trunc();
                let mut used = nat.used.lock();
                let address = claim::own(vmi, network, &claims)
                    .or_else(|| claim::unclaimed(vmi, name, &nat.pool, &claims, &used));
                let Some(address) = address else {
                    return Err(ConnectError::NoAddress { interface: name.clone(), network });
                };
                used.insert(address);
                NetworkLocation::Nat { tap: nat.tap(vmi, name), address }
            }
            (Binding::Bridge(network), Mode::Nat(nat)) => {
                NetworkLocation::Bridge { tap: nat.tap(vmi, name), network }
            }
            (Binding::Bridge(_), Mode::User) => {
                let what = "a node with user-mode networks has no bridges".to_owned();
                return Err(ConnectError::Unsupported { interface: name.clone(), what });
            }
            (_, Mode::Unavailable { why }) => return Err(unavailable(name, why)),
        };
        Ok(Attachment {
            interface: name.clone(),
            mac: mac(vmi, interface),
            owner,
            queues: plan::queues(vmi, interface),
            place,
        })
    }

    /// Makes the tap and all that belongs to it. May be repeated.
    pub(crate) async fn connect(
        &self,
        vmi: &Vmi,
        interface: &virt::v1::Interface,
        attachment: &Attachment,
    ) -> Result<InterfaceBackend, ConnectError> {
        let name = &attachment.interface;
        if let (
            Mode::Unavailable { why },
            NetworkLocation::Nat { .. } | NetworkLocation::Bridge { .. },
        ) = (&self.mode, &attachment.place)
        {
            return Err(unavailable(name, why));
        }
        let (Mode::Nat(nat), Some(port)) = (&self.mode, port(vmi, interface, attachment)?) else {
            let hostname = Some(vmi.hostname().to_owned());
            let backend =
                qemu::machine::NicBackend::User { network: None, hostname, forwards: vec![] };
            return Ok(InterfaceBackend { backend, mtu: None });
        };
        let mut mtu = None;
        if let NetworkLocation::Bridge { network, .. } = &attachment.place {
            let bridge = &network.bridge;
            if !is_bridge(bridge) {
                let (interface, bridge) = (name.clone(), bridge.clone());
                return Err(ConnectError::NoBridge { interface, bridge });
            }
            mtu = network.mtu;
        }
        let (tap, mac) = (port.tap.clone(), port.mac);
        if let Some(address) = port.address() {
            let (namespace, uid) = (vmi.namespace.clone(), vmi.uid.clone());
            let guest = LocalGuest { namespace, uid, labels: vmi.labels.clone() };
            nat.guests.send_modify(|guests| drop(guests.insert(address, guest)));
        }
        nat.network
            .attach(port)
            .await
            .map_err(|source| ConnectError::Network { interface: name.clone(), source })?;
        if let NetworkLocation::Nat { address, .. } = attachment.place {
            nat.add_guest(vmi, interface, mac, address)?;
        } else if let Some(bridged) = plan::bridged(vmi, interface, mac, mtu) {
            nat.bridged.send_modify(|all| drop(all.insert(tap.clone(), bridged)));
        }
        let backend = qemu::machine::NicBackend::Tap {
            ifname: tap.to_string(),
            queues: attachment.queues,
            vhost: self.vhost,
        };
        Ok(InterfaceBackend { backend, mtu })
    }

    /// Takes away what [`Self::connect`] made and gives the address back.
    pub(crate) async fn disconnect(&self, attachment: &Attachment) {
        let Mode::Nat(nat) = &self.mode else { return };
        let (NetworkLocation::Nat { tap, .. } | NetworkLocation::Bridge { tap, .. }) =
            &attachment.place
        else {
            return;
        };
        if let Ok(tap) = tap.parse::<LinkName>() {
            nat.bridged.send_if_modified(|all| all.remove(&tap).is_some());
            if let Err(failure) = nat.network.detach(tap).await {
                // The next change of the network tries again.
                warn!(error = %Chain(&failure), "cannot remove a tap");
            }
        }
        if let NetworkLocation::Nat { address, .. } = attachment.place {
            if let (Some(dhcp), Ok(mac)) = (&nat.dhcp, attachment.mac.parse()) {
                dhcp.remove(mac);
            }
            if let Some(dns) = &nat.dns {
                dns.modify(|names| names.remove(address));
            }
            nat.guests.send_modify(|guests| drop(guests.remove(&address)));
            nat.used.lock().remove(&address);
        }
    }

    /// The address that the interface's guest was seen to use on a bridge of the host.
    pub(crate) async fn learned(&self, attachment: &Attachment) -> Option<Ipv4Addr> {
        let (Mode::Nat(nat), NetworkLocation::Bridge { network, .. }) =
            (&self.mode, &attachment.place)
        else {
            return None;
        };
        let mac: Mac = attachment.mac.parse().ok()?;
        let neighbours = nat.network.neighbours(&network.bridge.parse().ok()?).await.ok()?;
        neighbours.into_iter().find(|each| each.mac == mac).map(|each| each.address)
    }
}

fn unavailable(interface: &str, why: &str) -> ConnectError {
    let what = format!(
        "the guest network of this node is not available ({why}); run the server as root, or with \
         --guest-network user"
    );
    ConnectError::Unsupported { interface: interface.to_owned(), what }
}
