//! A namespace whose snapshots take more than its quota gets no further one.

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, LONGHORN, Refusal, Write, text};
use crate::harvester::quota::ResourceQuota;
use crate::longhorn::NAMESPACE;
use crate::snapshot_usage::{QUOTA_NAME, SnapshotBytes, claims_of};

/// Whether there is room for a snapshot of the machine.
pub(super) fn check_machine(write: &Write<'_>, machine: &str) -> AdmissionResult {
    check(write, |_| Some(machine.to_owned()))
}

/// Whether there is room for a snapshot of the claim, which a machine may have.
pub(super) fn check_claim(write: &Write<'_>, claim: &str) -> AdmissionResult {
    let has = |machine: &&Value| claims_of(machine).any(|own| own == claim);
    check(write, |machines| {
        machines.iter().find(has).map(|own| text(own, "/metadata/name").to_owned())
    })
}

/// A snapshot of KubeVirt.
pub(super) fn validate_machine_snapshot(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(object), None) if !write.trusted => {
            check_machine(write, text(object, "/spec/source/name"))
        }
        _ => Ok(()),
    }
}

fn check(write: &Write<'_>, machine: impl FnOnce(&[Value]) -> Option<String>) -> AdmissionResult {
    let quota = write.objects.get(HARVESTER, "resourcequotas", write.namespace, QUOTA_NAME);
    let quota: Option<ResourceQuota> = quota.and_then(|own| serde_json::from_value(own).ok());
    let Some(limit) = quota.and_then(|own| own.spec).and_then(|spec| spec.snapshot_limit) else {
        return Ok(());
    };
    let machines = write.objects.list("kubevirt.io", "virtualmachines", write.namespace);
    let claims = write.objects.list("", "persistentvolumeclaims", write.namespace);
    let snapshots = write.objects.list(LONGHORN, "snapshots", NAMESPACE);
    let bytes = SnapshotBytes::count(&claims, &machines, &snapshots);
    let machine = machine(&machines);
    bytes
        .check(&limit, machine.as_deref())
        .map_err(|message| Refusal::invalid("spec.source.name", message))
}
