//! The virtual hardware apart from disks and network: processors, memory, firmware, clock.

use super::device::Devices;
use super::instance::ReservedOverhead;
use crate::api::atom::{Empty, Map, Quantity};
use crate::api::record::record;

record! {
    DomainSpec {
        /// Processors and memory to reserve, and their limits.
        resources: Option<ResourceRequirements>,
        /// Number, topology and model of the processors.
        cpu: Option<CPU>,
        /// Memory of the guest.
        memory: Option<Memory>,
        /// Machine type, for example q35.
        machine: Option<Machine>,
        /// Firmware, boot loader and identity of the machine.
        firmware: Option<Firmware>,
        /// Clock and timers.
        clock: Option<Clock>,
        /// Features of the hypervisor that the guest sees.
        features: Option<Features>,
        /// Disks, interfaces and other devices.
        devices: Devices,
        /// How disks share threads: shared, auto or supplementalPool.
        io_threads_policy: Option<String>,
        /// Threads for disk requests.
        io_threads: Option<DiskIOThreads>,
        /// Chassis information in the SMBIOS tables.
        chassis: Option<Chassis>,
        /// Encryption of the guest's memory by the processor.
        launch_security: Option<LaunchSecurity>,
        /// What a reboot of the guest does: Reboot (default) or Terminate.
        reboot_policy: Option<String> = {"enum": ["Reboot", "Terminate"]},
    }

    Chassis {
        /// Manufacturer in the SMBIOS chassis table.
        manufacturer: Option<String>,
        /// Version in the SMBIOS chassis table.
        version: Option<String>,
        /// Serial number in the SMBIOS chassis table.
        serial: Option<String>,
        /// Asset tag in the SMBIOS chassis table.
        asset: Option<String>,
        /// SKU number in the SMBIOS chassis table.
        sku: Option<String>,
    }

    Bootloader {
        /// Boot with BIOS.
        bios: Option<BIOS>,
        /// Boot with UEFI.
        efi: Option<EFI>,
    }

    BIOS {
        /// Write BIOS messages to the serial console.
        use_serial: Option<bool>,
    }

    EFI {
        /// On unless it is set to false; needs SMM.
        secure_boot: Option<bool>,
        /// Keeps the EFI variables across restarts.
        persistent: Option<bool>,
    }

    KernelBootContainer {
        /// Container image with the kernel.
        image: String,
        /// Secret with credentials for the registry.
        image_pull_secret: Option<String>,
        /// When the image is pulled: Always, IfNotPresent or Never.
        image_pull_policy: Option<String>,
        /// Path of the kernel in the image.
        kernel_path: Option<String>,
        /// Path of the initial RAM disk in the image.
        initrd_path: Option<String>,
    }

    KernelBoot {
        /// Command line of the kernel.
        kernel_args: Option<String>,
        /// Image with the kernel and the initial RAM disk.
        container: Option<KernelBootContainer>,
    }

    ResourceRequirements {
        /// Resources that are reserved on the node.
        requests: Map<Quantity>,
        /// Resources that the guest may use at most.
        limits: Map<Quantity>,
        /// Do not reserve the memory that QEMU itself needs.
        overcommit_guest_overhead: Option<bool>,
    }

    CPU {
        /// Cores per socket.
        cores: Option<u32>,
        /// Sockets that the guest sees; more can be added while it runs.
        sockets: Option<u32>,
        /// The most sockets that can be added while the guest runs.
        max_sockets: Option<u32>,
        /// Threads per core.
        threads: Option<u32>,
        /// host-model (default), host-passthrough or a named model.
        model: Option<String>,
        /// Processor features to require, force or disable.
        features: Vec<CPUFeature>,
        /// Pins each virtual processor to a physical one.
        dedicated_cpu_placement: Option<bool>,
        /// Mapping of the host's NUMA nodes into the guest.
        numa: Option<NUMA>,
        /// Run QEMU's own threads on a processor of their own.
        isolate_emulator_thread: Option<bool>,
        /// Tune the guest for real-time workloads.
        realtime: Option<Realtime>,
    }

