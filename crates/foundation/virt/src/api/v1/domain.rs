//! The virtual hardware apart from disks and network: processors, memory, firmware, clock.

use super::device::Devices;
use super::instance::ReservedOverhead;
use crate::api::atom::{Empty, Map, Quantity};
use crate::api::record::record;

record! {
    DomainSpec {
        /// Requests and limits of CPU and memory.
        resources: Option<ResourceRequirements>,
        /// Number, topology and model of the CPUs.
        cpu: Option<CPU>,
        /// Size and pages of the guest memory.
        memory: Option<Memory>,
        /// Machine type of the guest, for example q35.
        machine: Option<Machine>,
        /// Firmware, boot loader and identity of the guest.
        firmware: Option<Firmware>,
        /// Clock and timers of the guest.
        clock: Option<Clock>,
        /// Features of the hypervisor that the guest sees.
        features: Option<Features>,
        /// Disks, interfaces and other devices.
        devices: Devices,
        /// Assignment of I/O threads to disks: shared, auto or supplementalPool.
        io_threads_policy: Option<String>,
        /// Options of the I/O threads.
        io_threads: Option<DiskIOThreads>,
        /// Chassis information in the SMBIOS tables.
        chassis: Option<Chassis>,
        /// Encryption of the guest memory (confidential computing).
        launch_security: Option<LaunchSecurity>,
        /// Action on a reboot of the guest: Reboot (default) or Terminate.
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
        /// Boots the guest with BIOS.
        bios: Option<BIOS>,
        /// Boots the guest with UEFI.
        efi: Option<EFI>,
    }

    BIOS {
        /// Whether BIOS messages are written to the serial console.
        use_serial: Option<bool>,
    }

    EFI {
        /// Whether Secure Boot is enabled; true by default. It requires SMM.
        secure_boot: Option<bool>,
        /// Whether the UEFI variables are kept across restarts.
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
        /// Maximum amount of each resource that the guest may use.
        limits: Map<Quantity>,
        /// Whether the memory overhead of QEMU is not added to the memory request.
        overcommit_guest_overhead: Option<bool>,
    }

    CPU {
        /// Number of cores per socket.
        cores: Option<u32>,
        /// Number of sockets; more can be hot-plugged.
        sockets: Option<u32>,
        /// Maximum number of sockets with hot-plugged ones.
        max_sockets: Option<u32>,
        /// Number of threads per core.
        threads: Option<u32>,
        /// CPU model: host-model (default), host-passthrough or the name of a model.
        model: Option<String>,
        /// CPU features to require, force or disable.
        features: Vec<CPUFeature>,
        /// Whether each virtual CPU is pinned to a dedicated physical CPU.
        dedicated_cpu_placement: Option<bool>,
        /// NUMA topology of the guest.
        numa: Option<NUMA>,
        /// Whether the emulator threads of QEMU run on an additional dedicated CPU.
        isolate_emulator_thread: Option<bool>,
        /// Options for real-time workloads.
        realtime: Option<Realtime>,
    }

    Realtime {
        /// Virtual CPUs with real-time scheduling, for example 0-3,^1.
        mask: Option<String>,
    }

    NUMA {
        /// Passes the NUMA topology of the dedicated CPUs to the guest.
        guest_mapping_passthrough: Option<Empty>,
    }

    CPUFeature {
        /// Name of the feature, for example vmx.
        name: String,
        /// Policy of the feature: force, require, optional, disable or forbid.
        policy: Option<String>,
    }

    Memory {
        /// Huge pages that back the guest memory.
        hugepages: Option<Hugepages>,
        /// Memory of the guest.
        guest: Option<Quantity>,
        /// Maximum memory of the guest with hot-plugged memory.
        max_guest: Option<Quantity>,
        /// Memory that is reserved for QEMU in addition to the guest memory.
        reserved_overhead: Option<ReservedOverhead>,
    }

    Hugepages {
        /// Size of the pages, for example 2Mi or 1Gi.
        page_size: Option<String>,
    }

    Machine {
        /// QEMU machine type, for example q35.
        r#type: Option<String>,
    }

    Firmware {
        /// UUID that the guest sees; it stays the same across restarts.
        uuid: Option<String>,
        /// Boot loader of the guest: BIOS or UEFI.
        bootloader: Option<Bootloader>,
        /// Serial number of the system that the guest sees.
        serial: Option<String>,
        /// Kernel that is booted directly, without a boot loader.
        kernel_boot: Option<KernelBoot>,
        /// Additional ACPI tables of the guest.
        acpi: Option<ACPI>,
    }

    ACPI {
        /// Name of the volume with the SLIC table.
        slic_name_ref: Option<String>,
        /// Name of the volume with the MSDM table.
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
        /// Launch policy of the guest.
        policy: Option<SEVPolicy>,
        /// Enables remote attestation before the guest starts.
        attestation: Option<Empty>,
        /// Session blob of the guest owner, encoded in Base64.
        session: Option<String>,
        /// Diffie-Hellman certificate of the guest owner, encoded in Base64.
        dh_cert: Option<String>,
    }

    SEVPolicy {
        /// Whether the CPU registers of the guest are encrypted too (SEV-ES).
        encrypted_state: Option<bool>,
    }

    ClockOffset {
        /// Sets the clock of the guest to UTC, or an offset from it.
        utc: Option<ClockOffsetUTC>,
        /// Time zone of the clock of the guest, for example Europe/Berlin.
        timezone: Option<String>,
    }

    ClockOffsetUTC {
        /// Offset from UTC in seconds.
        offset_seconds: Option<i64>,
    }

