//! The PCI topology that a guest was started with, kept in the template of its machine: the next
//! instance then has its devices at the same addresses. Pure.

use serde_json::{Map, Value, json};
use virt::default::{PCI_SLOT_COUNT, PCI_TOPOLOGY};

use crate::object::{self, annotation};

/// The merge patch that copies the topology from the instance to its machine; nothing if the
/// machine has one, or the instance has none.
pub(super) fn kept(vm: &Value, vmi: &Value) -> Option<Value> {
    let own = annotation(&vm["spec"]["template"], PCI_TOPOLOGY);
    if own.is_some_and(|own| !own.is_empty()) {
        return None;
    }
    annotation(vmi, PCI_TOPOLOGY).filter(|version| !version.is_empty())?;
    let annotations: Map<String, Value> = [PCI_TOPOLOGY, PCI_SLOT_COUNT]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), json!(annotation(vmi, key)?))))
        .collect();
    Some(json!({"metadata": object::version(vm),
        "spec": {"template": {"metadata": {"annotations": annotations}}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_of_a_guest_is_kept_once() {
        let vm = |annotations: Value| {
            json!({"metadata": {"uid": "u", "resourceVersion": "1"},
                "spec": {"template": {"metadata": {"annotations": annotations}}}})
        };
        let vmi = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let copied = |vm: &Value, vmi: &Value| {
            Some(kept(vm, vmi)?["spec"]["template"]["metadata"]["annotations"].clone())
        };
        let v2 = json!({PCI_TOPOLOGY: "v2", PCI_SLOT_COUNT: "4"});
        assert_eq!(copied(&vm(json!({})), &vmi(v2.clone())), Some(v2.clone()));
        let v3 = json!({PCI_TOPOLOGY: "v3"});
        assert_eq!(copied(&vm(json!({})), &vmi(v3.clone())), Some(v3.clone()));
        assert_eq!(copied(&vm(v3), &vmi(v2)), None);
        assert_eq!(copied(&vm(json!({})), &vmi(json!({}))), None);
    }
}
