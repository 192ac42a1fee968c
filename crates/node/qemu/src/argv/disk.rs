//! Disks on the command line, and the same objects for plugging one into a running machine.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::line::{Line, object, set_some, slot};
use crate::machine::{
    Aio, Bus, Cache, Disk, DiskDevice, DiskSource, ErrorPolicy, FileImage, ImageFormat, InputBus,
    Machine,
};

/// The controller of all SCSI disks.
pub const SCSI: &str = "scsi0";
/// Ports of one AHCI controller; the first controller is part of the board.
const SATA_PORTS: usize = 6;

/// Where on its bus a disk sits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusPosition {
    /// A root port, by name.
    Pci(String),
    /// A logical unit of the SCSI controller.
    Lun(u32),
    /// Whichever unit of the SCSI controller is free.
    AnyLun,
    /// A bus of an AHCI controller, by name.
    Sata(String),
    Usb,
}

pub(super) fn plug_all(line: &mut Line, machine: &Machine) {
    io_threads(line, machine);
    controllers(line, machine);
    let (mut luns, mut sata) = (0u32, 0usize);
    for disk in &machine.disks {
        let place = match disk.bus {
            Bus::Virtio => BusPosition::Pci(line.port(&disk.id(), disk.pci_bus)),
            Bus::Usb => BusPosition::Usb,
            Bus::Scsi => {
                luns += 1;
                BusPosition::Lun(line.lun(&disk.id()).unwrap_or(luns - 1))
            }
            Bus::Sata => {
                sata += 1;
                BusPosition::Sata(sata_bus(line, sata - 1))
            }
        };
        if let DiskSource::VhostUser { socket } = &disk.source {
            let id = disk.storage_node();
            let path = super::line::escape(&socket.to_string_lossy());
            line.option("-chardev", format!("socket,id={id},path={path},reconnect=1"));
        }
        for node in nodes(disk) {
            line.json("-blockdev", &node);
        }
        line.device(&device(disk, &place));
    }
}

fn io_threads(line: &mut Line, machine: &Machine) {
    let dedicated = machine.disks.iter().filter_map(|disk| disk.io_thread.as_ref());
    let names: BTreeSet<&String> = machine.io_threads.iter().chain(dedicated).collect();
    for name in names {
        line.object(&json!({ "qom-type": "iothread", "id": io_thread(name) }));
    }
}

fn io_thread(name: &str) -> String {
    format!("io-{name}")
}

fn controllers(line: &mut Line, machine: &Machine) {
    let mut scsi = machine.disks.iter().filter(|disk| disk.bus == Bus::Scsi).peekable();
    if machine.devices.scsi || scsi.peek().is_some() {
        let mut controller =
            json!({ "driver": "virtio-scsi-pci", "id": SCSI, "bus": line.port(SCSI, None) });
        // Requests of all disks of a controller are handled by one thread.
        let thread = scsi.find_map(|disk| disk.io_thread.as_deref()).map(io_thread);
        set_some(&mut controller, "iothread", thread);
        let queues = Some(machine.devices.scsi_queues).filter(|queues| *queues > 0);
        set_some(&mut controller, "num_queues", queues);
        line.device(&controller);
    }
    let usb_input = machine.devices.inputs.iter().any(|input| input.bus == InputBus::Usb);
    let usb_clients = machine.devices.usb_redirection;
    if usb_input || usb_clients || machine.disks.iter().any(|disk| disk.bus == Bus::Usb) {
        line.device(&json!({
            "driver": "qemu-xhci", "id": "usb", "bus": "pcie.0", "addr": slot::USB,
            "p2": 8, "p3": 8,
        }));
    }
}

/// The bus of the `index`th SATA disk; adds a controller where the ones so far are full.
fn sata_bus(line: &mut Line, index: usize) -> String {
    let (controller, port) = (index / SATA_PORTS, index % SATA_PORTS);
    if controller == 0 {
        return format!("ide.{port}");
    }
    let id = format!("sata{controller}");
    if port == 0 {
        let addr = format!("{}.{:x}", slot::SATA, controller - 1);
        line.device(&json!({
            "driver": "ich9-ahci", "id": id, "bus": "pcie.0", "addr": addr,
            "multifunction": controller == 1,
        }));
    }
    format!("{id}.{port}")
}

