//! Validation of objects, with upstream's messages and field paths. Rules that a schema can
//! express are there; here are those that relate fields to each other, to the old object, to the
//! cluster's configuration and to other objects. [`mutate`] runs first and completes the object,
//! then the schema, then [`admit`].

mod cause;
mod claim;
mod clone;
mod clone_source;
mod credential;
mod disk;
mod firmware;
mod hotplug;
mod import_cron;
mod instance;
mod machine;
mod migration;
mod mutate;
mod name;
mod network;
mod patch;
mod probe;
mod processor;
mod restore;
mod set;
mod size;
mod spec;
mod storage;
mod volume;

use serde_json::Value;

use crate::config::ClusterConfig;

pub use crd::lookup::Objects;

pub use cause::{Cause, Denial};
pub(crate) use cause::{Causes, read};
pub use clone_source::{AUTHORIZED_SOURCE, Access, covers};
pub use mutate::{MutationContext, mutate};

/// A write that is to be judged.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    pub object: &'a Value,
    /// The object before, if it is an update.
    pub old: Option<&'a Value>,
    /// The namespace of the request, for objects that do not name theirs.
    pub namespace: &'a str,
    /// The writer is one of the cluster's own controllers or agents.
    pub trusted: bool,
    pub config: &'a ClusterConfig,
    pub objects: &'a dyn Objects,
    pub access: &'a dyn Access,
}

impl std::fmt::Debug for Write<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Write")
            .field("object", self.object)
            .field("old", &self.old)
            .field("namespace", &self.namespace)
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}

/// The kinds of `RULES` whose subresources are judged by the same rules.
const WHOLE: [(&str, &str); 1] = [("", "persistentvolumeclaims")];

/// Whether writes to the subresources of a kind have to be judged like writes to the object:
/// upstream lets them change annotations, too.
pub fn judges_subresources(group: &str, plural: &str) -> bool {
    WHOLE.contains(&(group, plural))
}

