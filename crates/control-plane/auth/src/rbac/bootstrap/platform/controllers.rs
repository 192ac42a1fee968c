//! The rights of this platform's controllers. Those that act on objects of every kind have few
//! verbs, and roles of their own; the others name each kind that they read and write.
//!
//! No controller may impersonate. Only those of aggregated roles and of projects may write roles
//! with rights that they do not have themselves, as upstream's and Rancher's.

use serde_json::Value;

use super::super::{
    AUTHORIZATION, AUTOSCALING, BATCH, BootstrapSubject, CERTIFICATES, COORDINATION, CORE,
    DISCOVERY, KUBE_SYSTEM, POLICY, STORAGE, cluster_role, cluster_role_binding, events, named, on,
    role, role_binding,
};
use super::{KUBEVIRT, LONGHORN, NETWORK, RBAC, machines, storage};
use crate::rbac::rule::PolicyRule;
use crate::user::{CONTROLLER_USERS, CONTROLLERS};

const GET: &[&str] = &["get"];
const LIST: &[&str] = &["list"];
const PATCH: &[&str] = &["patch"];
const ANY: &[&str] = &["*"];
const HARVESTER: &str = "harvesterhci.io";
const BALANCERS: &str = "loadbalancer.harvesterhci.io";
const RANCHER: &str = "management.cattle.io";
const ALARMS_USER: &str = "system:sheaf-controller:alarms";
const CERTIFICATES_USER: &str = "system:sheaf-controller:certificates";

pub(in super::super) fn cluster_roles() -> Vec<Value> {
    CONTROLLER_USERS.iter().map(|name| cluster_role(name, &rules(name))).collect()
}

pub(in super::super) fn cluster_role_bindings() -> Vec<Value> {
    let binding = |name: &&'static str| cluster_role_binding(name, &[BootstrapSubject::User(name)]);
    CONTROLLER_USERS.iter().map(binding).collect()
}

/// Rights in `kube-system` only.
pub(in super::super) fn roles() -> Vec<Value> {
    let leases = on(&["get", "create", "update", "patch"], COORDINATION, &["leases"]);
    vec![
        // The election, and the virtual address of the cluster.
        role(KUBE_SYSTEM, CONTROLLERS, &[leases]),
        // Addresses of alarm receivers.
        role(KUBE_SYSTEM, ALARMS_USER, &[on(GET, CORE, &["secrets"])]),
        // Bootstrap tokens of joining nodes.
        role(KUBE_SYSTEM, CERTIFICATES_USER, &[on(&["get", "patch"], CORE, &["secrets"])]),
    ]
}

pub(in super::super) fn role_bindings() -> Vec<Value> {
    let bind = |user| role_binding(KUBE_SYSTEM, user, user, &[BootstrapSubject::User(user)]);
    vec![bind(CONTROLLERS), bind(ALARMS_USER), bind(CERTIFICATES_USER)]
}

fn rules(user: &str) -> Vec<PolicyRule> {
    let mut rules = match user.rsplit(':').next().unwrap_or_default() {
        "alarms" => alarms(),
        "autoscaling" => autoscaling(),
        "certificates" => certificates(),
        "cluster" => cluster(),
        // Metadata of the objects; the bodies are out of reach of the requests that it sends, but
        // not of its rights.
        "garbage" => vec![on(&["get", "patch", "delete"], "*", ANY)],
        "machines" => machines::rules(),
        "namespaces" => vec![
            on(GET, CORE, &["namespaces"]),
            on(&["update"], CORE, &["namespaces/finalize", "namespaces/status"]),
            on(&["list", "delete", "deletecollection"], "*", ANY),
        ],
        "operations" => operations(),
        "projects" => projects(),
        "quotas" => {
            vec![on(LIST, "*", ANY), on(&["update"], CORE, &["resourcequotas/status"])]
        }
        "roles" => vec![on(&["list", "patch", "escalate"], RBAC, &["clusterroles"])],
        "sheaf-controllers" => shared(),
        "storage" => storage::rules(),
        "tokens" => vec![
            on(&["get", "list", "watch", "update", "delete"], CORE, &["secrets"]),
            on(GET, CORE, &["serviceaccounts"]),
        ],
        // A name without a role has no rights but to write events.
        _ => Vec::new(),
    };
    rules.push(events());
    rules
}

/// The feed of the metadata of all objects; Nodes that the server marks, and the settings that it
/// gives a new cluster.
fn shared() -> Vec<PolicyRule> {
    vec![
        on(&["list", "watch"], "*", ANY),
        on(&["get", "patch"], CORE, &["nodes"]),
        on(&["get", "patch"], HARVESTER, &["settings"]),
    ]
}

/// Deliveries of alarms, with the proxy and the certificates of the settings.
fn alarms() -> Vec<PolicyRule> {
    vec![
        on(LIST, "sheaf.io", &["alarms"]),
        on(GET, "sheaf.io", &["alarmreceivers"]),
        on(PATCH, "sheaf.io", &["alarmreceivers/status"]),
        on(GET, HARVESTER, &["settings"]),
    ]
}

fn autoscaling() -> Vec<PolicyRule> {
    vec![
        on(GET, AUTOSCALING, &["horizontalpodautoscalers"]),
        on(PATCH, AUTOSCALING, &["horizontalpodautoscalers/status"]),
        on(&["get", "update"], "*", &["*/scale"]),
        on(LIST, CORE, &["pods"]),
        on(LIST, "metrics.k8s.io", &["pods"]),
    ]
}

