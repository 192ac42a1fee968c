//! The source's offer of a machine to the target, and the machine that the target makes of it.
//! Pure, but for reading the processor's name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qemu::Machine;
use qemu::machine::{Accelerator, CpuModel, DiskSource, Firmware, NicBackend, Start};
use qemu::qmp::MirrorScope;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::allowance::check_parts;
use super::disk_transfer::DiskTransfer;
use super::local_volume::MovedVolume;

/// A running machine as the source describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MigrationOffer {
    /// The uid of the migration's object.
    pub(crate) migration: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) machine: Machine,
    pub(crate) qemu: String,
    /// Names the processor of the host, for guests that have it as it is.
    pub(crate) processor: String,
    /// Disks with data for the guest, by name.
    #[serde(default)]
    pub(crate) seeds: BTreeMap<String, Content>,
    /// The variables of the firmware.
    #[serde(default)]
    pub(crate) variables: Option<Content>,
    /// Files of the source that its QEMU mirrors to the target, by the name of their disk.
    #[serde(default)]
    pub(crate) copies: BTreeMap<String, CopiedDisk>,
    /// Local volumes that are mirrored too, and are on the target then, by the name of their disk. A
    /// target that does not know them looks for the volumes on its node, and finds none.
    #[serde(default)]
    pub(crate) volumes: BTreeMap<String, CopiedVolume>,
    /// Whether the guest may go on at the target before all of its memory is there.
    #[serde(default)]
    pub(crate) post_copy: bool,
}

/// A disk whose content the target gets from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopiedDisk {
    pub(crate) size: u64,
}

/// A local volume whose data the target gets from the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopiedVolume {
    /// The name of the PersistentVolume.
    pub(crate) volume: String,
    pub(crate) size: u64,
    /// The bytes that it takes at the source.
    pub(crate) allocated: u64,
}

impl MigrationOffer {
    /// The sizes of all disks that are mirrored, by name.
    pub(super) fn mirrored(&self) -> BTreeMap<&str, u64> {
        let copies = self.copies.iter().map(|(disk, copy)| (disk.as_str(), copy.size));
        let volumes = self.volumes.iter().map(|(disk, copy)| (disk.as_str(), copy.size));
        copies.chain(volumes).collect()
    }

    /// The local volumes that come along.
    pub(super) fn moved(&self) -> Vec<MovedVolume> {
        let volumes = self.volumes.iter();
        let moved = volumes.map(|(disk, copy)| (disk.clone(), copy.volume.clone()));
        moved.map(|(disk, volume)| MovedVolume { disk, volume }).collect()
    }
}

/// The target's answer when it waits for the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Prepared {
    /// Whether the guest may go on there before all of its memory is there.
    pub(crate) post_copy: bool,
    /// Why it may not, although the source asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) post_copy_refusal: Option<String>,
    /// The data that each copied disk needs. A target that knows no copies names none.
    pub(crate) copies: BTreeMap<String, MirrorScope>,
}

/// Bytes of a file, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Content(String);

impl Content {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self(STANDARD.encode(bytes))
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>, UnfitMachine> {
        STANDARD.decode(&self.0).map_err(|_| UnfitMachine::Content)
    }
}

/// Why a machine cannot be made as it is elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitMachine {
    #[error(
        "disk {name} was plugged into the USB bus while the guest ran; unplug it or restart the \
         machine to migrate it"
    )]
    HotPluggedUsb { name: String },
    #[error("volumes of the guest are being migrated to other claims")]
    VolumesMove,
    #[error("disk {name} is a file of the node")]
    LocalDisk { name: String },
    #[error(
        "image {image} of disk {name} is another one at the target than the one that the guest \
         uses; restart the machine to migrate it"
    )]
    ImageChanged { name: String, image: String },
    #[error("the machine boots a kernel from a file of the node")]
    Kernel,
    #[error("the memory of the machine is bound to processors of the node")]
    Numa,
    #[error("the target has no {what} {name}")]
    Missing { what: &'static str, name: String },
    #[error("interface {name} has a {source_kind} network here and a {target_kind} one there")]
    Network { name: String, source_kind: &'static str, target_kind: &'static str },
    #[error("the guest runs with {source_kind} and the target has {target_kind}")]
    Accelerator { source_kind: &'static str, target_kind: &'static str },
    #[error("the guest was started by QEMU {source_version} and the target has {target_version}")]
    Version { source_version: String, target_version: String },
    #[error(
        "the guest has the processor of its node as it is, and the target's is another; set \
         spec.domain.cpu.model to one that both have"
    )]
    Processor,
    #[error("the target has no EFI firmware {}", path.display())]
    Firmware { path: PathBuf },
    #[error("the machine has a TPM, and swtpm is not installed on the target")]
    Swtpm,
    #[error("a file of the machine cannot be read from the offer")]
    Content,
    #[error("the source offers {what} that its object does not give the machine")]
    Beyond { what: &'static str },
}

