//! `instancetype.kubevirt.io`: sizes and preferences that machines refer to.

use crate::api::atom::{Empty, Map, ObjectMeta, Quantity};
use crate::api::record::record;
use crate::api::v1;

record! {
    /// Processors, memory and devices of machines.
    VirtualMachineInstancetype {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstancetypeSpec,
    }

    /// Processors, memory and devices of machines in any namespace.
    VirtualMachineClusterInstancetype {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstancetypeSpec,
    }

    VirtualMachineInstancetypeSpec {
        /// Labels that the node of a virtual machine must have.
        node_selector: Map<String>,
        /// Scheduler of the virtual machines.
        scheduler_name: Option<String>,
        /// CPUs of a virtual machine.
        cpu: CPUInstancetype,
        /// Memory of a virtual machine; if absent, the virtual machine specifies it.
        memory: Option<MemoryInstancetype>,
        /// GPUs that are passed through to a virtual machine.
        gpus: Vec<v1::GPU> = {"x-kubernetes-list-type": "atomic"},
        /// Devices of the node that are passed through to a virtual machine.
        host_devices: Vec<v1::HostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// Assignment of I/O threads to disks: shared, auto or supplementalPool.
        io_threads_policy: Option<String>,
        /// Options of the I/O threads.
        io_threads: Option<v1::DiskIOThreads>,
        /// Confidential computing options of a virtual machine.
        launch_security: Option<v1::LaunchSecurity>,
        /// Annotations of the instances.
        annotations: Map<String>,
    }

    CPUInstancetype {
        /// Number of virtual CPUs of the guest.
        guest: u32,
        /// CPU model that the guest sees.
        model: Option<String>,
        /// Whether each virtual CPU is pinned to a dedicated physical CPU.
        dedicated_cpu_placement as "dedicatedCPUPlacement": Option<bool>,
        /// NUMA topology that the guest sees.
        numa: Option<v1::NUMA>,
        /// Whether the emulator threads of QEMU run on an additional dedicated CPU.
        isolate_emulator_thread: Option<bool>,
        /// Options for guests with real-time workloads.
        realtime: Option<v1::Realtime>,
        /// Maximum number of sockets that can be hot-plugged.
        max_sockets: Option<u32>,
    }

    MemoryInstancetype {
        /// Memory of the guest; 0 leaves the size to the virtual machine.
        guest: Option<Quantity>,
        /// Huge pages that back the memory.
        hugepages: Option<v1::Hugepages>,
        /// Percentage of the memory that is not reserved on the node, from 0 to 100.
        overcommit_percent: Option<i64> = {"maximum": 100, "minimum": 0},
        /// Maximum memory of the guest with hot-plugged memory.
        max_guest: Option<Quantity>,
    }

    /// Preferred devices and settings of machines.
    VirtualMachinePreference {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachinePreferenceSpec,
    }

    /// Preferred devices and settings of machines in any namespace.
    VirtualMachineClusterPreference {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachinePreferenceSpec,
    }

    VirtualMachinePreferenceSpec {
        /// Preferences for the clock and timers.
        clock: Option<ClockPreferences>,
        /// Preferences for the CPUs.
        cpu: Option<CPUPreferences>,
        /// Preferences for devices.
        devices: Option<DevicePreferences>,
        /// Preferences for features of the hypervisor.
        features: Option<FeaturePreferences>,
        /// Preferences for the firmware.
        firmware: Option<FirmwarePreferences>,
        /// Preferences for the machine type.
        machine: Option<MachinePreferences>,
        /// Preferences for volumes.
        volumes: Option<VolumePreferences>,
        /// Subdomain for virtual machines that set none.
        preferred_subdomain: Option<String>,
        /// Grace period of the shutdown in seconds, for virtual machines that set none.
        preferred_termination_grace_period_seconds: Option<i64>,
        /// Minimum resources that a virtual machine must have.
        requirements: Option<PreferenceRequirements>,
        /// Annotations of the instances.
        annotations: Map<String>,
        /// Number of cores per socket if CPUs are spread over sockets and cores.
        prefer_spread_socket_to_core_ratio: Option<u32>,
        /// Architecture for virtual machines that set none.
        preferred_architecture: Option<String>,
        /// Confidential computing options for virtual machines that set none.
        preferred_launch_security: Option<v1::LaunchSecurity>,
    }

    VolumePreferences {
        /// StorageClass for DataVolume templates that set none.
        preferred_storage_class_name: Option<String>,
    }

    CPUPreferences {
        /// CPU topology of the guest: sockets, cores, threads, spread or any.
        preferred_cpu_topology as "preferredCPUTopology": Option<String>,
        /// Options of the spread topology.
        spread_options: Option<SpreadOptions>,
        /// CPU features that the guest sees.
        preferred_cpu_features as "preferredCPUFeatures": Vec<v1::CPUFeature>,
    }

    SpreadOptions {
        /// Units that CPUs are spread over: SocketsCores, SocketsCoresThreads or CoresThreads.
        across: Option<String>,
        /// Ratio of the units, for example cores per socket.
        ratio: Option<u32>,
    }

