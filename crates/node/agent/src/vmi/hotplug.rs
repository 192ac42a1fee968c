//! The changes that bring a running machine to the state of its object. Pure.
//!
//! Only what can change in place is compared: hot-pluggable disks, media of CD drives,
//! interfaces, links, processor sockets and memory. All else waits for the next start, and
//! saying so is the affair of the VirtualMachine's controller.

use qemu::Machine;
use qemu::machine::{Bus, Disk, DiskDevice, DiskSource, LinkState, Nic};

use super::resolve::is_hotpluggable;
use crate::machine::Vmi;

/// Memory is added in blocks of this size.
const BLOCK: u64 = 2 << 20;

/// One change, in the words of `qemu`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HotplugChange {
    PlugDisk(Disk),
    UnplugDisk(Disk),
    /// The drive with the medium that is to be in it.
    Medium(Disk),
    /// An interface of this name came.
    PlugNic(String),
    UnplugNic(Nic),
    SetLink(Nic),
    /// As many sockets are to be filled.
    FillSockets(u32),
    /// Bytes beyond what the guest had at its start.
    Grow(u64),
}

/// The state of the running machine besides its start configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunningDevices {
    pub(super) sockets: u32,
    pub(super) growth: u64,
}

/// Brings `machine` nearer to the object. `wanted` are the disks of the object whose volumes
/// have been found.
pub(super) fn changes(
    vmi: &Vmi,
    wanted: &[Disk],
    machine: &Machine,
    now: RunningDevices,
) -> Vec<HotplugChange> {
    let mut changes = disks(vmi, wanted, machine);
    changes.extend(nics(vmi, machine));
    let cpu = vmi.spec.domain.cpu.as_ref();
    let sockets = cpu.and_then(|cpu| cpu.sockets).unwrap_or(machine.cpu.sockets);
    if sockets > now.sockets && sockets <= machine.cpu.max_sockets {
        changes.push(HotplugChange::FillSockets(sockets));
    }
    if let Some(growth) = growth(vmi, machine)
        && growth != now.growth
    {
        changes.push(HotplugChange::Grow(growth));
    }
    changes
}

fn disks(vmi: &Vmi, wanted: &[Disk], machine: &Machine) -> Vec<HotplugChange> {
    let mut changes = Vec::new();
    for disk in &machine.disks {
        let specified = vmi.spec.domain.devices.disks.iter().any(|each| each.name == disk.name);
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name);
        if disk.device == DiskDevice::Cdrom && specified {
            let want = wanted.iter().find(|each| each.name == disk.name);
            match (want, volume) {
                (Some(want), _) if want.source != disk.source => {
                    let changed = Disk { source: want.source.clone(), ..disk.clone() };
                    changes.push(HotplugChange::Medium(changed));
                }
                (None, None) if disk.source != DiskSource::Empty => {
                    let empty = Disk { source: DiskSource::Empty, ..disk.clone() };
                    changes.push(HotplugChange::Medium(empty));
                }
                _ => {}
            }
            continue;
        }
        if volume.is_none() && can_unplug(disk) {
            changes.push(HotplugChange::UnplugDisk(disk.clone()));
        }
    }
    for disk in wanted {
        let volume = vmi.spec.volumes.iter().find(|volume| volume.name == disk.name);
        let attached = machine.disks.iter().any(|each| each.name == disk.name);
        if !attached && volume.is_some_and(is_hotpluggable) && disk.device != DiskDevice::Cdrom {
            changes.push(HotplugChange::PlugDisk(disk.clone()));
        }
    }
    changes
}

/// A disk that boots the guest, or sits where nothing can be pulled, stays.
fn can_unplug(disk: &Disk) -> bool {
    matches!(disk.bus, Bus::Virtio | Bus::Scsi | Bus::Usb)
}

fn nics(vmi: &Vmi, machine: &Machine) -> Vec<HotplugChange> {
    let mut changes = Vec::new();
    let interfaces = &vmi.spec.domain.devices.interfaces;
    for interface in interfaces {
        let state = interface.state.as_deref().unwrap_or_default();
        let attached = machine.nics.iter().find(|nic| nic.name == interface.name);
        match (attached, state) {
            (Some(nic), "absent") => changes.push(HotplugChange::UnplugNic(nic.clone())),
            (None, "absent") => {}
            (None, _) => changes.push(HotplugChange::PlugNic(interface.name.clone())),
            (Some(nic), state) => {
                let link = if state == "down" { LinkState::Down } else { LinkState::Up };
                if nic.link != link {
                    changes.push(HotplugChange::SetLink(Nic { link, ..nic.clone() }));
                }
            }
        }
    }
    for nic in &machine.nics {
        if !interfaces.iter().any(|interface| interface.name == nic.name) {
            changes.push(HotplugChange::UnplugNic(nic.clone()));
        }
    }
    changes
}

/// The memory that the guest is to have beyond its start; nothing if it cannot be given.
fn growth(vmi: &Vmi, machine: &Machine) -> Option<u64> {
    let most = machine.memory.growth();
    let wanted = vmi.spec.domain.memory.as_ref()?.guest.as_ref()?.units()?;
    let growth = u64::try_from(wanted).ok()?.checked_sub(machine.memory.guest)?;
    (most > 0 && growth <= most).then_some(growth / BLOCK * BLOCK)
}

