//! The rights that carrying out an action needs: those of the requests that the action sends. Pure.

use client::CatalogKind;

use super::possible;
use crate::rights::{AllowedNames, Rights};

const ACTIONS: &str = "subresources.kubevirt.io";
const HARVESTER: &str = "harvesterhci.io";
const KUBEVIRT: &str = "kubevirt.io";
const LONGHORN: &str = "longhorn.io";
const MIGRATIONS: &str = "virtualmachineinstancemigrations";
/// The one ResourceQuota of Harvester in a namespace.
const QUOTA: &str = "default-resource-quota";

/// One right.
#[derive(Debug, Clone, Copy)]
enum RequiredRight {
    /// A verb on the object of the action.
    Object(&'static str),
    /// `update` on a subresource of the machine or its instance.
    Subresource(&'static str),
    /// A verb on all objects of a resource, by its group and name.
    All(&'static str, &'static str, &'static str),
    /// A verb on the quota of the namespace.
    Quota(&'static str),
}

use RequiredRight::{All, Object, Quota, Subresource};

const PATCH: RequiredRight = Object("patch");
const UPDATE: RequiredRight = Object("update");
const GET_CLAIMS: RequiredRight = All("get", "", "persistentvolumeclaims");
const LIST_NODES: RequiredRight = All("list", "", "nodes");
const LIST_INSTANCES: RequiredRight = All("list", KUBEVIRT, "virtualmachineinstances");
const GET_INSTANCES: RequiredRight = All("get", KUBEVIRT, "virtualmachineinstances");

/// The objects of one kind with which a caller can carry out each action.
#[derive(Debug, Clone)]
pub(crate) struct ActionRights(Vec<(&'static str, AllowedNames)>);

impl ActionRights {
    pub(crate) fn of(kind: &CatalogKind, rights: &Rights) -> Self {
        let actions = possible::shown(kind).iter();
        Self(actions.map(|action| (*action, allowed(kind, action, rights))).collect())
    }

    pub(crate) fn allow(&self, action: &str, name: &str) -> bool {
        let own = self.0.iter().find(|(own, _)| *own == action);
        own.is_some_and(|(_, names)| names.contains(name))
    }

    /// Whether every action can be carried out with every object.
    pub(crate) fn are_complete(&self) -> bool {
        self.0.iter().all(|(_, names)| *names == AllowedNames::All)
    }
}

fn allowed(kind: &CatalogKind, action: &str, rights: &Rights) -> AllowedNames {
    let required = required(kind, action).iter().map(|right| match *right {
        Object(verb) => rights.names(verb, &kind.group, &kind.plural),
        Subresource(resource) => rights.names("update", ACTIONS, resource),
        All(verb, group, resource) => {
            AllowedNames::all_if(rights.names(verb, group, resource) == AllowedNames::All)
        }
        Quota(verb) => AllowedNames::all_if(rights.may(verb, HARVESTER, "resourcequotas", QUOTA)),
    });
    required.fold(AllowedNames::All, AllowedNames::and)
}

fn required(kind: &CatalogKind, action: &str) -> &'static [RequiredRight] {
    match (&*kind.group, &*kind.plural) {
        (KUBEVIRT, "virtualmachines") => of_machine(action),
        ("", "nodes") => of_node(action),
        ("", "persistentvolumeclaims") => of_claim(action),
        ("", "namespaces") => of_quota(action),
        // The class of the new claim is read.
        ("snapshot.storage.k8s.io", _) => &[
            All("create", "", "persistentvolumeclaims"),
            All("get", "storage.k8s.io", "storageclasses"),
        ],
        _ => &[UPDATE],
    }
}

fn of_machine(action: &str) -> &'static [RequiredRight] {
    match action {
        "start" => &[Subresource("virtualmachines/start")],
        "stop" | "forceStop" => &[Subresource("virtualmachines/stop")],
        "restart" => &[Subresource("virtualmachines/restart")],
        "softreboot" => &[Subresource("virtualmachineinstances/softreboot")],
        "pause" => &[Subresource("virtualmachineinstances/pause")],
        "unpause" => &[Subresource("virtualmachineinstances/unpause")],
        "backup" | "snapshot" => &[All("create", HARVESTER, "virtualmachinebackups")],
        "restore" => &[All("create", HARVESTER, "virtualmachinerestores")],
        "createTemplate" => &[
            All("create", HARVESTER, "virtualmachinetemplates"),
            All("create", HARVESTER, "virtualmachinetemplateversions"),
        ],
        "addVolume" | "storageMigration" | "cancelStorageMigration" => &[UPDATE, GET_CLAIMS],
        "ejectCdRomVolume" => &[UPDATE, All("delete", "", "persistentvolumeclaims")],
        "cpuAndMemoryHotplug" | "dismissInsufficientResourceQuota" => &[PATCH],
        "clone" => &[All("create", KUBEVIRT, "virtualmachines"), GET_CLAIMS],
        "findHotunpluggableNics" => &[Object("get")],
        "findMigratableNodes" => &[GET_INSTANCES, LIST_NODES],
        "migrate" => &[GET_INSTANCES, LIST_NODES, All("create", KUBEVIRT, MIGRATIONS)],
        "abortMigration" => {
            &[All("list", KUBEVIRT, MIGRATIONS), All("delete", KUBEVIRT, MIGRATIONS)]
        }
        "updateResourceQuota" | "deleteResourceQuota" => of_quota(action),
        _ => &[UPDATE],
    }
}

fn of_quota(action: &str) -> &'static [RequiredRight] {
    match action {
        "deleteResourceQuota" => &[Quota("patch")],
        _ => &[Quota("patch"), All("create", HARVESTER, "resourcequotas")],
    }
}

fn of_claim(action: &str) -> &'static [RequiredRight] {
    match action {
        "export" => &[All("create", HARVESTER, "virtualmachineimages")],
        "snapshot" => &[All("create", "snapshot.storage.k8s.io", "volumesnapshots")],
        "cancelExpand" => &[PATCH, All("list", KUBEVIRT, "virtualmachines")],
        "dataMigration" => &[
            All("create", "cdi.kubevirt.io", "datavolumes"),
            All("list", KUBEVIRT, "virtualmachines"),
            All("get", "storage.k8s.io", "storageclasses"),
        ],
        _ => &[All("create", "", "persistentvolumeclaims")],
    }
}

/// Maintenance looks at all machines and their volumes.
fn of_node(action: &str) -> &'static [RequiredRight] {
    const SURVEY: &[RequiredRight] = &[
        LIST_NODES,
        LIST_INSTANCES,
        All("list", KUBEVIRT, "virtualmachines"),
        All("list", "", "persistentvolumes"),
        All("list", LONGHORN, "engines"),
        All("list", LONGHORN, "replicas"),
    ];
    const REQUEST: &[RequiredRight] =
        &[PATCH, SURVEY[0], SURVEY[1], SURVEY[2], SURVEY[3], SURVEY[4], SURVEY[5]];
    match action {
        "listUnhealthyVM" => SURVEY,
        "maintenancePossible" => &[LIST_NODES],
        "powerActionPossible" => &[Object("get")],
        "enableMaintenanceMode" => REQUEST,
        "enableCPUManager" | "disableCPUManager" => &[PATCH, LIST_INSTANCES],
        _ => &[PATCH],
    }
}