    DevicePreferences {
        /// Whether a machine gets a graphics device.
        preferred_autoattach_graphics_device: Option<bool>,
        /// Whether a machine gets a memory balloon.
        preferred_autoattach_mem_balloon: Option<bool>,
        /// Whether a machine without networks gets the pod network.
        preferred_autoattach_pod_interface: Option<bool>,
        /// Whether a machine gets a serial console.
        preferred_autoattach_serial_console: Option<bool>,
        /// Whether a machine gets an input device.
        preferred_autoattach_input_device: Option<bool>,
        /// Whether hot-plug of volumes is disabled.
        preferred_disable_hotplug: Option<bool>,
        /// Options of virtual GPUs.
        preferred_virtual_gpu_options as "preferredVirtualGPUOptions": Option<v1::VGPUOptions>,
        /// Model of sound devices: ich9 or ac97.
        preferred_sound_model: Option<String>,
        /// Whether transitional virtio devices are used, which also support old guests.
        preferred_use_virtio_transitional: Option<bool>,
        /// Bus of input devices: virtio or usb.
        preferred_input_bus: Option<String>,
        /// Type of input devices; only tablet.
        preferred_input_type: Option<String>,
        /// Bus of disks: virtio, sata, scsi or usb.
        preferred_disk_bus: Option<String>,
        /// Bus of LUNs: virtio, sata or scsi.
        preferred_lun_bus: Option<String>,
        /// Bus of CD-ROM drives: sata, scsi or usb.
        preferred_cdrom_bus: Option<String>,
        /// Whether virtio disks get a dedicated I/O thread.
        preferred_disk_dedicated_io_thread: Option<bool>,
        /// Cache mode of disks: none, writethrough or writeback.
        preferred_disk_cache: Option<String>,
        /// I/O mode of disks: native, threads or io_uring.
        preferred_disk_io as "preferredDiskIO": Option<String>,
        /// Block sizes of disks that the guest sees.
        preferred_disk_block_size: Option<v1::BlockSize>,
        /// Model of network interfaces: virtio, e1000, e1000e, rtl8139 and others.
        preferred_interface_model: Option<String>,
        /// Adds a virtio random number generator.
        preferred_rng: Option<Empty>,
        /// Whether virtio disks have one queue per CPU.
        preferred_block_multi_queue: Option<bool>,
        /// Whether virtio interfaces have one queue per CPU.
        preferred_network_interface_multi_queue: Option<bool>,
        /// Preferred TPM device of the guest.
        preferred_tpm as "preferredTPM": Option<v1::TPMDevice>,
        /// Connects the interface of the pod network in masquerade mode.
        preferred_interface_masquerade: Option<Empty>,
        /// Model of panic devices: hyperv, isa or pvpanic.
        preferred_panic_device_model: Option<String>,
        /// Type of the graphics device: virtio, vga, bochs, ramfb and others.
        preferred_video_type: Option<String>,
    }

    FeaturePreferences {
        /// Whether the guest has ACPI tables.
        preferred_acpi: Option<v1::FeatureState>,
        /// Options of the interrupt controller (APIC).
        preferred_apic: Option<v1::FeatureAPIC>,
        /// Hyper-V enlightenments, for Windows guests.
        preferred_hyperv: Option<v1::FeatureHyperv>,
        /// Visibility of KVM to the guest.
        preferred_kvm: Option<v1::FeatureKVM>,
        /// Whether paravirtual spin locks are enabled.
        preferred_pvspinlock: Option<v1::FeatureState>,
        /// Whether System Management Mode is enabled, which Secure Boot requires.
        preferred_smm: Option<v1::FeatureState>,
    }

    FirmwarePreferences {
        /// Whether the guest boots with BIOS.
        preferred_use_bios: Option<bool>,
        /// Whether BIOS messages are also written to the serial console.
        preferred_use_bios_serial: Option<bool>,
        /// Whether the guest boots with UEFI. Deprecated: use preferredEfi.
        preferred_use_efi: Option<bool>,
        /// Whether UEFI Secure Boot is enabled. Deprecated: use preferredEfi.
        preferred_use_secure_boot: Option<bool>,
        /// UEFI options; the guest boots with UEFI if it is set.
        preferred_efi: Option<v1::EFI>,
    }

    MachinePreferences {
        /// QEMU machine type, for example q35.
        preferred_machine_type: Option<String>,
    }

    ClockPreferences {
        /// Time zone or UTC offset of the clock of the guest.
        preferred_clock_offset: Option<v1::ClockOffset>,
        /// Timers that the guest has.
        preferred_timer: Option<v1::Timer>,
    }

    PreferenceRequirements {
        /// Minimum number of CPUs.
        cpu: Option<CPUPreferenceRequirement>,
        /// Minimum size of the memory.
        memory: Option<MemoryPreferenceRequirement>,
        /// Architecture that a virtual machine must have.
        architecture: Option<String>,
    }

    CPUPreferenceRequirement {
        /// Minimum number of virtual CPUs of the guest.
        guest: u32,
    }

    MemoryPreferenceRequirement {
        /// Minimum memory of the guest.
        guest: Quantity,
    }
}
