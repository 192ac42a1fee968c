//! The rights of the controllers of replicated volumes, images, snapshots and backups.

use super::super::{CORE, STORAGE, on};
use super::{CDI, KUBEVIRT, LONGHORN};
use crate::rbac::rule::PolicyRule;

const PATCH: &[&str] = &["patch"];
const GET_LIST: &[&str] = &["get", "list"];
const GET_PATCH: &[&str] = &["get", "patch"];
const ALL: &[&str] = &["get", "list", "create", "patch", "delete"];
const HARVESTER: &str = "harvesterhci.io";
const VM_SNAPSHOT: &str = "snapshot.kubevirt.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";

pub(super) fn rules() -> Vec<PolicyRule> {
    let mut rules = core();
    rules.extend(longhorn());
    rules.extend(machines());
    rules
}

fn core() -> Vec<PolicyRule> {
    vec![
        on(&["get", "create"], CORE, &["namespaces"]),
        on(GET_LIST, CORE, &["nodes"]),
        on(&["get", "list", "create", "patch"], CORE, &["persistentvolumeclaims"]),
        on(PATCH, CORE, &["persistentvolumeclaims/status"]),
        on(&["get", "list", "create", "patch", "delete"], CORE, &["persistentvolumes"]),
        // Keys of backup targets; secrets of machines are backed up and restored with them.
        on(&["get", "create", "patch", "delete"], CORE, &["secrets"]),
        on(&["get", "list", "create", "delete"], STORAGE, &["storageclasses"]),
        on(GET_LIST, SNAPSHOT, &["volumesnapshotclasses"]),
        on(ALL, SNAPSHOT, &["volumesnapshots", "volumesnapshotcontents"]),
        on(PATCH, SNAPSHOT, &["volumesnapshots/status", "volumesnapshotcontents/status"]),
        on(&["get", "delete"], CDI, &["datavolumes"]),
    ]
}

fn longhorn() -> Vec<PolicyRule> {
    vec![
        on(
            ALL,
            LONGHORN,
            &["volumes", "engines", "replicas", "snapshots", "backups", "volumeattachments"],
        ),
        on(&["get", "create", "patch", "delete"], LONGHORN, &["backingimages"]),
        on(GET_PATCH, LONGHORN, &["backuptargets", "recurringjobs"]),
        on(GET_LIST, LONGHORN, &["nodes", "settings"]),
        on(
            PATCH,
            LONGHORN,
            &[
                "volumes/status",
                "engines/status",
                "snapshots/status",
                "backups/status",
                "volumeattachments/status",
                "backuptargets/status",
                "recurringjobs/status",
                "nodes/status",
            ],
        ),
    ]
}

fn machines() -> Vec<PolicyRule> {
    vec![
        on(&["get", "list", "patch"], KUBEVIRT, &["virtualmachineinstances"]),
        on(&["get", "create", "patch"], KUBEVIRT, &["virtualmachines"]),
        // A machine says which snapshot or restore it is part of.
        on(PATCH, KUBEVIRT, &["virtualmachines/status"]),
        // A machine is stopped before it is restored.
        on(&["update"], "subresources.kubevirt.io", &["virtualmachines/stop"]),
        on(&["get", "delete"], "clone.kubevirt.io", &["virtualmachineclones"]),
        on(PATCH, "clone.kubevirt.io", &["virtualmachineclones/status"]),
        on(
            &["get", "create", "patch", "delete"],
            VM_SNAPSHOT,
            &["virtualmachinesnapshots", "virtualmachinerestores"],
        ),
        on(&["get", "create", "patch", "delete"], VM_SNAPSHOT, &["virtualmachinesnapshotcontents"]),
        on(
            PATCH,
            VM_SNAPSHOT,
            &[
                "virtualmachinesnapshots/status",
                "virtualmachinesnapshotcontents/status",
                "virtualmachinerestores/status",
            ],
        ),
        on(GET_PATCH, HARVESTER, &["schedulevmbackups", "settings", "virtualmachineimages"]),
        on(ALL, HARVESTER, &["virtualmachinebackups"]),
        on(GET_PATCH, HARVESTER, &["virtualmachinerestores"]),
    ]
}
