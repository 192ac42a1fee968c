//! Everything that decides one QEMU command line, as data that can be stored and read back.
//!
//! A [`Machine`] is written to disk before its process is started, so that whoever adopts the
//! process later knows what runs. Fields that a newer version adds have a default, so that
//! the file of an older one can be read. It holds paths and names; it opens nothing.

mod devices;
mod disk;
mod layout;
mod nic;
mod pci_bus;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use devices::{
    Balloon, Devices, Input, InputBus, PanicDevice, Sound, USB_SLOTS, Video, Watchdog,
    WatchdogAction,
};
pub use disk::{
    Aio, BlockSizes, Bus, Cache, Disk, DiskDevice, DiskSource, ErrorPolicy, FileImage, ImageFormat,
};
pub use layout::DeviceLayout;
pub use nic::{Forward, LinkState, Nic, NicBackend, NicModel, Protocol};
pub use pci_bus::{PciAddressError, PciBus};

/// One virtual machine as QEMU will see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in `ps` and in QEMU's own messages.
    pub name: String,
    /// The UUID that SMBIOS gives to the guest; stable over restarts.
    pub uuid: String,
    #[serde(default)]
    pub smbios: Smbios,
    pub accelerator: Accelerator,
    /// `q35`, or a versioned name such as `pc-q35-7.2` where a migration must find the same.
    pub machine_type: String,
    #[serde(default)]
    pub cpu: Cpu,
    pub memory: Memory,
    #[serde(default)]
    pub numa: Vec<NumaNode>,
    #[serde(default)]
    pub firmware: Firmware,
    #[serde(default)]
    pub kernel: Option<Kernel>,
    #[serde(default)]
    pub tpm: Option<Tpm>,
    #[serde(default)]
    pub disks: Vec<Disk>,
    #[serde(default)]
    pub nics: Vec<Nic>,
    #[serde(default)]
    pub devices: Devices,
    /// Where the devices are, if not one after another: it is a machine that runs elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<DeviceLayout>,
    #[serde(default)]
    pub features: Features,
    #[serde(default)]
    pub clock: Clock,
    /// Names of threads that disks may share; a dedicated one is named by its disk.
    #[serde(default)]
    pub io_threads: Vec<String>,
    #[serde(default)]
    pub start: Start,
    #[serde(default)]
    pub on_reboot: OnReboot,
}

impl Machine {
    /// The machine with `sockets` filled from the start, for a guest that has them by now.
    ///
    /// QEMU gives disks as many queues as there are processors at the start; those that the guest
    /// knows are kept.
    pub fn with_filled_sockets(mut self, sockets: u32) -> Self {
        if sockets <= self.cpu.sockets {
            return self;
        }
        let queues = u16::try_from(self.cpu.count()).unwrap_or(u16::MAX);
        let automatic = |disk: &&mut Disk| disk.bus == Bus::Virtio && disk.queues == 0;
        self.disks.iter_mut().filter(automatic).for_each(|disk| disk.queues = queues);
        if self.devices.scsi_queues == 0 {
            self.devices.scsi_queues = queues;
        }
        self.cpu.sockets = sockets;
        self
    }

