//! The limits of an offer: what the object of a machine gives it at the target. Pure.

use qemu::Machine;
use qemu::machine::{Backing, Bus, Cpu, Disk, DiskDevice, Memory};

use super::offer::UnfitMachine;

/// Whether all parts of the machine can be at another node.
pub(super) fn check_parts(machine: &Machine) -> Result<(), UnfitMachine> {
    // QEMU does not say which port of the USB bus it chose.
    let on_usb = |disk: &&Disk| disk.hot_plugged && disk.bus == Bus::Usb;
    if let Some(disk) = machine.disks.iter().find(on_usb) {
        return Err(UnfitMachine::HotPluggedUsb { name: disk.name.clone() });
    }
    if machine.kernel.is_some() {
        return Err(UnfitMachine::Kernel);
    }
    if machine.numa.iter().any(|node| node.host_node.is_some()) {
        return Err(UnfitMachine::Numa);
    }
    Ok(())
}

/// More root ports than a machine can have.
const MOST_PORTS: u32 = 256;

/// Whether an offer stays within what the object says of the machine. An attacker on the source may
/// have written it: it must neither open files of this node, such as a kernel, nor take more memory
/// and processors than the scheduler has counted here.
pub(super) fn check_offer(
    machine: &Machine,
    (memory, cpu): (&Memory, &Cpu),
) -> Result<(), UnfitMachine> {
    check_parts(machine)?;
    let offered = &machine.memory;
    let bytes = |memory: &Memory| memory.guest.max(memory.max);
    let processors = |cpu: &Cpu| {
        let sockets = u128::from(cpu.max_sockets.max(cpu.sockets));
        sockets * u128::from(cpu.cores) * u128::from(cpu.threads)
    };
    let has_own_pages = matches!(offered.backing, Backing::HugePages(_));
    let beyond = [
        // Memory grows in blocks, counted from what the guest started with.
        (bytes(offered) > bytes(memory).saturating_add(qemu::argv::GROWTH_BLOCK), "memory"),
        (has_own_pages && offered.backing != memory.backing, "huge pages"),
        (offered.locked && !memory.locked, "locked memory"),
        (processors(&machine.cpu) > processors(cpu), "processors"),
        (machine.layout.as_ref().is_some_and(|own| own.ports > MOST_PORTS), "PCI ports"),
    ];
    match beyond.into_iter().find(|(is_beyond, _)| *is_beyond) {
        Some((_, what)) => Err(UnfitMachine::Beyond { what }),
        None => Ok(()),
    }
}

/// Whether an offered disk has no more access than `own`, the disk as this node would make it.
pub(super) fn check_disk(offered: &Disk, own: &Disk) -> Result<(), UnfitMachine> {
    if own.read_only && !offered.read_only {
        return Err(UnfitMachine::Beyond { what: "write access to a disk" });
    }
    if offered.device == DiskDevice::Lun && own.device != DiskDevice::Lun {
        return Err(UnfitMachine::Beyond { what: "the commands of a SCSI device" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use qemu::machine::{DeviceLayout, DiskSource};

    use super::*;

    #[test]
    fn the_source_cannot_take_more_of_the_target_than_the_object_gives() {
        let (memory, cpu) = (Memory::of(1 << 30), Cpu::default());
        let judged = |change: &dyn Fn(&mut Machine)| {
            let mut machine = Machine::new("m", "u", 1 << 30);
            change(&mut machine);
            check_offer(&machine, (&memory, &cpu)).err()
        };
        assert_eq!(judged(&|_| {}), None);
        let kernel = qemu::machine::Kernel {
            image: "/etc/passwd".into(),
            initrd: Some("/".into()),
            arguments: String::new(),
        };
        assert_eq!(judged(&|own| own.kernel = Some(kernel.clone())), Some(UnfitMachine::Kernel));
        let host_node =
            qemu::machine::NumaNode { memory: 1 << 30, cpus: vec![0], host_node: Some(0) };
        assert_eq!(judged(&|own| own.numa = vec![host_node.clone()]), Some(UnfitMachine::Numa));
        type Change<'a> = &'a dyn Fn(&mut Machine);
        let cases: [(&'static str, Change<'_>); 7] = [
            ("memory", &|own| own.memory.guest = 1 << 40),
            ("memory", &|own| own.memory.max = u64::MAX),
            ("huge pages", &|own| own.memory.backing = Backing::HugePages(2 << 20)),
            ("locked memory", &|own| own.memory.locked = true),
            ("processors", &|own| own.cpu.max_sockets = 64),
            ("processors", &|own| (own.cpu.cores, own.cpu.threads) = (u32::MAX, u32::MAX)),
            ("PCI ports", &|own| {
                let (devices, luns) = (BTreeMap::new(), BTreeMap::new());
                own.layout = Some(DeviceLayout { ports: u32::MAX, devices, luns });
            }),
        ];
        for (what, change) in cases {
            assert_eq!(judged(change), Some(UnfitMachine::Beyond { what }));
        }
        // A machine that has grown, and may grow by what is left.
        let most = Memory { max: 3 << 30, ..Memory::of(2 << 30) };
        let mut grown = Machine::new("m", "u", 1 << 30);
        grown.memory.max = (3 << 30) + 1;
        assert_eq!(check_offer(&grown, (&most, &cpu)), Ok(()));
    }

    #[test]
    fn the_source_cannot_write_to_a_disk_that_the_object_only_reads() {
        let disk = |device: DiskDevice, read_only: bool| Disk {
            device,
            read_only,
            ..Disk::new("root", Bus::Scsi, DiskSource::Empty)
        };
        use DiskDevice::{Disk as Plain, Lun};
        for (offered, own, fits) in [
            (disk(Plain, false), disk(Plain, false), true),
            (disk(Plain, true), disk(Plain, false), true),
            (disk(Plain, true), disk(Plain, true), true),
            (disk(Plain, false), disk(Plain, true), false),
            (disk(Lun, false), disk(Lun, false), true),
            (disk(Lun, false), disk(Plain, false), false),
        ] {
            assert_eq!(check_disk(&offered, &own).is_ok(), fits, "{offered:?} {own:?}");
        }
    }
}
