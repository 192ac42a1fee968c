//! Serial port, guest agent channel, video and the other small devices.

use serde_json::json;

use super::Wiring;
use super::line::{Line, escape, slot};
use crate::machine::{InputBus, Machine, PanicDevice, Sound, TpmInterface, USB_SLOTS, Video};

/// The device whose statistics report the guest's memory.
pub const BALLOON: &str = "balloon0";

pub(super) fn plug_all(line: &mut Line, machine: &Machine, wiring: &Wiring) {
    channels(line, machine, wiring);
    screen(line, machine, wiring);
    inputs(line, machine);
    let devices = &machine.devices;
    if let Some(balloon) = &devices.balloon {
        let bus = line.port(BALLOON, None);
        line.device(&json!({
            "driver": "virtio-balloon-pci",
            "id": BALLOON,
            "bus": bus,
            "free-page-reporting": balloon.free_page_reporting,
        }));
    }
    if devices.rng {
        line.object(&json!({
            "qom-type": "rng-random", "id": "rng-source", "filename": "/dev/urandom",
        }));
        let bus = line.port("rng0", None);
        line.device(&json!({
            "driver": "virtio-rng-pci", "id": "rng0", "bus": bus, "rng": "rng-source",
        }));
    }
    if devices.watchdog.is_some() {
        line.device(&json!({
            "driver": "i6300esb", "id": "watchdog0", "bus": "pcie.0", "addr": slot::WATCHDOG,
        }));
    }
    match devices.panic {
        Some(PanicDevice::Isa) => line.device(&json!({ "driver": "pvpanic", "id": "panic0" })),
        Some(PanicDevice::Pci) => line.device(&json!({
            "driver": "pvpanic-pci", "id": "panic0", "bus": "pcie.0", "addr": slot::PANIC,
        })),
        // It is a property of the processor, not a device.
        Some(PanicDevice::HyperV) | None => {}
    }
    if let Some(cid) = devices.vsock_cid {
        let bus = line.port("vsock0", None);
        line.device(&json!({
            "driver": "vhost-vsock-pci", "id": "vsock0", "bus": bus, "guest-cid": cid,
        }));
    }
    if devices.usb_redirection {
        usb_redirection(line);
    }
    sound(line, machine);
    tpm(line, machine, wiring);
}

fn channels(line: &mut Line, machine: &Machine, wiring: &Wiring) {
    if machine.devices.serial {
        let fd = wiring.serial;
        line.option("-chardev", format!("socket,id=serial0,fd={fd},server=on,wait=off"));
        line.device(&json!({ "driver": "isa-serial", "id": "com1", "chardev": "serial0" }));
    }
    if machine.devices.guest_agent {
        let bus = line.port("channels", None);
        line.device(&json!({ "driver": "virtio-serial-pci", "id": "channels", "bus": bus }));
        let fd = wiring.guest_agent;
        line.option("-chardev", format!("socket,id=agent0,fd={fd},server=on,wait=off"));
        line.device(&json!({
            "driver": "virtserialport",
            "id": "agent",
            "bus": "channels.0",
            "nr": 1,
            "chardev": "agent0",
            "name": "org.qemu.guest_agent.0",
        }));
    }
}

fn screen(line: &mut Line, machine: &Machine, wiring: &Wiring) {
    if let Some(video) = machine.devices.video {
        let device = match video {
            Video::Vga => json!({ "driver": "VGA", "vgamem_mb": 16, "addr": slot::VIDEO }),
            Video::Bochs => json!({ "driver": "bochs-display", "addr": slot::VIDEO }),
            Video::Virtio => json!({ "driver": "virtio-vga", "addr": slot::VIDEO }),
            Video::Cirrus => json!({ "driver": "cirrus-vga", "addr": slot::VIDEO }),
            Video::Ramfb => json!({ "driver": "ramfb" }),
        };
        let mut device = device;
        device["id"] = json!("video0");
        if device.get("addr").is_some() {
            device["bus"] = json!("pcie.0");
        }
        line.device(&device);
    }
    if machine.devices.vnc {
        let path = escape(&wiring.vnc.to_string_lossy());
        // Several clients may share one screen.
        line.option("-vnc", format!("unix:{path},share=force-shared"));
    }
}

fn inputs(line: &mut Line, machine: &Machine) {
    for input in &machine.devices.inputs {
        let id = format!("input-{}", input.name);
        match input.bus {
            InputBus::Usb => {
                line.device(&json!({ "driver": "usb-tablet", "id": id, "bus": "usb.0" }));
            }
            InputBus::Virtio => {
                let bus = line.port(&id, None);
                line.device(&json!({ "driver": "virtio-tablet-pci", "id": id, "bus": bus }));
            }
        }
    }
}

/// Devices that a client plugs in by connecting to their socket, and out by closing it.
fn usb_redirection(line: &mut Line) {
    for slot in 0..USB_SLOTS {
        let (id, path) = (format!("usb-redirection{slot}"), usb_socket(slot));
        line.option("-chardev", format!("socket,id={id},path={path},server=on,wait=off"));
        line.device(&json!({
            "driver": "usb-redir", "id": format!("redirected{slot}"), "bus": "usb.0", "chardev": id,
        }));
    }
}

/// Relative to the folder that QEMU runs in, because a socket's path must be short.
pub(crate) fn usb_socket(slot: u8) -> String {
    format!("usb{slot}.sock")
}

fn sound(line: &mut Line, machine: &Machine) {
    let Some(sound) = machine.devices.sound else { return };
    // The guest gets a card; no program on the host listens.
    line.option("-audiodev", "driver=none,id=audio0");
    match sound {
        Sound::Ac97 => line.device(&json!({
            "driver": "AC97", "id": "sound0", "bus": "pcie.0", "addr": slot::SOUND, "audiodev": "audio0",
        })),
        Sound::Ich9 => {
            line.device(&json!({
                "driver": "ich9-intel-hda", "id": "sound0", "bus": "pcie.0", "addr": slot::SOUND,
            }));
            line.device(&json!({
                "driver": "hda-duplex",
                "id": "sound0-codec",
                "bus": "sound0.0",
                "cad": 0,
                "audiodev": "audio0",
            }));
        }
    }
}

fn tpm(line: &mut Line, machine: &Machine, wiring: &Wiring) {
    let (Some(tpm), Some(fd)) = (&machine.tpm, wiring.tpm) else { return };
    line.option("-chardev", format!("socket,id=tpm-socket,fd={fd}"));
    line.option("-tpmdev", "emulator,id=tpm-backend,chardev=tpm-socket");
    let driver = match tpm.interface {
        TpmInterface::Tis => "tpm-tis",
        TpmInterface::Crb => "tpm-crb",
    };
    line.device(&json!({ "driver": driver, "id": "tpm0", "tpmdev": "tpm-backend" }));
}
