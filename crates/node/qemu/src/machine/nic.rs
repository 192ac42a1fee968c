//! Network interfaces: the device in the guest and the backend on the host.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::PciBus;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// The interface's name; the guest's device is called `ua-<name>`.
    pub name: String,
    pub model: NicModel,
    /// `52:54:00:…`, lower case.
    pub mac: String,
    pub backend: NicBackend,
    /// Set for an interface to boot from; only then it carries boot code.
    #[serde(default)]
    pub boot_index: Option<u32>,
    #[serde(default)]
    pub link: LinkState,
    #[serde(default)]
    pub mtu: Option<u16>,
    /// The index that firmware reports to the guest, for names such as `eno1`.
    #[serde(default)]
    pub acpi_index: Option<u32>,
    /// The PCI bus that it is on in the guest; any if absent.
    #[serde(default)]
    pub pci_bus: Option<PciBus>,
    /// It was plugged into the running machine.
    #[serde(default)]
    pub hot_plugged: bool,
}

impl Nic {
    pub fn new(name: impl Into<String>, mac: impl Into<String>, backend: NicBackend) -> Self {
        Self {
            name: name.into(),
            model: NicModel::Virtio,
            mac: mac.into(),
            backend,
            boot_index: None,
            link: LinkState::Up,
            mtu: None,
            acpi_index: None,
            pci_bus: None,
            hot_plugged: false,
        }
    }

    /// The id of the device in QEMU.
    pub fn id(&self) -> String {
        format!("ua-{}", self.name)
    }

    /// The id of what is behind it on the host's side.
    pub fn host_id(&self) -> String {
        format!("host-ua-{}", self.name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicModel {
    Virtio,
    E1000,
    E1000e,
    Rtl8139,
    Pcnet,
    Ne2kPci,
}

impl NicModel {
    pub fn device(self) -> &'static str {
        match self {
            Self::Virtio => "virtio-net-pci",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Rtl8139 => "rtl8139",
            Self::Pcnet => "pcnet",
            Self::Ne2kPci => "ne2k_pci",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicBackend {
    /// A tap that exists and belongs to the machine's user. Whether it is a port of a bridge
    /// is not QEMU's business. With `vhost` the kernel moves the packets.
    Tap { ifname: String, queues: u16, vhost: bool },
    /// A network inside the QEMU process, for hosts where we are not root.
    User { network: Option<String>, hostname: Option<String>, forwards: Vec<Forward> },
}

/// A port of the host that leads into a user-mode network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    pub protocol: Protocol,
    pub host: IpAddr,
    pub host_port: u16,
    pub guest_port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    #[default]
    Up,
    Down,
}
