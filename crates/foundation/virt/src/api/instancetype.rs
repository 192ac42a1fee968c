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
        /// Labels that the node of a machine must have.
        node_selector: Map<String>,
        /// Scheduler that places the pods of machines.
        scheduler_name: Option<String>,
        /// Processors of a machine.
        cpu: CPUInstancetype,
        /// Memory of a machine; the machine says how much it has if this is not given.
        memory: Option<MemoryInstancetype>,
        /// Graphics processors that are passed to a machine.
        gpus: Vec<v1::GPU> = {"x-kubernetes-list-type": "atomic"},
        /// Devices of the host that are passed to a machine.
        host_devices: Vec<v1::HostDevice> = {"x-kubernetes-list-type": "atomic"},
        /// How I/O threads are given to disks: shared, auto or supplementalPool.
        io_threads_policy: Option<String>,
        /// Options of the I/O threads.
        io_threads: Option<v1::DiskIOThreads>,
        /// Confidential computing of a machine.
        launch_security: Option<v1::LaunchSecurity>,
        /// Annotations that an instance gets.
        annotations: Map<String>,
    }

    CPUInstancetype {
        /// How many virtual processors the guest sees.
        guest: u32,
        /// Model of the processor that the guest sees.
        model: Option<String>,
        /// Whether each processor has a physical processor of its own.
        dedicated_cpu_placement as "dedicatedCPUPlacement": Option<bool>,
        /// NUMA topology that the guest sees.
        numa: Option<v1::NUMA>,
        /// Whether QEMU's own threads run on an additional physical processor.
        isolate_emulator_thread: Option<bool>,
        /// Options for guests with real-time workloads.
        realtime: Option<v1::Realtime>,
        /// Most sockets that a running machine can be given.
        max_sockets: Option<u32>,
    }

    MemoryInstancetype {
        /// What the guest sees; 0 leaves it to the machine.
        guest: Option<Quantity>,
        /// Huge pages that back the memory.
        hugepages: Option<v1::Hugepages>,
        /// How much of the memory is not reserved, 0 to 100.
        overcommit_percent: Option<i64> = {"maximum": 100, "minimum": 0},
        /// Most memory that a running machine can be given.
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
        /// Preferences for the clock and timers.
        clock: Option<ClockPreferences>,
        /// Preferences for the processors.
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
        /// Subdomain of machines that have none.
        preferred_subdomain: Option<String>,
        /// Seconds that a guest gets to shut down, if the machine does not say.
        preferred_termination_grace_period_seconds: Option<i64>,
        /// The least resources that a machine must have.
        requirements: Option<PreferenceRequirements>,
        /// Annotations that an instance gets.
        annotations: Map<String>,
        /// Cores per socket where processors are spread over both.
        prefer_spread_socket_to_core_ratio: Option<u32>,
        /// Architecture of machines that have none.
        preferred_architecture: Option<String>,
        /// Confidential computing of machines that do not say.
        preferred_launch_security: Option<v1::LaunchSecurity>,
    }

    VolumePreferences {
        /// Storage class of data volume templates that have none.
        preferred_storage_class_name: Option<String>,
    }

    CPUPreferences {
        /// How processors are presented: sockets, cores, threads, spread or any.
        preferred_cpu_topology as "preferredCPUTopology": Option<String>,
        /// Options of the topology spread.
        spread_options: Option<SpreadOptions>,
        /// Features of the processor that the guest sees.
        preferred_cpu_features as "preferredCPUFeatures": Vec<v1::CPUFeature>,
    }

    SpreadOptions {
        /// Units that processors are spread over: SocketsCores, SocketsCoresThreads or
        /// CoresThreads.
        across: Option<String>,
        /// Ratio of the units, for instance cores per socket.
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
        /// Whether a machine is made without support for hot-plug.
        preferred_disable_hotplug: Option<bool>,
        /// Options of virtual graphics processors.
        preferred_virtual_gpu_options as "preferredVirtualGPUOptions": Option<v1::VGPUOptions>,
        /// Model of sound devices: ich9 or ac97.
        preferred_sound_model: Option<String>,
        /// Whether virtio devices also support old guests.
        preferred_use_virtio_transitional: Option<bool>,
        /// Bus of input devices: virtio or usb.
        preferred_input_bus: Option<String>,
        /// Type of input devices: tablet.
        preferred_input_type: Option<String>,
        /// Bus of disks: virtio, sata, scsi or usb.
        preferred_disk_bus: Option<String>,
        /// Bus of LUNs: virtio, sata or scsi.
        preferred_lun_bus: Option<String>,
        /// Bus of CD-ROM drives: sata, scsi or usb.
        preferred_cdrom_bus: Option<String>,
        /// Whether disks on virtio get an I/O thread of their own.
        preferred_disk_dedicated_io_thread: Option<bool>,
        /// Cache mode of disks: none, writethrough or writeback.
        preferred_disk_cache: Option<String>,
        /// I/O mode of disks: native, threads or io_uring.
        preferred_disk_io as "preferredDiskIO": Option<String>,
        /// Block size that disks present to the guest.
        preferred_disk_block_size: Option<v1::BlockSize>,
        /// Model of network interfaces: virtio, e1000, e1000e, rtl8139 and others.
        preferred_interface_model: Option<String>,
        /// Gives a machine a random number generator.
        preferred_rng: Option<Empty>,
        /// Whether disks on virtio have a queue per processor.
        preferred_block_multi_queue: Option<bool>,
        /// Whether network interfaces have a queue per processor.
        preferred_network_interface_multi_queue: Option<bool>,
        /// TPM of a machine.
        preferred_tpm as "preferredTPM": Option<v1::TPMDevice>,
        /// Binds the interface of the pod network by masquerade.
        preferred_interface_masquerade: Option<Empty>,
        /// Model of panic devices: hyperv, isa or pvpanic.
        preferred_panic_device_model: Option<String>,
        /// Type of the graphics device: virtio, vga, bochs, ramfb and others.
        preferred_video_type: Option<String>,
    }

    FeaturePreferences {
        /// ACPI of the guest.
        preferred_acpi: Option<v1::FeatureState>,
        /// Interrupt controller of the guest.
        preferred_apic: Option<v1::FeatureAPIC>,
        /// Enlightenments for guests that expect Hyper-V.
        preferred_hyperv: Option<v1::FeatureHyperv>,
        /// How KVM presents itself to the guest.
        preferred_kvm: Option<v1::FeatureKVM>,
        /// Paravirtual spin locks.
        preferred_pvspinlock: Option<v1::FeatureState>,
        /// System management mode, which Secure Boot needs.
        preferred_smm: Option<v1::FeatureState>,
    }

    FirmwarePreferences {
        /// Whether a machine boots with BIOS.
        preferred_use_bios: Option<bool>,
        /// Whether the BIOS also writes to the serial console.
        preferred_use_bios_serial: Option<bool>,
        /// Whether a machine boots with EFI. Replaced by preferredEfi.
        preferred_use_efi: Option<bool>,
        /// Whether EFI checks signatures. Replaced by preferredEfi.
        preferred_use_secure_boot: Option<bool>,
        /// Makes a machine boot with EFI, with these options.
        preferred_efi: Option<v1::EFI>,
    }

    MachinePreferences {
        /// Machine type of QEMU, for instance q35.
        preferred_machine_type: Option<String>,
    }

    ClockPreferences {
        /// Time zone or offset of the guest's clock.
        preferred_clock_offset: Option<v1::ClockOffset>,
        /// Timers that the guest has.
        preferred_timer: Option<v1::Timer>,
    }

    PreferenceRequirements {
        /// The least processors.
        cpu: Option<CPUPreferenceRequirement>,
        /// The least memory.
        memory: Option<MemoryPreferenceRequirement>,
        /// The architecture that a machine must have.
        architecture: Option<String>,
    }

    CPUPreferenceRequirement {
        /// How many processors the guest must see at least.
        guest: u32,
    }

    MemoryPreferenceRequirement {
        /// How much memory the guest must see at least.
        guest: Quantity,
    }
}
