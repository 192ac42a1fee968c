//! Whether a guest could move to another node, in upstream's reasons and words.

use virt::reason::NotMigratable;

use super::{Guest, MachineProblem};
use crate::machine::Vmi;

/// Why it cannot be moved live.
pub(super) fn obstacle(vmi: &Vmi, guest: &Guest) -> Option<MachineProblem> {
    let trouble = |reason: NotMigratable, message: String| {
        Some(MachineProblem { reason: reason.as_str(), message })
    };
    if let Some(message) = interfaces(vmi) {
        return trouble(NotMigratable::Interface, message);
    }
    if let Some(message) = host_devices(vmi) {
        return trouble(NotMigratable::HostDevice, message.into());
    }
    if passes_hyperv(vmi) {
        return trouble(NotMigratable::Hyperv, "VMI uses hyperv passthrough".into());
    }
    if let Some(message) = disks(vmi, guest) {
        return trouble(NotMigratable::Disks, message);
    }
    if let Some(message) = devices(vmi) {
        return trouble(NotMigratable::Other, message);
    }
    None
}

/// Parts of the node that the guest was started with and that another node lacks.
fn devices(vmi: &Vmi) -> Option<String> {
    let domain = &vmi.spec.domain;
    let firmware = domain.firmware.as_ref();
    if firmware.is_some_and(|firmware| firmware.kernel_boot.is_some()) {
        return Some("cannot migrate VMI that boots a kernel from a container image".into());
    }
    let cpu = domain.cpu.as_ref().and_then(|cpu| cpu.numa.as_ref());
    cpu.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
        .then(|| "cannot migrate VMI whose memory is bound to processors of the node".into())
}

/// Whether another node would see the same disks.
pub(super) fn is_shared(vmi: &Vmi, guest: &Guest) -> bool {
    let local = |volume: &virt::v1::Volume| {
        let claims = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
        let read_only = vmi.spec.domain.devices.disks.iter().any(|disk| {
            disk.name == volume.name
                && disk.cdrom.as_ref().is_some_and(|cdrom| cdrom.readonly != Some(false))
        });
        !claims && !read_only
    };
    disks(vmi, guest).is_none() && guest.movable.is_empty() && !vmi.spec.volumes.iter().any(local)
}

fn interfaces(vmi: &Vmi) -> Option<String> {
    let allowed = "kubevirt.io/allow-pod-bridge-network-live-migration";
    let on_pod_network = |name: &str| {
        vmi.spec.networks.iter().any(|network| network.name == name && network.pod.is_some())
    };
    let bridged = vmi
        .spec
        .domain
        .devices
        .interfaces
        .iter()
        .any(|each| each.bridge.is_some() && on_pod_network(&each.name));
    (bridged && !vmi.annotations.contains_key(allowed)).then(|| {
        "cannot migrate VMI which does not use masquerade or a migratable plugin to connect to \
         the pod network"
            .into()
    })
}

fn host_devices(vmi: &Vmi) -> Option<&'static str> {
    let devices = &vmi.spec.domain.devices;
    if !devices.host_devices.is_empty() {
        return Some("VMI specifies non-migratable generic PCI host device");
    }
    (!devices.gpus.is_empty()).then_some("VMI specifies non-migratable GPU device")
}

fn passes_hyperv(vmi: &Vmi) -> bool {
    let features = vmi.spec.domain.features.as_ref();
    let passthrough = features.and_then(|features| features.hyperv_passthrough.as_ref());
    passthrough.is_some_and(|passthrough| passthrough.enabled != Some(false))
}

fn disks(vmi: &Vmi, guest: &Guest) -> Option<String> {
    for volume in &vmi.spec.volumes {
        let claim = volume
            .persistent_volume_claim
            .as_ref()
            .map(|claim| &claim.claim_name)
            .or(volume.data_volume.as_ref().map(|source| &source.name));
        if let Some(claim) = claim {
            let status = guest.volumes.iter().find(|each| each.name == volume.name);
            let shared = status.and_then(|status| status.claim.as_ref()).is_some_and(|info| {
                let modes = info["accessModes"].as_array();
                modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany"))
            });
            if !shared && !guest.movable.contains(&volume.name) {
                return Some(format!(
                    "cannot migrate VMI: PVC {claim} is not shared, live migration requires \
                     that all PVCs must be shared (using ReadWriteMany access mode)"
                ));
            }
        }
        if volume.host_disk.is_some() {
            return Some("cannot migrate VMI with non-shared HostDisk".into());
        }
    }
    None
}
