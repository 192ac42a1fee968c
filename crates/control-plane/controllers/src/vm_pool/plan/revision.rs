//! The ControllerRevisions of a pool's templates, which are compared to find the changes of a newer
//! template: pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::PoolInput;
use crate::object::{self, controlled_by, generation, is_controlled_by, name, namespace};

/// Names the record that a machine or its instance was made from.
pub(crate) const REVISION: &str = "kubevirt.io/vm-pool-revision-name";

pub(super) fn revision_name(pool: &Value) -> String {
    format!("{}-{}", name(pool), generation(pool))
}

/// A reference that makes the pool the controller.
pub(super) fn owned_by(pool: &Value) -> Value {
    controlled_by(pool, "pool.kubevirt.io/v1beta1", "VirtualMachinePool")
}

/// The record of the pool as it is now.
pub(crate) fn revision(pool: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": revision_name(pool), "namespace": namespace(pool),
            "ownerReferences": [owned_by(pool)]},
        "data": pool["spec"], "revision": generation(pool)})
}

/// Those of `found` that belong to the pool.
pub(crate) fn own_revisions<'a>(pool: &Value, found: &'a [Value]) -> Vec<&'a Value> {
    found.iter().filter(|own| is_controlled_by(own, pool)).collect()
}

pub(super) fn is_recorded(pool: &Value, revisions: &[&Value]) -> bool {
    revisions.iter().any(|own| name(own) == revision_name(pool))
}

/// The record that an object was made from.
pub(super) fn label(object: &Value) -> &str {
    object::label(object, REVISION).unwrap_or_default()
}

/// The template that an object was made from, if that is recorded.
fn template<'a>(object: &Value, revisions: &[&'a Value]) -> Option<&'a Value> {
    let own = revisions.iter().find(|own| name(own) == label(object))?;
    own["data"].get("virtualMachineTemplate")
}

/// Whether a machine was made from the template that the pool has now.
pub(super) fn is_current(pool: &Value, vm: &Value, revisions: &[&Value]) -> bool {
    template(vm, revisions).is_some_and(|own| *own == pool["spec"]["virtualMachineTemplate"])
}

/// The difference between an instance's template and its machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    Nothing,
    /// Neither the instance nor its disks.
    Other,
    Instance,
    Disks,
}

pub(super) fn difference(vmi: &Value, vm: &Value, revisions: &[&Value]) -> Difference {
    if label(vmi) == label(vm) {
        return Difference::Nothing;
    }
    let Some(wanted) = template(vm, revisions) else { return Difference::Nothing };
    // Nothing is known of one without a record, but that it is another.
    let Some(own) = template(vmi, revisions) else { return Difference::Instance };
    let differs = |field: &str| own["spec"][field] != wanted["spec"][field];
    if differs("dataVolumeTemplates") {
        Difference::Disks
    } else if differs("template") {
        Difference::Instance
    } else {
        Difference::Other
    }
}

/// The records that no machine and no instance names.
pub(super) fn unused<'a>(seen: PoolInput<'a>) -> Vec<&'a Value> {
    let instances = seen.vmis.iter().filter(|vmi| seen.own.iter().any(|vm| name(vm) == name(vmi)));
    let named: BTreeSet<&str> = seen.own.iter().copied().chain(instances).map(label).collect();
    seen.revisions.iter().filter(|own| !named.contains(name(own))).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(generation: u32, spec: Value) -> Value {
        json!({"metadata": {"name": "p", "uid": "u", "generation": generation},
            "spec": {"virtualMachineTemplate": {"spec": spec}}})
    }

    fn object(revision: &str) -> Value {
        json!({"metadata": {"labels": {REVISION: revision}}})
    }

    #[test]
    fn a_record_is_the_pool_at_one_generation() {
        let record = revision(&pool(3, json!({})));
        assert_eq!((name(&record), &record["revision"]), ("p-3", &json!(3)));
        assert_eq!(record["data"], json!({"virtualMachineTemplate": {"spec": {}}}));
        let owner = &record["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("VirtualMachinePool"), &json!("u")));
    }

    #[test]
    fn from_two_records_follows_what_differs() {
        let spec = json!({"runStrategy": "Always", "template": {"a": 1},
            "dataVolumeTemplates": [{"d": 1}]});
        let with = |field: &str, value: Value| {
            let mut spec = spec.clone();
            spec[field] = value;
            spec
        };
        let records = [
            revision(&pool(1, spec.clone())),
            revision(&pool(2, with("template", json!({"a": 2})))),
            revision(&pool(3, with("dataVolumeTemplates", json!([])))),
            revision(&pool(4, with("runStrategy", json!("Halted")))),
        ];
        let records: Vec<&Value> = records.iter().collect();
        for (vmi, vm, expected) in [
            ("p-1", "p-1", Difference::Nothing),
            ("p-2", "p-1", Difference::Instance),
            ("p-3", "p-1", Difference::Disks),
            ("p-4", "p-1", Difference::Other),
            ("", "p-1", Difference::Instance),
            ("p-9", "p-1", Difference::Instance),
            ("p-1", "p-9", Difference::Nothing),
        ] {
            let found = difference(&object(vmi), &object(vm), &records);
            assert_eq!(found, expected, "{vmi} {vm}");
        }
    }
}
