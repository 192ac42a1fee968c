//! Disks: the guest's side of a volume.

use qemu::machine::{Aio, BlockSizes, Bus, Cache, Disk, DiskDevice, DiskSource, ErrorPolicy};
use virt::v1::{DomainSpec, Volume};

use super::{TranslateContext, TranslateError, VolumeBacking};
use crate::machine::Vmi;

/// The thread that all disks share under the policy `shared`.
const SHARED: &str = "shared";
/// How many threads the policy `auto` makes at most, whatever the number of disks.
const MOST_THREADS: usize = 4;

pub(super) fn disks(vmi: &Vmi, around: &TranslateContext<'_>) -> Result<Vec<Disk>, TranslateError> {
    let specs = &vmi.spec.domain.devices.disks;
    let mut disks = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == spec.name);
        // A disk whose volume is not there yet is plugged in when it comes.
        let backing = around.volumes.get(&spec.name);
        if volume.is_some() && backing.is_none() {
            continue;
        }
        if volume.is_none() && spec.cdrom.is_none() {
            continue;
        }
        let mut disk = disk(vmi, spec, backing)?;
        disk.boot_index = boot_index(vmi, index);
        disks.push(disk);
    }
    Ok(disks)
}

/// One disk, without its place in the boot order.
pub(crate) fn disk(
    vmi: &Vmi,
    spec: &virt::v1::Disk,
    backing: Option<&VolumeBacking>,
) -> Result<Disk, TranslateError> {
    let refuse = |problem| TranslateError::Disk { disk: spec.name.clone(), problem };
    let (device, bus, read_only) = match (&spec.disk, &spec.cdrom, &spec.lun) {
        (_, Some(cdrom), _) => {
            (DiskDevice::Cdrom, cdrom.bus.as_deref(), cdrom.readonly != Some(false))
        }
        (_, _, Some(lun)) => (DiskDevice::Lun, lun.bus.as_deref(), lun.readonly == Some(true)),
        (Some(disk), _, _) => (DiskDevice::Disk, disk.bus.as_deref(), disk.readonly == Some(true)),
        _ => (DiskDevice::Disk, None, false),
    };
    let bus = match bus.unwrap_or_default() {
        "virtio" => Bus::Virtio,
        "scsi" => Bus::Scsi,
        "usb" => Bus::Usb,
        "" if device == DiskDevice::Lun => Bus::Scsi,
        "" | "sata" => Bus::Sata,
        _ => return Err(refuse("its bus is not virtio, scsi, sata or usb")),
    };
    if bus == Bus::Virtio && device == DiskDevice::Cdrom {
        return Err(refuse("a CD-ROM cannot be on the virtio bus"));
    }
    let source = backing.map_or(DiskSource::Empty, |backing| backing.source.clone());
    // Only a device of the host can be passed through; a file is shown as a disk.
    let device = match (device, &source) {
        (DiskDevice::Lun, DiskSource::BlockDevice { .. }) => DiskDevice::Lun,
        (DiskDevice::Lun, _) => DiskDevice::Disk,
        (device, _) => device,
    };
    let cache = cache(spec.cache.as_deref(), backing);
    let mut disk = Disk::new(spec.name.clone(), bus, source);
    disk.device = device;
    disk.read_only = read_only || backing.is_some_and(|backing| backing.read_only);
    disk.serial = spec.serial.clone().filter(|serial| !serial.is_empty());
    disk.cache = cache;
    disk.aio = aio(spec.io.as_deref(), cache, backing);
    disk.on_error = match spec.error_policy.as_deref() {
        Some("report") => ErrorPolicy::Report,
        Some("ignore") => ErrorPolicy::Ignore,
        Some("enospace") => ErrorPolicy::Enospace,
        _ => ErrorPolicy::Stop,
    };
    disk.block_sizes = block_sizes(spec);
    disk.shareable = spec.shareable == Some(true);
    disk.io_thread = io_thread(vmi, spec, bus);
    if vmi.spec.domain.devices.block_multi_queue == Some(true) && bus == Bus::Virtio {
        disk.queues = u16::try_from(super::board::cpu(&vmi.spec.domain).count()).unwrap_or(0);
    }
    let address = spec.disk.as_ref().and_then(|target| target.pci_address.as_deref());
    disk.pci_bus = super::pci_bus(&spec.name, address)?;
    Ok(disk)
}

