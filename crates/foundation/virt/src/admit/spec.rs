//! The specification of an instance, also as a template: all its rules in upstream's order.

use super::{Causes, credential, disk, firmware, name, network, probe, processor, volume};
use crate::config::ClusterConfig;
use crate::v1::{Devices, VirtualMachineInstanceSpec};

/// The inputs of every rule.
#[derive(Clone, Copy)]
pub(super) struct CheckedSpec<'a> {
    /// The path of the specification: `spec`, or `spec.template.spec`.
    pub(super) at: &'a str,
    pub(super) spec: &'a VirtualMachineInstanceSpec,
    pub(super) config: &'a ClusterConfig,
}

impl<'a> CheckedSpec<'a> {
    pub(super) fn field(&self, rest: &str) -> String {
        format!("{}.{rest}", self.at)
    }

    pub(super) fn devices(&self) -> &'a Devices {
        &self.spec.domain.devices
    }

    pub(super) fn architecture(&self) -> &'a str {
        match self.spec.architecture.as_deref() {
            None | Some("") => self.config.default_architecture(),
            Some(architecture) => architecture,
        }
    }
}

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    name::check(judged, causes);
    processor::check(judged, causes);
    start_strategy(judged, causes);
    network::check(judged, causes);
    disk::check_boot_order(judged, causes);
    inputs(judged, causes);
    io_threads(judged, causes);
    probe::check(judged, causes);
    disk::check(judged, causes);
    firmware::check(judged, causes);
    volume::check(judged, causes);
    credential::check(judged, causes);
    name::check_dns(judged, causes);
    eviction_strategy(judged, causes);
    devices(judged, causes);
    firmware::check_security(judged, causes);
    features(judged, causes);
    service_account(judged, causes);
}

fn start_strategy(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let field = judged.field("startStrategy");
    match judged.spec.start_strategy.as_deref() {
        None => {}
        Some("Paused") if judged.spec.liveness_probe.is_some() => {
            let probe = judged.field("livenessProbe");
            let message = format!(
                "either {field} or {probe} should be provided.Pausing VMI with LivenessProbe is not supported"
            );
            causes.invalid(field, message);
        }
        Some("Paused") => {}
        Some(other) => {
            let message = format!("{field} is set with an unrecognized option: {other}");
            causes.invalid(field, message);
        }
    }
}

fn inputs(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    for (index, input) in judged.devices().inputs.iter().enumerate() {
        let field = judged.field(&format!("domain.devices.inputs[{index}]"));
        if !matches!(input.bus.as_deref(), None | Some("" | "virtio" | "usb")) {
            causes.invalid(format!("{field}.bus"), "Input device can have only virtio or usb bus.");
        }
        if input.r#type != "tablet" {
            causes.invalid(format!("{field}.type"), "Input device can have only tablet type.");
        }
    }
}

fn io_threads(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let domain = &judged.spec.domain;
    let Some(policy) = domain.io_threads_policy.as_deref() else { return };
    if !matches!(policy, "shared" | "auto" | "supplementalPool") {
        causes.invalid(
            judged.field("domain.ioThreadsPolicy"),
            format!("Invalid IOThreadsPolicy ({policy})"),
        );
    }
    let threads =
        domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    if policy == "supplementalPool" && threads.unwrap_or_default() < 1 {
        causes.invalid(
            judged.field("domain.ioThreads.count"),
            "the number of iothreads needs to be set and positive for the dedicated policy",
        );
    }
}

fn eviction_strategy(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let strategy = judged.spec.eviction_strategy.as_deref();
    let known = ["LiveMigrate", "LiveMigrateIfPossible", "None", "External"];
    if let Some(strategy) = strategy.or(judged.config.eviction_strategy())
        && !known.contains(&strategy)
    {
        let field = judged.field("evictionStrategy");
        let message = format!("{field} is set with an unrecognized option: {strategy}");
        causes.invalid(field, message);
    }
}