/// The block nodes of a disk, lowest first; none for an empty drive or a vhost-user server.
pub fn nodes(disk: &Disk) -> Vec<Value> {
    let (storage, format, backing) = match &disk.source {
        DiskSource::Empty | DiskSource::VhostUser { .. } => return Vec::new(),
        DiskSource::File(image) => {
            let backing = image.backing.as_deref().map(|image| lower(disk, image));
            (file(disk, &image.path), image.format, backing)
        }
        DiskSource::BlockDevice { path } => {
            let node = json!({ "driver": "host_device", "filename": path });
            (with_io(disk, node), ImageFormat::Raw, None)
        }
        DiskSource::Nbd { socket, export, reconnect_delay } => {
            let node = nbd(socket, export, *reconnect_delay);
            (with_cache(disk, node), ImageFormat::Raw, None)
        }
        DiskSource::Overlay { path, socket, export, reconnect_delay } => {
            let mut server = nbd(socket, export, *reconnect_delay);
            server["read-only"] = json!(true);
            let server = with_cache(disk, server);
            let backing = json!({ "driver": "raw", "read-only": true, "file": server });
            (file(disk, path), ImageFormat::Qcow2, Some(backing))
        }
    };
    let mut storage = storage;
    storage["node-name"] = json!(disk.storage_node());
    let mut top = json!({
        "driver": format.name(),
        "node-name": disk.node(),
        "file": disk.storage_node(),
        "read-only": disk.read_only,
        "discard": "unmap",
    });
    if format == ImageFormat::Qcow2 {
        // A null here is not the same as leaving it out: it forbids QEMU to follow the header.
        top["backing"] = backing.unwrap_or(Value::Null);
    }
    vec![storage, with_cache(disk, top)]
}

/// An image below an overlay; it is never written.
fn lower(disk: &Disk, image: &FileImage) -> Value {
    let mut node = json!({
        "driver": image.format.name(),
        "read-only": true,
        "file": with_cache(disk, json!({
            "driver": "file", "filename": image.path, "read-only": true,
        })),
    });
    if image.format == ImageFormat::Qcow2 {
        let backing = image.backing.as_deref();
        node["backing"] = backing.map_or(Value::Null, |image| lower(disk, image));
    }
    node
}

fn file(disk: &Disk, path: &Path) -> Value {
    with_io(disk, json!({ "driver": "file", "filename": path }))
}

fn nbd(socket: &Path, export: &str, reconnect_delay: u32) -> Value {
    json!({
        "driver": "nbd",
        "server": { "type": "unix", "path": socket },
        "export": export,
        "reconnect-delay": reconnect_delay,
    })
}

fn with_io(disk: &Disk, mut node: Value) -> Value {
    node["aio"] = json!(match disk.aio {
        Aio::Threads => "threads",
        Aio::Native => "native",
        Aio::IoUring => "io_uring",
    });
    with_cache(disk, node)
}

fn with_cache(disk: &Disk, mut node: Value) -> Value {
    let direct = disk.cache == Cache::None;
    node["cache"] = json!({ "direct": direct, "no-flush": false });
    if node.get("read-only").is_none() {
        node["read-only"] = json!(disk.read_only);
    }
    // Freed blocks give space back to the host.
    if node.get("discard").is_none() {
        node["discard"] = json!("unmap");
    }
    node
}

