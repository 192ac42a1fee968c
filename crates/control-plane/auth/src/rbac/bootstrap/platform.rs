//! Roles of the parts of this platform that upstream does not have: what they use and nothing else.

use serde_json::Value;

use super::{APPS, BootstrapSubject, CORE, cluster_role, cluster_role_binding, on};
use crate::rbac::rule::PolicyRule;
use crate::user::GATEWAY;

const GET: &[&str] = &["get"];
const KUBEVIRT: &str = "kubevirt.io";

pub(super) fn cluster_roles() -> Vec<Value> {
    vec![cluster_role(GATEWAY, &gateway_rules())]
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    vec![cluster_role_binding(GATEWAY, &[BootstrapSubject::User(GATEWAY)])]
}

/// The gateway acts on machines for users whom the server has authorized for the subresource.
fn gateway_rules() -> Vec<PolicyRule> {
    let instance_types = [
        "virtualmachineinstancetypes",
        "virtualmachineclusterinstancetypes",
        "virtualmachinepreferences",
        "virtualmachineclusterpreferences",
    ];
    vec![
        // Uploads mark their claim, and memory dumps enlarge theirs.
        on(&["get", "patch"], CORE, &["persistentvolumeclaims"]),
        // Tokens of exports.
        on(GET, CORE, &["persistentvolumes", "secrets"]),
        on(&["get", "list"], CORE, &["nodes", "pods"]),
        on(GET, APPS, &["controllerrevisions"]),
        on(
            &["get", "patch"],
            KUBEVIRT,
            &["virtualmachines", "virtualmachines/status", "virtualmachineinstances"],
        ),
        // Machines are created from templates, as upstream does it.
        on(&["create"], KUBEVIRT, &["virtualmachines", "virtualmachineinstancemigrations"]),
        on(&["get", "list"], KUBEVIRT, &["kubevirts"]),
        on(GET, "instancetype.kubevirt.io", &instance_types),
        on(
            GET,
            "snapshot.kubevirt.io",
            &["virtualmachinesnapshots", "virtualmachinesnapshotcontents"],
        ),
        on(GET, "export.kubevirt.io", &["virtualmachineexports"]),
        on(GET, "template.kubevirt.io", &["virtualmachinetemplates"]),
        on(GET, "harvesterhci.io", &["virtualmachineimages"]),
        on(GET, "longhorn.io", &["backingimages"]),
        on(&["list"], "longhorn.io", &["nodes", "replicas"]),
    ]
}