fn devices(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let devices = judged.devices();
    let shows_ramfb = |gpu: &&crate::v1::GPU| {
        let display = gpu.virtual_gpu_options.as_ref().and_then(|options| options.display.as_ref());
        display.is_some_and(|display| {
            display.enabled != Some(false)
                && display.ram_fb.as_ref().is_none_or(|ramfb| ramfb.enabled != Some(false))
        })
    };
    if devices.gpus.iter().filter(shows_ramfb).count() > 1 {
        // The blank at the end is upstream's.
        causes.invalid(
            judged.field("GPUs"),
            "configuring multiple displays with ramfb is not valid ",
        );
    }
    if !devices.host_devices.is_empty() && !judged.config.has("HostDevices") {
        causes.invalid(
            judged.field("HostDevices"),
            "Host Devices feature gate is not enabled in kubevirt-config",
        );
    }
    if let Some(sound) = &devices.sound {
        if !matches!(sound.model.as_deref(), None | Some("" | "ich9" | "ac97")) {
            causes.invalid(
                judged.field("Sound"),
                "Sound device type is not supported. Options: 'ich9' or 'ac97'",
            );
        }
        if sound.name.is_empty() {
            causes.invalid(judged.field("Sound"), "Sound device requires a name field.");
        }
    }
}

fn features(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let devices = judged.devices();
    if devices.autoattach_vsock == Some(true) && !judged.config.has("VSOCK") {
        causes.invalid(
            judged.field("domain.devices.autoattachVSOCK"),
            "VSOCK feature gate is not enabled in kubevirt-config",
        );
    }
    if devices.downward_metrics.is_some() && !judged.config.has("DownwardMetrics") {
        causes.invalid(
            judged.field("domain.devices.downwardMetrics"),
            "downwardMetrics virtio serial is not allowed: DownwardMetrics feature gate is not enabled",
        );
    }
    if devices.video.is_some() && devices.autoattach_graphics_device == Some(false) {
        causes.invalid(
            judged.field("video"),
            "Video configuration is not allowed when autoattachGraphicsDevice is set to false",
        );
    }
    panic_devices(judged, causes);
    let domain = &judged.spec.domain;
    if domain.reboot_policy.is_some() && !judged.config.has("RebootPolicy") {
        causes.invalid(
            judged.field("domain.rebootPolicy"),
            "RebootPolicy is specified but the RebootPolicy feature gate is not enabled",
        );
    }
    let reserves = domain.memory.as_ref().is_some_and(|memory| memory.reserved_overhead.is_some());
    if reserves && !judged.config.has("ReservedOverheadMemlock") {
        causes.invalid(
            judged.field("domain.memory.reservedOverhead"),
            "Reserved overhead memlock feature gate is not enabled in kubevirt-config",
        );
    }
}

fn panic_devices(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let panics = &judged.devices().panic_devices;
    if !panics.is_empty() && judged.architecture() == "s390x" {
        causes.invalid(
            judged.field("domain.devices.panicDevices"),
            "custom panic devices are not supported on s390x architecture",
        );
    }
    for (index, device) in panics.iter().enumerate() {
        if let Some(model) = device.model.as_deref()
            && !matches!(model, "hyperv" | "isa" | "pvpanic")
        {
            causes.invalid(
                judged.field(&format!("domain.devices.panicDevices[{index}].model")),
                format!("invalid PanicDeviceModel({model})"),
            );
        }
    }
}

fn service_account(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let Some(account) = judged.spec.service_account_name.as_deref().filter(|name| !name.is_empty())
    else {
        return;
    };
    let field = judged.field("serviceAccountName");
    let problems = kinds::syntax::subdomain(account);
    if !problems.is_empty() {
        let message =
            format!("{field} is not a valid service account name: {}", problems.join("; "));
        causes.invalid(field.clone(), message);
    }
    let others = judged.spec.volumes.iter().filter_map(|volume| volume.service_account.as_ref());
    let mut others = others.filter_map(|source| source.service_account_name.as_deref());
    if let Some(other) = others.find(|other| *other != account) {
        let message = format!(
            "spec.serviceAccountName {account:?} and serviceAccount volume {other:?} must reference the same service account"
        );
        causes.invalid(field, message);
    }
}
