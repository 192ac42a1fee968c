//! Admission of migrations and migration policies.

use super::{Causes, Denial, Write};
use crate::condition;
use crate::state::{InstancePhase, text};

const LABEL: &str = "kubevirt.io/vmi-name";

pub(super) fn validate(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    match write.old {
        None => validate_creation(write)?,
        Some(_) => validate_update(write)?,
    }
    Ok(Vec::new())
}

fn validate_creation(write: &Write<'_>) -> Result<(), Denial> {
    let spec = &write.object["spec"];
    let name = text(spec, "/vmiName");
    let mut causes = Causes::default();
    if name.is_empty() {
        causes.required("spec.vmiName", "vmiName is missing");
    } else if !spec["priority"].is_null() && !write.trusted {
        causes.forbidden(
            "spec.migrationPriority",
            "Migration priority queue, only virt-controller is allowed to set priority field",
        );
    }
    causes.finish()?;
    let namespace = write.namespace;
    let vmi = write.objects.get("kubevirt.io", "virtualmachineinstances", namespace, name);
    let Some(vmi) = vmi else {
        return Err(Denial::bad_request(format!("the VMI \"{namespace}/{name}\" does not exist")));
    };
    if InstancePhase::of(&vmi).is_final() {
        return Err(Denial::bad_request("Cannot migrate VMI in finalized state."));
    }
    let abroad = spec["sendTo"].is_object() || spec["receive"].is_object();
    if let Some(condition) = condition::find(&vmi, "LiveMigratable")
        && condition["status"] == "False"
        && !(abroad && condition["reason"] == "DisksNotLiveMigratable")
    {
        return Err(Denial::bad_request(format!(
            "Cannot migrate VMI, Reason: {}, Message: {}",
            text(condition, "/reason"),
            text(condition, "/message")
        )));
    }
    check_alone(write, name)?;
    if abroad { validate_cross_cluster(write) } else { Ok(()) }
}

/// An instance is moved once at a time.
fn check_alone(write: &Write<'_>, name: &str) -> Result<(), Denial> {
    let plural = "virtualmachineinstancemigrations";
    let all = write.objects.list("kubevirt.io", plural, write.namespace);
    let active = all.iter().find(|migration| {
        migration["metadata"]["labels"][LABEL] == name
            && !matches!(text(migration, "/status/phase"), "Succeeded" | "Failed")
    });
    match active {
        None => Ok(()),
        Some(migration) => Err(Denial::bad_request(format!(
            "in-flight migration detected. Active migration job ({}) is currently already in progress for VMI {name}.",
            text(migration, "/metadata/uid")
        ))),
    }
}

fn validate_cross_cluster(write: &Write<'_>) -> Result<(), Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    let (send, receive) = (&spec["sendTo"], &spec["receive"]);
    if !write.config.has("DecentralizedLiveMigration") {
        causes.unsupported(
            "",
            "DecentralizedLiveMigration feature gate is not enabled in kubevirt resource",
        );
    } else if send.is_object()
        && receive.is_object()
        && send["migrationID"] != receive["migrationID"]
    {
        let message = format!(
            "sendTo migrationID {} does not match receive migrationID {}",
            text(send, "/migrationID"),
            text(receive, "/migrationID")
        );
        causes.invalid("", message);
    }
    causes.finish()
}

fn validate_update(write: &Write<'_>) -> Result<(), Denial> {
    let (new, Some(old)) = (write.object, write.old) else { return Ok(()) };
    let mut causes = Causes::default();
    let finished = matches!(text(new, "/status/phase"), "Succeeded" | "Failed");
    let (before, after) = (&old["metadata"]["labels"][LABEL], &new["metadata"]["labels"][LABEL]);
    if new["spec"] != old["spec"] {
        causes.unsupported("", "update of Migration object's spec is restricted");
    } else if !finished && before.is_string() && before != after {
        let verb =
            if new["metadata"]["labels"].is_object() { "modified on" } else { "removed from" };
        let message = format!("selector label can't be {verb} an in-flight migration");
        causes.unsupported("", message);
    }
    causes.finish()
}

pub(super) fn validate_policy(write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let spec = &write.object["spec"];
    let mut causes = Causes::default();
    if spec["completionTimeoutPerGiB"].as_i64().is_some_and(|seconds| seconds < 0) {
        causes.invalid("spec.completionTimeoutPerGiB", "must not be negative");
    }
    let changed = write.old.is_none_or(|old| old["spec"]["maxDowntimeMs"] != spec["maxDowntimeMs"]);
    let tunable = ["MigrationStallDetection", "MigrationDowntimeTuning"];
    if !spec["maxDowntimeMs"].is_null()
        && changed
        && !tunable.iter().any(|feature| write.config.has(feature))
    {
        causes.invalid(
            "spec.maxDowntimeMs",
            "maxDowntimeMs cannot be modified without enabling the MigrationStallDetection or MigrationDowntimeTuning feature gate",
        );
    }
    causes.finish()?;
    Ok(Vec::new())
}