type AdmissionCheck = fn(&Write<'_>) -> Result<Vec<String>, Denial>;

/// Group, plural, the webhooks for creation and update, and the rules.
const RULES: &[(&str, &str, &str, &str, AdmissionCheck)] = &[
    (
        "kubevirt.io",
        "virtualmachines",
        "virtualmachine-validator.kubevirt.io",
        "virtualmachine-validator.kubevirt.io",
        machine::validate,
    ),
    (
        "kubevirt.io",
        "virtualmachineinstances",
        "virtualmachineinstances-create-validator.kubevirt.io",
        "virtualmachineinstances-update-validator.kubevirt.io",
        instance::validate,
    ),
    (
        "kubevirt.io",
        "virtualmachineinstancereplicasets",
        "virtualmachinereplicaset-validator.kubevirt.io",
        "virtualmachinereplicaset-validator.kubevirt.io",
        set::validate_replica_set,
    ),
    (
        "kubevirt.io",
        "virtualmachineinstancepresets",
        "virtualmachinepreset-validator.kubevirt.io",
        "virtualmachinepreset-validator.kubevirt.io",
        set::validate_preset,
    ),
    (
        "pool.kubevirt.io",
        "virtualmachinepools",
        "virtualmachinepool-validator.kubevirt.io",
        "virtualmachinepool-validator.kubevirt.io",
        set::validate_pool,
    ),
    (
        "kubevirt.io",
        "virtualmachineinstancemigrations",
        "migration-create-validator.kubevirt.io",
        "migration-update-validator.kubevirt.io",
        migration::validate,
    ),
    (
        "migrations.kubevirt.io",
        "migrationpolicies",
        "migration-policy-validator.kubevirt.io",
        "migration-policy-validator.kubevirt.io",
        migration::validate_policy,
    ),
    (
        "instancetype.kubevirt.io",
        "virtualmachineinstancetypes",
        "virtualmachineinstancetype-validator.instancetype.kubevirt.io",
        "virtualmachineinstancetype-validator.instancetype.kubevirt.io",
        size::validate_instancetype,
    ),
    (
        "instancetype.kubevirt.io",
        "virtualmachineclusterinstancetypes",
        "virtualmachineclusterinstancetype-validator.instancetype.kubevirt.io",
        "virtualmachineclusterinstancetype-validator.instancetype.kubevirt.io",
        size::validate_instancetype,
    ),
    (
        "instancetype.kubevirt.io",
        "virtualmachinepreferences",
        "virtualmachinepreference-validator.instancetype.kubevirt.io",
        "virtualmachinepreference-validator.instancetype.kubevirt.io",
        size::validate_preference,
    ),
    (
        "instancetype.kubevirt.io",
        "virtualmachineclusterpreferences",
        "virtualmachineclusterpreference-validator.instancetype.kubevirt.io",
        "virtualmachineclusterpreference-validator.instancetype.kubevirt.io",
        size::validate_preference,
    ),
    (
        "kubevirt.io",
        "kubevirts",
        "kubevirt-create-validator.kubevirt.io",
        "kubevirt-update-validator.kubevirt.io",
        storage::validate_kubevirt,
    ),
    (
        "cdi.kubevirt.io",
        "datavolumes",
        "datavolume-validate.cdi.kubevirt.io",
        "datavolume-validate.cdi.kubevirt.io",
        storage::validate_data_volume,
    ),
    (
        "cdi.kubevirt.io",
        "dataimportcrons",
        "dataimportcron-validate.cdi.kubevirt.io",
        "dataimportcron-validate.cdi.kubevirt.io",
        import_cron::validate,
    ),
    (
        "snapshot.kubevirt.io",
        "virtualmachinesnapshots",
        "virtualmachinesnapshot-validator.snapshot.kubevirt.io",
        "virtualmachinesnapshot-validator.snapshot.kubevirt.io",
        storage::validate_snapshot,
    ),
    (
        "snapshot.kubevirt.io",
        "virtualmachinerestores",
        "virtualmachinerestore-validator.snapshot.kubevirt.io",
        "virtualmachinerestore-validator.snapshot.kubevirt.io",
        restore::validate,
    ),
    (
        "clone.kubevirt.io",
        "virtualmachineclones",
        "vm-clone-validator.kubevirt.io",
        "vm-clone-validator.kubevirt.io",
        clone::validate,
    ),
    (
        "",
        "persistentvolumeclaims",
        "persistentvolumeclaim-validate.cdi.kubevirt.io",
        "persistentvolumeclaim-validate.cdi.kubevirt.io",
        claim::judge,
    ),
    (
        "export.kubevirt.io",
        "virtualmachineexports",
        "virtualmachineexport-validator.export.kubevirt.io",
        "virtualmachineexport-validator.export.kubevirt.io",
        storage::validate_export,
    ),
];

/// Judges a write to the main resource. Returns warnings for the client. Kinds without rules
/// of their own are taken as they are.
pub fn admit(group: &str, plural: &str, write: &Write<'_>) -> Result<Vec<String>, Denial> {
    let rule = RULES.iter().find(|(known, name, ..)| *known == group && *name == plural);
    let Some((.., create, update, judge)) = rule else { return Ok(Vec::new()) };
    let webhook = if write.old.is_some() { update } else { create };
    judge(write).map_err(|denial| denial.by(webhook))
}

/// Judges a write to the status of a machine.
pub fn admit_machine_status(write: &Write<'_>) -> Result<(), Denial> {
    machine::validate_status(write)
        .map_err(|denial| denial.by("virtualmachine-validator.kubevirt.io"))
}

/// Resets the status of an instance, if a client other than the cluster writes it: to the old or
/// no status. There is no status subresource that could separate them, and addresses in the status
/// become endpoints of services.
pub fn keep_instance_status(new: &mut Value, old: Option<&Value>, trusted: bool) {
    if trusted {
        return;
    }
    let kept = old.map_or(Value::Null, |old| old["status"].clone());
    match new.as_object_mut() {
        Some(fields) if kept.is_null() => drop(fields.remove("status")),
        Some(fields) => drop(fields.insert("status".to_owned(), kept)),
        None => {}
    }
}

#[cfg(test)]
mod tests;