/// Past the page cache where that works: the host's memory is for guests, not twice for
/// their disks.
fn cache(wanted: Option<&str>, backing: Option<&VolumeBacking>) -> Cache {
    let direct = backing.is_some_and(|backing| backing.direct);
    match wanted.unwrap_or_default() {
        "none" if direct => Cache::None,
        "writethrough" => Cache::WriteThrough,
        "writeback" => Cache::WriteBack,
        "" if direct => Cache::None,
        // Upstream's default is writethrough; the guest's flushes make data durable as well,
        // and a write-back cache has always been announced to it.
        _ => Cache::WriteBack,
    }
}

fn aio(wanted: Option<&str>, cache: Cache, backing: Option<&VolumeBacking>) -> Aio {
    let allocated = backing.is_some_and(|backing| backing.allocated);
    match wanted {
        Some("native") if cache == Cache::None => Aio::Native,
        None | Some("") if cache == Cache::None && allocated => Aio::Native,
        _ => Aio::Threads,
    }
}

fn block_sizes(spec: &virt::v1::Disk) -> Option<BlockSizes> {
    let custom = spec.block_size.as_ref()?.custom.as_ref()?;
    let bytes = |size: u64| u32::try_from(size).ok();
    Some(BlockSizes {
        logical: bytes(custom.logical?)?,
        physical: custom.physical.and_then(bytes).or_else(|| bytes(custom.logical?))?,
        discard_granularity: custom.discard_granularity.and_then(bytes),
    })
}

/// QEMU's boot index of the disk at `index` of the specification. Without any order in it,
/// disks boot as they are listed.
pub(super) fn boot_index(vmi: &Vmi, index: usize) -> Option<u32> {
    let devices = &vmi.spec.domain.devices;
    let spec = devices.disks.get(index)?;
    let ordered = devices.disks.iter().any(|disk| disk.boot_order.is_some())
        || devices.interfaces.iter().any(|interface| interface.boot_order.is_some());
    if ordered {
        return spec.boot_order.and_then(|order| u32::try_from(order).ok());
    }
    let bootable = |name: &str| vmi.spec.volumes.iter().find(|volume| volume.name == name);
    let before = &devices.disks[..index];
    let place = before.iter().filter(|disk| bootable(&disk.name).is_some_and(is_bootable)).count();
    bootable(&spec.name).is_some_and(is_bootable).then(|| u32::try_from(place + 1).ok())?
}

/// Whether a volume may hold an operating system; seeds do not.
fn is_bootable(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.data_volume.is_some()
        || volume.container_disk.is_some()
        || volume.host_disk.is_some()
        || volume.ephemeral.is_some()
}

/// Names of the threads that disks share.
pub(super) fn io_threads(domain: &DomainSpec) -> Vec<String> {
    match domain.io_threads_policy.as_deref() {
        Some("shared") => vec![SHARED.into()],
        Some("auto") => pool(domain.devices.disks.len().clamp(1, MOST_THREADS)),
        Some("supplementalPool") => {
            let threads = domain.io_threads.as_ref();
            let count = threads.and_then(|threads| threads.supplemental_pool_thread_count);
            pool(count.unwrap_or(1) as usize)
        }
        _ => Vec::new(),
    }
}

fn pool(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("pool-{index}")).collect()
}

fn io_thread(vmi: &Vmi, spec: &virt::v1::Disk, bus: Bus) -> Option<String> {
    if bus != Bus::Virtio {
        return None;
    }
    if spec.dedicated_io_thread == Some(true) {
        return Some(spec.name.clone());
    }
    let threads = io_threads(&vmi.spec.domain);
    let disks = &vmi.spec.domain.devices.disks;
    let index = disks.iter().position(|disk| disk.name == spec.name).unwrap_or(0);
    (!threads.is_empty()).then(|| threads[index % threads.len()].clone())
}
