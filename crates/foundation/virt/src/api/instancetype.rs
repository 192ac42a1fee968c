//! `instancetype.kubevirt.io`: sizes and preferences that machines refer to.

use crate::api::atom::{Empty, Map, ObjectMeta, Quantity};
use crate::api::record::record;
use crate::api::v1;

record! {
    VirtualMachineInstancetype {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstancetypeSpec,
    }

    VirtualMachineClusterInstancetype {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstancetypeSpec,
    }

    VirtualMachineInstancetypeSpec {
        node_selector: Map<String>,
        scheduler_name: Option<String>,
        cpu: CPUInstancetype,
        memory: MemoryInstancetype,
        gpus: Vec<v1::GPU> = {"x-kubernetes-list-type": "atomic"},
        host_devices: Vec<v1::HostDevice> = {"x-kubernetes-list-type": "atomic"},
        io_threads_policy: Option<String>,
        io_threads: Option<v1::DiskIOThreads>,
        launch_security: Option<v1::LaunchSecurity>,
        annotations: Map<String>,
    }

    CPUInstancetype {
        /// How many virtual processors the guest sees.
        guest: u32,
        model: Option<String>,
        dedicated_cpu_placement as "dedicatedCPUPlacement": Option<bool>,
        numa: Option<v1::NUMA>,
        isolate_emulator_thread: Option<bool>,
        realtime: Option<v1::Realtime>,
        max_sockets: Option<u32>,
    }

    MemoryInstancetype {
        /// What the guest sees.
        guest: Quantity,
        hugepages: Option<v1::Hugepages>,
        /// How much of the memory is not reserved, 0 to 100.
        overcommit_percent: Option<i64> = {"maximum": 100, "minimum": 0},
        max_guest: Option<Quantity>,
    }

    VirtualMachinePreference {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachinePreferenceSpec,
    }

    VirtualMachineClusterPreference {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachinePreferenceSpec,
    }

    VirtualMachinePreferenceSpec {
        clock: Option<ClockPreferences>,
        cpu: Option<CPUPreferences>,
        devices: Option<DevicePreferences>,
        features: Option<FeaturePreferences>,
        firmware: Option<FirmwarePreferences>,
        machine: Option<MachinePreferences>,
        volumes: Option<VolumePreferences>,
        preferred_subdomain: Option<String>,
        preferred_termination_grace_period_seconds: Option<i64>,
        requirements: Option<PreferenceRequirements>,
        annotations: Map<String>,
        prefer_spread_socket_to_core_ratio: Option<u32>,
        preferred_architecture: Option<String>,
        preferred_launch_security: Option<v1::LaunchSecurity>,
    }

    VolumePreferences {
        preferred_storage_class_name: Option<String>,
    }

    CPUPreferences {
        preferred_cpu_topology as "preferredCPUTopology": Option<String>,
        spread_options: Option<SpreadOptions>,
        preferred_cpu_features as "preferredCPUFeatures": Vec<v1::CPUFeature>,
    }

    SpreadOptions {
        across: Option<String>,
        ratio: Option<u32>,
    }

    DevicePreferences {
        preferred_autoattach_graphics_device: Option<bool>,
        preferred_autoattach_mem_balloon: Option<bool>,
        preferred_autoattach_pod_interface: Option<bool>,
        preferred_autoattach_serial_console: Option<bool>,
        preferred_autoattach_input_device: Option<bool>,
        preferred_disable_hotplug: Option<bool>,
        preferred_virtual_gpu_options as "preferredVirtualGPUOptions": Option<v1::VGPUOptions>,
        preferred_sound_model: Option<String>,
        preferred_use_virtio_transitional: Option<bool>,
        preferred_input_bus: Option<String>,
        preferred_input_type: Option<String>,
        preferred_disk_bus: Option<String>,
        preferred_lun_bus: Option<String>,
        preferred_cdrom_bus: Option<String>,
        preferred_disk_dedicated_io_thread: Option<bool>,
        preferred_disk_cache: Option<String>,
        preferred_disk_io as "preferredDiskIO": Option<String>,
        preferred_disk_block_size: Option<v1::BlockSize>,
        preferred_interface_model: Option<String>,
        preferred_rng: Option<Empty>,
        preferred_block_multi_queue: Option<bool>,
        preferred_network_interface_multi_queue: Option<bool>,
        preferred_tpm as "preferredTPM": Option<v1::TPMDevice>,
        preferred_interface_masquerade: Option<Empty>,
        preferred_panic_device_model: Option<String>,
        preferred_video_type: Option<String>,
    }

    FeaturePreferences {
        preferred_acpi: Option<v1::FeatureState>,
        preferred_apic: Option<v1::FeatureAPIC>,
        preferred_hyperv: Option<v1::FeatureHyperv>,
        preferred_kvm: Option<v1::FeatureKVM>,
        preferred_pvspinlock: Option<v1::FeatureState>,
        preferred_smm: Option<v1::FeatureState>,
    }

    FirmwarePreferences {
        preferred_use_bios: Option<bool>,
        preferred_use_bios_serial: Option<bool>,
        preferred_use_efi: Option<bool>,
        preferred_use_secure_boot: Option<bool>,
        preferred_efi: Option<v1::EFI>,
    }

    MachinePreferences {
        preferred_machine_type: Option<String>,
    }

    ClockPreferences {
        preferred_clock_offset: Option<v1::ClockOffset>,
        preferred_timer: Option<v1::Timer>,
    }

    PreferenceRequirements {
        cpu: Option<CPUPreferenceRequirement>,
        memory: Option<MemoryPreferenceRequirement>,
        architecture: Option<String>,
    }

    CPUPreferenceRequirement {
        guest: u32,
    }

    MemoryPreferenceRequirement {
        guest: Quantity,
    }
}
