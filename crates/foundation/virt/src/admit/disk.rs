//! Disks of a guest: their targets, order and tuning.

use std::collections::BTreeSet;

use super::Causes;
use super::spec::CheckedSpec;
use crate::v1::{BlockSize, Disk};

/// Disks name volumes, and no two devices are first in the boot order.
pub(super) fn check_boot_order(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let mut taken = BTreeSet::new();
    for (index, disk) in judged.devices().disks.iter().enumerate() {
        let field = judged.field(&format!("domain.devices.disks[{index}]"));
        check_volume(judged, &field, disk, causes);
        if let Some(order) = disk.boot_order
            && !taken.insert(order)
        {
            already_set(format!("{field}.bootOrder"), causes);
        }
    }
    for (index, interface) in judged.devices().interfaces.iter().enumerate() {
        match interface.boot_order {
            Some(0) => causes.invalid(
                format!("{}[{index}].bootOrder", judged.at),
                format!("{}[{index}] must have a boot order > 0, if supplied", judged.at),
            ),
            Some(order) if !taken.insert(order) => {
                let field = format!("domain.devices.interfaces[{index}].bootOrder");
                already_set(judged.field(&field), causes);
            }
            _ => {}
        }
    }
}

fn already_set(field: String, causes: &mut Causes) {
    let message = format!("Boot order for {field} already set for a different device.");
    causes.invalid(field, message);
}

fn check_volume(judged: &CheckedSpec<'_>, field: &str, disk: &Disk, causes: &mut Causes) {
    let volume = judged.spec.volumes.iter().find(|volume| volume.name == disk.name);
    let Some(volume) = volume else {
        if disk.cdrom.is_none() {
            causes.invalid(
                format!("{field}.name"),
                format!("{field}.Name '{}' not found.", disk.name),
            );
        } else if !judged.config.has("DeclarativeHotplugVolumes") {
            causes.invalid(
                format!("{field}.name"),
                "DeclarativeHotplugVolumes feature gate not enabled, cannot define an empty CD-ROM disk",
            );
        }
        return;
    };
    if disk.lun.is_some()
        && volume.persistent_volume_claim.is_none()
        && volume.data_volume.is_none()
    {
        let message = format!(
            "{field}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume."
        );
        causes.invalid(format!("{field}.lun"), message);
    }
    if volume.downward_metrics.is_none() {
        return;
    }
    match &disk.disk {
        None => {
            let field = format!("{field}.disk");
            let message = format!(
                "DownwardMetrics volume must be mapped to a disk, but disk is not set on {field}."
            );
            causes.required(field, message);
        }
        Some(target) => match target.bus.as_deref() {
            None | Some("" | "virtio") => {}
            Some(bus) => {
                let field = format!("{field}.disk.bus");
                let message = format!(
                    "DownwardMetrics volume must be mapped to virtio bus, but {field} is set to {bus}"
                );
                causes.invalid(field, message);
            }
        },
    }
}

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let all = judged.field("domain.devices.disks");
    let disks = &judged.devices().disks;
    for (index, disk) in disks.iter().enumerate() {
        let at = format!("{all}[{index}]");
        for (other, _) in
            disks[..index].iter().enumerate().filter(|(_, other)| other.name == disk.name)
        {
            let message = format!("{at} and {all}[{other}] must not have the same Name.");
            causes.invalid(format!("{at}.name"), message);
        }
        let targets = [disk.disk.is_some(), disk.lun.is_some(), disk.cdrom.is_some()];
        if targets.into_iter().filter(|used| *used).count() > 1 {
            let message = format!("{at} can only have a single target type defined");
            causes.invalid(at.clone(), message);
        }
        check_address(&all, index, disk, causes);
        if disk.boot_order == Some(0) {
            let message = format!("{at} must have a boot order > 0, if supplied");
            causes.invalid(format!("{at}.bootOrder"), message);
        }
        check_bus(&all, index, disk, causes);
        check_serial(&at, disk, causes);
        check_tuning(&all, index, disk, causes);
        for problem in kinds::syntax::label(&disk.name) {
            // Upstream repeats the path inside the path.
            causes.invalid(format!("{all}.domain.devices.disks[{index}].name"), problem);
        }
        if let Some(size) = &disk.block_size {
            check_block_size(&at, size, bus(disk).1, causes);
        }
    }
}

/// Which kind of target a disk has, and its bus.
pub(super) fn bus(disk: &Disk) -> (&'static str, &str) {
    let (kind, bus) = match (&disk.disk, &disk.lun, &disk.cdrom) {
        (Some(target), _, _) => ("disk", target.bus.as_deref()),
        (_, Some(target), _) => ("lun", target.bus.as_deref()),
        (_, _, Some(target)) => ("cdrom", target.bus.as_deref()),
        _ => ("", None),
    };
    (kind, bus.unwrap_or_default())
}

fn check_address(all: &str, index: usize, disk: &Disk, causes: &mut Causes) {
    let address = disk.disk.as_ref().and_then(|target| target.pci_address.as_deref());
    let Some(address) = address.filter(|address| !address.is_empty()) else { return };
    // Upstream's path; the disk is named by its index only.
    let at = format!("{all}.domain.devices.disks.disk[{index}]");
    if bus(disk).1 != "virtio" {
        let message = format!(
            "disk {at}.name - setting a PCI address is only possible with bus type virtio."
        );
        causes.invalid(format!("{at}.pciAddress"), message);
    }
    if !is_pci_address(address) {
        let message = format!("disk {at}.name has malformed PCI address ({address}).");
        causes.invalid(format!("{at}.pciAddress"), message);
    }
}