/// Whether the machine can be made again from its description.
pub(super) fn check(machine: &Machine, transfers: &[DiskTransfer]) -> Result<(), UnfitMachine> {
    check_parts(machine)?;
    let mut disks = machine.disks.iter().zip(transfers);
    match disks.find(|(_, transfer)| **transfer == DiskTransfer::Bound) {
        Some((disk, _)) => Err(UnfitMachine::LocalDisk { name: disk.name.clone() }),
        None => Ok(()),
    }
}

/// The target's resources for a machine.
#[derive(Debug)]
pub(super) struct TargetParts<'a> {
    pub(super) accelerator: Accelerator,
    pub(super) qemu: &'a str,
    pub(super) processor: &'a str,
    /// Where disks are here, by name.
    pub(super) disks: &'a BTreeMap<String, DiskSource>,
    pub(super) nics: &'a BTreeMap<String, NicBackend>,
    /// EFI firmware that is installed.
    pub(super) firmware: Vec<PathBuf>,
    pub(super) variables: PathBuf,
    /// The folder for the state of the TPM; nothing if this node has no swtpm.
    pub(super) tpm: Option<PathBuf>,
}

/// The source's machine with the disks and networks of the target, which waits for the stream.
pub(super) fn adapt(
    offer: &MigrationOffer,
    parts: &TargetParts<'_>,
) -> Result<Machine, UnfitMachine> {
    let mut machine = offer.machine.clone();
    if machine.accelerator != parts.accelerator {
        return Err(UnfitMachine::Accelerator {
            source_kind: machine.accelerator.name(),
            target_kind: parts.accelerator.name(),
        });
    }
    if offer.qemu != parts.qemu {
        let (source_version, target_version) = (offer.qemu.clone(), parts.qemu.to_owned());
        return Err(UnfitMachine::Version { source_version, target_version });
    }
    let has_host_cpu = !matches!(machine.cpu.model, CpuModel::Named(_));
    if has_host_cpu && machine.accelerator == Accelerator::Kvm && offer.processor != parts.processor
    {
        return Err(UnfitMachine::Processor);
    }
    for disk in machine.disks.iter_mut().filter(|disk| disk.source != DiskSource::Empty) {
        let missing = || UnfitMachine::Missing { what: "disk", name: disk.name.clone() };
        disk.source = parts.disks.get(&disk.name).cloned().ok_or_else(missing)?;
    }
    for nic in &mut machine.nics {
        let missing = || UnfitMachine::Missing { what: "interface", name: nic.name.clone() };
        let backend = parts.nics.get(&nic.name).ok_or_else(missing)?;
        let (source_kind, target_kind) = (kind(&nic.backend), kind(backend));
        if source_kind != target_kind {
            let name = nic.name.clone();
            return Err(UnfitMachine::Network { name, source_kind, target_kind });
        }
        nic.backend = backend.clone();
    }
    if let Firmware::Efi(efi) = &mut machine.firmware {
        if !parts.firmware.contains(&efi.code) {
            return Err(UnfitMachine::Firmware { path: efi.code.clone() });
        }
        efi.vars.clone_from(&parts.variables);
    }
    if let Some(tpm) = &mut machine.tpm {
        tpm.state = parts.tpm.clone().ok_or(UnfitMachine::Swtpm)?;
    }
    machine.start = Start::Incoming;
    Ok(machine)
}

fn kind(backend: &NicBackend) -> &'static str {
    match backend {
        NicBackend::Tap { .. } => "bridged",
        NicBackend::User { .. } => "user-mode",
    }
}

/// Names the processor of this host: guests that have it as it is need the same elsewhere.
pub(super) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    fingerprint(&text)
}

