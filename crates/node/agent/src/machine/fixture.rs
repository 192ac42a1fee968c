//! Objects for tests of the modules beside.

use serde_json::{Value, json};

use super::object::Vmi;

/// `ns/vm` with this specification, handed over to the node.
pub(crate) fn vmi(spec: Value) -> Vmi {
    let object = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "namespace": "ns",
            "name": "vm",
            "uid": "5d307ca9-b3ef-428c-8861-06e72d69f223",
            "resourceVersion": "7",
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
        },
        "spec": spec,
        "status": {"phase": "Scheduled", "nodeName": "n1"},
    });
    Vmi::read(serde_json::from_value(object).unwrap()).unwrap()
}
