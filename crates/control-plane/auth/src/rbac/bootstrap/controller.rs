//! Roles for controllers, each bound to the service account of the same name in
//! `kube-system`.

mod pods;

use serde_json::Value;

use super::{
    ADMISSION, AUTHORIZATION, BootstrapSubject, CERTIFICATES, COORDINATION, CORE, DISCOVERY,
    NETWORKING, READ, STORAGE, cluster_role, cluster_role_binding, events, named, on,
};
use crate::rbac::GROUP;
use crate::rbac::rule::PolicyRule;

const PREFIX: &str = "system:controller:";

pub(super) fn cluster_roles() -> Vec<Value> {
    let roles = controllers().into_iter();
    roles.map(|(name, rules)| cluster_role(&format!("{PREFIX}{name}"), &rules)).collect()
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    let roles = controllers().into_iter();
    roles
        .map(|(name, _)| {
            cluster_role_binding(
                &format!("{PREFIX}{name}"),
                &[BootstrapSubject::ServiceAccount(name)],
            )
        })
        .collect()
}

fn controllers() -> Vec<(&'static str, Vec<PolicyRule>)> {
    let mut all = housekeeping();
    all.extend(accounts_and_nodes());
    all.extend(storage());
    all.extend(network());
    all.extend(pods::controllers());
    all.push(("certificate-controller", certificate_rules()));
    all
}

/// Controllers that keep objects of every kind in order.
fn housekeeping() -> Vec<(&'static str, Vec<PolicyRule>)> {
    vec![
        (
            "clusterrole-aggregation-controller",
            // It writes rules that it does not hold.
            vec![on(
                &["escalate", "get", "list", "watch", "update", "patch"],
                GROUP,
                &["clusterroles"],
            )],
        ),
        (
            "generic-garbage-collector",
            vec![on(&["get", "list", "watch", "patch", "update", "delete"], "*", &["*"]), events()],
        ),
        (
            "namespace-controller",
            vec![
                on(&["get", "list", "watch", "delete"], CORE, &["namespaces"]),
                on(&["update"], CORE, &["namespaces/finalize", "namespaces/status"]),
                on(&["get", "list", "watch", "delete", "deletecollection"], "*", &["*"]),
            ],
        ),
        (
            "resourcequota-controller",
            vec![
                // Anything can be counted.
                on(&["list", "watch"], "*", &["*"]),
                on(&["update"], CORE, &["resourcequotas/status"]),
                events(),
            ],
        ),
    ]
}

fn accounts_and_nodes() -> Vec<(&'static str, Vec<PolicyRule>)> {
    vec![
        ("service-account-controller", vec![on(&["create"], CORE, &["serviceaccounts"]), events()]),
        (
            "root-ca-cert-publisher",
            vec![on(&["create", "update"], CORE, &["configmaps"]), events()],
        ),
        (
            "legacy-service-account-token-cleaner",
            vec![
                named(
                    &["get"],
                    CORE,
                    "configmaps",
                    &["kube-apiserver-legacy-service-account-token-tracking"],
                ),
                on(&["patch", "delete"], CORE, &["secrets"]),
            ],
        ),
        (
            "validatingadmissionpolicy-status-controller",
            vec![
                on(READ, ADMISSION, &["validatingadmissionpolicies"]),
                on(&["get", "patch", "update"], ADMISSION, &["validatingadmissionpolicies/status"]),
                events(),
            ],
        ),
        (
            "node-controller",
            vec![
                on(&["get", "list", "watch", "update", "delete", "patch"], CORE, &["nodes"]),
                on(&["patch", "update"], CORE, &["nodes/status"]),
                on(&["patch", "update"], CORE, &["pods/status"]),
                on(&["list", "watch", "get", "delete"], CORE, &["pods"]),
                on(READ, COORDINATION, &["leases"]),
                events(),
            ],
        ),
        (
            "ttl-controller",
            vec![on(&["update", "patch", "list", "watch"], CORE, &["nodes"]), events()],
        ),
    ]
}

