//! Attachments as ports of the node's network. Pure but for reading the host's bridges.

use std::path::Path;

use net::{Attachment as Attach, Mac, Port, Queues, SpoofGuard};

use super::{Attachment, ConnectError, NetworkLocation, plan};
use crate::machine::Vmi;

/// A port with the guard that its interface asks for; nothing for user-mode networks.
pub(super) fn port(
    vmi: &Vmi,
    interface: &virt::v1::Interface,
    attachment: &Attachment,
) -> Result<Option<Port>, ConnectError> {
    if attachment.mac.parse::<Mac>().is_err() {
        let (interface, text) = (attachment.interface.clone(), attachment.mac.clone());
        return Err(ConnectError::Mac { interface, text });
    }
    let mut port = bare_port(attachment);
    if let Some(Port { attachment: Attach::Nat { inbound, .. }, .. }) = &mut port {
        *inbound = plan::inbound(vmi, interface);
    }
    Ok(port)
}

/// Facts that do not need the object: enough to keep a running guest connected.
pub(super) fn bare_port(attachment: &Attachment) -> Option<Port> {
    let (tap, place) = match &attachment.place {
        NetworkLocation::Nat { tap, address } => {
            (tap, Attach::Nat { address: *address, inbound: net::InboundPolicy::All })
        }
        NetworkLocation::Bridge { tap, network } => {
            let (name, vlans) = (network.bridge.parse().ok()?, network.port_vlans());
            let access_port = vlans.is_access();
            let no_servers = !network.guest_servers;
            let guard = SpoofGuard { own_mac_only: true, no_servers, access_port };
            (tap, Attach::Bridge { name, guard, vlans })
        }
        NetworkLocation::User => return None,
    };
    Some(Port {
        tap: tap.parse().ok()?,
        mac: attachment.mac.parse().ok()?,
        owner: attachment.owner,
        queues: if attachment.queues > 1 { Queues::Multi } else { Queues::Single },
        attachment: place,
    })
}

pub(super) fn is_bridge(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("bridge").is_dir()
}
