//! Disks: where the bytes come from, how the guest sees them, and what a failure does.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::PciBus;

/// One disk, CD or LUN of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The volume's name; the guest's device is called `ua-<name>`.
    pub name: String,
    pub bus: Bus,
    #[serde(default)]
    pub device: DiskDevice,
    pub source: DiskSource,
    #[serde(default)]
    pub read_only: bool,
    /// Lower boots first; 0 belongs to a kernel that QEMU loads itself.
    #[serde(default)]
    pub boot_index: Option<u32>,
    #[serde(default)]
    pub serial: Option<String>,
    #[serde(default)]
    pub cache: Cache,
    #[serde(default)]
    pub aio: Aio,
    #[serde(default)]
    pub on_error: ErrorPolicy,
    #[serde(default)]
    pub block_sizes: Option<BlockSizes>,
    /// Another machine may write to it at the same time.
    #[serde(default)]
    pub shareable: bool,
    /// The thread that does its I/O: one of the machine's, or its own if it bears its name.
    #[serde(default)]
    pub io_thread: Option<String>,
    /// The PCI bus that a virtio disk is on in the guest; any if absent.
    #[serde(default)]
    pub pci_bus: Option<PciBus>,
    /// Request queues; 0 leaves the number to QEMU.
    #[serde(default)]
    pub queues: u16,
    /// It was plugged into the running machine.
    #[serde(default)]
    pub hot_plugged: bool,
    /// How often its bytes were moved to another image while the guest ran. It keeps the block
    /// nodes of both images apart.
    #[serde(default)]
    pub moves: u32,
}

impl Disk {
    pub fn new(name: impl Into<String>, bus: Bus, source: DiskSource) -> Self {
        Self {
            name: name.into(),
            bus,
            device: DiskDevice::default(),
            source,
            read_only: false,
            boot_index: None,
            serial: None,
            cache: Cache::default(),
            aio: Aio::default(),
            on_error: ErrorPolicy::default(),
            block_sizes: None,
            shareable: false,
            io_thread: None,
            pci_bus: None,
            queues: 0,
            hot_plugged: false,
            moves: 0,
        }
    }

    /// The id of the device in QEMU, and what guests and tools see as its alias.
    pub fn id(&self) -> String {
        format!("ua-{}", self.name)
    }

    /// The name of its topmost block node.
    ///
    /// QEMU allows 31 bytes, less than a volume's name may have: long names are cut, and
    /// keep apart by a hash.
    pub fn node(&self) -> String {
        self.node_name('d')
    }

    /// The name of the node below, which speaks with the file or socket.
    pub fn storage_node(&self) -> String {
        self.node_name('s')
    }

    /// The job that fills this image with the bytes of the one that the guest uses.
    pub fn mirror_job(&self) -> String {
        self.node_name('m')
    }

    fn node_name(&self, kind: char) -> String {
        match self.moves {
            0 => node_name(&format!("{kind}-"), &self.name),
            moves => node_name(&format!("{kind}{moves}-"), &self.name),
        }
    }
}

const LONGEST_NODE_NAME: usize = 31;

fn node_name(prefix: &str, name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if plain && prefix.len() + name.len() <= LONGEST_NODE_NAME {
        return format!("{prefix}{name}");
    }
    let start: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .take(LONGEST_NODE_NAME - prefix.len() - 17)
        .collect();
    format!("{prefix}{start}.{:016x}", fnv1a(name.as_bytes()))
}

/// FNV-1a, because the name must be the same in every version of this program.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    Virtio,
    Scsi,
    Sata,
    Usb,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskDevice {
    #[default]
    Disk,
    Cdrom,
    /// A SCSI device of the host, passed through with its commands.
    Lun,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskSource {
    File(FileImage),
    BlockDevice {
        path: PathBuf,
    },
    /// An NBD server on a unix socket; QEMU waits `reconnect_delay` seconds for a lost one.
    Nbd {
        socket: PathBuf,
        export: String,
        reconnect_delay: u32,
    },
    /// A qcow2 image that keeps what is written, over an NBD server that is only read.
    Overlay {
        path: PathBuf,
        socket: PathBuf,
        export: String,
        reconnect_delay: u32,
    },
    /// A vhost-user-blk server; the machine's memory must be shared.
    VhostUser {
        socket: PathBuf,
    },
    /// A drive without a medium.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileImage {
    pub path: PathBuf,
    pub format: ImageFormat,
    /// The image below a qcow2 overlay. It is always named here: the backing file in the overlay's
    /// own header is never followed.
    #[serde(default)]
    pub backing: Option<Box<FileImage>>,
}

impl FileImage {
    pub fn raw(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: ImageFormat::Raw, backing: None }
    }

    pub fn qcow2(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: ImageFormat::Qcow2, backing: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFormat {
    Raw,
    Qcow2,
}

impl ImageFormat {
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Past the host's page cache; the file system must support direct I/O.
    None,
    /// Every write is flushed before it is acknowledged.
    WriteThrough,
    /// The guest's flushes are what makes data durable.
    #[default]
    WriteBack,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aio {
    #[default]
    Threads,
    /// Needs [`Cache::None`]; QEMU refuses it otherwise.
    Native,
    IoUring,
}

/// The effect of a failed request on the guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorPolicy {
    /// The guest is paused, and the request is repeated when it is resumed.
    #[default]
    Stop,
    Report,
    Ignore,
    /// Pause when the host's storage is full, report all else.
    Enospace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSizes {
    pub logical: u32,
    pub physical: u32,
    #[serde(default)]
    pub discard_granularity: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_fit_and_differ() {
        let name = |name: &str| Disk::new(name, Bus::Virtio, DiskSource::Empty).node();
        assert_eq!(name("root"), "d-root");
        let moved = Disk { moves: 2, ..Disk::new("root", Bus::Virtio, DiskSource::Empty) };
        assert_eq!((moved.node(), moved.storage_node()), ("d2-root".into(), "s2-root".into()));
        let (one, two) = (name(&format!("{}1", "x".repeat(62))), name(&"x".repeat(63)));
        assert_ne!(one, two);
        for long in [one, two, name("has a space and is really rather long")] {
            assert!(long.len() <= 31, "{long}");
            assert!(long.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)));
        }
    }
}
