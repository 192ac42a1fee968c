//! Machines, as far as Harvester has a say: the claims they bring along, and for its own also
//! their devices.

use serde_json::Value;

use super::{
    AdmissionResult, Refusal, Write, claim, machine_devices, machine_migration, machine_quota,
    reference, text,
};
use crate::claim_template::{ClaimTemplate, claim_templates, requested};

const ANNOTATIONS: &str = "metadata.annotations";

pub(super) const RESERVED_MEMORY: &str = "/metadata/annotations/harvesterhci.io~1reservedMemory";

const STRATEGIES: [&str; 4] =
    ["Migrate", "Shutdown", "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable"];

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let complain = |complaint: String| Refusal::invalid(ANNOTATIONS, complaint);
    let wanted = claim_templates(&object["metadata"]).map_err(complain)?;
    let strategy = text(object, "/metadata/labels/harvesterhci.io~1maintain-mode-strategy");
    if !strategy.is_empty() && !STRATEGIES.contains(&strategy) {
        return Err(Refusal::invalid(
            "metadata.labels",
            format!("invalid maintenance mode strategy: {strategy}"),
        ));
    }
    let had = write.old.and_then(|old| claim_templates(&old["metadata"]).ok()).unwrap_or_default();
    validate_sizes(write, &had, &wanted)?;
    let is_known = write.old.is_some_and(|old| {
        old["spec"]["dataVolumeTemplates"] == object["spec"]["dataVolumeTemplates"] && had == wanted
    });
    if !is_known {
        reference::authorize_machine(write, &object["metadata"], &object["spec"], |_| true)?;
    }
    machine_devices::validate_classes(&had, &wanted)?;
    machine_quota::validate(write, object)?;
    if !is_harvesters(object) {
        return Ok(());
    }
    machine_devices::validate_image(write, &had, &wanted)?;
    machine_migration::validate(write, object, &wanted)?;
    machine_devices::validate_stop(write, object)?;
    validate_sharing(write, object)?;
    machine_devices::validate(write, object)
}

/// Claims only grow, and under a guest only where their driver can.
fn validate_sizes(
    write: &Write<'_>,
    had: &[ClaimTemplate],
    wanted: &[ClaimTemplate],
) -> AdmissionResult {
    for template in wanted {
        let before = had.iter().find(|old| old.name == template.name);
        let before = before.and_then(|old| requested(&old.claim));
        let (Some(before), Some(now)) = (before, requested(&template.claim)) else { continue };
        if now < before {
            let name = &template.name;
            let message = format!("{name} PVC requests storage can't be less than previous value");
            return Err(Refusal::invalid(ANNOTATIONS, message));
        }
        let plural = "persistentvolumeclaims";
        if now > before
            && !write.trusted
            && let Some(claim) = write.objects.get("", plural, write.namespace, &template.name)
        {
            claim::validate_expansion(write, &claim)?;
        }
    }
    Ok(())
}

/// A disk of a Harvester machine belongs to that machine alone unless it can be shared. KubeVirt
/// has no such rule: there only two guests that run at once conflict.
fn validate_sharing(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let own = claims(object);
    if own.is_empty() || write.old.is_some_and(|old| claims(old) == own) {
        return Ok(());
    }
    let others = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    for other in others.iter().filter(|other| text(other, "/metadata/name") != write.name) {
        for claim in claims(other).iter().filter(|claim| own.contains(claim)) {
            if !is_shared(write, claim) {
                return Err(Refusal::invalid(
                    "spec.template.spec.volumes",
                    format!(
                        "PVC {}/{claim} is already used by other VM, please use a shareable RWX volume.",
                        write.namespace
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// Whether a machine was made through Harvester, which labels or annotates its machines.
pub(super) fn is_harvesters(machine: &Value) -> bool {
    let maps = ["labels", "annotations"].iter().map(|field| &machine["metadata"][*field]);
    let mut keys = maps.filter_map(Value::as_object).flat_map(serde_json::Map::keys);
    keys.any(|key| key.starts_with("harvesterhci.io/"))
}

pub(super) fn claims(machine: &Value) -> Vec<&str> {
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let names = volumes.into_iter().flatten().map(|volume| {
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        if claim.is_empty() { text(volume, "/dataVolume/name") } else { claim }
    });
    names.filter(|name| !name.is_empty()).collect()
}

fn is_shared(write: &Write<'_>, claim: &str) -> bool {
    let claim = write.objects.get("", "persistentvolumeclaims", write.namespace, claim);
    claim.is_none_or(|claim| machine_devices::can_be_shared(write, &claim))
}
