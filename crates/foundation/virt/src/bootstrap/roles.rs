//! The roles of users: what they may do with machines and disks, by admin, edit and view.

use serde_json::{Value, json};

const READ: &[&str] = &["get", "list", "watch"];
const EDIT: &[&str] = &["get", "delete", "create", "update", "patch", "list", "watch"];
const ALL: &[&str] =
    &["get", "delete", "create", "update", "patch", "list", "watch", "deletecollection"];

const SUBRESOURCES: &str = "subresources.kubevirt.io";

/// Reading streams and facts of guests.
const READ_SUBRESOURCES: &[&str] = &[
    "virtualmachineinstances/console",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/sev/fetchcertchain",
    "virtualmachineinstances/sev/querylaunchmeasurement",
    "virtualmachineinstances/usbredir",
    "virtualmachines/objectgraph",
    "virtualmachineinstances/objectgraph",
    "virtualmachines/expand-spec",
    "virtualmachines/portforward",
];

const VIEW: &[&str] = &[
    "virtualmachines/expand-spec",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/sev/fetchcertchain",
    "virtualmachineinstances/sev/querylaunchmeasurement",
    "virtualmachines/objectgraph",
    "virtualmachineinstances/objectgraph",
];

/// The group of actions on templates.
const TEMPLATES: &str = "subresources.template.kubevirt.io";
const TEMPLATE_ACTS: &[&str] =
    &["virtualmachinetemplates/create", "virtualmachinetemplates/process"];

/// Acting on guests and machines.
const ACT: &[&str] = &[
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/softreboot",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/sev/setupsession",
    "virtualmachineinstances/sev/injectlaunchsecret",
    "virtualmachineinstances/evacuate/cancel",
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachines/addvolume",
    "virtualmachines/removevolume",
    "virtualmachines/memorydump",
    "virtualmachines/removememorydump",
    "virtualmachines/evacuate/cancel",
    "expand-vm-spec",
];

/// Groups and the resources in them that belong to the owners of a namespace.
const OWN: &[(&str, &[&str])] = &[
    (
        "kubevirt.io",
        &[
            "virtualmachines",
            "virtualmachineinstances",
            "virtualmachineinstancepresets",
            "virtualmachineinstancereplicasets",
        ],
    ),
    (
        "snapshot.kubevirt.io",
        &["virtualmachinesnapshots", "virtualmachinesnapshotcontents", "virtualmachinerestores"],
    ),
    ("export.kubevirt.io", &["virtualmachineexports"]),
    ("clone.kubevirt.io", &["virtualmachineclones"]),
    ("template.kubevirt.io", &["virtualmachinetemplates", "virtualmachinetemplaterequests"]),
    ("backup.kubevirt.io", &["virtualmachinebackups", "virtualmachinebackuptrackers"]),
    (
        "instancetype.kubevirt.io",
        &[
            "virtualmachineinstancetypes",
            "virtualmachineclusterinstancetypes",
            "virtualmachinepreferences",
            "virtualmachineclusterpreferences",
        ],
    ),
    ("pool.kubevirt.io", &["virtualmachinepools"]),
];

const MIGRATIONS: &[&str] = &["virtualmachineinstancemigrations"];
const POLICIES: (&str, &[&str]) = ("migrations.kubevirt.io", &["migrationpolicies"]);

/// Recent usage of machines.
const SERIES: (&str, &[&str]) = ("metrics.sheaf.io", &["virtualmachineinstances/series"]);

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(name: &str, labels: &[(&str, &str)], rules: &[Value]) -> Value {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubevirt.io": ""}},
        "rules": rules,
    });
    for (label, value) in labels {
        role["metadata"]["labels"][*label] = (*value).into();
    }
    role
}

