//! Volumes that come and go while a guest runs.

use serde_json::Value;

use super::disk::bus;
use super::{Causes, Denial, read};
use crate::config::ClusterConfig;
use crate::state::{list, text};
use crate::v1::Disk;

/// Whether a disk can be attached to a running guest.
pub(super) fn check_disk(
    disk: &Value,
    name: &str,
    what: &str,
    field: &str,
    causes: &mut Causes,
) -> Result<(), Denial> {
    if !disk.is_object() {
        causes.invalid(field, format!("{what} for [{name}] requires the disk field to be set."));
        return Ok(());
    }
    let disk: Disk = read(disk)?;
    let (kind, bus) = bus(&disk);
    match kind {
        "disk" if !matches!(bus, "scsi" | "virtio") => causes.invalid(
            field,
            format!("{what} for disk [{name}] requires bus to be 'scsi' or 'virtio'. [{bus}] is not permitted."),
        ),
        "lun" if bus != "scsi" => causes.invalid(
            field,
            format!("{what} for LUN [{name}] requires bus to be 'scsi'. [{bus}] is not permitted."),
        ),
        "disk" | "lun" if disk.dedicated_io_thread == Some(true) && bus != "virtio" => {
            causes.invalid(field, format!("{what} for [{name}] requires virtio bus for IOThreads."));
        }
        "disk" | "lun" => {}
        _ => causes.invalid(
            field,
            format!("{what} for [{name}] requires diskDevice of type 'disk' or 'lun' to be used."),
        ),
    }
    if causes.is_empty() && disk.boot_order == Some(0) {
        causes.invalid(
            "spec.domain.devices.disks[1].bootOrder",
            "spec.domain.devices.disks[1] must have a boot order > 0, if supplied",
        );
    }
    Ok(())
}

/// Volumes that an instance had from the start stay; others come with a fitting disk.
pub(super) fn check(
    new: &Value,
    old: &Value,
    config: &ClusterConfig,
    causes: &mut Causes,
) -> Result<(), Denial> {
    if let Some(problem) = mismatch(new, config) {
        causes.invalid("", problem);
        return Ok(());
    }
    let permanent: Vec<&str> = list(&old["status"]["volumeStatus"])
        .iter()
        .filter(|status| status["hotplugVolume"].is_null())
        .map(|status| text(status, "/name"))
        .collect();
    let moved: Vec<&str> = list(&new["status"]["migratedVolumes"])
        .iter()
        .map(|volume| text(volume, "/volumeName"))
        .collect();
    let (volumes, before) = (list(&new["spec"]["volumes"]), list(&old["spec"]["volumes"]));
    let is_permanent = |volume: &&Value| permanent.contains(&text(volume, "/name"));
    if volumes.iter().filter(is_permanent).count() != before.iter().filter(is_permanent).count() {
        causes.invalid("", "Number of permanent volumes has changed");
        return Ok(());
    }
    let (permanents, guests): (Vec<&Value>, Vec<&Value>) = volumes.iter().partition(is_permanent);
    for volume in permanents {
        let name = text(volume, "/name");
        let problem = match find(before, name) {
            None => "volume {}, not found",
            Some(_) if moved.contains(&name) => continue,
            Some(old) if old != volume => "volume {}, changed",
            Some(_) if find(disks(new), name) != find(disks(old), name) => "disk {}, changed",
            Some(_) => continue,
        };
        causes.invalid("", format!("permanent {}", problem.replace("{}", name)));
        return Ok(());
    }
    for volume in guests {
        check_guest(volume, new, old, moved.contains(&text(volume, "/name")), causes)?;
        if !causes.is_empty() {
            break;
        }
    }
    Ok(())
}

fn check_guest(
    volume: &Value,
    new: &Value,
    old: &Value,
    moved: bool,
    causes: &mut Causes,
) -> Result<(), Denial> {
    let name = text(volume, "/name");
    let (disk, old_disk) = (find(disks(new), name), find(disks(old), name));
    let dump = volume["memoryDump"].is_object();
    let problem = match (find(list(&old["spec"]["volumes"]), name), disk) {
        (Some(before), _) if before != volume && !moved => {
            format!("hotplug volume {name}, changed")
        }
        (_, _) if dump => return Ok(()),
        (Some(_), None) => format!("volume {name} doesn't have a matching disk"),
        (Some(_), Some(_)) if disk != old_disk => format!("hotplug disk {name}, changed"),
        (Some(_), Some(_)) => return Ok(()),
        (None, _)
            if !volume["dataVolume"].is_object()
                && !volume["persistentVolumeClaim"].is_object() =>
        {
            format!("volume {name} is not a PVC or DataVolume")
        }
        (None, None) => format!("disk {name} does not exist"),
        (None, Some(disk)) if old_disk.is_none() => {
            return check_disk(disk, name, "Hotplug configuration", "", causes);
        }
        (None, Some(_)) => return Ok(()),
    };
    causes.invalid("", problem);
    Ok(())
}

/// Volumes without a disk, or disks without a volume.
fn mismatch(vmi: &Value, config: &ClusterConfig) -> Option<String> {
    let volumes = list(&vmi["spec"]["volumes"]);
    let declared = volumes.iter().filter(|volume| volume["memoryDump"].is_null()).count();
    let empty_drive = |disk: &&Value| {
        disk["cdrom"].is_object()
            && find(volumes, text(disk, "/name")).is_none()
            && config.has("DeclarativeHotplugVolumes")
    };
    let shared = list(&vmi["spec"]["domain"]["devices"]["filesystems"]).len();
    let required = shared + disks(vmi).iter().filter(|disk| !empty_drive(disk)).count();
    (required != declared).then(|| {
        format!("mismatch between volumes declared ({declared}) and required ({required})")
    })
}

fn disks(vmi: &Value) -> &[Value] {
    list(&vmi["spec"]["domain"]["devices"]["disks"])
}

fn find<'a>(items: &'a [Value], name: &str) -> Option<&'a Value> {
    items.iter().find(|item| item["name"] == name)
}
