//! Roles of the parts of this platform that upstream does not have: exactly the rights that they
//! use.

mod controllers;
mod machines;
mod storage;

use serde_json::Value;

use super::{
    APPS, AUTHENTICATION, BootstrapSubject, CERTIFICATES, COORDINATION, CORE, DISCOVERY, EVENTS,
    NETWORKING, READ, STORAGE, bind, cluster_role, cluster_role_binding, object, on, on_groups,
};
use crate::rbac::GROUP as RBAC;
use crate::rbac::rule::PolicyRule;
use crate::user::{GATEWAY, MANAGEMENT_NODES, NODES, REST};

const GET: &[&str] = &["get"];
const CDI: &str = "cdi.kubevirt.io";
const KUBEVIRT: &str = "kubevirt.io";
const LONGHORN: &str = "longhorn.io";
const NETWORK: &str = "network.harvesterhci.io";
/// The role of the agents of nodes, which the Node authorizer gives to each that exists.
pub const NODE_ROLE: &str = "system:sheaf-node";
/// The role that a witness has instead: it reports itself, and reads where the others are.
pub const WITNESS_ROLE: &str = "system:sheaf-witness";
/// Groups of joining nodes, by the role of their token.
const JOINING_NODES: [&str; 3] = [
    "system:bootstrappers:sheaf:worker",
    "system:bootstrappers:sheaf:management",
    "system:bootstrappers:sheaf:witness",
];
const JOINING: &str = "system:sheaf-joining";

pub(super) fn cluster_roles() -> Vec<Value> {
    let mut roles = controllers::cluster_roles();
    roles.extend([
        cluster_role(GATEWAY, &gateway_rules()),
        cluster_role(REST, &rest_rules()),
        cluster_role(NODE_ROLE, &node_rules()),
        cluster_role(WITNESS_ROLE, &witness_rules()),
        // One management node polls the sources of import crons and writes their digests.
        cluster_role(MANAGEMENT_NODES, &[on(&["patch"], CDI, &["dataimportcrons"])]),
        // To see whether a name is taken before it is asked for.
        cluster_role(JOINING, &[on(GET, CORE, &["nodes"])]),
    ]);
    roles
}

pub(super) use controllers::{role_bindings, roles};

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    let joining = JOINING_NODES.map(BootstrapSubject::Group);
    let joins = |name: &str, role: &str, groups: &[&'static str]| {
        let name = format!("system:sheaf-{name}");
        let subjects: Vec<_> = groups.iter().copied().map(BootstrapSubject::Group).collect();
        bind(object("ClusterRoleBinding", &name), "ClusterRole", role, &subjects)
    };
    let mut bindings = controllers::cluster_role_bindings();
    bindings.extend([
        cluster_role_binding(GATEWAY, &[BootstrapSubject::User(GATEWAY)]),
        cluster_role_binding(REST, &[BootstrapSubject::User(REST)]),
        // No subjects: nodes are authorized one by one.
        cluster_role_binding(NODE_ROLE, &[]),
        cluster_role_binding(WITNESS_ROLE, &[]),
        cluster_role_binding(MANAGEMENT_NODES, &[BootstrapSubject::Group(MANAGEMENT_NODES)]),
        cluster_role_binding(JOINING, &joining),
        joins("joining-requests", "system:node-bootstrapper", &JOINING_NODES),
        joins("joining-approval", &format!("{requests}:nodeclient"), &JOINING_NODES),
        joins("node-renewal", &format!("{requests}:selfnodeclient"), &[NODES]),
    ]);
    bindings
}

