//! The virtual hardware apart from disks and network: processors, memory, firmware, clock.

use super::device::Devices;
use super::instance::ReservedOverhead;
use crate::api::atom::{Empty, Map, Quantity};
use crate::api::record::record;

record! {
    DomainSpec {
        /// Processors and memory to reserve, and their limits.
        resources: Option<ResourceRequirements>,
        cpu: Option<CPU>,
        memory: Option<Memory>,
        machine: Option<Machine>,
        firmware: Option<Firmware>,
        clock: Option<Clock>,
        features: Option<Features>,
        /// Disks, interfaces and other devices.
        devices: Devices,
        /// How disks share threads: shared, auto or supplementalPool.
        io_threads_policy: Option<String>,
        io_threads: Option<DiskIOThreads>,
        chassis: Option<Chassis>,
        launch_security: Option<LaunchSecurity>,
        /// What a reboot of the guest does: Reboot (default) or Terminate.
        reboot_policy: Option<String> = {"enum": ["Reboot", "Terminate"]},
    }

    Chassis {
        manufacturer: Option<String>,
        version: Option<String>,
        serial: Option<String>,
        asset: Option<String>,
        sku: Option<String>,
    }

    Bootloader {
        bios: Option<BIOS>,
        efi: Option<EFI>,
    }

    BIOS {
        use_serial: Option<bool>,
    }

    EFI {
        /// On unless it is set to false; needs SMM.
        secure_boot: Option<bool>,
        /// Keeps the EFI variables across restarts.
        persistent: Option<bool>,
    }

    KernelBootContainer {
        image: String,
        image_pull_secret: Option<String>,
        image_pull_policy: Option<String>,
        kernel_path: Option<String>,
        initrd_path: Option<String>,
    }

    KernelBoot {
        kernel_args: Option<String>,
        container: Option<KernelBootContainer>,
    }

    ResourceRequirements {
        requests: Map<Quantity>,
        limits: Map<Quantity>,
        overcommit_guest_overhead: Option<bool>,
    }

    CPU {
        cores: Option<u32>,
        /// Sockets that the guest sees; more can be added while it runs.
        sockets: Option<u32>,
        /// The most sockets that can be added while the guest runs.
        max_sockets: Option<u32>,
        threads: Option<u32>,
        /// host-model (default), host-passthrough or a named model.
        model: Option<String>,
        features: Vec<CPUFeature>,
        /// Pins each virtual processor to a physical one.
        dedicated_cpu_placement: Option<bool>,
        numa: Option<NUMA>,
        isolate_emulator_thread: Option<bool>,
        realtime: Option<Realtime>,
    }

    Realtime {
        mask: Option<String>,
    }

    NUMA {
        guest_mapping_passthrough: Option<Empty>,
    }

    CPUFeature {
        name: String,
        policy: Option<String>,
    }

    Memory {
        hugepages: Option<Hugepages>,
        /// What the guest sees.
        guest: Option<Quantity>,
        /// What the guest can grow to while it runs.
        max_guest: Option<Quantity>,
        reserved_overhead: Option<ReservedOverhead>,
    }

    Hugepages {
        page_size: Option<String>,
    }

    Machine {
        /// The machine type of QEMU, for example q35.
        r#type: Option<String>,
    }

    Firmware {
        /// The UUID that the guest sees; stable for a machine.
        uuid: Option<String>,
        bootloader: Option<Bootloader>,
        /// The serial number that the guest sees.
        serial: Option<String>,
        kernel_boot: Option<KernelBoot>,
        acpi: Option<ACPI>,
    }

    ACPI {
        slic_name_ref: Option<String>,
        msdm_name_ref: Option<String>,
    }

    LaunchSecurity {
        sev: Option<SEV>,
        snp: Option<Empty>,
        tdx: Option<Empty>,
    }

    SEV {
        policy: Option<SEVPolicy>,
        attestation: Option<Empty>,
        session: Option<String>,
        dh_cert: Option<String>,
    }

    SEVPolicy {
        encrypted_state: Option<bool>,
    }

    ClockOffset {
        utc: Option<ClockOffsetUTC>,
        timezone: Option<String>,
    }

    ClockOffsetUTC {
        offset_seconds: Option<i64>,
    }

    Clock: {"x-kubernetes-preserve-unknown-fields": true} {
        utc: Option<ClockOffsetUTC>,
        timezone: Option<String>,
        timer: Option<Timer>,
    }

    Timer {
        hpet: Option<HPETTimer>,
        kvm: Option<KVMTimer>,
        pit: Option<PITTimer>,
        rtc: Option<RTCTimer>,
        hyperv: Option<HypervTimer>,
    }

    RTCTimer {
        tick_policy: Option<String>,
        present: Option<bool>,
        track: Option<String>,
    }

    HPETTimer {
        tick_policy: Option<String>,
        present: Option<bool>,
    }

    PITTimer {
        tick_policy: Option<String>,
        present: Option<bool>,
    }

    KVMTimer {
        present: Option<bool>,
    }

    HypervTimer {
        present: Option<bool>,
    }

    HyperVPassthrough {
        enabled: Option<bool>,
    }

    Features {
        acpi: Option<FeatureState>,
        apic: Option<FeatureAPIC>,
        hyperv_passthrough: Option<HyperVPassthrough>,
        hyperv: Option<FeatureHyperv>,
        smm: Option<FeatureState>,
        kvm: Option<FeatureKVM>,
        pvspinlock: Option<FeatureState>,
    }

    SyNICTimer {
        enabled: Option<bool>,
        direct: Option<FeatureState>,
    }

    FeatureState {
        enabled: Option<bool>,
    }

    FeatureAPIC {
        enabled: Option<bool>,
        end_of_interrupt: Option<bool>,
    }

    FeatureSpinlocks {
        enabled: Option<bool>,
        spinlocks: Option<u32>,
    }

    FeatureVendorID {
        enabled: Option<bool>,
        vendorid: Option<String>,
    }

    TLBFlush {
        enabled: Option<bool>,
        direct: Option<FeatureState>,
        extended: Option<FeatureState>,
    }

    FeatureHyperv {
        relaxed: Option<FeatureState>,
        vapic: Option<FeatureState>,
        spinlocks: Option<FeatureSpinlocks>,
        vpindex: Option<FeatureState>,
        runtime: Option<FeatureState>,
        synic: Option<FeatureState>,
        synictimer: Option<SyNICTimer>,
        reset: Option<FeatureState>,
        vendorid: Option<FeatureVendorID>,
        frequencies: Option<FeatureState>,
        reenlightenment: Option<FeatureState>,
        tlbflush: Option<TLBFlush>,
        ipi: Option<FeatureState>,
        evmcs: Option<FeatureState>,
    }

    FeatureKVM {
        hidden: Option<bool>,
    }

    DiskIOThreads {
        supplemental_pool_thread_count: Option<u32>,
    }
}
