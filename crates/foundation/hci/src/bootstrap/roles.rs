//! Roles of a fresh cluster: for all users, for the REST API, and for guest clusters.

use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

pub(super) fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = public_reader().into();
    objects.extend(authenticated());
    objects.extend(tenant_roles());
    objects.extend(password_keeper());
    objects.extend([cloud_provider(), csi_driver()]);
    objects.extend(PROJECT_ROLES.iter().map(role_template));
    objects
}

/// A role of a namespace and its binding to one subject.
fn role(namespace: &str, name: &str, rule: &Value, subject: (&str, &str)) -> [Value; 2] {
    let metadata = json!({"name": name, "namespace": namespace});
    let role = json!({
        "apiVersion": API_VERSION, "kind": "Role", "metadata": metadata, "rules": [rule],
    });
    let binding = json!({
        "apiVersion": API_VERSION, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": subject.0, "name": subject.1}],
    });
    [role, binding]
}

/// All authenticated users may use what is in the namespace for that.
fn public_reader() -> [Value; 2] {
    let resources = [
        "virtualmachineimages",
        "virtualmachinetemplates",
        "virtualmachinetemplateversions",
        "keypairs",
    ];
    let rule = json!({
        "apiGroups": ["harvesterhci.io"], "resources": resources, "verbs": ["get", "list", "watch"],
    });
    let subject = ("Group", "system:authenticated");
    role("harvester-public", "harvesterhci.io:public-reader", &rule, subject)
}

/// Settings that every client may read. The CSI driver of a guest cluster does not start without
/// the version of the server, and the machine driver asks for it before it creates a machine.
const PUBLIC_SETTINGS: &[&str] = &[
    "server-version",
    "default-storage-class",
    "harvester-csi-ccm-versions",
    "default-vm-termination-grace-period-seconds",
];

/// Objects outside of their namespaces that all clients may read.
fn authenticated() -> [Value; 2] {
    let name = "harvester-authenticated";
    let read = |group: &str, resource: &str, names: &[&str]| {
        json!({
            "apiGroups": [group], "resources": [resource], "resourceNames": names,
            "verbs": ["get", "watch"],
        })
    };
    let networks = ("network.harvesterhci.io", &["clusternetworks"][..], READ);
    let mut role = cluster_role(name, &[networks]);
    if let Some(rules) = role["rules"].as_array_mut() {
        rules.push(read("harvesterhci.io", "settings", PUBLIC_SETTINGS));
        rules.push(read("", "namespaces", &["harvester-public"]));
    }
    let binding = json!({
        "apiVersion": API_VERSION, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": "system:authenticated"}],
    });
    [role, binding]
}

/// Kinds of Harvester that members of a namespace use in it.
const TENANT_RESOURCES: &[&str] = &[
    "keypairs",
    "virtualmachineimages",
    "virtualmachinetemplates",
    "virtualmachinetemplateversions",
    "virtualmachinebackups",
    "virtualmachinerestores",
    "schedulevmbackups",
];

/// Parts of the roles `admin`, `edit` and `view`, under Harvester's names. Harvester's `view` also
/// reads Secrets, which Kubernetes withholds from viewers on purpose; so does this one.
fn tenant_roles() -> [Value; 2] {
    let networks = ("k8s.cni.cncf.io", &["network-attachment-definitions"][..], READ);
    let part = |name: &str, verbs, sums: &[&str]| {
        let rules = [
            ("harvesterhci.io", TENANT_RESOURCES, verbs),
            networks,
            // Pools are of administrators: they may be for networks of any namespace.
            ("network.harvesterhci.io", &["ippools"], READ),
            ("network.harvesterhci.io", &["virtualmachinenetworkconfigs"], verbs),
            // As NetworkPolicies: they concern guests of the namespace only.
            ("k8s.cni.cncf.io", &["multi-networkpolicies"], verbs),
            // Administrators write them; they concern the guests of every namespace.
            ("policy.networking.k8s.io", &["clusternetworkpolicies"], READ),
        ];
        let mut role = cluster_role(name, &rules);
        for sum in sums {
            role["metadata"]["labels"][format!("{GROUP}/aggregate-to-{sum}")] = "true".into();
        }
        role
    };
    [
        part("harvesterhci.io:edit", &["*"][..], &["admin", "edit"]),
        part("harvesterhci.io:view", READ, &["view"]),
    ]
}

/// The REST API reads and writes the passwords of local users, in their namespace only.
fn password_keeper() -> [Value; 2] {
    let rule = json!({
        "apiGroups": [""], "resources": ["secrets"],
        "verbs": ["get", "list", "create", "patch", "delete"],
    });
    let name = "system:sheaf-steve";
    role("cattle-local-user-passwords", name, &rule, ("User", name))
}

fn cluster_role(name: &str, rules: &[(&str, &[&str], &[&str])]) -> Value {
    let rules: Vec<Value> = rules
        .iter()
        .map(|(group, resources, verbs)| {
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        })
        .collect();
    json!({
        "apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": {"name": name},
        "rules": rules,
    })
}

const READ: &[&str] = &["get", "list", "watch"];

