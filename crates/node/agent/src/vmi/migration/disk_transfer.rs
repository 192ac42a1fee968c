//! How each disk of a guest gets to the target of its migration. Pure.

use qemu::machine::{Disk, DiskSource};
use virt::v1::Volume;

/// The way of a disk to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskTransfer {
    /// The target opens the same volume, or there is no medium.
    Shared,
    /// A small file of the machine that is part of the offer.
    Seed,
    /// A file of the node that QEMU mirrors to one of the target.
    Copy,
    /// A container image that the guest only reads; the target pulls it.
    Image,
    /// A file of the node that stays there.
    Bound,
}

/// `is_seed` says whether the file of the disk is one that the agent has made from an object.
pub(super) fn transfer(disk: &Disk, volume: Option<&Volume>, is_seed: bool) -> DiskTransfer {
    if matches!(disk.source, DiskSource::Nbd { .. } | DiskSource::Empty) {
        return DiskTransfer::Shared;
    }
    if is_seed {
        return DiskTransfer::Seed;
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

/// Identifies the content of the image below a disk: images are kept in folders that their content
/// names.
pub(super) fn image_key(source: &DiskSource) -> Option<&std::ffi::OsStr> {
    let DiskSource::File(image) = source else { return None };
    image.backing.as_ref()?.path.parent()?.file_name()
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
        for (source, volume, read_only, is_seed, expected) in [
            (&nbd, &claim, false, false, DiskTransfer::Shared),
            (&DiskSource::Empty, &claim, true, false, DiskTransfer::Shared),
            (&file, &json!({"cloudInitNoCloud": {}}), false, true, DiskTransfer::Seed),
            (&file, &image, false, false, DiskTransfer::Copy),
            (&file, &image, true, false, DiskTransfer::Image),
            (&file, &json!({"emptyDisk": {"capacity": "1Gi"}}), false, false, DiskTransfer::Copy),
            (&file, &ephemeral, false, false, DiskTransfer::Copy),
            (&file, &ephemeral, true, false, DiskTransfer::Bound),
            (&file, &claim, false, false, DiskTransfer::Bound),
            (
                &file,
                &json!({"hostDisk": {"path": "/p", "type": "Disk"}}),
                false,
                false,
                DiskTransfer::Bound,
            ),
        ] {
            let mut volume = volume.clone();
            volume["name"] = json!("d");
            let read: Volume = serde_json::from_value(volume.clone()).unwrap();
            let disk = disk(source.clone(), read_only);
            assert_eq!(transfer(&disk, Some(&read), is_seed), expected, "{volume} {read_only}");
        }
        assert_eq!(transfer(&disk(file, false), None, false), DiskTransfer::Bound);
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
