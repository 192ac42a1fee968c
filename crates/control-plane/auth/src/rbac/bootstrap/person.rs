//! Roles for people: administrators, editors, viewers and all other users.

use serde_json::{Value, json};

use super::{
    APPS, AUTHENTICATION, AUTHORIZATION, AUTOSCALING, BATCH, BootstrapSubject, COORDINATION, CORE,
    DISCOVERY, EVENTS, EXTENSIONS, NETWORKING, POLICY, READ, READ_WRITE, RESOURCE, WRITE,
    cluster_role, cluster_role_binding, object, on, on_groups, urls,
};
use crate::rbac::GROUP;
use crate::rbac::policy::full_authority;
use crate::rbac::rule::PolicyRule;
use crate::user::{AUTHENTICATED, MASTERS, MONITORING, SERVICE_ACCOUNTS, UNAUTHENTICATED};

pub(super) fn cluster_roles() -> Vec<Value> {
    vec![
        cluster_role("cluster-admin", &full_authority()),
        cluster_role("system:discovery", &[urls(&["get"], DISCOVERY_URLS)]),
        cluster_role(
            "system:monitoring",
            &[urls(&["get"], MONITORING_URLS), on(&["get"], CORE, &["nodes/metrics"])],
        ),
        cluster_role(
            "system:basic-user",
            &[
                on(
                    &["create"],
                    AUTHORIZATION,
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                ),
                on(&["create"], AUTHENTICATION, &["selfsubjectreviews"]),
            ],
        ),
        cluster_role("system:public-info-viewer", &[urls(&["get"], PUBLIC_URLS)]),
        cluster_role("system:service-account-issuer-discovery", &[urls(&["get"], ISSUER_URLS)]),
        aggregated("admin", None),
        aggregated("edit", Some("admin")),
        aggregated("view", Some("edit")),
        part_of("admin", &admin_rules()),
        part_of("edit", &edit_rules()),
        part_of("view", &view_rules()),
    ]
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    use BootstrapSubject::Group;
    vec![
        cluster_role_binding("cluster-admin", &[Group(MASTERS)]),
        cluster_role_binding("system:monitoring", &[Group(MONITORING)]),
        cluster_role_binding("system:discovery", &[Group(AUTHENTICATED)]),
        cluster_role_binding("system:basic-user", &[Group(AUTHENTICATED)]),
        cluster_role_binding(
            "system:public-info-viewer",
            &[Group(AUTHENTICATED), Group(UNAUTHENTICATED)],
        ),
        // Everything in here is also in the tokens that service accounts carry.
        cluster_role_binding("system:service-account-issuer-discovery", &[Group(SERVICE_ACCOUNTS)]),
    ]
}

const PUBLIC_URLS: &[&str] = &["/livez", "/readyz", "/healthz", "/version", "/version/"];

const DISCOVERY_URLS: &[&str] = &[
    "/livez",
    "/readyz",
    "/healthz",
    "/version",
    "/version/",
    "/openapi",
    "/openapi/*",
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
];

const MONITORING_URLS: &[&str] = &[
    "/metrics",
    "/metrics/slis",
    "/livez",
    "/readyz",
    "/healthz",
    "/livez/*",
    "/readyz/*",
    "/healthz/*",
];

const ISSUER_URLS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
];

/// A role that is the sum of all that carry its label, and perhaps part of another sum.
fn aggregated(name: &str, part_of: Option<&str>) -> Value {
    let mut role = object("ClusterRole", name);
    if let Some(sum) = part_of {
        role["metadata"]["labels"][label(sum)] = "true".into();
    }
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {label(name): "true"}}]});
    role["rules"] = json!([]);
    role
}

fn part_of(sum: &str, rules: &[PolicyRule]) -> Value {
    let mut role = cluster_role(&format!("system:aggregate-to-{sum}"), rules);
    role["metadata"]["labels"][label(sum)] = "true".into();
    role
}

fn label(sum: &str) -> String {
    format!("{GROUP}/aggregate-to-{sum}")
}

