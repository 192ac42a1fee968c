//! Machines whose data move to another claim: the annotation `volumeClaimTemplates` names it as
//! `targetVolume`, with the texts of Harvester's webhook.

use serde_json::Value;

use super::machine::claims;
use super::{AdmissionResult, Refusal, Write, text};
use crate::claim_template::{ClaimTemplate, requested};

const FIELD: &str = "metadata.annotations[harvesterhci.io/volumeClaimTemplates]";

pub(super) fn validate(
    write: &Write<'_>,
    machine: &Value,
    wanted: &[ClaimTemplate],
) -> AdmissionResult {
    if write.old.is_none() {
        return Ok(());
    }
    let mut moved = wanted.iter().filter(|own| !target(own).is_empty());
    let Some(own) = moved.next() else { return Ok(()) };
    if moved.next().is_some() {
        let message = "only one volume migration is allowed at a time";
        return Err(Refusal::invalid(FIELD, message));
    }
    validate_target(write, machine, own)
}

/// The name of the claim that the data move to.
fn target(template: &ClaimTemplate) -> &str {
    text(&template.claim, "/targetVolume")
}

fn validate_target(write: &Write<'_>, machine: &Value, own: &ClaimTemplate) -> AdmissionResult {
    let target = target(own);
    let attached = claims(machine);
    // It is under way.
    if attached.contains(&target) {
        return Ok(());
    }
    let refuse = |message: String| Err(Refusal::invalid(FIELD, message));
    let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let mut volumes = volumes.into_iter().flatten();
    if volumes.any(|volume| text(volume, "/dataVolume/name") == own.name) {
        return refuse(format!(
            "source volume {} is a DataVolume, only PVC sources are supported for storage migration",
            own.name
        ));
    }
    if !attached.contains(&own.name.as_str()) {
        return refuse(format!("PVC {} is not attached to the VM", own.name));
    }
    if text(machine, "/status/printableStatus") != "Running" {
        return refuse("VM must be running to set targetVolume for volume migration".to_owned());
    }
    let namespace = write.namespace;
    let claim = write.objects.get("", "persistentvolumeclaims", namespace, target);
    let Some(claim) = claim else {
        return refuse(format!("targetVolume PVC {namespace}/{target} not found"));
    };
    if requested(&claim) < requested(&own.claim) {
        let size = |claim: &Value| text(claim, "/spec/resources/requests/storage").to_owned();
        return refuse(format!(
            "targetVolume {target} size ({}) must not be less than source volume {} size ({})",
            size(&claim),
            own.name,
            size(&own.claim)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admit::tests::{Cluster, judged, named, refused};

    fn claim(name: &str, size: &str) -> Value {
        named(name, &json!({"spec": {"resources": {"requests": {"storage": size}}}}))
    }

    /// A machine with the claims `root` and `data`, whose data move to `targets`.
    fn machine(targets: &[(&str, &str)], state: &str) -> Value {
        let template = |(name, target): &(&str, &str)| {
            let mut template = claim(name, "2Gi");
            template["targetVolume"] = (*target).into();
            template
        };
        let templates: Vec<Value> = targets.iter().map(template).collect();
        let disk = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let spec = json!({"volumes": [disk("root"), disk("data"), {"name": "dv",
            "dataVolume": {"name": "dv"}}], "domain": {"memory": {"guest": "1Gi"}}});
        let mut machine = named(
            "m",
            &json!({"spec": {"template": {"spec": spec}},
            "status": {"printableStatus": state}}),
        );
        let text = Value::Array(templates).to_string();
        machine["metadata"]["annotations"] = json!({"harvesterhci.io/volumeClaimTemplates": text});
        machine
    }

    #[test]
    fn data_moves_from_an_attached_claim_of_a_guest_to_one_that_is_large_enough() {
        let kind = ("kubevirt.io", "virtualmachines");
        let cluster = Cluster(vec![
            ("", "persistentvolumeclaims", claim("new", "2Gi")),
            ("", "persistentvolumeclaims", claim("small", "1Gi")),
        ]);
        let old = machine(&[], "Running");
        for (targets, state, text) in [
            (&[("root", "new")][..], "Running", ""),
            (&[("root", "data")], "Stopped", ""),
            (
                &[("root", "new"), ("data", "new")],
                "Running",
                "only one volume migration is allowed at a time",
            ),
            (
                &[("dv", "new")],
                "Running",
                "source volume dv is a DataVolume, only PVC sources are supported for storage migration",
            ),
            (&[("other", "new")], "Running", "PVC other is not attached to the VM"),
            (
                &[("root", "new")],
                "Stopped",
                "VM must be running to set targetVolume for volume migration",
            ),
            (&[("root", "gone")], "Running", "targetVolume PVC default/gone not found"),
            (
                &[("root", "small")],
                "Running",
                "targetVolume small size (1Gi) must not be less than source volume root size (2Gi)",
            ),
        ] {
            let new = machine(targets, state);
            let expected = if text.is_empty() { Ok(()) } else { refused(422, text) };
            assert_eq!(judged(kind, Some(&new), Some(&old), &cluster), expected, "{targets:?}");
        }
    }
}
