//! How the interfaces of a guest are connected. A file in the machine's folder has it, so that a new
//! process finds the taps and addresses that exist.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use net::{PortVlan, VlanId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use virt::v1::Interface;

use super::object::Vmi;

/// The file in a machine's folder that remembers its attachments.
pub(crate) const ATTACHMENTS: &str = "network.json";

/// How one interface of a guest is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) interface: String,
    pub(crate) mac: String,
    /// The user of the machine's process, who may open the tap.
    pub(crate) owner: u32,
    pub(crate) queues: u16,
    pub(crate) place: NetworkLocation,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NetworkLocation {
    /// On the node's own network.
    Nat { tap: String, address: Ipv4Addr },
    /// On a bridge of a cluster network or of the host.
    Bridge {
        tap: String,
        #[serde(flatten)]
        network: BridgeNetwork,
    },
    /// In the QEMU process.
    User,
}

/// Bridge, VLANs and MTU of a NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BridgeNetwork {
    pub(crate) bridge: String,
    /// The VLAN of the guest; 0 is the untagged network.
    pub(crate) vlan: u16,
    /// VLANs that the guest tags itself, beside the untagged network.
    pub(crate) trunk: BTreeSet<u16>,
    pub(crate) mtu: Option<u16>,
    /// Guests may answer DHCP requests and announce routers.
    pub(crate) guest_servers: bool,
}

impl BridgeNetwork {
    /// The VLANs of the guest's port.
    pub(crate) fn port_vlans(&self) -> PortVlan {
        let vlan = |number: u16| VlanId::try_from(u64::from(number)).ok();
        match (vlan(self.vlan), self.trunk.is_empty()) {
            (_, false) => PortVlan::trunk(self.trunk.iter().copied().filter_map(vlan)),
            (Some(vlan), true) => PortVlan::access(vlan),
            (None, true) => PortVlan::untagged(),
        }
    }
}

impl Attachment {
    /// The address that was chosen for it.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        match self.place {
            NetworkLocation::Nat { address, .. } => Some(address),
            NetworkLocation::Bridge { .. } | NetworkLocation::User => None,
        }
    }
}

/// The text that the name of the tap of an interface is derived from.
pub(crate) fn tap_key(uid: &str, interface: &str) -> String {
    format!("{uid} {interface}")
}

/// The Ethernet address of an interface: as given, or made from what identifies the virtual
/// hardware, so that a guest that knows its interfaces by address finds them after a restart.
pub(crate) fn mac(vmi: &Vmi, spec: &Interface) -> String {
    if let Some(mac) = spec.mac_address.as_deref().filter(|mac| !mac.is_empty()) {
        return mac.to_ascii_lowercase().replace('-', ":");
    }
    let mut hash = Sha256::new();
    for part in [&vmi.namespace, vmi.firmware_uuid(), &spec.name] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let hash = hash.finalize();
    // Locally administered, unicast.
    format!("02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2], hash[3], hash[4])
}