    Realtime {
        /// Processors of the guest that are real-time, for example 0-3,^1.
        mask: Option<String>,
    }

    NUMA {
        /// Give the guest the NUMA topology of its dedicated processors.
        guest_mapping_passthrough: Option<Empty>,
    }

    CPUFeature {
        /// Name of the feature, for example vmx.
        name: String,
        /// force, require, optional, disable or forbid.
        policy: Option<String>,
    }

    Memory {
        /// Use huge pages of the node.
        hugepages: Option<Hugepages>,
        /// What the guest sees.
        guest: Option<Quantity>,
        /// What the guest can grow to while it runs.
        max_guest: Option<Quantity>,
        /// Memory that is reserved for QEMU.
        reserved_overhead: Option<ReservedOverhead>,
    }

    Hugepages {
        /// Size of the pages, for example 2Mi or 1Gi.
        page_size: Option<String>,
    }

    Machine {
        /// The machine type of QEMU, for example q35.
        r#type: Option<String>,
    }

    Firmware {
        /// The UUID that the guest sees; stable for a machine.
        uuid: Option<String>,
        /// BIOS or UEFI.
        bootloader: Option<Bootloader>,
        /// The serial number that the guest sees.
        serial: Option<String>,
        /// Boot a kernel directly.
        kernel_boot: Option<KernelBoot>,
        /// ACPI tables for the guest.
        acpi: Option<ACPI>,
    }

    ACPI {
        /// Volume with the SLIC table.
        slic_name_ref: Option<String>,
        /// Volume with the MSDM table.
        msdm_name_ref: Option<String>,
    }

    LaunchSecurity {
        /// AMD Secure Encrypted Virtualization.
        sev: Option<SEV>,
        /// AMD SEV with Secure Nested Paging.
        snp: Option<Empty>,
        /// Intel Trust Domain Extensions.
        tdx: Option<Empty>,
    }

    SEV {
        /// Restrictions of the guest's launch policy.
        policy: Option<SEVPolicy>,
        /// Wait for a remote attestation before the guest starts.
        attestation: Option<Empty>,
        /// Session blob of the guest owner, Base64.
        session: Option<String>,
        /// Diffie-Hellman certificate of the guest owner, Base64.
        dh_cert: Option<String>,
    }

    SEVPolicy {
        /// Encrypt the registers of the guest too (SEV-ES).
        encrypted_state: Option<bool>,
    }

    ClockOffset {
        /// The clock of the machine runs in UTC.
        utc: Option<ClockOffsetUTC>,
        /// The clock of the machine runs in this time zone, for example Europe/Berlin.
        timezone: Option<String>,
    }

    ClockOffsetUTC {
        /// Difference to UTC in seconds.
        offset_seconds: Option<i64>,
    }

    Clock: {"x-kubernetes-preserve-unknown-fields": true} {
        /// The clock of the machine runs in UTC.
        utc: Option<ClockOffsetUTC>,
        /// The clock of the machine runs in this time zone, for example Europe/Berlin.
        timezone: Option<String>,
        /// Timers that the guest sees.
        timer: Option<Timer>,
    }

    Timer {
        /// High Precision Event Timer.
        hpet: Option<HPETTimer>,
        /// KVM's paravirtual clock.
        kvm: Option<KVMTimer>,
        /// Programmable Interval Timer.
        pit: Option<PITTimer>,
        /// Real-time clock.
        rtc: Option<RTCTimer>,
        /// Hyper-V's paravirtual clock.
        hyperv: Option<HypervTimer>,
    }

    RTCTimer {
        /// What happens to missed ticks: delay, catchup, merge or discard.
        tick_policy: Option<String>,
        /// The timer is available; default true.
        present: Option<bool>,
        /// What the clock follows: guest or wall.
        track: Option<String>,
    }

