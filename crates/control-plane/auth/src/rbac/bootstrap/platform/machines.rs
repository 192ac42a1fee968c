//! The rights of the controllers of virtual machines, their disks and their migrations.

use super::super::{APPS, CORE, NETWORKING, STORAGE, on};
use super::{CDI, KUBEVIRT, LONGHORN};
use crate::rbac::rule::PolicyRule;

const GET: &[&str] = &["get"];
const LIST: &[&str] = &["list"];
const PATCH: &[&str] = &["patch"];
const GET_PATCH: &[&str] = &["get", "patch"];
const ALL: &[&str] = &["get", "list", "create", "patch", "delete"];
const HARVESTER: &str = "harvesterhci.io";
const INSTANCE_TYPES: &[&str] = &[
    "virtualmachineinstancetypes",
    "virtualmachineclusterinstancetypes",
    "virtualmachinepreferences",
    "virtualmachineclusterpreferences",
];

pub(super) fn rules() -> Vec<PolicyRule> {
    let mut rules = core();
    rules.extend(disks());
    rules.extend(machines());
    rules
}

fn core() -> Vec<PolicyRule> {
    vec![
        on(GET, CORE, &["namespaces"]),
        on(&["get", "list", "patch"], CORE, &["nodes"]),
        on(PATCH, CORE, &["nodes/status"]),
        on(LIST, CORE, &["resourcequotas", "limitranges"]),
        on(&["get", "list", "create", "delete"], CORE, &["pods"]),
        on(PATCH, CORE, &["pods/status"]),
        on(&["create"], CORE, &["pods/eviction"]),
        // Tokens of exports.
        on(&["get", "create"], CORE, &["secrets"]),
        on(ALL, APPS, &["controllerrevisions"]),
        // The operator of KubeVirt, which is reported as installed.
        on(GET, APPS, &["deployments"]),
        on(PATCH, APPS, &["deployments/status"]),
        on(ALL, NETWORKING, &["ipaddresses"]),
        on(&["get", "list"], STORAGE, &["storageclasses"]),
    ]
}

fn disks() -> Vec<PolicyRule> {
    vec![
        on(ALL, CORE, &["persistentvolumeclaims"]),
        on(PATCH, CORE, &["persistentvolumeclaims/status", "persistentvolumes/status"]),
        on(&["get", "list", "patch"], CORE, &["persistentvolumes"]),
        on(&["get", "list", "patch"], CDI, &["cdis"]),
        on(GET_PATCH, CDI, &["cdiconfigs", "dataimportcrons"]),
        on(&["get", "create", "patch"], CDI, &["datasources"]),
        on(ALL, CDI, &["datavolumes"]),
        on(PATCH, CDI, &["datavolumes/status", "storageprofiles/status"]),
        on(&["get", "create", "delete"], CDI, &["storageprofiles"]),
        on(GET, CDI, &["volumeimportsources", "volumeuploadsources", "volumeclonesources"]),
        on(&["get", "list"], LONGHORN, &["engines"]),
        on(LIST, LONGHORN, &["replicas"]),
        on(LIST, "snapshot.storage.k8s.io", &["volumesnapshotclasses"]),
        on(GET, "snapshot.storage.k8s.io", &["volumesnapshots"]),
    ]
}

fn machines() -> Vec<PolicyRule> {
    let export = "export.kubevirt.io";
    let pool = "pool.kubevirt.io";
    let snapshot = "snapshot.kubevirt.io";
    let template = "template.kubevirt.io";
    vec![
        on(ALL, KUBEVIRT, &["virtualmachines", "virtualmachineinstances"]),
        on(ALL, KUBEVIRT, &["virtualmachineinstancemigrations"]),
        on(GET, KUBEVIRT, &["virtualmachineinstancereplicasets"]),
        on(
            PATCH,
            KUBEVIRT,
            &[
                "virtualmachines/status",
                "virtualmachineinstancemigrations/status",
                "virtualmachineinstancereplicasets/status",
                "kubevirts/status",
            ],
        ),
        on(&["get", "list"], KUBEVIRT, &["kubevirts"]),
        // Maintenance stops and starts machines.
        on(
            &["update"],
            "subresources.kubevirt.io",
            &["virtualmachines/start", "virtualmachines/stop"],
        ),
        on(LIST, "migrations.kubevirt.io", &["migrationpolicies"]),
        on(GET, "instancetype.kubevirt.io", INSTANCE_TYPES),
        on(&["get", "delete"], export, &["virtualmachineexports"]),
        on(PATCH, export, &["virtualmachineexports/status"]),
        on(GET, pool, &["virtualmachinepools"]),
        on(PATCH, pool, &["virtualmachinepools/status"]),
        on(GET, snapshot, &["virtualmachinesnapshotcontents"]),
        on(&["get", "create", "delete"], snapshot, &["virtualmachinesnapshots"]),
        on(&["get", "delete"], template, &["virtualmachinetemplaterequests"]),
        on(&["get", "create"], template, &["virtualmachinetemplates"]),
        on(
            PATCH,
            template,
            &["virtualmachinetemplaterequests/status", "virtualmachinetemplates/status"],
        ),
        on(GET_PATCH, HARVESTER, &["keypairs"]),
        on(LIST, HARVESTER, &["virtualmachineimages"]),
        on(
            &["get", "list", "patch"],
            HARVESTER,
            &["virtualmachinetemplates", "virtualmachinetemplateversions"],
        ),
        on(PATCH, HARVESTER, &["virtualmachinetemplates/status"]),
    ]
}