#[cfg(test)]
mod tests {
    use qemu::machine::{FileImage, NicBackend};
    use serde_json::{Value, json};

    use super::*;
    use crate::machine::fixture::vmi;

    fn disk(name: &str, bus: Bus, path: &str) -> Disk {
        Disk::new(name, bus, DiskSource::File(FileImage::raw(path)))
    }

    fn machine() -> Machine {
        let mut machine = Machine::new("m", "u", 1 << 30);
        machine.disks = vec![disk("root", Bus::Sata, "/root")];
        machine.nics = vec![nic("a")];
        machine.cpu.max_sockets = 4;
        machine.memory.max = 4 << 30;
        machine
    }

    fn nic(name: &str) -> Nic {
        let backend = NicBackend::Tap { ifname: "t".into(), queues: 1, vhost: false };
        Nic::new(name, "02:00:00:00:00:01", backend)
    }

    fn check(
        change: impl Fn(&mut Value),
        machine: &Machine,
        wanted: &[Disk],
        want: &[HotplugChange],
    ) {
        let mut spec = json!({
            "domain": {
                "cpu": {"sockets": 1},
                "memory": {"guest": "1Gi"},
                "devices": {
                    "disks": [{"name": "root"}],
                    "interfaces": [{"name": "a"}],
                },
            },
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}],
        });
        change(&mut spec);
        let now = RunningDevices { sockets: 1, growth: 0 };
        assert_eq!(changes(&vmi(spec), wanted, machine, now), want);
    }

    #[test]
    fn a_machine_as_specified_is_left_alone() {
        check(|_| {}, &machine(), &[disk("root", Bus::Sata, "/root")], &[]);
    }

    #[test]
    fn a_hotpluggable_volume_comes_and_goes() {
        let new = disk("new", Bus::Scsi, "/new");
        let with_new = |hotpluggable: bool| {
            move |spec: &mut Value| {
                let claim = json!({"claimName": "new", "hotpluggable": hotpluggable});
                let volume = json!({"name": "new", "persistentVolumeClaim": claim});
                spec["volumes"].as_array_mut().unwrap().push(volume);
                let disks = spec["domain"]["devices"]["disks"].as_array_mut().unwrap();
                disks.push(json!({"name": "new", "disk": {"bus": "scsi"}}));
            }
        };
        check(
            with_new(true),
            &machine(),
            std::slice::from_ref(&new),
            &[HotplugChange::PlugDisk(new.clone())],
        );
        check(with_new(false), &machine(), std::slice::from_ref(&new), &[]);
        // Its claim is not bound yet.
        check(with_new(true), &machine(), &[], &[]);
        let mut attached = machine();
        attached.disks.push(new.clone());
        check(with_new(true), &attached, std::slice::from_ref(&new), &[]);
        check(|_| {}, &attached, &[], &[HotplugChange::UnplugDisk(new)]);
    }

    #[test]
    fn a_cd_is_ejected_and_inserted() {
        let mut with_cd = machine();
        let mut cd = disk("cd", Bus::Sata, "/one.iso");
        cd.device = DiskDevice::Cdrom;
        with_cd.disks.push(cd.clone());
        let drive = |spec: &mut Value| {
            let disks = spec["domain"]["devices"]["disks"].as_array_mut().unwrap();
            disks.push(json!({"name": "cd", "cdrom": {}}));
        };
        let empty = Disk { source: DiskSource::Empty, ..cd.clone() };
        check(drive, &with_cd, &[], &[HotplugChange::Medium(empty)]);
        let other = Disk { source: DiskSource::File(FileImage::raw("/two.iso")), ..cd };
        check(
            drive,
            &with_cd,
            std::slice::from_ref(&other),
            &[HotplugChange::Medium(other.clone())],
        );
    }

    #[test]
    fn interfaces_come_go_and_lose_their_link() {
        let add = |spec: &mut Value| {
            let interfaces = &mut spec["domain"]["devices"]["interfaces"];
            interfaces.as_array_mut().unwrap().push(json!({"name": "b", "bridge": {}}));
        };
        check(add, &machine(), &[], &[HotplugChange::PlugNic("b".into())]);
        let absent = |spec: &mut Value| {
            spec["domain"]["devices"]["interfaces"][0]["state"] = "absent".into();
        };
        check(absent, &machine(), &[], &[HotplugChange::UnplugNic(nic("a"))]);
        let down = |spec: &mut Value| {
            spec["domain"]["devices"]["interfaces"][0]["state"] = "down".into();
        };
        let unlinked = Nic { link: LinkState::Down, ..nic("a") };
        check(down, &machine(), &[], &[HotplugChange::SetLink(unlinked)]);
    }

    #[test]
    fn processors_and_memory_grow_within_their_bounds() {
        let sockets = |count: u32| {
            move |spec: &mut Value| {
                spec["domain"]["cpu"]["sockets"] = count.into();
            }
        };
        check(sockets(3), &machine(), &[], &[HotplugChange::FillSockets(3)]);
        check(sockets(5), &machine(), &[], &[]);
        let memory = |size: &'static str| {
            move |spec: &mut Value| {
                spec["domain"]["memory"]["guest"] = size.into();
            }
        };
        check(memory("2Gi"), &machine(), &[], &[HotplugChange::Grow(1 << 30)]);
        check(memory("8Gi"), &machine(), &[], &[]);
        check(memory("512Mi"), &machine(), &[], &[]);
    }
}