    HPETTimer {
        /// What happens to missed ticks: delay, catchup, merge or discard.
        tick_policy: Option<String>,
        /// The timer is available; default true.
        present: Option<bool>,
    }

    PITTimer {
        /// What happens to missed ticks: delay, catchup, merge or discard.
        tick_policy: Option<String>,
        /// The timer is available; default true.
        present: Option<bool>,
    }

    KVMTimer {
        /// The timer is available; default true.
        present: Option<bool>,
    }

    HypervTimer {
        /// The timer is available; default true.
        present: Option<bool>,
    }

    HyperVPassthrough {
        /// Enable all Hyper-V features that the node supports.
        enabled: Option<bool>,
    }

    Features {
        /// ACPI; default enabled.
        acpi: Option<FeatureState>,
        /// Interrupt controller; default enabled.
        apic: Option<FeatureAPIC>,
        /// Enable all Hyper-V features that the node supports.
        hyperv_passthrough: Option<HyperVPassthrough>,
        /// Hyper-V features, for Windows guests.
        hyperv: Option<FeatureHyperv>,
        /// System Management Mode, which secure boot needs.
        smm: Option<FeatureState>,
        /// How KVM shows itself to the guest.
        kvm: Option<FeatureKVM>,
        /// Paravirtual spin locks.
        pvspinlock: Option<FeatureState>,
    }

    SyNICTimer {
        /// Enable the timers.
        enabled: Option<bool>,
        /// Deliver timer events without the interrupt controller.
        direct: Option<FeatureState>,
    }

    FeatureState {
        /// Enable the feature; default true.
        enabled: Option<bool>,
    }

    FeatureAPIC {
        /// Enable the feature; default true.
        enabled: Option<bool>,
        /// Enable paravirtual end-of-interrupt messages.
        end_of_interrupt: Option<bool>,
    }

    FeatureSpinlocks {
        /// Enable the feature; default true.
        enabled: Option<bool>,
        /// Number of retries before the hypervisor is notified.
        spinlocks: Option<u32>,
    }

    FeatureVendorID {
        /// Enable the feature; default true.
        enabled: Option<bool>,
        /// Vendor ID that the guest sees, at most 12 characters.
        vendorid: Option<String>,
    }

    TLBFlush {
        /// Enable the feature; default true.
        enabled: Option<bool>,
        /// Allow nested guests to flush directly.
        direct: Option<FeatureState>,
        /// Allow flushes of parts of the TLB.
        extended: Option<FeatureState>,
    }

    FeatureHyperv {
        /// Relax timer checks of the guest.
        relaxed: Option<FeatureState>,
        /// Virtual interrupt controller with fewer exits.
        vapic: Option<FeatureState>,
        /// Notify the hypervisor about long spin locks.
        spinlocks: Option<FeatureSpinlocks>,
        /// Virtual processor index, which other features need.
        vpindex: Option<FeatureState>,
        /// Report the time that a processor ran.
        runtime: Option<FeatureState>,
        /// Synthetic interrupt controller.
        synic: Option<FeatureState>,
        /// Synthetic timers.
        synictimer: Option<SyNICTimer>,
        /// Reset the machine through Hyper-V.
        reset: Option<FeatureState>,
        /// Vendor ID of the hypervisor.
        vendorid: Option<FeatureVendorID>,
        /// Report frequencies of the TSC and the interrupt controller.
        frequencies: Option<FeatureState>,
        /// Notify the guest when the TSC frequency changes.
        reenlightenment: Option<FeatureState>,
        /// Paravirtual TLB flushes.
        tlbflush: Option<TLBFlush>,
        /// Paravirtual interrupts between processors.
        ipi: Option<FeatureState>,
        /// Enlightened VMCS, for nested guests on Intel.
        evmcs: Option<FeatureState>,
    }

    FeatureKVM {
        /// Hide KVM from the guest.
        hidden: Option<bool>,
    }

    DiskIOThreads {
        /// Number of threads that share the requests of disks.
        supplemental_pool_thread_count: Option<u32>,
    }
}
