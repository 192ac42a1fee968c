//! From KubeVirt's words to QEMU's: the specification of a VMI, and where its volumes and
//! interfaces turned out to be, become a [`qemu::Machine`]. Pure.
//!
//! An unsupported value is refused with the field's name; fields that upstream accepts and that
//! are not needed here (timers of a foreign hypervisor, hints for its scheduler) are ignored.

mod board;
mod device;
mod disk;
mod nic;

use std::collections::BTreeMap;
use std::path::PathBuf;

use qemu::machine::{Cpu, Machine, Memory, PciBus, Start};

use crate::host::HostCapabilities;
use crate::machine::Vmi;
use crate::network::InterfaceBackend;

pub(crate) use disk::disk;
pub(crate) use nic::nic;

/// Where the bytes of a volume are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VolumeBacking {
    pub(crate) source: qemu::machine::DiskSource,
    pub(crate) read_only: bool,
    /// Whether the file system takes direct I/O.
    pub(crate) direct: bool,
    /// A block device, or a file whose blocks all exist: worth native I/O.
    pub(crate) allocated: bool,
}

/// Everything beside the specification that decides the command line.
#[derive(Debug, Clone)]
pub(crate) struct TranslateContext<'a> {
    pub(crate) host: &'a HostCapabilities,
    /// By the name of the volume.
    pub(crate) volumes: &'a BTreeMap<String, VolumeBacking>,
    /// By the name of the interface.
    pub(crate) outlets: &'a BTreeMap<String, InterfaceBackend>,
    /// This machine's own copy of the firmware's variables.
    pub(crate) nvram: PathBuf,
    /// Where this machine's TPM keeps its state.
    pub(crate) tpm: PathBuf,
}

/// Why no machine can be made of a specification on this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TranslateError {
    #[error("spec.domain.{field}: {value:?} is not {expected}")]
    Value { field: &'static str, value: String, expected: &'static str },
    #[error("spec.domain.{field} needs {what}")]
    Needs { field: &'static str, what: &'static str },
    #[error("spec.{field}: {what} not supported by this platform; remove it to start the machine")]
    Unsupported { field: &'static str, what: &'static str },
    #[error("disk {disk}: {problem}")]
    Disk { disk: String, problem: &'static str },
    #[error("{device}: pciAddress: {problem}")]
    PciAddress { device: String, problem: qemu::machine::PciAddressError },
    #[error("{device}: pciAddress: {other} has the same address; change one of them")]
    PciBusTaken { device: String, other: String },
    #[error("interface {interface}: {problem}")]
    Interface { interface: String, problem: String },
}

/// The machine that `vmi` describes.
pub(crate) fn machine(vmi: &Vmi, around: &TranslateContext<'_>) -> Result<Machine, TranslateError> {
    let domain = &vmi.spec.domain;
    device::refuse_unknown(domain)?;
    board::check_names(domain)?;
    let memory = board::memory(domain)?;
    let name = format!("{}_{}", vmi.namespace, vmi.name);
    let mut machine = Machine::new(name, vmi.firmware_uuid(), memory.guest);
    machine.memory = memory;
    machine.accelerator = around.host.accelerator;
    machine.machine_type = board::machine_type(domain)?;
    machine.smbios = board::smbios(domain);
    machine.cpu = board::cpu(domain);
    machine.features = board::features(domain);
    machine.clock = board::clock(domain);
    machine.firmware = board::firmware(domain, around)?;
    machine.tpm = device::tpm(domain, around)?;
    machine.devices = device::devices(domain, &machine.firmware)?;
    machine.on_reboot = match domain.reboot_policy.as_deref() {
        Some("Terminate") => qemu::machine::OnReboot::Shutdown,
        _ => qemu::machine::OnReboot::Reset,
    };
    machine.start = if vmi.starts_paused() { Start::Paused } else { Start::Run };
    machine.io_threads = disk::io_threads(domain);
    machine.disks = disk::disks(vmi, around)?;
    machine.nics = nic::nics(vmi, around)?;
    check_buses(&machine)?;
    Ok(machine)
}

/// The memory and the processors of the machine that `vmi` describes.
pub(crate) fn size(vmi: &Vmi) -> Result<(Memory, Cpu), TranslateError> {
    let domain = &vmi.spec.domain;
    Ok((board::memory(domain)?, board::cpu(domain)))
}

/// The PCI bus that a device names.
fn pci_bus(device: &str, address: Option<&str>) -> Result<Option<PciBus>, TranslateError> {
    let address = address.filter(|address| !address.is_empty());
    address
        .map(PciBus::from_address)
        .transpose()
        .map_err(|problem| TranslateError::PciAddress { device: device.to_owned(), problem })
}

/// Fails if two devices name the same PCI bus.
fn check_buses(machine: &Machine) -> Result<(), TranslateError> {
    let mut taken = BTreeMap::new();
    let nics = machine.nics.iter().map(|nic| (nic.pci_bus, &nic.name));
    let disks = machine.disks.iter().map(|disk| (disk.pci_bus, &disk.name));
    for (bus, name) in nics.chain(disks) {
        let Some(bus) = bus else { continue };
        if let Some(other) = taken.insert(bus, name) {
            let (device, other) = (name.clone(), other.clone());
            return Err(TranslateError::PciBusTaken { device, other });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