/// The agent of a node. Admission restricts writes to what is placed on it, and the authorizer
/// allows those secrets and accounts that are used there.
#[expect(clippy::too_many_lines, reason = "a table: the rights of a node")]
fn node_rules() -> Vec<PolicyRule> {
    const REPORT: &[&str] = &["get", "list", "watch", "update", "patch"];
    vec![
        on(&["get", "list", "watch", "create", "update", "patch"], CORE, &["nodes"]),
        on(&["update", "patch"], CORE, &["nodes/status"]),
        on(&["get", "list", "watch", "create", "update", "patch"], COORDINATION, &["leases"]),
        on_groups(&["create", "update", "patch"], &[CORE, EVENTS], &["events"]),
        on(&["create", "get", "list", "watch"], CERTIFICATES, &["certificatesigningrequests"]),
        on(READ, CORE, &["services", "namespaces", "pods"]),
        on(READ, NETWORKING, &["networkpolicies", "ipaddresses"]),
        on(READ, "policy.networking.k8s.io", &["clusternetworkpolicies"]),
        on(READ, DISCOVERY, &["endpointslices"]),
        on(READ, STORAGE, &["storageclasses"]),
        on(&["get", "list", "watch", "create", "patch", "delete"], CORE, &["persistentvolumes"]),
        on(REPORT, CORE, &["persistentvolumeclaims"]),
        on(&["update", "patch"], CORE, &["persistentvolumeclaims/status"]),
        on(REPORT, KUBEVIRT, &["virtualmachineinstances"]),
        on(READ, KUBEVIRT, &["virtualmachines", "kubevirts"]),
        on(READ, CDI, &["datavolumes", "dataimportcrons", "cdiconfigs"]),
        on(READ, "k8s.cni.cncf.io", &["network-attachment-definitions", "multi-networkpolicies"]),
        on(READ, NETWORK, &["vlanconfigs", "hostnetworkconfigs", "ippools"]),
        on(&["patch"], NETWORK, &["hostnetworkconfigs/status"]),
        on(READ, "loadbalancer.harvesterhci.io", &["loadbalancers"]),
        on(&["get", "list", "watch", "patch"], NETWORK, &["clusternetworks", "linkmonitors"]),
        on(
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            NETWORK,
            &["vlanstatuses"],
        ),
        on(READ, LONGHORN, &["volumes", "settings"]),
        // The proxy and the certificates of requests to the outside, and the servers of the clock;
        // other settings hold keys.
        PolicyRule {
            resource_names: ["additional-ca", "http-proxy", "ntp-servers"]
                .map(str::to_owned)
                .to_vec(),
            ..on(READ, "harvesterhci.io", &["settings"])
        },
        // Descriptions of backed-up machines on the backup target.
        on(&["get", "list", "watch", "patch"], "harvesterhci.io", &["virtualmachinebackups"]),
        on(&["create"], CORE, &["secrets"]),
        on(&["get", "list", "watch", "create", "patch"], LONGHORN, &["nodes", "volumeattachments"]),
        on(&["get", "list", "watch", "patch"], LONGHORN, &["replicas", "engines", "snapshots"]),
        on(&["get", "list", "watch", "patch"], LONGHORN, &["backingimages", "backuptargets"]),
        on(
            &["get", "list", "watch", "create", "patch", "delete"],
            LONGHORN,
            &["backups", "backupvolumes"],
        ),
        on(
            &["patch"],
            LONGHORN,
            &[
                "nodes/status",
                "replicas/status",
                "engines/status",
                "snapshots/status",
                "backingimages/status",
                "volumeattachments/status",
                "backuptargets/status",
                "backups/status",
                "backupvolumes/status",
            ],
        ),
    ]
}

/// A node that votes in etcd and runs nothing. Admission restricts writes to its own Node and Lease.
fn witness_rules() -> Vec<PolicyRule> {
    vec![
        on(&["get", "list", "watch", "patch"], CORE, &["nodes"]),
        on(&["patch"], CORE, &["nodes/status"]),
        on(&["get", "create", "patch"], COORDINATION, &["leases"]),
        on(&["create", "get", "list", "watch"], CERTIFICATES, &["certificatesigningrequests"]),
    ]
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
        on(&["create"], KUBEVIRT, &["virtualmachineinstancemigrations"]),
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
        on(GET, LONGHORN, &["backingimages"]),
        on(&["list"], LONGHORN, &["nodes", "replicas"]),
    ]
}

/// The REST API acts as its callers, and keeps local users. Passwords are in a namespace with a role
/// of its own.
fn rest_rules() -> Vec<PolicyRule> {
    vec![
        on(&["impersonate"], CORE, &["users", "groups", "serviceaccounts"]),
        // Keys of extra values are subresources, and any key may occur.
        on(&["impersonate"], AUTHENTICATION, &["*"]),
        // ID tokens of logins with OpenID Connect.
        on(&["create"], AUTHENTICATION, &["tokenreviews"]),
        on(&["list"], CORE, &["namespaces"]),
        // Whether the cluster is ready, which every user may know.
        on(&["list"], CORE, &["nodes"]),
        on(&["list"], LONGHORN, &["nodes"]),
        on(&["list"], KUBEVIRT, &["kubevirts"]),
        // The devices that are left, which every user may know.
        on(&["list"], KUBEVIRT, &["virtualmachines"]),
        on(
            &["get", "list", "create", "patch", "delete"],
            "management.cattle.io",
            &["users", "tokens", "settings"],
        ),
        on(&["get", "list", "watch"], "harvesterhci.io", &["settings"]),
        on(&["create", "delete"], RBAC, &["clusterrolebindings"]),
        // The roles that `sheaf user create --role` gives.
        PolicyRule {
            resource_names: vec!["cluster-admin".to_owned(), "view".to_owned()],
            ..on(&["bind"], RBAC, &["clusterroles"])
        },
    ]
}

#[cfg(test)]
mod tests;