/// The device that the guest sees.
pub fn device(disk: &Disk, place: &BusPosition) -> Value {
    let mut device = object();
    device["id"] = json!(disk.id());
    device["driver"] = json!(driver(disk));
    match place {
        BusPosition::Pci(port) => device["bus"] = json!(port),
        BusPosition::Lun(_) | BusPosition::AnyLun => {
            device["bus"] = json!(format!("{SCSI}.0"));
            device["channel"] = json!(0);
            device["scsi-id"] = json!(0);
            if let BusPosition::Lun(lun) = place {
                device["lun"] = json!(lun);
            }
        }
        BusPosition::Sata(bus) => {
            device["bus"] = json!(bus);
            device["unit"] = json!(0);
        }
        BusPosition::Usb => device["bus"] = json!("usb.0"),
    }
    set_some(&mut device, "bootindex", disk.boot_index);
    if let DiskSource::VhostUser { .. } = disk.source {
        device["chardev"] = json!(disk.storage_node());
        return device;
    }
    if disk.source != DiskSource::Empty {
        device["drive"] = json!(disk.node());
    }
    if disk.device == DiskDevice::Lun {
        // A passed-through device answers for itself.
        return device;
    }
    if disk.bus == Bus::Scsi {
        // Clients read /dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-ua-<name>.
        device["device_id"] = json!(format!("drive-{}", disk.id()));
    }
    set_some(&mut device, "serial", disk.serial.clone());
    if disk.bus == Bus::Usb {
        device["removable"] = json!(disk.device == DiskDevice::Cdrom);
    }
    errors(disk, &mut device);
    tuning(disk, &mut device);
    device
}

fn driver(disk: &Disk) -> &'static str {
    match (&disk.source, disk.bus, disk.device) {
        (DiskSource::VhostUser { .. }, ..) => "vhost-user-blk-pci",
        (_, Bus::Virtio, _) => "virtio-blk-pci",
        (_, Bus::Scsi, DiskDevice::Disk) => "scsi-hd",
        (_, Bus::Scsi, DiskDevice::Cdrom) => "scsi-cd",
        (_, Bus::Scsi, DiskDevice::Lun) => "scsi-block",
        (_, Bus::Sata, DiskDevice::Cdrom) => "ide-cd",
        (_, Bus::Sata, _) => "ide-hd",
        (_, Bus::Usb, _) => "usb-storage",
    }
}

fn errors(disk: &Disk, device: &mut Value) {
    let (write, read) = match disk.on_error {
        ErrorPolicy::Stop => ("stop", "stop"),
        ErrorPolicy::Report => ("report", "report"),
        ErrorPolicy::Ignore => ("ignore", "ignore"),
        ErrorPolicy::Enospace => ("enospc", "report"),
    };
    device["werror"] = json!(write);
    device["rerror"] = json!(read);
}

fn tuning(disk: &Disk, device: &mut Value) {
    if disk.device == DiskDevice::Disk {
        let write_back = disk.cache != Cache::WriteThrough;
        device["write-cache"] = json!(if write_back { "on" } else { "off" });
    }
    if disk.shareable {
        device["share-rw"] = json!(true);
    }
    if let Some(sizes) = disk.block_sizes {
        device["logical_block_size"] = json!(sizes.logical);
        device["physical_block_size"] = json!(sizes.physical);
        set_some(device, "discard_granularity", sizes.discard_granularity);
    }
    if disk.bus == Bus::Virtio {
        set_some(device, "iothread", disk.io_thread.as_deref().map(io_thread));
        set_some(device, "num-queues", (disk.queues > 0).then_some(disk.queues));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_keeps_writes_and_only_reads_the_server_below() {
        let source = DiskSource::Overlay {
            path: "/vm/overlay.qcow2".into(),
            socket: "/s.sock".into(),
            export: String::new(),
            reconnect_delay: 300,
        };
        let nodes = nodes(&Disk::new("d", Bus::Virtio, source));
        assert_eq!(nodes[0]["filename"], "/vm/overlay.qcow2");
        assert_eq!((&nodes[1]["driver"], &nodes[1]["read-only"]), (&json!("qcow2"), &json!(false)));
        let below = &nodes[1]["backing"];
        assert_eq!((&below["driver"], &below["read-only"]), (&json!("raw"), &json!(true)));
        assert_eq!(below["file"]["server"]["path"], "/s.sock");
        assert_eq!(below["file"]["read-only"], true);
    }
}
