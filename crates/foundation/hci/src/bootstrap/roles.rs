//! Roles of a fresh cluster: for everybody, for the REST API, and for guest clusters.

use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

pub(super) fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = public_reader().into();
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

/// Everybody who is authenticated may use what is in the namespace for that.
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
        let rules = [("harvesterhci.io", TENANT_RESOURCES, verbs), networks];
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

/// What the cloud provider of a guest cluster does in the namespace of its machines.
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
            ("", &["pods"], READ),
            ("", &["persistentvolumeclaims", "persistentvolumeclaims/status"], &["*"]),
        ],
    )
}

/// What the CSI driver of a guest cluster reads and makes in the whole cluster.
fn csi_driver() -> Value {
    let snapshots = [
        "volumesnapshots",
        "volumesnapshotcontents",
        "volumesnapshotclasses",
        "volumesnapshots/status",
        "volumesnapshotcontents/status",
    ];
    let settings = json!({
        "apiGroups": ["harvesterhci.io"], "resources": ["settings"], "verbs": ["get", "list"],
        "resourceNames": ["csi-online-expand-validation", "csi-driver-config"],
    });
    let mut role = cluster_role(
        "harvesterhci.io:csi-driver",
        &[
            ("storage.k8s.io", &["storageclasses", "volumeattachments"], READ),
            ("harvesterhci.io", &["volumeremotebackups", "volumeremoterestores"], &["*"]),
            ("longhorn.io", &["volumes", "volumes/status"], &["get", "list"]),
            ("snapshot.storage.k8s.io", &snapshots, &["*"]),
            ("kubevirt.io", &["virtualmachines"], &["patch"]),
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
