//! Devices of the virtual hardware.

use super::disk::Disk;
use super::domain::FeatureState;
use super::network::Interface;
use crate::api::atom::Empty;
use crate::api::record::record;

record! {
    Devices {
        /// Use virtio 0.9 compatible devices, for old guests.
        use_virtio_transitional: Option<bool>,
        /// Do not allow volumes to be plugged in while the guest runs.
        disable_hotplug: Option<bool>,
        /// Disks; each has a volume of the same name.
        disks: Vec<Disk> = {"maxItems": 256},
        /// Watchdog that acts when the guest hangs.
        watchdog: Option<Watchdog>,
        /// Interfaces; each has a network of the same name.
        interfaces: Vec<Interface> = {"maxItems": 256},
        /// Input devices, for example a tablet.
        inputs: Vec<Input>,
        /// Adds an interface on the default network if there is none. On by default.
        autoattach_pod_interface: Option<bool>,
        /// Adds a graphics card and VNC. On by default.
        autoattach_graphics_device: Option<bool>,
        /// Adds a serial console. On by default.
        autoattach_serial_console: Option<bool>,
        /// Keep a log of the serial console.
        log_serial_console: Option<bool>,
        /// Add a memory balloon; default true.
        autoattach_mem_balloon: Option<bool>,
        /// Add a tablet if no input device is given.
        autoattach_input_device: Option<bool>,
        /// Add a VSOCK device.
        autoattach_vsock as "autoattachVSOCK": Option<bool>,
        /// A source of random numbers from the host.
        rng: Option<Empty>,
        /// Give virtio disks one queue per processor.
        block_multi_queue: Option<bool>,
        /// Give virtio interfaces one queue per processor.
        network_interface_multiqueue: Option<bool>,
        /// GPUs to pass through.
        gpus: Vec<GPU> = {"x-kubernetes-list-type": "atomic"},
        /// Give the guest metrics of the node through a virtio port.
        downward_metrics: Option<Empty>,
        /// Devices through which the guest reports a panic.
        panic_devices: Vec<PanicDevice>,
        /// Directories to share through virtiofs.
        filesystems: Vec<Filesystem> = {"x-kubernetes-list-type": "atomic"},
        /// Devices of the node to pass through.
        host_devices: Vec<HostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// Allow USB devices of a client to be redirected.
        client_passthrough: Option<Empty>,
        /// Sound card.
        sound: Option<SoundDevice>,
        /// An emulated TPM.
        tpm: Option<TPMDevice>,
        /// Video card.
        video: Option<VideoDevice>,
    }

    SoundDevice {
        /// Name of the sound card.
        name: String,
        /// ich9 or ac97.
        model: Option<String>,
    }

    TPMDevice {
        /// Add a TPM; default true.
        enabled: Option<bool>,
        /// Keep the state of the TPM when the guest stops.
        persistent: Option<bool>,
    }

    VideoDevice {
        /// Model of the video card, for example virtio or vga.
        r#type: Option<String>,
    }

    Input {
        /// usb or virtio.
        bus: Option<String>,
        /// Only tablet.
        r#type: String,
        /// Name of the device.
        name: String,
    }

    Filesystem {
        /// Name of the volume to share.
        name: String,
        /// Share it through virtiofs.
        virtiofs: Empty,
    }

    GPU {
        /// Name of the device in the machine.
        name: String,
        /// Resource name of the device on the node.
        device_name: Option<String>,
        /// Resource claim that the device comes from.
        claim_name: Option<String>,
        /// Request in the resource claim.
        request_name: Option<String>,
        /// Options of a mediated GPU.
        virtual_gpu_options as "virtualGPUOptions": Option<VGPUOptions>,
        /// Tag for the guest, in its device metadata.
        tag: Option<String>,
    }

    VGPUOptions {
        /// Whether the GPU is a display.
        display: Option<VGPUDisplayOptions>,
    }

    VGPUDisplayOptions {
        /// Use the GPU as a display; default true.
        enabled: Option<bool>,
        /// Show output before the driver of the guest is loaded.
        ram_fb as "ramFB": Option<FeatureState>,
    }

    PanicDevice {
        /// hyperv, isa or pvpanic.
        model: Option<String>,
    }

    HostDevice {
        /// Name of the device in the machine.
        name: String,
        /// Resource name of the device on the node.
        device_name: Option<String>,
        /// Resource claim that the device comes from.
        claim_name: Option<String>,
        /// Request in the resource claim.
        request_name: Option<String>,
        /// Tag for the guest, in its device metadata.
        tag: Option<String>,
    }

    Watchdog {
        /// Name of the watchdog.
        name: String,
        /// Intel 6300ESB, for x86.
        i6300esb: Option<I6300ESBWatchdog>,
        /// Diag288, for s390x.
        diag288: Option<Diag288Watchdog>,
    }

    I6300ESBWatchdog {
        /// What happens when the guest hangs: poweroff, reset or shutdown.
        action: Option<String>,
    }

    Diag288Watchdog {
        /// What happens when the guest hangs: poweroff, reset or shutdown.
        action: Option<String>,
    }
}
