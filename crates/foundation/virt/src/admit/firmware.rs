//! Firmware, the kernel that is booted directly, and encrypted guests.

use super::spec::CheckedSpec;
use super::{Causes, volume};
use crate::v1::{Firmware, KernelBoot, LaunchSecurity, VirtualMachineInstanceSpec};

pub(super) fn check(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let domain = &judged.spec.domain;
    let Some(firmware) = &domain.firmware else { return };
    let boot = firmware.bootloader.as_ref();
    if boot.is_some_and(|boot| boot.efi.is_some() && boot.bios.is_some()) {
        let field = judged.field("domain.firmware.bootloader");
        let message =
            format!("{field} has both EFI and BIOS configured, but they are mutually exclusive.");
        causes.invalid(field, message);
    }
    if let Some(kernel) = &firmware.kernel_boot {
        check_kernel(&judged.field("domain.firmware.kernelBoot"), kernel, causes);
    }
    let smm = domain.features.as_ref().and_then(|features| features.smm.as_ref());
    let has_smm = smm.is_some_and(|smm| smm.enabled != Some(false));
    let tdx = domain.launch_security.as_ref().is_some_and(|security| security.tdx.is_some());
    if boots_securely(firmware) && !has_smm && !tdx {
        let field = judged.field("domain");
        let message = format!(
            "{field} has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled."
        );
        causes.invalid(field, message);
    }
}

fn boots_securely(firmware: &Firmware) -> bool {
    let efi = firmware.bootloader.as_ref().and_then(|boot| boot.efi.as_ref());
    efi.is_some_and(|efi| efi.secure_boot != Some(false))
}

fn check_kernel(at: &str, kernel: &KernelBoot, causes: &mut Causes) {
    let Some(container) = &kernel.container else {
        if kernel.kernel_args.as_deref().is_some_and(|arguments| !arguments.is_empty()) {
            causes.invalid(
                format!("{at}.kernelArgs"),
                "kernel arguments cannot be provided without an external kernel",
            );
        }
        return;
    };
    let at = format!("{at}.container");
    if container.image.is_empty() {
        causes.required(format!("{at}.image"), format!("{at} must be defined with an image"));
    }
    let paths = [("kernelPath", &container.kernel_path), ("initrdPath", &container.initrd_path)];
    let paths = paths.map(|(name, path)| (name, path.as_deref().unwrap_or_default()));
    if paths.iter().all(|(_, path)| path.is_empty()) {
        let message = format!(
            "{at} must be defined with at least one of the following: kernelPath, initrdPath"
        );
        causes.required(at.clone(), message);
    }
    for (name, path) in paths {
        if !path.is_empty() {
            volume::check_path(&format!("{at}.{name}"), path, causes);
        }
    }
}

/// ACPI tables come from volumes.
pub(super) fn check_acpi(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let firmware = judged.spec.domain.firmware.as_ref();
    let Some(acpi) = firmware.and_then(|firmware| firmware.acpi.as_ref()) else { return };
    let field = judged.field("acpi");
    let tables = [("slicNameRef", &acpi.slic_name_ref), ("msdmNameRef", &acpi.msdm_name_ref)];
    let tables = tables.map(|(table, name)| (table, name.as_deref().unwrap_or_default()));
    if tables.iter().all(|(_, name)| name.is_empty()) {
        causes.invalid(field, "ACPI was set but no SLIC nor MSDM volume reference was set");
        return;
    }
    for (table, name) in tables.into_iter().filter(|(_, name)| !name.is_empty()) {
        let volume = judged.spec.volumes.iter().find(|volume| volume.name == name);
        let problem = match volume {
            Some(volume) if volume.secret.is_some() => continue,
            Some(_) => "refers to Volume of unsupported type.",
            None => "does not have a matching Volume.",
        };
        causes.invalid(format!("{field}.{table}"), format!("{field} {problem}"));
    }
}

pub(super) fn check_security(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let Some(security) = &judged.spec.domain.launch_security else { return };
    match judged.architecture() {
        "amd64" => check_amd64(judged, security, causes),
        "s390x" => {}
        other => causes.invalid(
            judged.field("architecture"),
            format!("No launchSecurity support for architecture: {other}"),
        ),
    }
}

fn check_amd64(judged: &CheckedSpec<'_>, security: &LaunchSecurity, causes: &mut Causes) {
    let field = judged.field("launchSecurity");
    let kinds = [
        ("SEV", security.sev.is_some(), "WorkloadEncryptionSEV"),
        ("SNP", security.snp.is_some(), "WorkloadEncryptionSEV"),
        ("TDX", security.tdx.is_some(), "WorkloadEncryptionTDX"),
    ];
    let mut chosen = kinds.into_iter().filter(|(_, chosen, _)| *chosen);
    let (Some((kind, _, feature)), None) = (chosen.next(), chosen.next()) else {
        causes.forbidden(field, "One and only one launchSecurity type can be set");
        return;
    };
    if !judged.config.has(feature) {
        let message = format!("{feature} feature gate is not enabled in kubevirt-config");
        causes.invalid(field, message);
        return;
    }
    for problem in encryption_problems(judged.spec, security, kind) {
        causes.invalid(field.clone(), problem);
    }
}

fn encryption_problems(
    spec: &VirtualMachineInstanceSpec,
    security: &LaunchSecurity,
    kind: &str,
) -> Vec<String> {
    let mut problems = Vec::new();
    let domain = &spec.domain;
    let smm = domain.features.as_ref().and_then(|features| features.smm.as_ref());
    if kind == "TDX" && smm.is_some_and(|smm| smm.enabled != Some(false)) {
        problems.push("TDX does not work along with SMM".to_owned());
    }
    let boot = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    match boot.and_then(|boot| boot.efi.as_ref()) {
        None => problems.push(format!("{kind} requires OVMF (UEFI)")),
        Some(efi) => {
            if kind != "TDX" && efi.secure_boot != Some(false) {
                problems.push(format!("{kind} does not work along with SecureBoot"));
            }
            if kind != "SEV" && efi.persistent == Some(true) {
                problems.push(format!("{kind} does not work along with Persistent EFI variables"));
            }
        }
    }
    let attests = security.sev.as_ref().is_some_and(|sev| sev.attestation.is_some());
    if attests && spec.start_strategy.as_deref() != Some("Paused") {
        problems.push("SEV attestation requires VMI StartStrategy 'Paused'".to_owned());
    }
    for interface in domain.devices.interfaces.iter().filter(|one| one.boot_order.is_some()) {
        problems.push(format!("{kind} does not work with bootable NICs: {}", interface.name));
    }
    problems
}