fn storage() -> Vec<(&'static str, Vec<PolicyRule>)> {
    vec![
        (
            "attachdetach-controller",
            vec![
                on(&["list", "watch"], CORE, &["persistentvolumes", "persistentvolumeclaims"]),
                on(READ, CORE, &["nodes"]),
                on(&["patch", "update"], CORE, &["nodes/status"]),
                on(&["list", "watch"], CORE, &["pods"]),
                events(),
                on(&["get", "create", "delete", "list", "watch"], STORAGE, &["volumeattachments"]),
                on(&["get", "watch", "list"], STORAGE, &["csidrivers"]),
                on(&["get", "watch", "list"], STORAGE, &["csinodes"]),
            ],
        ),
        (
            "expand-controller",
            vec![
                on(&["get", "list", "watch", "update", "patch"], CORE, &["persistentvolumes"]),
                on(&["update", "patch"], CORE, &["persistentvolumeclaims/status"]),
                on(READ, CORE, &["persistentvolumeclaims"]),
                events(),
            ],
        ),
        ("persistent-volume-binder", binder_rules()),
        (
            "pvc-protection-controller",
            vec![
                on(&["get", "list", "watch", "update"], CORE, &["persistentvolumeclaims"]),
                on(&["update"], CORE, &["persistentvolumeclaims/status"]),
                on(&["list", "watch", "get"], CORE, &["pods"]),
                events(),
            ],
        ),
        (
            "pv-protection-controller",
            vec![on(&["get", "list", "watch", "update"], CORE, &["persistentvolumes"]), events()],
        ),
        (
            "volumeattributesclass-protection-controller",
            vec![
                on(&["list", "watch", "get"], CORE, &["persistentvolumeclaims"]),
                on(&["list", "watch", "get"], CORE, &["persistentvolumes"]),
                on(&["get", "list", "watch", "update"], STORAGE, &["volumeattributesclasses"]),
                events(),
            ],
        ),
    ]
}

fn binder_rules() -> Vec<PolicyRule> {
    let volume_verbs = ["get", "list", "watch", "update", "create", "delete"];
    vec![
        on(&volume_verbs, CORE, &["persistentvolumes"]),
        on(&["update"], CORE, &["persistentvolumes/status"]),
        on(&["get", "list", "watch", "update"], CORE, &["persistentvolumeclaims"]),
        on(&["update"], CORE, &["persistentvolumeclaims/status"]),
        on(&["list", "watch", "get", "create", "delete"], CORE, &["pods"]),
        on(READ, STORAGE, &["storageclasses"]),
        on(&["list", "watch"], CORE, &["nodes"]),
        events(),
        on(&["watch"], CORE, &["events"]),
    ]
}

fn network() -> Vec<(&'static str, Vec<PolicyRule>)> {
    let slice_verbs = ["get", "list", "watch", "create", "update", "delete"];
    vec![
        (
            "endpoint-controller",
            vec![
                on(READ, CORE, &["services", "pods"]),
                on(&slice_verbs, CORE, &["endpoints"]),
                on(&["create"], CORE, &["endpoints/restricted"]),
                events(),
            ],
        ),
        (
            "endpointslice-controller",
            vec![
                on(READ, CORE, &["services", "pods", "nodes"]),
                // Slices block the deletion of the service that owns them.
                on(&["update"], CORE, &["services/finalizers"]),
                on(&slice_verbs, DISCOVERY, &["endpointslices"]),
                events(),
            ],
        ),
        (
            "endpointslicemirroring-controller",
            vec![
                on(READ, CORE, &["services", "endpoints"]),
                on(&["update"], CORE, &["services/finalizers"]),
                on(&["update"], CORE, &["endpoints/finalizers"]),
                on(&slice_verbs, DISCOVERY, &["endpointslices"]),
                events(),
            ],
        ),
        (
            "service-controller",
            vec![
                on(READ, CORE, &["services"]),
                on(&["patch", "update"], CORE, &["services/status"]),
                on(&["list", "watch"], CORE, &["nodes"]),
                events(),
            ],
        ),
        (
            "service-cidrs-controller",
            vec![
                on(&["get", "list", "watch", "patch", "update"], NETWORKING, &["servicecidrs"]),
                on(&["patch", "update"], NETWORKING, &["servicecidrs/finalizers"]),
                on(&["patch", "update"], NETWORKING, &["servicecidrs/status"]),
                on(READ, NETWORKING, &["ipaddresses"]),
                events(),
            ],
        ),
    ]
}

fn certificate_rules() -> Vec<PolicyRule> {
    let requests = "certificatesigningrequests";
    let kubelet_client = "kubernetes.io/kube-apiserver-client-kubelet";
    vec![
        on(&["get", "list", "watch", "delete"], CERTIFICATES, &[requests]),
        on(
            &["update"],
            CERTIFICATES,
            &["certificatesigningrequests/status", "certificatesigningrequests/approval"],
        ),
        named(&["approve"], CERTIFICATES, "signers", &[kubelet_client]),
        named(
            &["sign"],
            CERTIFICATES,
            "signers",
            &[
                "kubernetes.io/legacy-unknown",
                "kubernetes.io/kube-apiserver-client",
                kubelet_client,
                "kubernetes.io/kubelet-serving",
            ],
        ),
        on(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
        events(),
    ]
}
