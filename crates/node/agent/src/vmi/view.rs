//! The part of the status that describes a running guest, from the object, the process and the
//! guest's own answers. Pure.

use std::collections::BTreeMap;

use qemu::machine::{Bus, Disk, DiskDevice, DiskSource, LinkState};
use qemu::qmp::RunState;
use serde_json::Value;
use virt::v1::VirtualMachineInstanceNetworkInterface as InterfaceStatus;
use virt::{OVERHEAD_RATIO, OverheadRatio};

use super::resolve::{Resolved, is_hotpluggable};
use super::status::{DumpReport, Guest, GuestMemory, Hotplug, Pause, VolumeReport};
use crate::machine::{
    Attachment, GuestInfo, LiveMachine, NetworkLocation, Readiness, Topology, Vmi,
};

/// The address that QEMU's user-mode network gives to its only guest.
const USER_ADDRESS: &str = "10.0.2.15";

pub(super) fn guest(
    vmi: &Vmi,
    live: &LiveMachine,
    volumes: &BTreeMap<String, Resolved>,
    pending: &BTreeMap<String, String>,
    dumps: &BTreeMap<String, DumpReport>,
) -> Guest {
    let info = live.info.borrow().clone();
    let spec = live.running.spec();
    let machine = &spec.machine;
    let pause = match live.running.state() {
        // A guest that is held for an instant is not paused by a user.
        Some(RunState::Paused | RunState::PostMigrate) if live.holding.is_on() => None,
        // Nor is one that was just started.
        Some(RunState::Prelaunch) if !vmi.starts_paused() => None,
        Some(RunState::Paused | RunState::Prelaunch) => Some(Pause::User),
        Some(RunState::IoError) => Some(Pause::IoError),
        _ => None,
    };
    let cpu = &machine.cpu;
    let booted = Topology { sockets: cpu.sockets, cores: cpu.cores, threads: cpu.threads };
    let kind = match info.machine_type.as_str() {
        "" => machine.machine_type.clone(),
        kind => kind.to_owned(),
    };
    Guest {
        pause,
        readiness: if info.silent { Readiness::Silent } else { info.readiness.clone() },
        agent: info.agent.clone(),
        os: info.os.clone(),
        frozen: info.frozen,
        credentials: info.credentials.clone(),
        machine_type: kind,
        topology: info.topology.unwrap_or(booted),
        memory: GuestMemory {
            at_boot: machine.memory.guest,
            current: machine.memory.guest + info.growth,
            requested: requested(vmi).unwrap_or(machine.memory.guest),
            overhead: overhead(vmi, machine),
        },
        user: spec.confinement.identity.map_or(0, |identity| identity.uid),
        volumes: volume_list(vmi, &machine.disks, volumes, pending, dumps),
        moves: Vec::new(),
        movable: Vec::new(),
        interfaces: interfaces(vmi, &machine.nics, &live.attachments(), &info),
    }
}

fn requested(vmi: &Vmi) -> Option<u64> {
    let memory = vmi.spec.domain.memory.as_ref()?;
    u64::try_from(memory.guest.as_ref()?.units()?).ok()
}

/// The memory of QEMU beside the guest's, as measured: its own, page tables, a stack per
/// processor, and the picture; multiplied by the ratio that the instance was placed with.
pub(super) fn overhead(vmi: &Vmi, machine: &qemu::Machine) -> u64 {
    let ratio = vmi.annotations.get(OVERHEAD_RATIO).map(String::as_str).unwrap_or_default();
    let mebibytes = |count: u64| count << 20;
    let picture = if machine.devices.vnc { mebibytes(16) } else { 0 };
    let tables = machine.memory.guest / 512;
    let measured = mebibytes(60) + u64::from(machine.cpu.most()) * mebibytes(4) + picture + tables;
    OverheadRatio::parse(ratio).times(measured) >> 10 << 10
}

fn volume_list(
    vmi: &Vmi,
    disks: &[Disk],
    resolved: &BTreeMap<String, Resolved>,
    pending: &BTreeMap<String, String>,
    dumps: &BTreeMap<String, DumpReport>,
) -> Vec<VolumeReport> {
    let have = vmi.status["volumeStatus"].as_array().cloned().unwrap_or_default();
    let before = |name: &str| have.iter().find(|each| each["name"] == name);
    let targets = targets(disks, &have);
    let mut all = Vec::new();
    for volume in &vmi.spec.volumes {
        let found = resolved.get(&volume.name);
        let target = targets.get(volume.name.as_str()).cloned().unwrap_or_default();
        let why = || pending.get(&volume.name).cloned().unwrap_or_default();
        let hotplug = match (&volume.memory_dump, dumps.get(&volume.name)) {
            (Some(_), Some(report)) => Some(Hotplug::Dump(report.clone())),
            (Some(_), None) => Some(Hotplug::AwaitsDump(why())),
            (None, _) => is_hotpluggable(volume).then(|| match target.as_str() {
                "" => Hotplug::Pending(why()),
                _ => Hotplug::Attached,
            }),
        };
        all.push(VolumeReport {
            name: volume.name.clone(),
            target,
            size: found
                .and_then(|found| found.size)
                .or_else(|| before(&volume.name)?["size"].as_u64()),
            hotplug,
            claim: found
                .and_then(|found| found.claim.clone())
                .or_else(|| before(&volume.name)?.get("persistentVolumeClaimInfo").cloned()),
        });
    }
    for disk in disks.iter().filter(|disk| disk.source != DiskSource::Empty) {
        if !vmi.spec.volumes.iter().any(|volume| volume.name == disk.name) {
            all.push(VolumeReport {
                name: disk.name.clone(),
                target: targets.get(disk.name.as_str()).cloned().unwrap_or_default(),
                size: None,
                hotplug: Some(Hotplug::Detaching),
                claim: None,
            });
        }
    }
    all
}