/// The rights of the cloud provider and the CSI driver of a guest cluster in the namespace of its
/// machines.
fn cloud_provider() -> Value {
    let volumes = [
        "virtualmachines/addvolume",
        "virtualmachines/removevolume",
        "virtualmachineinstances/addvolume",
        "virtualmachineinstances/removevolume",
        "virtualmachineinstances/guestosinfo",
    ];
    cluster_role(
        "harvesterhci.io:cloudprovider",
        &[
            (
                "loadbalancer.harvesterhci.io",
                &["loadbalancers"],
                &["get", "list", "watch", "update", "create", "delete"],
            ),
            ("subresources.kubevirt.io", &volumes, &["get", "update"]),
            ("kubevirt.io", &["virtualmachines", "virtualmachineinstances"], READ),
            ("kubevirt.io", &["virtualmachines"], &["patch"]),
            ("", &["pods"], READ),
            ("", &["persistentvolumeclaims", "persistentvolumeclaims/status"], &["*"]),
            ("snapshot.storage.k8s.io", &["volumesnapshots", "volumesnapshots/status"], &["*"]),
            ("harvesterhci.io", &["volumeremotebackups", "volumeremoterestores"], &["*"]),
        ],
    )
}

/// The rights of the CSI driver of a guest cluster in the whole cluster: to read. Harvester's role
/// also writes machines and snapshots of all namespaces. Its credentials lie in a guest cluster, so
/// what the driver writes is in the role that is bound in the namespace of its machines.
fn csi_driver() -> Value {
    let settings = json!({
        "apiGroups": ["harvesterhci.io"], "resources": ["settings"], "verbs": ["get", "list"],
        "resourceNames": ["csi-online-expand-validation", "csi-driver-config"],
    });
    let mut role = cluster_role(
        "harvesterhci.io:csi-driver",
        &[
            ("storage.k8s.io", &["storageclasses", "volumeattachments"], READ),
            ("longhorn.io", &["volumes", "volumes/status"], &["get", "list"]),
            ("snapshot.storage.k8s.io", &["volumesnapshotcontents", "volumesnapshotclasses"], READ),
        ],
    );
    if let Some(rules) = role["rules"].as_array_mut() {
        rules.push(settings);
    }
    role
}

/// Name, name for people, and the cluster role that a member of a project gets.
const PROJECT_ROLES: [(&str, &str, &str); 3] = [
    ("project-owner", "Project Owner", "admin"),
    ("project-member", "Project Member", "edit"),
    ("read-only", "Read-only", "view"),
];

fn role_template((name, display_name, role): &(&str, &str, &str)) -> Value {
    json!({
        "apiVersion": "management.cattle.io/v3", "kind": "RoleTemplate",
        "metadata": {"name": name}, "displayName": display_name, "context": "project",
        "description": format!("Cluster role {role} in the namespaces of a project"),
        "builtin": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether one of the rules of the role allows the request.
    fn allows(role: &Value, group: &str, resource: &str, name: &str, verb: &str) -> bool {
        let has = |rule: &Value, field: &str, wanted: &str| {
            let values = rule[field].as_array();
            values.is_some_and(|values| values.iter().any(|value| value == wanted || value == "*"))
        };
        role["rules"].as_array().into_iter().flatten().any(|rule| {
            has(rule, "apiGroups", group)
                && has(rule, "resources", resource)
                && has(rule, "verbs", verb)
                && (rule["resourceNames"].is_null() || has(rule, "resourceNames", name))
        })
    }

    /// Its credentials are in a guest cluster, whose owner is a tenant.
    #[test]
    fn the_driver_of_a_guest_cluster_changes_nothing_outside_of_its_namespace() {
        let verbs = |role: &Value| -> Vec<String> {
            let rules = role["rules"].as_array().unwrap().iter();
            let verbs = rules.flat_map(|rule| rule["verbs"].as_array().unwrap().clone());
            verbs.map(|verb| verb.as_str().unwrap().to_owned()).collect()
        };
        let driver = csi_driver();
        assert!(verbs(&driver).iter().all(|verb| READ.contains(&verb.as_str())), "{driver}");
        let snapshots = ("snapshot.storage.k8s.io", "volumesnapshots");
        assert!(!allows(&driver, snapshots.0, snapshots.1, "s", "get"), "{driver}");
        let own = cloud_provider();
        assert!(allows(&own, snapshots.0, snapshots.1, "s", "create"), "{own}");
        assert!(allows(&own, "kubevirt.io", "virtualmachines", "vm", "patch"), "{own}");
    }

    #[test]
    fn every_client_reads_the_version_of_the_server() {
        let objects = objects();
        let of = |kind: &str| {
            objects.iter().find(|object| {
                object["kind"] == kind && object["metadata"]["name"] == "harvester-authenticated"
            })
        };
        let role = of("ClusterRole").unwrap();
        for (group, resource, name, verb, expected) in [
            ("harvesterhci.io", "settings", "server-version", "get", true),
            ("harvesterhci.io", "settings", "backup-target", "get", false),
            ("harvesterhci.io", "settings", "server-version", "update", false),
            ("network.harvesterhci.io", "clusternetworks", "mgmt", "list", true),
            ("", "namespaces", "harvester-public", "get", true),
            ("", "namespaces", "default", "get", false),
        ] {
            let allowed = allows(role, group, resource, name, verb);
            assert_eq!(allowed, expected, "{verb} {resource}.{group} {name}");
        }
        let binding = of("ClusterRoleBinding").unwrap();
        assert_eq!(binding["subjects"][0]["name"], "system:authenticated");
    }
}
