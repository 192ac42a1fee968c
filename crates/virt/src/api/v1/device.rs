//! Devices of the virtual hardware.

use super::disk::Disk;
use super::domain::FeatureState;
use super::network::Interface;
use crate::api::atom::Empty;
use crate::api::record::record;

record! {
    Devices {
        use_virtio_transitional: Option<bool>,
        disable_hotplug: Option<bool>,
        /// Disks; each has a volume of the same name.
        disks: Vec<Disk> = {"maxItems": 256},
        watchdog: Option<Watchdog>,
        /// Interfaces; each has a network of the same name.
        interfaces: Vec<Interface> = {"maxItems": 256},
        inputs: Vec<Input>,
        /// Adds an interface on the default network if there is none. On by default.
        autoattach_pod_interface: Option<bool>,
        /// Adds a graphics card and VNC. On by default.
        autoattach_graphics_device: Option<bool>,
        /// Adds a serial console. On by default.
        autoattach_serial_console: Option<bool>,
        log_serial_console: Option<bool>,
        autoattach_mem_balloon: Option<bool>,
        autoattach_input_device: Option<bool>,
        autoattach_vsock as "autoattachVSOCK": Option<bool>,
        /// A source of random numbers from the host.
        rng: Option<Empty>,
        block_multi_queue: Option<bool>,
        network_interface_multiqueue: Option<bool>,
        gpus: Vec<GPU> = {"x-kubernetes-list-type": "atomic"},
        downward_metrics: Option<Empty>,
        panic_devices: Vec<PanicDevice>,
        filesystems: Vec<Filesystem> = {"x-kubernetes-list-type": "atomic"},
        host_devices: Vec<HostDevice> = {"x-kubernetes-list-type": "atomic"},
        client_passthrough: Option<Empty>,
        sound: Option<SoundDevice>,
        /// An emulated TPM.
        tpm: Option<TPMDevice>,
        video: Option<VideoDevice>,
    }

    SoundDevice {
        name: String,
        model: Option<String>,
    }

    TPMDevice {
        enabled: Option<bool>,
        persistent: Option<bool>,
    }

    VideoDevice {
        r#type: Option<String>,
    }

    Input {
        bus: Option<String>,
        r#type: String,
        name: String,
    }

    Filesystem {
        name: String,
        virtiofs: Empty,
    }

    GPU {
        name: String,
        device_name: Option<String>,
        claim_name: Option<String>,
        request_name: Option<String>,
        virtual_gpu_options as "virtualGPUOptions": Option<VGPUOptions>,
        tag: Option<String>,
    }

    VGPUOptions {
        display: Option<VGPUDisplayOptions>,
    }

    VGPUDisplayOptions {
        enabled: Option<bool>,
        ram_fb as "ramFB": Option<FeatureState>,
    }

    PanicDevice {
        model: Option<String>,
    }

    HostDevice {
        name: String,
        device_name: Option<String>,
        claim_name: Option<String>,
        request_name: Option<String>,
        tag: Option<String>,
    }

    Watchdog {
        name: String,
        i6300esb: Option<I6300ESBWatchdog>,
        diag288: Option<Diag288Watchdog>,
    }

    I6300ESBWatchdog {
        action: Option<String>,
    }

    Diag288Watchdog {
        action: Option<String>,
    }
}