    /// A machine with nothing but a processor and memory; disks and the rest are added.
    pub fn new(name: impl Into<String>, uuid: impl Into<String>, memory: u64) -> Self {
        Self {
            name: name.into(),
            uuid: uuid.into(),
            smbios: Smbios::default(),
            accelerator: Accelerator::Tcg,
            machine_type: "q35".to_owned(),
            cpu: Cpu::default(),
            memory: Memory::of(memory),
            numa: Vec::new(),
            firmware: Firmware::default(),
            kernel: None,
            tpm: None,
            disks: Vec::new(),
            nics: Vec::new(),
            devices: Devices::default(),
            layout: None,
            features: Features::default(),
            clock: Clock::default(),
            io_threads: Vec::new(),
            start: Start::default(),
            on_reboot: OnReboot::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// Values of the guest's DMI tables; empty fields are left to QEMU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Smbios {
    pub manufacturer: Option<String>,
    pub product: Option<String>,
    pub version: Option<String>,
    pub serial: Option<String>,
    pub sku: Option<String>,
    pub family: Option<String>,
    /// Asset tag of the chassis.
    pub asset: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub model: CpuModel,
    pub features: Vec<CpuFeature>,
    pub sockets: u32,
    pub cores: u32,
    pub threads: u32,
    /// Sockets that may be filled while the guest runs; at least `sockets`.
    pub max_sockets: u32,
}

impl Default for Cpu {
    fn default() -> Self {
        Self {
            model: CpuModel::default(),
            features: Vec::new(),
            sockets: 1,
            cores: 1,
            threads: 1,
            max_sockets: 1,
        }
    }
}

impl Cpu {
    /// Virtual processors present at start.
    pub fn count(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// Virtual processors if every socket were filled.
    pub fn most(&self) -> u32 {
        self.max_sockets.max(self.sockets) * self.cores * self.threads
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuModel {
    /// All that the accelerator can give: the host's processor, or TCG's best.
    #[default]
    Best,
    /// The host's processor as it is; like `Best` where there is no host processor to pass.
    HostPassthrough,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuFeature {
    pub name: String,
    pub enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes at start.
    pub guest: u64,
    /// Bytes that the guest may grow to while it runs; 0 or `guest` for a fixed size.
    #[serde(default)]
    pub max: u64,
    /// Slots for memory modules; growing through virtio-mem needs none.
    #[serde(default)]
    pub slots: u32,
    #[serde(default)]
    pub backing: Backing,
    /// Other processes (vhost-user) must be able to map the guest's memory.
    #[serde(default)]
    pub shared: bool,
    /// Keep the guest's memory from being swapped.
    #[serde(default)]
    pub locked: bool,
}

impl Memory {
    pub fn of(guest: u64) -> Self {
        Self { guest, max: 0, slots: 0, backing: Backing::default(), shared: false, locked: false }
    }

    /// How much may be added while the guest runs.
    pub fn growth(&self) -> u64 {
        self.max.saturating_sub(self.guest)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    #[default]
    Anonymous,
    /// Pages of this many bytes, taken from the host's pool at start.
    HugePages(u64),
}

/// A NUMA node of the guest; the memory of all nodes adds up to the guest's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    pub memory: u64,
    /// Virtual processors, by index.
    pub cpus: Vec<u32>,
    /// The host's node that backs it.
    #[serde(default)]
    pub host_node: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Firmware {
    #[default]
    Bios,
    /// Boot messages on the serial port as well.
    BiosWithSerial,
    Efi(Efi),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Efi {
    pub secure_boot: bool,
    /// The firmware, shared by all machines and never written.
    pub code: PathBuf,
    /// This machine's own copy of the variable store.
    pub vars: PathBuf,
}

/// A kernel that QEMU loads itself instead of the firmware loading one from a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    pub image: PathBuf,
    #[serde(default)]
    pub initrd: Option<PathBuf>,
    #[serde(default)]
    pub arguments: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tpm {
    pub interface: TpmInterface,
    /// The folder of what it remembers.
    pub state: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TpmInterface {
    Tis,
    Crb,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Features {
    pub acpi: bool,
    /// System management mode; secure boot needs it and gets it in any case.
    pub smm: bool,
    pub hpet: bool,
    /// Hide from the guest that KVM runs it.
    pub kvm_hidden: bool,
    /// Hyper-V enlightenments by QEMU's names without `hv-`, with a value where they take one.
    pub hyperv: Vec<HyperV>,
    /// Further properties of the processor, such as `kvm-pv-unhalt`.
    pub paravirtual: Vec<CpuFeature>,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            acpi: true,
            smm: false,
            hpet: false,
            kvm_hidden: false,
            hyperv: Vec::new(),
            paravirtual: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HyperV {
    /// `relaxed`, `vapic`, `spinlocks`, …
    pub name: String,
    /// For those that are more than a switch (`spinlocks`, `vendor-id`).
    #[serde(default)]
    pub value: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    #[default]
    Utc,
    /// The guest's clock shows the host's local time.
    Local,
    /// The guest's clock starts at this moment, `2026-01-02T03:04:05`.
    At(String),
}

/// The action once QEMU is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    #[default]
    Run,
    /// The processors are stopped until a user resumes the guest.
    Paused,
    /// The state comes from another QEMU.
    Incoming,
}

/// The effect of a reboot by the guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnReboot {
    #[default]
    Reset,
    Shutdown,
}