    Clock: {"x-kubernetes-preserve-unknown-fields": true} {
        /// Sets the clock of the guest to UTC, or an offset from it.
        utc: Option<ClockOffsetUTC>,
        /// Time zone of the clock of the guest, for example Europe/Berlin.
        timezone: Option<String>,
        /// Timers that the guest sees.
        timer: Option<Timer>,
    }

    Timer {
        /// High Precision Event Timer (HPET).
        hpet: Option<HPETTimer>,
        /// Paravirtual clock of KVM.
        kvm: Option<KVMTimer>,
        /// Programmable Interval Timer (PIT).
        pit: Option<PITTimer>,
        /// Real-time clock (RTC).
        rtc: Option<RTCTimer>,
        /// Reference time counter of Hyper-V.
        hyperv: Option<HypervTimer>,
    }

    RTCTimer {
        /// Policy for missed ticks: delay, catchup, merge or discard.
        tick_policy: Option<String>,
        /// Whether the timer is available; true by default.
        present: Option<bool>,
        /// Time that the clock follows: guest or wall.
        track: Option<String>,
    }

    HPETTimer {
        /// Policy for missed ticks: delay, catchup, merge or discard.
        tick_policy: Option<String>,
        /// Whether the timer is available; true by default.
        present: Option<bool>,
    }

    PITTimer {
        /// Policy for missed ticks: delay, catchup, merge or discard.
        tick_policy: Option<String>,
        /// Whether the timer is available; true by default.
        present: Option<bool>,
    }

    KVMTimer {
        /// Whether the timer is available; true by default.
        present: Option<bool>,
    }

    HypervTimer {
        /// Whether the timer is available; true by default.
        present: Option<bool>,
    }

    HyperVPassthrough {
        /// Whether all Hyper-V features that the node supports are enabled.
        enabled: Option<bool>,
    }

    Features {
        /// Whether the guest has ACPI tables; enabled by default.
        acpi: Option<FeatureState>,
        /// Options of the interrupt controller (APIC); enabled by default.
        apic: Option<FeatureAPIC>,
        /// Enables all Hyper-V features that the node supports.
        hyperv_passthrough: Option<HyperVPassthrough>,
        /// Hyper-V enlightenments, for Windows guests.
        hyperv: Option<FeatureHyperv>,
        /// Whether System Management Mode is enabled, which Secure Boot requires.
        smm: Option<FeatureState>,
        /// Visibility of KVM to the guest.
        kvm: Option<FeatureKVM>,
        /// Whether paravirtual spin locks are enabled.
        pvspinlock: Option<FeatureState>,
    }

    SyNICTimer {
        /// Whether the synthetic timers are enabled.
        enabled: Option<bool>,
        /// Whether timer events bypass the interrupt controller (direct mode).
        direct: Option<FeatureState>,
    }

    FeatureState {
        /// Whether the feature is enabled; true by default.
        enabled: Option<bool>,
    }

    FeatureAPIC {
        /// Whether the feature is enabled; true by default.
        enabled: Option<bool>,
        /// Whether paravirtual end-of-interrupt messages are enabled.
        end_of_interrupt: Option<bool>,
    }

    FeatureSpinlocks {
        /// Whether the feature is enabled; true by default.
        enabled: Option<bool>,
        /// Number of retries before the hypervisor is notified of a spin lock.
        spinlocks: Option<u32>,
    }

    FeatureVendorID {
        /// Whether the feature is enabled; true by default.
        enabled: Option<bool>,
        /// Vendor ID that the guest sees, at most 12 characters.
        vendorid: Option<String>,
    }

    TLBFlush {
        /// Whether the feature is enabled; true by default.
        enabled: Option<bool>,
        /// Whether nested guests can flush the TLB directly.
        direct: Option<FeatureState>,
        /// Whether parts of the TLB can be flushed.
        extended: Option<FeatureState>,
    }

    FeatureHyperv {
        /// Relaxes the timer checks of the guest.
        relaxed: Option<FeatureState>,
        /// Virtual APIC, which reduces exits to the hypervisor.
        vapic: Option<FeatureState>,
        /// Notifies the hypervisor of long spin locks.
        spinlocks: Option<FeatureSpinlocks>,
        /// Virtual processor index, which other enlightenments require.
        vpindex: Option<FeatureState>,
        /// Reports the run time of virtual CPUs to the guest.
        runtime: Option<FeatureState>,
        /// Synthetic interrupt controller (SynIC).
        synic: Option<FeatureState>,
        /// Synthetic timers of the SynIC.
        synictimer: Option<SyNICTimer>,
        /// Enables a reset of the guest through Hyper-V.
        reset: Option<FeatureState>,
        /// Vendor ID of the hypervisor that the guest sees.
        vendorid: Option<FeatureVendorID>,
        /// Reports the frequencies of the TSC and the APIC to the guest.
        frequencies: Option<FeatureState>,
        /// Notifies the guest when the TSC frequency changes.
        reenlightenment: Option<FeatureState>,
        /// Paravirtual flushes of the TLB.
        tlbflush: Option<TLBFlush>,
        /// Paravirtual inter-processor interrupts (IPI).
        ipi: Option<FeatureState>,
        /// Enlightened VMCS, for nested guests on Intel CPUs.
        evmcs: Option<FeatureState>,
    }

    FeatureKVM {
        /// Whether KVM is hidden from the guest.
        hidden: Option<bool>,
    }

    DiskIOThreads {
        /// Number of I/O threads in the pool that serves the disks.
        supplemental_pool_thread_count: Option<u32>,
    }
}
