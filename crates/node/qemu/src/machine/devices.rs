//! The small devices of a machine, each of which is there or not.

use serde::{Deserialize, Serialize};

/// How many USB devices clients can pass through to a machine at once.
pub const USB_SLOTS: u8 = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Devices {
    pub rng: bool,
    pub balloon: Option<Balloon>,
    pub watchdog: Option<Watchdog>,
    pub inputs: Vec<Input>,
    pub sound: Option<Sound>,
    pub video: Option<Video>,
    /// A VNC server on a socket in the machine's folder; useless without `video`.
    pub vnc: bool,
    /// A serial port whose other end is a socket in the machine's folder.
    pub serial: bool,
    /// The channel on which a guest agent may answer.
    pub guest_agent: bool,
    pub panic: Option<PanicDevice>,
    /// The guest's address on the host's vsock.
    pub vsock_cid: Option<u32>,
    /// As many USB devices as [`USB_SLOTS`] may be passed through from clients, each over a socket
    /// in the machine's folder.
    pub usb_redirection: bool,
    /// A SCSI controller even if no disk needs it yet, so that disks can be added.
    pub scsi: bool,
    /// Request queues of the SCSI controller; 0 leaves the number to QEMU.
    pub scsi_queues: u16,
    /// Empty PCI ports into which devices can be plugged while the guest runs.
    pub spare_ports: u8,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            rng: false,
            balloon: None,
            watchdog: None,
            inputs: Vec::new(),
            sound: None,
            video: None,
            vnc: false,
            serial: true,
            guest_agent: true,
            panic: None,
            vsock_cid: None,
            usb_redirection: false,
            scsi: true,
            scsi_queues: 0,
            spare_ports: 8,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balloon {
    /// Seconds between the guest's reports about its memory; 0 for none.
    pub statistics_interval: u32,
    pub free_page_reporting: bool,
}

impl Default for Balloon {
    fn default() -> Self {
        Self { statistics_interval: 10, free_page_reporting: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchdog {
    pub action: WatchdogAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchdogAction {
    Reset,
    Poweroff,
    /// Ask the guest to shut down, as with a power button.
    Shutdown,
}

impl WatchdogAction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Poweroff => "poweroff",
            Self::Shutdown => "shutdown",
        }
    }
}

/// A tablet, which is what makes a pointer follow the viewer's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub name: String,
    pub bus: InputBus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputBus {
    Usb,
    Virtio,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sound {
    Ich9,
    Ac97,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Video {
    Vga,
    Bochs,
    Virtio,
    Cirrus,
    Ramfb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PanicDevice {
    Isa,
    Pci,
    HyperV,
}
