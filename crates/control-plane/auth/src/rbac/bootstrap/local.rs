//! Roles that exist in one namespace only.

use serde_json::Value;

use super::{
    BootstrapSubject, COORDINATION, CORE, KUBE_PUBLIC, KUBE_SYSTEM, READ, events, named, on, role,
    role_binding,
};
use crate::user::{KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER};

const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";
const BOOTSTRAP_SIGNER: &str = "system:controller:bootstrap-signer";
const CLOUD_PROVIDER: &str = "system:controller:cloud-provider";
const TOKEN_CLEANER: &str = "system:controller:token-cleaner";
const CONTROLLER_MANAGER_LEADER: &str = "system::leader-locking-kube-controller-manager";
const SCHEDULER_LEADER: &str = "system::leader-locking-kube-scheduler";

pub(super) fn roles() -> Vec<Value> {
    let elect =
        |resource| on(&["get", "watch", "list", "create", "update"], COORDINATION, &[resource]);
    let leader = [elect("leases"), elect("leasecandidates")];
    vec![
        // How aggregated API servers learn whom to believe.
        role(
            KUBE_SYSTEM,
            AUTHENTICATION_READER,
            &[named(READ, CORE, "configmaps", &["extension-apiserver-authentication"])],
        ),
        role(KUBE_SYSTEM, BOOTSTRAP_SIGNER, &[on(READ, CORE, &["secrets"])]),
        role(
            KUBE_SYSTEM,
            CLOUD_PROVIDER,
            &[on(&["create", "get", "list", "watch"], CORE, &["configmaps"])],
        ),
        role(
            KUBE_SYSTEM,
            TOKEN_CLEANER,
            &[on(&["get", "list", "watch", "delete"], CORE, &["secrets"]), events()],
        ),
        role(KUBE_SYSTEM, CONTROLLER_MANAGER_LEADER, &leader),
        role(KUBE_SYSTEM, SCHEDULER_LEADER, &leader),
        role(
            KUBE_PUBLIC,
            BOOTSTRAP_SIGNER,
            &[
                on(READ, CORE, &["configmaps"]),
                named(&["update"], CORE, "configmaps", &["cluster-info"]),
                events(),
            ],
        ),
    ]
}

pub(super) fn role_bindings() -> Vec<Value> {
    use BootstrapSubject::{ServiceAccount, User};
    vec![
        role_binding(
            KUBE_SYSTEM,
            "system::extension-apiserver-authentication-reader",
            AUTHENTICATION_READER,
            &[User(KUBE_CONTROLLER_MANAGER), User(KUBE_SCHEDULER)],
        ),
        role_binding(
            KUBE_SYSTEM,
            CONTROLLER_MANAGER_LEADER,
            CONTROLLER_MANAGER_LEADER,
            &[
                User(KUBE_CONTROLLER_MANAGER),
                ServiceAccount("kube-controller-manager"),
                ServiceAccount("leader-election-controller"),
            ],
        ),
        role_binding(
            KUBE_SYSTEM,
            SCHEDULER_LEADER,
            SCHEDULER_LEADER,
            &[User(KUBE_SCHEDULER), ServiceAccount("kube-scheduler")],
        ),
        role_binding(
            KUBE_SYSTEM,
            BOOTSTRAP_SIGNER,
            BOOTSTRAP_SIGNER,
            &[ServiceAccount("bootstrap-signer")],
        ),
        role_binding(
            KUBE_SYSTEM,
            CLOUD_PROVIDER,
            CLOUD_PROVIDER,
            &[ServiceAccount("cloud-provider")],
        ),
        role_binding(KUBE_SYSTEM, TOKEN_CLEANER, TOKEN_CLEANER, &[ServiceAccount("token-cleaner")]),
        role_binding(
            KUBE_PUBLIC,
            BOOTSTRAP_SIGNER,
            BOOTSTRAP_SIGNER,
            &[ServiceAccount("bootstrap-signer")],
        ),
    ]
}
