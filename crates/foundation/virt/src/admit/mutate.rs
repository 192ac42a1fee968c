//! Mutations of objects before they are validated: one entry for all kinds.

use serde_json::Value;

use super::{Access, Denial, Objects, clone_source, keep_instance_status};
use crate::api::record::Field as _;
use crate::config::ClusterConfig;
use crate::default::{
    apply_presets, default_instance, default_machine, default_migration, fill, items, object,
    write_fractions_as_amounts,
};
use crate::instancetype::{Sizing, infer};
use crate::state::{is_deleting, text};
use crate::v1;

/// The inputs of a mutation.
pub struct MutationContext<'a> {
    pub namespace: &'a str,
    /// The writer is one of the cluster's own controllers or agents.
    pub trusted: bool,
    pub config: &'a ClusterConfig,
    pub objects: &'a dyn Objects,
    pub access: &'a dyn Access,
    /// The time, as written in objects.
    pub now: &'a str,
    /// A new random UUID each time.
    pub uuid: &'a mut dyn FnMut() -> String,
}

impl std::fmt::Debug for MutationContext<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Surroundings")
            .field("namespace", &self.namespace)
            .field("trusted", &self.trusted)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Completes an object that is created, or updated from `old`. Kinds without defaults stay as
/// they are.
pub fn mutate(
    group: &str,
    plural: &str,
    new: &mut Value,
    old: Option<&Value>,
    around: &mut MutationContext<'_>,
) -> Result<(), Denial> {
    match (group, plural, old) {
        ("kubevirt.io", "virtualmachines", _) => machine(new, old, around)
            .map_err(|denial| denial.by("virtualmachines-mutator.kubevirt.io")),
        ("kubevirt.io", "virtualmachineinstances", None) => instance(new, around)
            .map_err(|denial| denial.by("virtualmachineinstances-mutator.kubevirt.io")),
        ("kubevirt.io", "virtualmachineinstances", Some(old)) => {
            keep_instance_status(new, Some(old), around.trusted);
            Ok(())
        }
        ("cdi.kubevirt.io", "datavolumes", _) => {
            let MutationContext { namespace, objects, access, trusted, .. } = *around;
            clone_source::authorize(new, old, namespace, objects, access, trusted)
                .map_err(|denial| denial.by("datavolume-mutate.cdi.kubevirt.io"))
        }
        ("kubevirt.io", "virtualmachineinstancemigrations", None) => {
            default_migration(new);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn machine(
    vm: &mut Value,
    old: Option<&Value>,
    around: &mut MutationContext<'_>,
) -> Result<(), Denial> {
    if is_deleting(vm) || !vm["spec"]["template"].is_object() {
        return Ok(());
    }
    write_fractions_as_amounts(vm, v1::VirtualMachine::schema);
    infer(vm, around.namespace, around.objects)
        .map_err(|error| Denial::bad_request(error.to_string()))?;
    let sizing = Sizing::find(vm, around.namespace, around.objects);
    if let Some(preference) = &sizing.preference {
        prefer(preference, &mut vm["spec"]);
    }
    default_machine(vm, old.is_none(), around.config, around.uuid);
    Ok(())
}

fn instance(vmi: &mut Value, around: &mut MutationContext<'_>) -> Result<(), Denial> {
    keep_instance_status(vmi, None, around.trusted);
    write_fractions_as_amounts(vmi, v1::VirtualMachineInstance::schema);
    let plural = "virtualmachineinstancepresets";
    let presets = around.objects.list("kubevirt.io", plural, around.namespace);
    apply_presets(vmi, presets).map_err(|conflict| Denial::unprocessable(conflict.to_string()))?;
    default_instance(vmi, around.config, around.now, around.uuid)
        .map_err(|error| Denial::bad_request(error.to_string()))
}

/// Applies the preferences that are fixed before an instance is created.
fn prefer(preference: &Value, spec: &mut Value) {
    let template = object(object(spec, "template"), "spec");
    let architecture = text(preference, "/preferredArchitecture");
    if !architecture.is_empty() {
        fill(template, "architecture", || architecture.into());
    }
    let machine = text(preference, "/machine/preferredMachineType");
    if !machine.is_empty() {
        fill(object(object(template, "domain"), "machine"), "type", || machine.into());
    }
    let class = text(preference, "/volumes/preferredStorageClassName");
    if class.is_empty() {
        return;
    }
    for volume in items(spec, "dataVolumeTemplates") {
        for target in ["/spec/pvc", "/spec/storage"] {
            if let Some(target) = volume.pointer_mut(target) {
                fill(target, "storageClassName", || class.into());
            }
        }
    }
}