/// `0000:81:01.7`
pub(super) fn is_pci_address(address: &str) -> bool {
    let parts: Vec<&str> = address.split([':', '.']).collect();
    let shape = address.bytes().filter(|byte| !byte.is_ascii_hexdigit()).eq(*b"::.");
    let hex =
        |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(parts.as_slice(), [domain, bus, slot, function]
        if shape && hex(domain, 4) && hex(bus, 2) && hex(slot, 2)
            && function.len() == 1 && ("0"..="7").contains(function))
}

fn check_bus(all: &str, index: usize, disk: &Disk, causes: &mut Causes) {
    let (kind, bus) = bus(disk);
    let at = format!("{all}[{index}]");
    let field = format!("{at}.{kind}.bus");
    match bus {
        "" => return,
        "ide" => causes.invalid(field, "IDE bus is not supported"),
        "virtio" if kind == "cdrom" => {
            causes.invalid(field, "Bus type virtio is invalid for CD-ROM device");
        }
        "sata" if disk.disk.as_ref().is_some_and(|target| target.readonly == Some(true)) => {
            causes.invalid(field, "sata hard-disks do not support read-only.");
        }
        "virtio" | "sata" | "scsi" | "usb" => {}
        other => {
            let message = format!(
                "{at} is set with an unrecognized bus {other}, must be one of: [virtio scsi sata usb]"
            );
            causes.invalid(field, message);
        }
    }
    if disk.dedicated_io_thread == Some(true) && bus != "virtio" {
        causes.unsupported(
            format!("{all}.domain.devices.disks[{index}]"),
            format!("IOThreads are not supported for disks on a {bus} bus"),
        );
    }
}

const LONGEST_SERIAL: usize = 256;

fn check_serial(at: &str, disk: &Disk, causes: &mut Causes) {
    let serial = disk.serial.as_deref().unwrap_or_default();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.+-".contains(letter);
    if !serial.chars().all(allowed) {
        let message = format!(
            "{at} must be made up of the following characters [A-Za-z0-9_.+-], if specified"
        );
        causes.invalid(format!("{at}.serial"), message);
    }
    if serial.chars().count() > LONGEST_SERIAL {
        let message =
            format!("{at} must be less than or equal to {LONGEST_SERIAL} in length, if specified");
        causes.invalid(format!("{at}.serial"), message);
    }
}

fn check_tuning(all: &str, index: usize, disk: &Disk, causes: &mut Causes) {
    let at = format!("{all}[{index}]");
    if let Some(cache) = disk.cache.as_deref()
        && !matches!(cache, "" | "none" | "writethrough" | "writeback")
    {
        let field = format!("{at}.cache");
        let message = format!("{field} has invalid value {cache}");
        causes.invalid(field, message);
    }
    if !matches!(disk.io.as_deref(), None | Some("" | "native" | "threads")) {
        let message = format!(
            "Disk IO mode for {all} is not supported. Supported modes are: native, threads."
        );
        causes.unsupported(format!("{all}.domain.devices.disks[{index}].io"), message);
    }
    if let Some(policy) = disk.error_policy.as_deref()
        && !matches!(policy, "stop" | "ignore" | "report" | "enospace")
    {
        let field = format!("{at}.errorPolicy");
        let message = format!("{field} has invalid value \"{policy}\"");
        causes.invalid(field, message);
    }
}

const LEAST_BLOCK: u64 = 512;
const MOST_BLOCK: u64 = 2 << 20;

fn check_block_size(at: &str, size: &BlockSize, bus: &str, causes: &mut Causes) {
    let Some(custom) = &size.custom else { return };
    let at = format!("{at}.blockSize");
    if size.match_volume.as_ref().is_some_and(|matching| matching.enabled != Some(false)) {
        causes.invalid(at, "Block size matching can't be enabled together with a custom value");
        return;
    }
    let (logical, physical) =
        (custom.logical.unwrap_or_default(), custom.physical.unwrap_or_default());
    let field = |part: &str| format!("{at}.custom.{part}");
    if logical > physical {
        let message = format!(
            "Logical size {logical} must be the same or less than the physical size of {physical}"
        );
        causes.invalid(field("logical"), message);
    } else if bus == "sata" && logical != LEAST_BLOCK {
        let message = format!("Logical size {logical} must be {LEAST_BLOCK} for SATA devices");
        causes.invalid(field("logical"), message);
    } else if let Some(discard) = custom.discard_granularity
        && logical != 0
        && discard % logical != 0
    {
        let message =
            format!("Discard granularity {discard} must be multiples of logical size {logical}");
        causes.invalid(field("discardGranularity"), message);
    } else {
        for (part, size) in [("logical", logical), ("physical", physical)] {
            let problem = if size < LEAST_BLOCK {
                format!("less than the supported minimum size of {LEAST_BLOCK}")
            } else if size > MOST_BLOCK {
                format!("greater than the supported maximum size of {MOST_BLOCK}")
            } else if !size.is_power_of_two() {
                "not a power of 2".to_owned()
            } else {
                continue;
            };
            causes.invalid(field(part), format!("Provided size of {size} is {problem}"));
        }
    }
}
