//! Harvester's `harvesterhci.io/removedPersistentVolumeClaims`: claims that go with a machine.
//!
//! Clients write the annotation and delete the machine at once. The machine is held in the same
//! write as the annotation comes in, so that its deletion cannot be over before the claims are
//! removed.

use serde_json::{Value, json};

/// Keeps a deleted machine until the claims that go with it are gone.
pub const FINALIZER: &str = "harvesterhci.io/vm-controller-remove-pvcs";
const ANNOTATION: &str = "harvesterhci.io/removedPersistentVolumeClaims";

/// Names of claims that the machine's deletion takes along.
pub fn removed_claims(machine: &Value) -> Vec<&str> {
    let names = machine["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// The finalizers of a machine that has claims to remove and is not held yet.
pub fn held(machine: &Value) -> Option<Vec<Value>> {
    let metadata = &machine["metadata"];
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    let is_held = finalizers.iter().any(|own| own == FINALIZER);
    if is_held || !metadata["deletionTimestamp"].is_null() || removed_claims(machine).is_empty() {
        return None;
    }
    finalizers.push(json!(FINALIZER));
    Some(finalizers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_held_only_while_claims_go_with_it() {
        let machine = |claims: &str, finalizers: Value, deletion: Value| {
            json!({"metadata": {"annotations": {ANNOTATION: claims}, "finalizers": finalizers,
                "deletionTimestamp": deletion}})
        };
        for (machine, expected) in [
            (machine("", json!([]), Value::Null), None),
            (machine("root, data,", json!([]), Value::Null), Some(json!([FINALIZER]))),
            (machine("root", json!(["other"]), Value::Null), Some(json!(["other", FINALIZER]))),
            (machine("root", json!([FINALIZER]), Value::Null), None),
            (machine("root", json!([]), json!("2026-11-17T07:00:00Z")), None),
            (json!({"metadata": {}}), None),
        ] {
            assert_eq!(held(&machine).map(Value::from), expected, "{machine}");
        }
        let two = machine("root, data,", json!([]), Value::Null);
        assert_eq!(removed_claims(&two), ["root", "data"]);
    }
}