fn fingerprint(cpuinfo: &str) -> String {
    let named = ["vendor_id", "cpu family", "model", "stepping", "flags"];
    let first = cpuinfo.split("\n\n").next().unwrap_or_default();
    let mut hash = Sha256::new();
    for line in first.lines() {
        let name = line.split(':').next().unwrap_or_default().trim();
        if named.contains(&name) {
            hash.update(line.as_bytes());
            hash.update(b"\n");
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use qemu::machine::{Bus, DeviceLayout, Disk, FileImage, Nic, Tpm, TpmInterface};

    use super::*;

    fn nbd(path: &str) -> DiskSource {
        DiskSource::Nbd { socket: path.into(), export: String::new(), reconnect_delay: 1 }
    }

    fn user() -> NicBackend {
        NicBackend::User { network: None, hostname: None, forwards: vec![] }
    }

    fn offer() -> MigrationOffer {
        let mut machine = Machine::new("m", "u", 1 << 30);
        machine.disks.push(Disk::new("root", Bus::Virtio, nbd("/a/root.sock")));
        let seed = DiskSource::File(FileImage::raw("/a/seed.iso"));
        machine.disks.push(Disk::new("seed", Bus::Virtio, seed));
        machine.nics.push(Nic::new("default", "52:54:00:00:00:01", user()));
        MigrationOffer {
            migration: "m1".into(),
            namespace: "n".into(),
            name: "m".into(),
            uid: "u".into(),
            machine,
            qemu: "7.2.22".into(),
            processor: "p".into(),
            seeds: BTreeMap::from([("seed".to_owned(), Content::new(b"data"))]),
            variables: None,
            copies: BTreeMap::new(),
            volumes: BTreeMap::new(),
            post_copy: false,
        }
    }

    const TRANSFERS: [DiskTransfer; 2] = [DiskTransfer::Shared, DiskTransfer::Seed];

    fn adapted(offer: &MigrationOffer, change: impl Fn(&mut TargetParts<'_>)) -> String {
        let disks = BTreeMap::from([
            ("root".to_owned(), nbd("/b/root.sock")),
            ("seed".to_owned(), DiskSource::File(FileImage::raw("/b/seed.iso"))),
        ]);
        let nics = BTreeMap::from([("default".to_owned(), user())]);
        let mut parts = TargetParts {
            accelerator: Accelerator::Tcg,
            qemu: "7.2.22",
            processor: "q",
            disks: &disks,
            nics: &nics,
            firmware: vec![],
            variables: "/b/vars".into(),
            tpm: Some("/b/tpm".into()),
        };
        change(&mut parts);
        match adapt(offer, &parts) {
            Ok(machine) => {
                let mut expected = offer.machine.clone();
                expected.start = Start::Incoming;
                if let Some(tpm) = &mut expected.tpm {
                    tpm.state = "/b/tpm".into();
                }
                expected.disks[0].source = nbd("/b/root.sock");
                expected.disks[1].source = DiskSource::File(FileImage::raw("/b/seed.iso"));
                assert_eq!(machine, expected, "all else stays as it was");
                "ok".into()
            }
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn the_target_makes_the_same_machine_with_its_own_files() {
        let offer = offer();
        assert_eq!(check(&offer.machine, &TRANSFERS), Ok(()));
        assert_eq!(offer.seeds["seed"].bytes().unwrap(), b"data");
        assert_eq!(adapted(&offer, |_| {}), "ok");
        let has = |text: String, part: &str| assert!(text.contains(part), "{text}");
        has(adapted(&offer, |parts| parts.accelerator = Accelerator::Kvm), "with tcg");
        has(adapted(&offer, |parts| parts.qemu = "8.0.0"), "the target has 8.0.0");
        let none = BTreeMap::new();
        let missing = adapt(
            &offer,
            &TargetParts {
                accelerator: Accelerator::Tcg,
                qemu: "7.2.22",
                processor: "",
                disks: &none,
                nics: &BTreeMap::new(),
                firmware: vec![],
                variables: PathBuf::new(),
                tpm: None,
            },
        );
        has(missing.unwrap_err().to_string(), "the target has no disk root");
    }

    #[test]
    fn what_cannot_be_made_elsewhere_is_named() {
        let unfit = |change: &dyn Fn(&mut Machine)| {
            let mut machine = offer().machine;
            change(&mut machine);
            check(&machine, &TRANSFERS).unwrap_err()
        };
        let plugged = unfit(&|machine| {
            machine.disks[0].hot_plugged = true;
            machine.disks[0].bus = Bus::Usb;
        });
        assert_eq!(plugged, UnfitMachine::HotPluggedUsb { name: "root".into() });
        let transfers = [DiskTransfer::Bound, DiskTransfer::Copy];
        let local = check(&offer().machine, &transfers).unwrap_err();
        assert_eq!(local, UnfitMachine::LocalDisk { name: "root".into() });
        assert_eq!(check(&offer().machine, &[DiskTransfer::Image, DiskTransfer::Copy]), Ok(()));
    }

    #[test]
    fn devices_that_were_plugged_in_and_a_tpm_come_along() {
        let mut offer = offer();
        offer.machine.disks[0].hot_plugged = true;
        offer.machine.nics[0].hot_plugged = true;
        let devices = BTreeMap::from([("ua-root".to_owned(), "hot0".to_owned())]);
        offer.machine.layout = Some(DeviceLayout { ports: 4, devices, luns: BTreeMap::new() });
        offer.machine.tpm = Some(Tpm { interface: TpmInterface::Crb, state: "/a/tpm".into() });
        assert_eq!(check(&offer.machine, &TRANSFERS), Ok(()));
        assert_eq!(adapted(&offer, |_| {}), "ok");
        let refused = adapted(&offer, |parts| parts.tpm = None);
        assert_eq!(refused, UnfitMachine::Swtpm.to_string());
    }

    #[test]
    fn a_processor_is_named_by_what_guests_see_of_it() {
        let one = "processor\t: 0\nvendor_id\t: X\nflags\t\t: a b\ncpu MHz\t: 1000\n\nprocessor: 1";
        let other_speed = one.replace("1000", "2000");
        assert_eq!(fingerprint(one), fingerprint(&other_speed));
        assert_ne!(fingerprint(one), fingerprint(&one.replace("a b", "a")));
    }
}