/// The names that a Linux guest most likely gives to its disks. A disk whose name was reported
/// keeps the name for as long as it is attached.
fn targets<'a>(disks: &'a [Disk], have: &[Value]) -> BTreeMap<&'a str, String> {
    let mut targets: BTreeMap<&str, String> = BTreeMap::new();
    for disk in disks {
        let before = have.iter().find(|each| each["name"] == disk.name.as_str());
        let known = before.and_then(|before| before["target"].as_str()).unwrap_or_default();
        if !known.is_empty() {
            targets.insert(&disk.name, known.to_owned());
        }
    }
    for disk in disks {
        if targets.contains_key(disk.name.as_str()) {
            continue;
        }
        let prefix = match (disk.bus, disk.device) {
            (Bus::Virtio, DiskDevice::Disk | DiskDevice::Lun) => "vd",
            _ => "sd",
        };
        let free = (0..).map(|index| format!("{prefix}{}", letters(index)));
        let mut free = free.filter(|name| !targets.values().any(|taken| taken == name));
        targets.insert(&disk.name, free.next().expect("there are endless names"));
    }
    targets
}

/// a, b, …, z, aa, ab, …
fn letters(mut index: u32) -> String {
    let mut name = String::new();
    loop {
        let letter = char::from(b'a' + u8::try_from(index % 26).unwrap_or(0));
        name.insert(0, letter);
        if index < 26 {
            return name;
        }
        index = index / 26 - 1;
    }
}

fn interfaces(
    vmi: &Vmi,
    nics: &[qemu::machine::Nic],
    attachments: &[Attachment],
    info: &GuestInfo,
) -> Vec<InterfaceStatus> {
    let mut all: Vec<InterfaceStatus> = nics
        .iter()
        .map(|nic| {
            let attachment = attachments.iter().find(|each| each.interface == nic.name);
            interface(vmi, nic, attachment, info)
        })
        .collect();
    // Further interfaces of the guest, tunnels and bridges for instance.
    for reported in &info.interfaces {
        let known = nics.iter().any(|nic| nic.mac.eq_ignore_ascii_case(&reported.hardware_address));
        if !known && reported.name != "lo" && !reported.hardware_address.is_empty() {
            let addresses = addresses(reported);
            all.push(InterfaceStatus {
                ip_address: addresses.first().cloned(),
                ip_addresses: addresses,
                mac: Some(reported.hardware_address.clone()),
                interface_name: Some(reported.name.clone()),
                info_source: Some("guest-agent".into()),
                ..InterfaceStatus::default()
            });
        }
    }
    all
}

fn interface(
    vmi: &Vmi,
    nic: &qemu::machine::Nic,
    attachment: Option<&Attachment>,
    info: &GuestInfo,
) -> InterfaceStatus {
    let given = attachment.and_then(|attachment| match &attachment.place {
        NetworkLocation::Nat { address, .. } => Some(address.to_string()),
        NetworkLocation::User => Some(USER_ADDRESS.to_owned()),
        NetworkLocation::Bridge { .. } => info.learned.get(&attachment.interface).cloned(),
    });
    let reported =
        info.interfaces.iter().find(|it| nic.mac.eq_ignore_ascii_case(&it.hardware_address));
    let pod = vmi.spec.networks.iter().any(|each| each.name == nic.name && each.pod.is_some());
    // On the guest network, the first address is the assigned one, never one that the guest reports.
    let reported_addresses = reported.filter(|_| !pod || given.is_some());
    let mut all = reported_addresses.map(addresses).unwrap_or_default();
    if let Some(given) = &given {
        // The address by which others reach it comes first.
        all.retain(|address| address != given);
        all.insert(0, given.clone());
    }
    InterfaceStatus {
        ip_address: all.first().cloned(),
        ip_addresses: all,
        mac: Some(nic.mac.clone()),
        name: Some(nic.name.clone()),
        pod_interface_name: pod.then(|| "eth0".to_owned()),
        interface_name: reported.map(|reported| reported.name.clone()),
        info_source: Some(if reported.is_some() { "domain, guest-agent" } else { "domain" }.into()),
        queue_count: Some(attachment.map_or(1, |attachment| i32::from(attachment.queues))),
        link_state: Some(if nic.link == LinkState::Up { "up" } else { "down" }.into()),
    }
}

/// Those of version 4 first; addresses that mean nothing beyond the link are left out.
fn addresses(reported: &qemu::guest_agent::Interface) -> Vec<String> {
    let mut all: Vec<String> = reported
        .ip_addresses
        .iter()
        .map(|address| address.ip_address.clone())
        .filter(|address| !address.to_ascii_lowercase().starts_with("fe80:"))
        .collect();
    all.sort_by_key(|address| address.contains(':'));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn disk(name: &str, bus: Bus) -> Disk {
        Disk::new(name, bus, DiskSource::Empty)
    }

    #[test]
    fn disks_are_named_as_linux_does_and_keep_their_names() {
        let disks = [disk("a", Bus::Virtio), disk("b", Bus::Sata), disk("c", Bus::Virtio)];
        let named = targets(&disks, &[]);
        assert_eq!((&*named["a"], &*named["b"], &*named["c"]), ("vda", "sda", "vdb"));
        // The first was removed, and a new one came.
        let have = [json!({"name": "c", "target": "vdb"})];
        let disks = [disk("c", Bus::Virtio), disk("d", Bus::Virtio)];
        let named = targets(&disks, &have);
        assert_eq!((&*named["c"], &*named["d"]), ("vdb", "vda"));
    }

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!([0, 25, 26, 51, 52].map(letters), ["a", "z", "aa", "az", "ba"]);
    }
}
