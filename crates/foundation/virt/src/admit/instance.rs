//! Validation of instances: of new ones, and of changes to existing ones.

use serde_json::{Map, Value};

use super::spec::{CheckedSpec, check};
use super::{Causes, Denial, Write, hotplug, network, read};
use crate::state::text;
use crate::v1::VirtualMachineInstanceSpec;

pub(super) fn validate(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    match write.old {
        None => validate_creation(write)?,
        Some(old) => validate_update(write, old)?,
    }
    Ok(Vec::new())
}

fn validate_creation(write: &Write<'_>) -> Result<(), Denial> {
    let spec: VirtualMachineInstanceSpec = read(&write.object["spec"])?;
    let judged = CheckedSpec { at: "spec", spec: &spec, config: write.config };
    let mut causes = Causes::default();
    network::check_discontinued(&judged, &mut causes);
    check(&judged, &mut causes);
    check_volumes_used(&judged, &mut causes);
    check_memory(&judged, &mut causes);
    check_metadata("metadata", &write.object["metadata"], write, &mut causes);
    check_hyperv(&write.object["spec"], &mut causes);
    check_architecture(&judged, &mut causes);
    causes.finish()
}

/// Labels that only the cluster itself sets.
const RESERVED: &[&str] = &[
    "kubevirt.io/created-by",
    "kubevirt.io/migrationJobUID",
    "kubevirt.io/nodeName",
    "kubevirt.io/migrationTargetNodeName",
    "kubevirt.io/schedulable",
    "kubevirt.io/install-strategy",
];

const SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
const IGNITION: &str = "kubevirt.io/ignitiondata";

pub(super) fn check_metadata(at: &str, metadata: &Value, write: &Write<'_>, causes: &mut Causes) {
    if !write.trusted && !reserved(metadata).is_empty() {
        causes.unsupported(
            format!("{at}.labels"),
            "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
        );
    }
    let annotated =
        |key: &str| metadata["annotations"][key].as_str().is_some_and(|value| !value.is_empty());
    if annotated(IGNITION) && !write.config.has("ExperimentalIgnitionSupport") {
        let message = format!(
            "ExperimentalIgnitionSupport feature gate is not enabled in kubevirt-config, invalid entry {at}.annotations.{IGNITION}"
        );
        causes.invalid(format!("{at}.annotations"), message);
    }
    if annotated(SIDECARS) && !write.config.has("Sidecar") {
        let message = format!(
            "sidecar feature gate is not enabled in kubevirt-config, invalid entry {at}.annotations.{SIDECARS}"
        );
        causes.invalid(format!("{at}.annotations"), message);
    }
}

fn reserved(metadata: &Value) -> Map<String, Value> {
    let labels = metadata["labels"].as_object().into_iter().flatten();
    labels
        .filter(|(label, _)| RESERVED.contains(&label.as_str()))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect()
}

/// Every volume is behind a disk or a file system.
fn check_volumes_used(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let devices = judged.devices();
    for (index, volume) in judged.spec.volumes.iter().enumerate() {
        if volume.memory_dump.is_some() {
            continue;
        }
        let at = judged.field(&format!("domain.volumes[{index}]"));
        let disk = devices.disks.iter().any(|disk| disk.name == volume.name);
        let shared = devices.filesystems.iter().any(|shared| shared.name == volume.name);
        if !disk && !shared {
            let field = format!("{at}.name");
            let message = format!("{field} '{}' not found.", volume.name);
            causes.invalid(field, message);
        }
        let Some(source) = &volume.container_path else { continue };
        let what = format!("ContainerPath volume '{}'", volume.name);
        if disk {
            causes
                .invalid(at.clone(), format!("{what} must be mapped to a filesystem, not a disk"));
        }
        if !shared {
            let message = format!(
                "{what} must have a matching filesystem defined in spec.domain.devices.filesystems"
            );
            causes.invalid(at.clone(), message);
        }
        let reserved = ["/var/run/kubevirt", "/var/run/libvirt"];
        if let Some(prefix) = reserved.into_iter().find(|prefix| source.path.starts_with(prefix)) {
            causes.invalid(
                format!("{at}.containerPath.path"),
                format!("{what} uses reserved path prefix '{prefix}'"),
            );
        }
    }
}

