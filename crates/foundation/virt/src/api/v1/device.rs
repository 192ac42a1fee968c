//! Devices of the virtual hardware.

use super::disk::Disk;
use super::domain::FeatureState;
use super::network::Interface;
use crate::api::atom::Empty;
use crate::api::record::record;

record! {
    Devices {
        /// Whether transitional virtio devices (virtio 0.9) are used, for old guests.
        use_virtio_transitional: Option<bool>,
        /// Whether hot-plug of volumes is disabled.
        disable_hotplug: Option<bool>,
        /// Disks of the guest; each refers to the volume of the same name.
        disks: Vec<Disk> = {"maxItems": 256},
        /// Watchdog that acts when the guest hangs.
        watchdog: Option<Watchdog>,
        /// Network interfaces of the guest; each refers to the network of the same name.
        interfaces: Vec<Interface> = {"maxItems": 256},
        /// Input devices, for example a tablet.
        inputs: Vec<Input>,
        /// Whether an interface on the pod network is added if there is none; true by default.
        autoattach_pod_interface: Option<bool>,
        /// Whether a graphics device with VNC is added; true by default.
        autoattach_graphics_device: Option<bool>,
        /// Whether a serial console is added; true by default.
        autoattach_serial_console: Option<bool>,
        /// Whether the output of the serial console is logged.
        log_serial_console: Option<bool>,
        /// Whether a memory balloon is added; true by default.
        autoattach_mem_balloon: Option<bool>,
        /// Whether a tablet is added if no input device is specified.
        autoattach_input_device: Option<bool>,
        /// Whether a VSOCK device is added.
        autoattach_vsock as "autoattachVSOCK": Option<bool>,
        /// Adds a virtio random number generator, fed by the node.
        rng: Option<Empty>,
        /// Whether virtio disks have one queue per CPU.
        block_multi_queue: Option<bool>,
        /// Whether virtio interfaces have one queue per CPU.
        network_interface_multiqueue: Option<bool>,
        /// GPUs that are passed through.
        gpus: Vec<GPU> = {"x-kubernetes-list-type": "atomic"},
        /// Adds a virtio serial port that provides metrics of the node.
        downward_metrics: Option<Empty>,
        /// Devices through which the guest reports a panic.
        panic_devices: Vec<PanicDevice>,
        /// Volumes that are shared through virtiofs.
        filesystems: Vec<Filesystem> = {"x-kubernetes-list-type": "atomic"},
        /// Devices of the node that are passed through.
        host_devices: Vec<HostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// Enables redirection of USB devices of a client.
        client_passthrough: Option<Empty>,
        /// Emulated sound card of the guest.
        sound: Option<SoundDevice>,
        /// Emulated TPM of the guest.
        tpm: Option<TPMDevice>,
        /// Video device of the guest.
        video: Option<VideoDevice>,
    }

    SoundDevice {
        /// Name of the sound card.
        name: String,
        /// Model of the sound card: ich9 or ac97.
        model: Option<String>,
    }

    TPMDevice {
        /// Whether the TPM is added; true by default.
        enabled: Option<bool>,
        /// Whether the state of the TPM is kept across restarts.
        persistent: Option<bool>,
    }

    VideoDevice {
        /// Model of the video card, for example virtio or vga.
        r#type: Option<String>,
    }

    Input {
        /// Bus of the input device: usb or virtio.
        bus: Option<String>,
        /// Type of the input device; only tablet.
        r#type: String,
        /// Name of the device.
        name: String,
    }

    Filesystem {
        /// Name of the volume to share.
        name: String,
        /// Shares the volume through virtiofs.
        virtiofs: Empty,
    }

    GPU {
        /// Name of the device in the machine.
        name: String,
        /// Name of the resource that provides the device.
        device_name: Option<String>,
        /// Name of the ResourceClaim that provides the device.
        claim_name: Option<String>,
        /// Name of the request in the ResourceClaim.
        request_name: Option<String>,
        /// Options of a virtual GPU.
        virtual_gpu_options as "virtualGPUOptions": Option<VGPUOptions>,
        /// Tag of the device in the metadata of the guest.
        tag: Option<String>,
    }

    VGPUOptions {
        /// Display options of the virtual GPU.
        display: Option<VGPUDisplayOptions>,
    }

    VGPUDisplayOptions {
        /// Whether the GPU is used as a display; true by default.
        enabled: Option<bool>,
        /// Options of the frame buffer before the driver of the guest is loaded; enabled by
        /// default.
        ram_fb as "ramFB": Option<FeatureState>,
    }

    PanicDevice {
        /// Model of the panic device: hyperv, isa or pvpanic.
        model: Option<String>,
    }

    HostDevice {
        /// Name of the device in the machine.
        name: String,
        /// Name of the resource that provides the device.
        device_name: Option<String>,
        /// Name of the ResourceClaim that provides the device.
        claim_name: Option<String>,
        /// Name of the request in the ResourceClaim.
        request_name: Option<String>,
        /// Tag of the device in the metadata of the guest.
        tag: Option<String>,
    }

    Watchdog {
        /// Name of the watchdog.
        name: String,
        /// Intel 6300ESB watchdog, for x86-64 guests.
        i6300esb: Option<I6300ESBWatchdog>,
        /// Diag288 watchdog, for s390x guests.
        diag288: Option<Diag288Watchdog>,
    }

    I6300ESBWatchdog {
        /// Action when the guest hangs: poweroff, reset or shutdown.
        action: Option<String>,
    }

    Diag288Watchdog {
        /// Action when the guest hangs: poweroff, reset or shutdown.
        action: Option<String>,
    }
}
