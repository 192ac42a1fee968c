//! The initial objects of a cluster, besides the definitions: namespaces, roles, the configuration
//! objects, storage classes, and the right to read versions.

mod roles;

use serde_json::{Value, json};

use self::roles::{OPEN, bind, roles};

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

/// The operator of KubeVirt, whose work this server does itself. Tools check that it is there and
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