fn admin_rules() -> Vec<PolicyRule> {
    vec![
        on(&["create"], AUTHORIZATION, &["localsubjectaccessreviews"]),
        on(READ_WRITE, GROUP, &["roles", "rolebindings"]),
    ]
}

/// Secrets and the like are read by editors, not viewers: they lead to more rights.
fn edit_rules() -> Vec<PolicyRule> {
    let mut rules = edit_core_rules();
    rules.extend([
        on_groups(WRITE, &[CORE, EVENTS], &["events"]),
        on(
            WRITE,
            APPS,
            &[
                "statefulsets",
                "statefulsets/scale",
                "daemonsets",
                "deployments",
                "deployments/scale",
                "deployments/rollback",
                "replicasets",
                "replicasets/scale",
            ],
        ),
        on(WRITE, AUTOSCALING, &["horizontalpodautoscalers"]),
        on(WRITE, BATCH, &["jobs", "cronjobs"]),
        on(
            WRITE,
            EXTENSIONS,
            &[
                "daemonsets",
                "deployments",
                "deployments/scale",
                "deployments/rollback",
                "ingresses",
                "replicasets",
                "replicasets/scale",
                "replicationcontrollers/scale",
                "networkpolicies",
            ],
        ),
        on(WRITE, POLICY, &["poddisruptionbudgets"]),
        on(WRITE, NETWORKING, &["networkpolicies", "ingresses"]),
        on(READ_WRITE, COORDINATION, &["leases"]),
        on(WRITE, RESOURCE, &["resourceclaims", "resourceclaimtemplates"]),
    ]);
    rules
}

fn edit_core_rules() -> Vec<PolicyRule> {
    let pod_access = ["pods/attach", "pods/proxy", "pods/exec", "pods/portforward"];
    vec![
        on(READ, CORE, &[&pod_access[..], &["secrets", "services/proxy"]].concat()),
        on(&["impersonate"], CORE, &["serviceaccounts"]),
        on(WRITE, CORE, &[&["pods"], &pod_access[..]].concat()),
        on(&["create"], CORE, &["pods/eviction"]),
        on(
            WRITE,
            CORE,
            &[
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "serviceaccounts",
                "services",
                "services/proxy",
                "persistentvolumeclaims",
                "configmaps",
                "secrets",
            ],
        ),
        on(&["create"], CORE, &["serviceaccounts/token"]),
    ]
}

fn view_rules() -> Vec<PolicyRule> {
    let mut rules = view_core_rules();
    rules.extend([
        on(READ, DISCOVERY, &["endpointslices"]),
        on(
            READ,
            APPS,
            &[
                "controllerrevisions",
                "statefulsets",
                "statefulsets/status",
                "statefulsets/scale",
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/status",
                "deployments/scale",
                "replicasets",
                "replicasets/status",
                "replicasets/scale",
            ],
        ),
        on(READ, AUTOSCALING, &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
        on(READ, BATCH, &["jobs", "cronjobs", "cronjobs/status", "jobs/status"]),
        on(
            READ,
            EXTENSIONS,
            &[
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/scale",
                "deployments/status",
                "ingresses",
                "ingresses/status",
                "replicasets",
                "replicasets/scale",
                "replicasets/status",
                "replicationcontrollers/scale",
                "networkpolicies",
            ],
        ),
        on(READ, POLICY, &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
        on(READ, NETWORKING, &["networkpolicies", "ingresses", "ingresses/status"]),
        on(READ, RESOURCE, &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"]),
    ]);
    rules
}

fn view_core_rules() -> Vec<PolicyRule> {
    vec![
        on(
            READ,
            CORE,
            &[
                "pods",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "serviceaccounts",
                "services",
                "services/status",
                "endpoints",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "configmaps",
            ],
        ),
        on(
            READ,
            CORE,
            &[
                "limitranges",
                "resourcequotas",
                "bindings",
                "pods/status",
                "resourcequotas/status",
                "namespaces/status",
                "replicationcontrollers/status",
                "pods/log",
            ],
        ),
        // Bound in a namespace, this means that namespace alone.
        on(READ, CORE, &["namespaces"]),
        on_groups(READ, &[CORE, EVENTS], &["events"]),
    ]
}