fn check_memory(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let domain = &judged.spec.domain;
    let requested =
        domain.resources.as_ref().and_then(|resources| resources.requests.get("memory"));
    let requested =
        requested.and_then(|amount| amount.amount()).is_some_and(|amount| !amount.is_zero());
    let described = domain
        .memory
        .as_ref()
        .is_some_and(|memory| memory.guest.is_some() || memory.hugepages.is_some());
    if !requested && !described {
        let message = format!(
            "no memory requested, at least one of '{}', '{}' or '{}' must be set",
            judged.field("domain.memory.guest"),
            judged.field("domain.memory.hugepages.pageSize"),
            judged.field("domain.resources.requests.memory")
        );
        causes.required("", message);
    }
}

/// An enlightenment that another one needs must not be switched off.
fn check_hyperv(spec: &Value, causes: &mut Causes) {
    let hyperv = &spec["domain"]["features"]["hyperv"];
    let at = "spec.domain.features.hyperv";
    for (feature, needed) in crate::default::HYPERV_NEEDS {
        if hyperv[feature]["enabled"] == true && hyperv[needed]["enabled"] != true {
            let field = format!("{at}.{feature}");
            let message = format!("'{field}' requires '{at}.{needed}', which was disabled.");
            causes.invalid(field, message);
        }
    }
}

const VIDEO: &[&str] = &["vga", "cirrus", "virtio", "ramfb", "bochs"];

fn check_architecture(judged: &CheckedSpec<'_>, causes: &mut Causes) {
    let devices = judged.devices();
    match judged.spec.architecture.as_deref().unwrap_or_default() {
        "amd64" => {
            if devices
                .watchdog
                .as_ref()
                .is_some_and(|dog| dog.i6300esb.is_none() || dog.diag288.is_some())
            {
                causes.unsupported(
                    judged.field("domain.devices.watchdog"),
                    "amd64 only supports I6300ESB watchdog device",
                );
            }
            if let Some(video) = &devices.video
                && !VIDEO.contains(&video.r#type.as_deref().unwrap_or_default())
            {
                let kind = video.r#type.as_deref().unwrap_or_default();
                causes.unsupported(
                    judged.field("domain.devices.video.type"),
                    format!("video model '{kind}' is not supported on amd64 architecture"),
                );
            }
        }
        "arm64" | "s390x" => {}
        other => causes
            .invalid(judged.field("architecture"), format!("unsupported architecture: {other}")),
    }
}

/// Only the cluster changes the specification of an instance, and only what can change
/// while the guest runs.
fn validate_update(write: &Write<'_>, old: &Value) -> Result<(), Denial> {
    let new = write.object;
    let mut causes = Causes::default();
    if new["spec"] != old["spec"] {
        if write.trusted {
            check_hotplug(write, old, &mut causes)?;
        } else {
            causes.unsupported("", "update of VMI object is restricted");
        }
        causes.finish()?;
        causes = Causes::default();
    }
    if !write.trusted && reserved(&new["metadata"]) != reserved(&old["metadata"]) {
        causes.unsupported(
            "",
            "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited",
        );
    }
    causes.finish()
}

fn check_hotplug(write: &Write<'_>, old: &Value, causes: &mut Causes) -> Result<(), Denial> {
    let new = write.object;
    let domain = |vmi: &Value| vmi["spec"]["domain"].clone();
    let (before, after) = (domain(old), domain(new));
    if before["cpu"]["maxSockets"] != after["cpu"]["maxSockets"] {
        causes.invalid("", "CPU topology maxSockets changed");
        return Ok(());
    }
    let most = |domain: &Value| crate::memory::read(&domain["memory"]["maxGuest"]);
    if let (Some(before), Some(after)) = (most(&before), most(&after))
        && before != after
    {
        causes.invalid("", "Memory maxGuest changed");
        return Ok(());
    }
    if text(new, "/metadata/deletionTimestamp").is_empty() {
        hotplug::check(new, old, write.config, causes)?;
    }
    Ok(())
}
