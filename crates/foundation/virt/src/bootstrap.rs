//! The initial objects of a cluster, besides the definitions: namespaces, roles, the configuration
//! objects, storage classes, and the right to read versions.

use serde_json::{Value, json};

/// The version of KubeVirt whose API this is.
pub const VERSION: &str = "v1.9.0";

/// Names of the configuration objects: the KubeVirt object's namespace and name.
pub const KUBEVIRT: (&str, &str) = ("kubevirt", "kubevirt");

/// The name of the Deployment of KubeVirt's operator, in the namespace of the KubeVirt object.
pub const OPERATOR: &str = "virt-operator";

/// The objects in the order of their creation. They are created if they are missing and then
/// belong to the administrator. `architecture` is that of the server (`amd64`), `now` a time.
pub fn first_objects(architecture: &str, now: &str) -> Vec<Value> {
    let mut objects = vec![namespace("kubevirt"), namespace("cdi")];
    objects.extend(roles());
    objects.extend(OPEN.iter().map(|role| bind(role)));
    objects.push(kubevirt(architecture, now));
    objects.push(operator(now));
    objects.push(cdi(now));
    objects.push(cdi_config());
    for (name, mode) in [("local", "WaitForFirstConsumer"), ("local-immediate", "Immediate")] {
        objects.push(storage_class(name, mode));
        objects.push(storage_profile(name));
    }
    objects
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

const READ: &[&str] = &["get", "list", "watch"];
const EDIT: &[&str] = &["get", "delete", "create", "update", "patch", "list", "watch"];
const ALL: &[&str] =
    &["get", "delete", "create", "update", "patch", "list", "watch", "deletecollection"];

const SUBRESOURCES: &str = "subresources.kubevirt.io";

/// Reading streams and facts of guests.
const LOOK: &[&str] = &[
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

fn roles() -> Vec<Value> {
    let mut admin = vec![rule(SUBRESOURCES, LOOK, &["get"])];
    admin.push(rule(SUBRESOURCES, &["virtualmachineinstances/vnc/screenshot"], &["get"]));
    let mut edit = vec![rule(SUBRESOURCES, LOOK, &["get"])];
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

/// Roles that everybody who is known has: to ask for versions, and to read the configuration
/// of imports.
const OPEN: &[&str] =
    &["kubevirt.io:default", "instancetype.kubevirt.io:view", "cdi.kubevirt.io:config-reader"];

fn bind(role: &str) -> Value {
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

/// The KubeVirt object, already deployed: there is no operator.
fn kubevirt(architecture: &str, now: &str) -> Value {
    let (namespace, name) = KUBEVIRT;
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        })
    };
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "certificateRotateStrategy": {},
            "configuration": {"developerConfiguration": {}},
            "customizeComponents": {},
            "imagePullPolicy": "IfNotPresent",
            "workloadUpdateStrategy": {},
        },
        "status": {
            "phase": "Deployed",
            "operatorVersion": VERSION,
            "targetKubeVirtVersion": VERSION,
            "observedKubeVirtVersion": VERSION,
            "defaultArchitecture": architecture,
            "observedGeneration": 1,
            "outdatedVirtualMachineInstanceWorkloads": 0,
            "conditions": [
                condition("Available", "True", "AllComponentsReady", "All components are ready."),
                condition("Progressing", "False", "AllComponentsReady", "All components are ready."),
                condition("Degraded", "False", "AllComponentsReady", "All components are ready."),
                condition("Created", "True", "AllResourcesCreated", "All resources were created."),
            ],
        },
    })
}

/// The operator of KubeVirt, whose work this server does itself. Tools look whether it is there and
/// ready before they do anything else.
fn operator(now: &str) -> Value {
    let (namespace, _) = KUBEVIRT;
    let labels = json!({"kubevirt.io": "virt-operator"});
    let condition = json!({
        "type": "Available",
        "status": "True",
        "reason": "PartOfTheServer",
        "message": "The server does the work of this operator itself; no pod runs.",
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": OPERATOR,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"sheaf.io/description": "Part of the server; shows that it is installed."},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": OPERATOR,
                    "image": format!("sheaf:{VERSION}"),
                    "env": [{"name": "KUBEVIRT_VERSION", "value": VERSION}],
                }]},
            },
        },
        "status": {
            "observedGeneration": 1,
            "replicas": 1,
            "updatedReplicas": 1,
            "readyReplicas": 1,
            "availableReplicas": 1,
            "conditions": [condition],
        },
    })
}

fn cdi(now: &str) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind,
            "status": status,
            "reason": "DeployCompleted",
            "message": "Deployment Completed",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    };
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "CDI",
        "metadata": {"name": "cdi"},
        "spec": {"config": {"featureGates": ["HonorWaitForFirstConsumer"]}, "imagePullPolicy": "IfNotPresent"},
        "status": {
            "phase": "Deployed",
            "conditions": [
                condition("Available", "True"),
                condition("Progressing", "False"),
                condition("Degraded", "False"),
            ],
        },
    })
}

/// The server fills in the address of the upload proxy when it knows its own.
fn cdi_config() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "CDIConfig",
        "metadata": {"name": "config"},
        "spec": {"featureGates": ["HonorWaitForFirstConsumer"]},
        "status": {
            "filesystemOverhead": {"global": "0.06"},
            "preallocation": false,
            "scratchSpaceStorageClass": "local",
        },
    })
}

fn storage_class(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": name,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "false"},
        },
        "provisioner": "sheaf.io/local",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": mode,
        "allowVolumeExpansion": true,
    })
}

fn storage_profile(class: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "StorageProfile",
        "metadata": {"name": class},
        "spec": {},
        "status": {
            "storageClass": class,
            "provisioner": "sheaf.io/local",
            "cloneStrategy": "copy",
            "dataImportCronSourceFormat": "pvc",
            "claimPropertySets": [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}],
        },
    })
}