/// Approval of certificate requests of nodes, and signing of approved requests.
fn certificates() -> Vec<PolicyRule> {
    let requests = "certificatesigningrequests";
    let client = "kubernetes.io/kube-apiserver-client";
    let node = ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"];
    vec![
        on(GET, CERTIFICATES, &[requests]),
        on(
            PATCH,
            CERTIFICATES,
            &["certificatesigningrequests/approval", "certificatesigningrequests/status"],
        ),
        named(&["approve"], CERTIFICATES, "signers", &node),
        named(&["sign"], CERTIFICATES, "signers", &[client, node[0], node[1]]),
        on(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
        on(&["get", "list", "create"], CORE, &["nodes"]),
    ]
}

/// Upstream's controllers without rights to objects of every kind.
fn cluster() -> Vec<PolicyRule> {
    vec![
        on(&["get", "create"], CORE, &["serviceaccounts"]),
        on(&["get", "create", "update"], CORE, &["configmaps"]),
        on(&["get", "list", "patch"], CORE, &["persistentvolumeclaims", "persistentvolumes"]),
        on(&["get", "patch"], STORAGE, &["volumeattributesclasses"]),
        on(LIST, CORE, &["pods"]),
        on(GET, POLICY, &["poddisruptionbudgets"]),
        on(PATCH, POLICY, &["poddisruptionbudgets/status"]),
        on(GET, CORE, &["services"]),
        on(&["get", "create", "patch", "delete"], CORE, &["endpoints"]),
        on(&["get", "list", "create", "patch", "delete"], DISCOVERY, &["endpointslices"]),
        on(&["list", "patch"], CORE, &["nodes"]),
        on(PATCH, CORE, &["nodes/status"]),
        on(&["list", "create", "patch"], COORDINATION, &["leases"]),
        on(GET, HARVESTER, &["settings"]),
        on(&["list", "patch"], KUBEVIRT, &["virtualmachineinstances"]),
    ]
}

/// Settings, add-ons, alarms, networks, load balancers and upgrades.
fn operations() -> Vec<PolicyRule> {
    let mut rules = vec![
        on(&["get", "create", "patch"], CORE, &["configmaps"]),
        on(&["get", "list", "patch"], CORE, &["nodes"]),
        on(LIST, CORE, &["persistentvolumeclaims"]),
        // Jobs that show how far a change of a node is.
        on(&["get", "create"], BATCH, &["jobs"]),
        on(PATCH, BATCH, &["jobs/status"]),
        on(&["list", "create", "patch", "delete"], CORE, &["services"]),
        on(PATCH, CORE, &["services/status"]),
        on(&["list", "create", "patch", "delete"], DISCOVERY, &["endpointslices"]),
        on(&["list", "create", "patch", "delete"], COORDINATION, &["leases"]),
        on(&["list", "patch"], "k8s.cni.cncf.io", &["network-attachment-definitions"]),
        on(&["list", "patch"], KUBEVIRT, &["kubevirts"]),
        on(&["list", "create"], KUBEVIRT, &["virtualmachineinstancemigrations"]),
        on(&["get", "list"], KUBEVIRT, &["virtualmachineinstances", "virtualmachines"]),
        on(GET, LONGHORN, &["backuptargets", "nodes"]),
        on(&["get", "list"], LONGHORN, &["volumes"]),
        on(LIST, LONGHORN, &["engines", "replicas", "snapshots"]),
        on(&["list", "create", "delete"], "sheaf.io", &["alarms"]),
        on(PATCH, "sheaf.io", &["alarms/status"]),
        on(&["list", "patch"], BALANCERS, &["ippools", "loadbalancers"]),
    ];
    rules.extend(harvester_operations());
    rules
}

fn harvester_operations() -> Vec<PolicyRule> {
    vec![
        on(GET, HARVESTER, &["addons", "resourcequotas", "versions", "virtualmachineimages"]),
        on(GET, HARVESTER, &["schedulevmbackups", "virtualmachinebackups"]),
        on(PATCH, HARVESTER, &["addons/status", "resourcequotas/status"]),
        on(&["get", "patch"], HARVESTER, &["settings"]),
        on(&["get", "patch", "delete"], HARVESTER, &["supportbundles"]),
        on(&["get", "list", "patch"], HARVESTER, &["upgrades"]),
        on(LIST, NETWORK, &["clusternetworks", "hostnetworkconfigs", "ippools"]),
        on(&["get", "create", "patch", "delete"], NETWORK, &["hostnetworkconfigs"]),
        on(PATCH, NETWORK, &["hostnetworkconfigs/status", "ippools/status"]),
        on(&["list", "create", "patch"], NETWORK, &["linkmonitors"]),
        on(&["get", "list", "create", "patch"], NETWORK, &["virtualmachinenetworkconfigs"]),
        on(PATCH, NETWORK, &["virtualmachinenetworkconfigs/status"]),
    ]
}

/// Members of a project get the roles that its templates name, which only administrators write.
fn projects() -> Vec<PolicyRule> {
    let write = &["list", "create", "patch", "delete"];
    vec![
        on(&["list", "create", "patch"], CORE, &["namespaces"]),
        on(write, CORE, &["resourcequotas"]),
        on(LIST, RANCHER, &["projectroletemplatebindings", "roletemplates"]),
        on(&["list", "create", "patch"], RANCHER, &["projects"]),
        on(LIST, KUBEVIRT, &["virtualmachineinstancemigrations"]),
        on(GET, KUBEVIRT, &["virtualmachineinstances"]),
        on(write, RBAC, &["rolebindings"]),
        on(&["list", "create", "patch", "delete", "bind", "escalate"], RBAC, &["clusterroles"]),
    ]
}
