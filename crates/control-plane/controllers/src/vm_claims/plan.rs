//! What becomes of the claims in a machine's annotation.

use hci::ClaimTemplate;
use serde_json::{Value, json};

use crate::object::{self, annotation, has_finalizer, quantity, text};

/// Keeps a deleted machine until the claims that go with it are told.
const FINALIZER: &str = "harvesterhci.io/vm-controller-remove-pvcs";
const REMOVED: &str = "harvesterhci.io/removedPersistentVolumeClaims";
const SIZE: &str = "/spec/resources/requests/storage";

/// The claim of a template. A class that only an image names is left to the template.
pub(super) fn claim(machine: &Value, template: &ClaimTemplate) -> Value {
    let mut claim = template.claim.clone();
    claim["apiVersion"] = json!("v1");
    claim["kind"] = json!("PersistentVolumeClaim");
    claim["metadata"]["namespace"] = json!(object::namespace(machine));
    for ours in ["status", "targetVolume"] {
        if let Some(claim) = claim.as_object_mut() {
            claim.remove(ours);
        }
    }
    claim
}

/// A claim that asks for less than its template gets more; one that has more keeps it.
pub(super) fn growth(claim: &Value, template: &ClaimTemplate) -> Option<Value> {
    let wanted = quantity(&template.claim, SIZE)?;
    let has = quantity(claim, SIZE)?;
    if object::is_deleting(claim) || wanted.units() <= has.units() {
        return None;
    }
    let size = template.claim.pointer(SIZE)?;
    Some(json!({"spec": {"resources": {"requests": {"storage": size}}}}))
}

/// Names of claims that the machine's deletion takes along.
pub(super) fn unwanted(machine: &Value) -> Vec<&str> {
    let names = annotation(machine, REMOVED).unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).collect()
}

/// A machine with claims to remove is held, so that they are removed when it is.
pub(super) fn hold(machine: &Value) -> Option<Value> {
    if unwanted(machine).is_empty() || has_finalizer(machine, FINALIZER) {
        return None;
    }
    let mut finalizers = object::finalizers_without(machine, &[]);
    finalizers.push(json!(FINALIZER));
    let mut meta = object::version(machine);
    meta.insert("finalizers".to_owned(), finalizers.into());
    Some(json!({"metadata": meta}))
}

/// What lets a deleted machine go. Its instance goes first: a disk in use is not removed.
pub(super) fn release(machine: &Value) -> Option<Value> {
    if !has_finalizer(machine, FINALIZER) || text(machine, "/status/printableStatus") == "Running" {
        return None;
    }
    let mut meta = object::version(machine);
    meta.insert("finalizers".to_owned(), object::finalizers_without(machine, &[FINALIZER]).into());
    Some(json!({"metadata": meta}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(size: &str) -> ClaimTemplate {
        ClaimTemplate {
            name: "root".to_owned(),
            claim: json!({"metadata": {"name": "root"}, "targetVolume": "x",
                "spec": {"storageClassName": "local", "resources": {"requests": {"storage": size}}}}),
        }
    }

    #[test]
    fn a_claim_is_made_as_its_template_says() {
        let machine = json!({"metadata": {"namespace": "lab", "name": "web"}});
        let made = claim(&machine, &template("1Gi"));
        assert_eq!(made["kind"], "PersistentVolumeClaim");
        assert_eq!(made["metadata"], json!({"namespace": "lab", "name": "root"}));
        assert!(made.get("targetVolume").is_none());
    }

    #[test]
    fn claims_grow_and_never_shrink() {
        let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let grown = growth(&claim("1Gi"), &template("2Gi"));
        assert_eq!(grown, Some(claim("2Gi")));
        assert_eq!(growth(&claim("2Gi"), &template("2048Mi")), None);
        assert_eq!(growth(&claim("3Gi"), &template("2Gi")), None);
    }

    #[test]
    fn a_machine_is_held_only_while_claims_go_with_it() {
        let mut machine = json!({"metadata": {"uid": "u", "resourceVersion": "1"}});
        assert_eq!(hold(&machine), None);
        machine["metadata"]["annotations"] = json!({REMOVED: "root, data,"});
        assert_eq!(unwanted(&machine), ["root", "data"]);
        let held = hold(&machine).unwrap();
        assert_eq!(held["metadata"]["finalizers"], json!([FINALIZER]));
        machine["metadata"]["finalizers"] = json!([FINALIZER, "other"]);
        assert_eq!(hold(&machine), None);
        machine["status"] = json!({"printableStatus": "Running"});
        assert_eq!(release(&machine), None);
        machine["status"] = json!({"printableStatus": "Stopped"});
        assert_eq!(release(&machine).unwrap()["metadata"]["finalizers"], json!(["other"]));
    }
}
