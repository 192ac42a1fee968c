//! How each disk of a guest gets to the target of its migration. Pure.

use qemu::machine::{Disk, DiskDevice, DiskSource};
use virt::v1::Volume;

use super::local_volume::has_claim;

/// The way of a disk to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskTransfer {
    /// The target opens the same volume, or there is no medium.
    Shared,
    /// A small file of the machine that is part of the offer.
    Seed,
    /// A file of the node that QEMU mirrors to one of the target.
    Copy,
    /// The same for a volume of the class `local`, which is then on the target.
    LocalVolume,
    /// A container image that the guest only reads; the target pulls it.
    Image,
    /// A file of the node that stays there.
    Bound,
}

/// The maker of the file of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOrigin {
    /// The agent, from an object.
    Seed,
    /// The provisioner of the class `local`.
    LocalVolume,
    Other,
}

pub(super) fn transfer(disk: &Disk, volume: Option<&Volume>, origin: FileOrigin) -> DiskTransfer {
    if matches!(disk.source, DiskSource::Nbd { .. } | DiskSource::Empty) {
        return DiskTransfer::Shared;
    }
    if origin == FileOrigin::Seed {
        return DiskTransfer::Seed;
    }
    if origin == FileOrigin::LocalVolume {
        // Of others, either the guest is not the only writer, or the target cannot be written to.
        let is_own = disk.device == DiskDevice::Disk && !disk.shareable && !disk.read_only;
        let is_movable = is_own && volume.is_some_and(has_claim);
        return if is_movable { DiskTransfer::LocalVolume } else { DiskTransfer::Bound };
    }
    let has = |is: fn(&Volume) -> bool| volume.is_some_and(is);
    let is_image = has(|volume| volume.container_disk.is_some());
    if disk.read_only {
        return if is_image { DiskTransfer::Image } else { DiskTransfer::Bound };
    }
    let is_of_this_run =
        is_image || has(|volume| volume.empty_disk.is_some() || volume.ephemeral.is_some());
    if is_of_this_run { DiskTransfer::Copy } else { DiskTransfer::Bound }
}

/// Identifies the content of the image below a disk: the names of the folders that images are kept in
/// begin with the kind of their digest and the digest. The rest depends on the version.
pub(super) fn image_key(source: &DiskSource) -> Option<&str> {
    let DiskSource::File(image) = source else { return None };
    let folder = image.backing.as_ref()?.path.parent()?.file_name()?.to_str()?;
    let end = folder.match_indices('-').nth(1);
    Some(end.map_or(folder, |(end, _)| &folder[..end]))
}

#[cfg(test)]
mod tests {
    use qemu::machine::{Bus, FileImage, ImageFormat};
    use serde_json::json;

    use super::*;

    fn disk(source: DiskSource, read_only: bool) -> Disk {
        Disk { read_only, ..Disk::new("d", Bus::Virtio, source) }
    }

    #[test]
    fn files_of_a_run_are_copied_and_others_stay() {
        let nbd = DiskSource::Nbd { socket: "/s".into(), export: "".into(), reconnect_delay: 1 };
        let file = DiskSource::File(FileImage::raw("/f"));
        let image = json!({"containerDisk": {"image": "i"}});
        let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
        let ephemeral = json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}});
        let (seed, local, other) = (FileOrigin::Seed, FileOrigin::LocalVolume, FileOrigin::Other);
        let host_disk = json!({"hostDisk": {"path": "/p", "type": "Disk"}});
        for (source, volume, read_only, origin, expected) in [
            (&nbd, &claim, false, other, DiskTransfer::Shared),
            (&DiskSource::Empty, &claim, true, other, DiskTransfer::Shared),
            (&file, &json!({"cloudInitNoCloud": {}}), false, seed, DiskTransfer::Seed),
            (&file, &image, false, other, DiskTransfer::Copy),
            (&file, &image, true, other, DiskTransfer::Image),
            (&file, &json!({"emptyDisk": {"capacity": "1Gi"}}), false, other, DiskTransfer::Copy),
            (&file, &ephemeral, false, other, DiskTransfer::Copy),
            (&file, &ephemeral, true, other, DiskTransfer::Bound),
            (&file, &claim, false, other, DiskTransfer::Bound),
            (&file, &claim, false, local, DiskTransfer::LocalVolume),
            (&file, &json!({"dataVolume": {"name": "d"}}), false, local, DiskTransfer::LocalVolume),
            (&file, &claim, true, local, DiskTransfer::Bound),
            (&file, &host_disk, false, local, DiskTransfer::Bound),
            (&file, &host_disk, false, other, DiskTransfer::Bound),
        ] {
            let mut volume = volume.clone();
            volume["name"] = json!("d");
            let read: Volume = serde_json::from_value(volume.clone()).unwrap();
            let disk = disk(source.clone(), read_only);
            assert_eq!(transfer(&disk, Some(&read), origin), expected, "{volume} {read_only}");
        }
        assert_eq!(transfer(&disk(file.clone(), false), None, other), DiskTransfer::Bound);
        let volume: Volume = serde_json::from_value(
            json!({"name": "d", "persistentVolumeClaim": {"claimName": "c"}}),
        )
        .unwrap();
        let shared = Disk { shareable: true, ..disk(file.clone(), false) };
        let cdrom = Disk { device: DiskDevice::Cdrom, ..disk(file, false) };
        for disk in [shared, cdrom] {
            assert_eq!(transfer(&disk, Some(&volume), local), DiskTransfer::Bound, "{disk:?}");
        }
    }

    #[test]
    fn images_are_compared_by_the_name_of_their_content() {
        let overlay = |base: &str| {
            DiskSource::File(FileImage {
                path: "/vm/overlay.qcow2".into(),
                format: ImageFormat::Qcow2,
                backing: Some(Box::new(FileImage::raw(base))),
            })
        };
        let (here, there) = (overlay("/a/cache/key/disk"), overlay("/b/cache/key/disk"));
        assert_eq!(image_key(&here), image_key(&there));
        assert_ne!(image_key(&here), image_key(&overlay("/a/cache/other/disk")));
        assert_eq!(image_key(&DiskSource::File(FileImage::raw("/a/cache/key/disk"))), None);
    }
}
