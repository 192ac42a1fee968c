//! Roles for the parts of a cluster that are not controllers, and for those who
//! approve their certificates.

use serde_json::Value;

use super::{
    APPS, AUTHENTICATION, AUTHORIZATION, BootstrapSubject, CERTIFICATES, COORDINATION, CORE,
    DISCOVERY, EVENTS, EXTENSIONS, NETWORKING, POLICY, READ, READ_UPDATE, READ_WRITE, RESOURCE,
    STORAGE, cluster_role, cluster_role_binding, events, named, on, on_groups,
};
use crate::rbac::rule::PolicyRule;
use crate::user::{KUBE_CONTROLLER_MANAGER, KUBE_PROXY, KUBE_SCHEDULER};

pub(super) fn cluster_roles() -> Vec<Value> {
    let mut roles = vec![
        cluster_role("system:auth-delegator", &delegator_rules()),
        cluster_role("system:kube-aggregator", &[on(READ, CORE, &["services", "endpoints"])]),
        cluster_role("system:kube-controller-manager", &controller_manager_rules()),
        cluster_role("system:kube-scheduler", &scheduler_rules()),
        cluster_role(
            "system:kube-dns",
            &[on(&["list", "watch"], CORE, &["endpoints", "services"])],
        ),
        cluster_role(
            "system:heapster",
            &[
                on(READ, CORE, &["events", "pods", "nodes", "namespaces"]),
                on(READ, EXTENSIONS, &["deployments"]),
            ],
        ),
        cluster_role("system:node", &node_rules()),
        cluster_role("system:node-proxier", &proxy_rules()),
        cluster_role(
            "system:node-problem-detector",
            &[on(&["get"], CORE, &["nodes"]), on(&["patch"], CORE, &["nodes/status"]), events()],
        ),
        cluster_role("system:node-bootstrapper", &[signing_request_rule()]),
        cluster_role("system:kubelet-api-admin", &kubelet_admin_rules()),
        cluster_role("system:persistent-volume-provisioner", &provisioner_rules()),
        cluster_role(
            "system:volume-scheduler",
            &[
                on(READ_UPDATE, CORE, &["persistentvolumes"]),
                on(READ, STORAGE, &["storageclasses"]),
                on(READ_UPDATE, CORE, &["persistentvolumeclaims"]),
            ],
        ),
        cluster_role(
            "system:cluster-trust-bundle-discovery",
            &[on(READ, CERTIFICATES, &["clustertrustbundles"])],
        ),
    ];
    roles.extend(certificate_roles());
    roles
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    use BootstrapSubject::{Group, ServiceAccount, User};
    vec![
        cluster_role_binding("system:node-proxier", &[User(KUBE_PROXY)]),
        cluster_role_binding("system:kube-controller-manager", &[User(KUBE_CONTROLLER_MANAGER)]),
        cluster_role_binding("system:kube-dns", &[ServiceAccount("kube-dns")]),
        cluster_role_binding("system:kube-scheduler", &[User(KUBE_SCHEDULER)]),
        cluster_role_binding("system:volume-scheduler", &[User(KUBE_SCHEDULER)]),
        // No subjects: nodes are authorized one by one. It exists because tools check for it.
        cluster_role_binding("system:node", &[]),
        cluster_role_binding(
            "system:cluster-trust-bundle-discovery",
            &[Group(crate::user::SERVICE_ACCOUNTS)],
        ),
    ]
}

