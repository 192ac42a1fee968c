//! The claims in a machine's annotation.

use hci::ClaimTemplate;
use hci::removed_claims::{FINALIZER, held, removed_claims};
use serde_json::{Value, json};

use crate::object::{self, has_finalizer, list, quantity, text};

const SIZE: &str = "/spec/resources/requests/storage";

/// The claim of a template. A class that only an image names is left to the template. Owners,
/// finalizers and what controllers write about a claim are not for a template to say.
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
    if let Some(meta) = claim["metadata"].as_object_mut() {
        meta.remove("ownerReferences");
        meta.remove("finalizers");
        if let Some(Value::Object(annotations)) = meta.get_mut("annotations") {
            annotations.retain(|key, _| !hci::is_internal_key(key));
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
    let size = &template.claim["spec"]["resources"]["requests"]["storage"];
    Some(json!({"spec": {"resources": {"requests": {"storage": size}}}}))
}

/// A machine with claims to remove is held, so that they are removed when it is. Admission does
/// so already; this is for machines that were written before it did.
pub(super) fn hold(machine: &Value) -> Option<Value> {
    let mut meta = object::version(machine);
    meta.insert("finalizers".to_owned(), held(machine)?.into());
    Some(json!({"metadata": meta}))
}

/// Claims that are to be deleted now, and whether the machine waits for claims that are going. It
/// does not wait for a claim that another machine has as a disk: that one stays as long as the
/// other machine runs.
pub(super) fn removal<'a>(
    machine: &Value,
    claims: &'a [Value],
    machines: &[Value],
) -> (Vec<&'a Value>, bool) {
    let unwanted = removed_claims(machine);
    let own = |claim: &&Value| unwanted.contains(&object::name(claim));
    let named: Vec<&Value> = claims.iter().filter(own).collect();
    let others = || {
        machines.iter().filter(|other| {
            object::name(other) != object::name(machine) && !object::is_deleting(other)
        })
    };
    let waits = named.iter().any(|claim| !others().any(|other| uses(other, object::name(claim))));
    (named.into_iter().filter(|claim| !object::is_deleting(claim)).collect(), waits)
}

/// Whether a machine has a claim as a disk.
fn uses(machine: &Value, claim: &str) -> bool {
    list(machine, "/spec/template/spec/volumes").iter().any(|volume| {
        text(volume, "/persistentVolumeClaim/claimName") == claim
            || text(volume, "/dataVolume/name") == claim
    })
}

/// The patch that releases a deleted machine. Its instance is deleted first: a disk in use is not
/// removed.
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
    fn a_template_does_not_speak_for_controllers() {
        let machine = json!({"metadata": {"namespace": "lab", "name": "web"}});
        let mut forged = template("1Gi");
        forged.claim["metadata"] = json!({
            "name": "root",
            "annotations": {"sheaf.io/populator": "x", "node.sheaf.io/y": "x", "mine": "kept"},
            "ownerReferences": [{"kind": "DataVolume"}], "finalizers": ["longhorn.io"],
        });
        let made = claim(&machine, &forged);
        let expected = json!({"namespace": "lab", "name": "root", "annotations": {"mine": "kept"}});
        assert_eq!(made["metadata"], expected);
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
    fn a_machine_waits_for_the_claims_that_go_with_it() {
        let removed = "harvesterhci.io/removedPersistentVolumeClaims";
        let mut machine = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "1",
            "annotations": {removed: "root,data"}, "finalizers": [FINALIZER, "other"]}});
        machine["status"] = json!({"printableStatus": "Running"});
        assert_eq!(release(&machine), None);
        machine["status"] = json!({"printableStatus": "Stopped"});
        assert_eq!(release(&machine).unwrap()["metadata"]["finalizers"], json!(["other"]));
        let claim = |name: &str, deletion: Value| json!({"metadata": {"name": name, "deletionTimestamp": deletion}});
        let going = || json!("2026-11-17T07:00:00Z");
        let user = |name: &str, claim: &str| {
            json!({"metadata": {"name": name}, "spec": {"template": {"spec": {"volumes": [
                {"name": "d", "persistentVolumeClaim": {"claimName": claim}}]}}}})
        };
        for (claims, machines, deleted, waits) in [
            (vec![claim("root", Value::Null), claim("kept", Value::Null)], vec![], 1, true),
            (vec![claim("root", going())], vec![user("web", "root")], 0, true),
            (vec![claim("root", going())], vec![user("db", "root")], 0, false),
            (
                vec![claim("root", going()), claim("data", going())],
                vec![user("db", "root")],
                0,
                true,
            ),
            (vec![claim("kept", Value::Null)], vec![], 0, false),
        ] {
            let (unwanted, waiting) = removal(&machine, &claims, &machines);
            assert_eq!((unwanted.len(), waiting), (deleted, waits), "{claims:?} {machines:?}");
        }
    }
}