/// KubeVirt's roles and CDI's.
pub(super) fn roles() -> Vec<Value> {
    let mut admin = vec![rule(SUBRESOURCES, READ_SUBRESOURCES, &["get"])];
    admin.push(rule(SUBRESOURCES, &["virtualmachineinstances/vnc/screenshot"], &["get"]));
    let mut edit = vec![rule(SUBRESOURCES, READ_SUBRESOURCES, &["get"])];
    let mut view = vec![rule("kubevirt.io", &["kubevirts"], &["get", "list"])];
    view.push(rule(SUBRESOURCES, VIEW, &["get"]));
    view.push(rule(SUBRESOURCES, &["expand-vm-spec"], &["update"]));
    for rules in [&mut admin, &mut edit] {
        rules.push(rule(SUBRESOURCES, ACT, &["update"]));
        rules.push(rule(TEMPLATES, TEMPLATE_ACTS, &["create"]));
    }
    for (rules, verbs) in [(&mut admin, ALL), (&mut edit, EDIT), (&mut view, READ)] {
        rules.extend(OWN.iter().map(|(group, resources)| rule(group, resources, verbs)));
        rules.push(rule("kubevirt.io", MIGRATIONS, READ));
        rules.push(rule(POLICIES.0, POLICIES.1, READ));
        rules.push(rule(SERIES.0, SERIES.1, &["get"]));
    }
    edit.push(rule("kubevirt.io", &["kubevirts"], &["get", "list"]));
    let kept = ("kubernetes.io/bootstrapping", "rbac-defaults");
    let aggregate = "rbac.authorization.k8s.io/aggregate-to-";
    let mut roles: Vec<Value> = [("admin", &admin), ("edit", &edit), ("view", &view)]
        .into_iter()
        .map(|(name, rules)| {
            role(&format!("kubevirt.io:{name}"), &[(&format!("{aggregate}{name}"), "true")], rules)
        })
        .collect();
    roles.push(role(
        "kubevirt.io:migrate",
        &[],
        &[
            rule(SUBRESOURCES, &["virtualmachines/migrate"], &["update"]),
            rule("kubevirt.io", MIGRATIONS, ALL),
        ],
    ));
    roles.push(role(
        "kubevirt.io:default",
        &[kept],
        &[
            rule("kubevirt.io", &["kubevirts"], &["get", "list"]),
            rule(SUBRESOURCES, &["version", "guestfs"], &["get", "list"]),
        ],
    ));
    roles.push(role(
        "instancetype.kubevirt.io:view",
        &[],
        &[rule(
            "instancetype.kubevirt.io",
            &["virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences"],
            READ,
        )],
    ));
    roles.extend(storage_roles());
    roles
}

/// CDI's roles.
fn storage_roles() -> Vec<Value> {
    let all: &[&str] = &["datavolumes", "datasources", "dataimportcrons"];
    let own = |name: &str, verbs: &[&str]| {
        let mut rules = vec![rule("cdi.kubevirt.io", all, verbs)];
        if name != "view" {
            rules.push(rule("cdi.kubevirt.io", &["datavolumes/source"], &["create"]));
            rules.push(rule("upload.cdi.kubevirt.io", &["uploadtokenrequests"], &["*"]));
        }
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        role(&format!("cdi.kubevirt.io:{name}"), &[(&label, "true")], &rules)
    };
    let reader = rule("cdi.kubevirt.io", &["cdiconfigs", "storageprofiles"], READ);
    vec![
        own("admin", &["*"]),
        own("edit", &["*"]),
        own("view", READ),
        role("cdi.kubevirt.io:config-reader", &[], &[reader]),
    ]
}

/// Roles of all authenticated users: to ask for versions, and to read the configuration
/// of imports.
pub(super) const OPEN: &[&str] =
    &["kubevirt.io:default", "instancetype.kubevirt.io:view", "cdi.kubevirt.io:config-reader"];

pub(super) fn bind(role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role, "labels": {"kubevirt.io": ""}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Group",
            "name": "system:authenticated",
        }],
    })
}