/// Reviews change nothing; creating one is asking.
fn delegator_rules() -> Vec<PolicyRule> {
    vec![
        on(&["create"], AUTHENTICATION, &["tokenreviews"]),
        on(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
    ]
}

fn controller_manager_rules() -> Vec<PolicyRule> {
    let mut rules = vec![
        events(),
        on(&["create"], COORDINATION, &["leases"]),
        named(&["get", "update"], COORDINATION, "leases", &["kube-controller-manager"]),
        on(&["create"], CORE, &["secrets", "serviceaccounts"]),
        on(&["delete"], CORE, &["secrets"]),
        on(&["get"], CORE, &["namespaces", "secrets", "serviceaccounts", "configmaps"]),
        on(&["update"], CORE, &["secrets", "serviceaccounts"]),
    ];
    rules.extend(delegator_rules());
    rules.extend([
        on(&["list", "watch"], "*", &["*"]),
        on(&["create"], CORE, &["serviceaccounts/token"]),
    ]);
    rules
}

fn scheduler_rules() -> Vec<PolicyRule> {
    let mut rules = vec![
        events(),
        on(&["create"], COORDINATION, &["leases"]),
        named(&["get", "update", "list", "watch"], COORDINATION, "leases", &["kube-scheduler"]),
        on(READ_WRITE, COORDINATION, &["leasecandidates"]),
        on(READ, CORE, &["nodes"]),
        on(&["get", "list", "watch", "delete"], CORE, &["pods"]),
        on(&["create"], CORE, &["pods/binding", "bindings"]),
        on(&["patch", "update"], CORE, &["pods/status"]),
        on(READ, CORE, &["services", "replicationcontrollers"]),
        on_groups(READ, &[APPS, EXTENSIONS], &["replicasets"]),
        on(READ, APPS, &["statefulsets"]),
        on(READ, POLICY, &["poddisruptionbudgets"]),
        on(READ, CORE, &["persistentvolumeclaims", "persistentvolumes"]),
    ];
    rules.extend(delegator_rules());
    rules.extend([
        on(READ, STORAGE, &["csinodes"]),
        on(READ, STORAGE, &["volumeattachments"]),
        on(READ, CORE, &["namespaces"]),
        on(READ, STORAGE, &["csidrivers"]),
        on(READ, STORAGE, &["csistoragecapacities"]),
        on(READ, RESOURCE, &["deviceclasses"]),
        on(READ_UPDATE, RESOURCE, &["resourceclaims"]),
        on(READ_UPDATE, RESOURCE, &["resourceclaims/status"]),
        on(&["update"], CORE, &["pods/finalizers"]),
        on(READ, RESOURCE, &["resourceslices"]),
    ]);
    rules
}

fn node_rules() -> Vec<PolicyRule> {
    vec![
        on(&["create"], AUTHENTICATION, &["tokenreviews"]),
        on(&["create"], AUTHORIZATION, &["subjectaccessreviews", "localsubjectaccessreviews"]),
        on(READ, CORE, &["services"]),
        on(&["create", "get", "list", "watch"], CORE, &["nodes"]),
        on(&["update", "patch"], CORE, &["nodes/status"]),
        on(&["update", "patch"], CORE, &["nodes"]),
        on_groups(&["create", "update", "patch"], &[CORE, EVENTS], &["events"]),
        on(READ, CORE, &["pods"]),
        on(&["create", "delete"], CORE, &["pods"]),
        on(&["update", "patch"], CORE, &["pods/status"]),
        on(&["create"], CORE, &["pods/eviction"]),
        on(READ, CORE, &["secrets", "configmaps"]),
        on(&["get"], CORE, &["persistentvolumeclaims", "persistentvolumes"]),
        on(&["get"], CORE, &["endpoints"]),
        signing_request_rule(),
        on(&["get", "create", "update", "patch", "delete"], COORDINATION, &["leases"]),
        on(&["get"], STORAGE, &["volumeattachments"]),
        on(&["create"], CORE, &["serviceaccounts/token"]),
        on(&["get", "update", "patch"], CORE, &["persistentvolumeclaims/status"]),
        on(&["get", "watch", "list"], STORAGE, &["csidrivers"]),
        on(&["get", "create", "update", "patch", "delete"], STORAGE, &["csinodes"]),
        on(&["get"], RESOURCE, &["resourceclaims"]),
        on(&["deletecollection"], RESOURCE, &["resourceslices"]),
        on(READ, CERTIFICATES, &["clustertrustbundles"]),
        on(&["get"], CORE, &["serviceaccounts"]),
        on(READ, "node.k8s.io", &["runtimeclasses"]),
    ]
}

fn proxy_rules() -> Vec<PolicyRule> {
    vec![
        on(&["list", "watch"], CORE, &["services", "endpoints"]),
        on(READ, CORE, &["nodes"]),
        events(),
        on(&["list", "watch"], NETWORKING, &["servicecidrs"]),
        on(&["list", "watch"], DISCOVERY, &["endpointslices"]),
    ]
}

fn kubelet_admin_rules() -> Vec<PolicyRule> {
    vec![
        on(READ, CORE, &["nodes"]),
        on(&["proxy"], CORE, &["nodes"]),
        on(&["*"], CORE, &["nodes/proxy", "nodes/metrics", "nodes/stats", "nodes/log"]),
        on(&["*"], CORE, &["nodes/pods", "nodes/healthz", "nodes/configz"]),
    ]
}

fn provisioner_rules() -> Vec<PolicyRule> {
    vec![
        on(&["get", "list", "watch", "create", "delete"], CORE, &["persistentvolumes"]),
        on(&["get", "list", "watch", "update"], CORE, &["persistentvolumeclaims"]),
        on(READ, STORAGE, &["storageclasses"]),
        on(&["watch"], CORE, &["events"]),
        events(),
    ]
}

fn signing_request_rule() -> PolicyRule {
    on(&["create", "get", "list", "watch"], CERTIFICATES, &["certificatesigningrequests"])
}

fn certificate_roles() -> Vec<Value> {
    let approver = |name: &str, signer: &str| {
        let rule = named(&["approve"], CERTIFICATES, "signers", &[signer]);
        cluster_role(&format!("system:certificates.k8s.io:{name}"), &[rule])
    };
    let requester = |kind: &str| {
        let resource = format!("certificatesigningrequests/{kind}");
        let rule = on(&["create"], CERTIFICATES, &[&resource]);
        let name = format!("system:certificates.k8s.io:certificatesigningrequests:{kind}");
        cluster_role(&name, &[rule])
    };
    vec![
        requester("nodeclient"),
        requester("selfnodeclient"),
        approver("legacy-unknown-approver", "kubernetes.io/legacy-unknown"),
        approver("kubelet-serving-approver", "kubernetes.io/kubelet-serving"),
        approver("kube-apiserver-client-approver", "kubernetes.io/kube-apiserver-client"),
        approver(
            "kube-apiserver-client-kubelet-approver",
            "kubernetes.io/kube-apiserver-client-kubelet",
        ),
    ]
}
