//! The small devices: graphics, inputs, watchdog, TPM and their like.

use qemu::machine::{
    Balloon, Devices, Firmware, Input, InputBus, PanicDevice, Sound, Tpm, TpmInterface, Video,
    Watchdog, WatchdogAction,
};
use virt::v1::DomainSpec;

use super::{TranslateContext, TranslateError};

/// Empty ports for what is plugged in while the guest runs.
const SPARE_PORTS: u8 = 8;

pub(super) fn devices(domain: &DomainSpec, firmware: &Firmware) -> Result<Devices, TranslateError> {
    let spec = &domain.devices;
    let fixed = spec.disable_hotplug == Some(true);
    let graphics = spec.autoattach_graphics_device != Some(false);
    let mut inputs = spec.inputs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
    if inputs.is_empty() && spec.autoattach_input_device == Some(true) {
        inputs.push(Input { name: "default-0".into(), bus: InputBus::Usb });
    }
    let video = if graphics { Some(video(domain, firmware)?) } else { None };
    Ok(Devices {
        rng: spec.rng.is_some(),
        balloon: has_balloon(domain).then(Balloon::default),
        watchdog: watchdog(domain)?,
        inputs,
        sound: spec.sound.as_ref().map(|sound| match sound.model.as_deref() {
            Some("ac97") => Sound::Ac97,
            _ => Sound::Ich9,
        }),
        video,
        vnc: graphics,
        serial: spec.autoattach_serial_console != Some(false),
        guest_agent: true,
        panic: spec.panic_devices.first().map(|device| match device.model.as_deref() {
            Some("pvpanic") => PanicDevice::Pci,
            Some("hyperv") => PanicDevice::HyperV,
            _ => PanicDevice::Isa,
        }),
        vsock_cid: None,
        usb_redirection: spec.client_passthrough.is_some(),
        scsi: !fixed,
        scsi_queues: 0,
        spare_ports: if fixed { 0 } else { SPARE_PORTS },
    })
}

/// Refuses devices that a guest would miss if it were started without them. Nothing is left out
/// silently.
pub(super) fn refuse_unknown(domain: &DomainSpec) -> Result<(), TranslateError> {
    let devices = &domain.devices;
    let unsupported = [
        (devices.filesystems.is_empty(), "domain.devices.filesystems", "shared file systems are"),
        (devices.host_devices.is_empty(), "domain.devices.hostDevices", "devices of the host are"),
        (devices.gpus.is_empty(), "domain.devices.gpus", "graphics processors of the host are"),
        (devices.downward_metrics.is_none(), "domain.devices.downwardMetrics", "metrics are"),
        (domain.launch_security.is_none(), "domain.launchSecurity", "encrypted memory is"),
    ];
    match unsupported.into_iter().find(|(absent, ..)| !absent) {
        None => Ok(()),
        Some((_, field, what)) => Err(TranslateError::Unsupported { field, what }),
    }
}

/// A balloon could not give back pages that are pinned or huge.
fn has_balloon(domain: &DomainSpec) -> bool {
    let pinned = domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true));
    let huge = domain.memory.as_ref().is_some_and(|memory| memory.hugepages.is_some());
    domain.devices.autoattach_mem_balloon != Some(false) && !pinned && !huge
}

fn input(input: &virt::v1::Input) -> Result<Input, TranslateError> {
    let bus = match input.bus.as_deref() {
        None | Some("" | "usb") => InputBus::Usb,
        Some("virtio") => InputBus::Virtio,
        Some(other) => {
            return Err(TranslateError::Value {
                field: "devices.inputs.bus",
                value: other.into(),
                expected: "usb or virtio",
            });
        }
    };
    Ok(Input { name: input.name.clone(), bus })
}

fn video(domain: &DomainSpec, firmware: &Firmware) -> Result<Video, TranslateError> {
    let wanted = domain.devices.video.as_ref().and_then(|video| video.r#type.as_deref());
    Ok(match wanted {
        None | Some("") if matches!(firmware, Firmware::Efi(_)) => Video::Bochs,
        None | Some("" | "vga") => Video::Vga,
        Some("bochs") => Video::Bochs,
        Some("virtio") => Video::Virtio,
        Some("cirrus") => Video::Cirrus,
        Some("ramfb") => Video::Ramfb,
        Some(other) => {
            return Err(TranslateError::Value {
                field: "devices.video.type",
                value: other.into(),
                expected: "vga, bochs, virtio, cirrus or ramfb",
            });
        }
    })
}

fn watchdog(domain: &DomainSpec) -> Result<Option<Watchdog>, TranslateError> {
    let Some(watchdog) = &domain.devices.watchdog else { return Ok(None) };
    let Some(device) = &watchdog.i6300esb else {
        let what = "the model i6300esb on this architecture";
        return Err(TranslateError::Needs { field: "devices.watchdog", what });
    };
    let action = match device.action.as_deref() {
        Some("poweroff") => WatchdogAction::Poweroff,
        Some("shutdown") => WatchdogAction::Shutdown,
        _ => WatchdogAction::Reset,
    };
    Ok(Some(Watchdog { action }))
}

pub(super) fn tpm(
    domain: &DomainSpec,
    around: &TranslateContext<'_>,
) -> Result<Option<Tpm>, TranslateError> {
    let tpm = domain.devices.tpm.as_ref().filter(|tpm| tpm.enabled != Some(false));
    let Some(tpm) = tpm else { return Ok(None) };
    if !around.host.has_tpm {
        let what = "a software TPM on the node; install the packages swtpm and swtpm-tools";
        return Err(TranslateError::Needs { field: "devices.tpm", what });
    }
    // As upstream: a persistent one is a newer guest's, which knows CRB.
    let interface = match tpm.persistent {
        Some(true) => TpmInterface::Crb,
        _ => TpmInterface::Tis,
    };
    Ok(Some(Tpm { interface, state: around.tpm.clone() }))
}
