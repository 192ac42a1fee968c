//! Defaults that are written into objects when they are created, as upstream's mutating webhooks
//! do. A machine keeps its template nearly as it was written; an instance is completed, so that
//! its node finds every choice made.

mod device;
mod hardware;
mod preset;
mod quantity;

use serde_json::{Map, Value, json};

use crate::config::{ClusterConfig, EVEN_PARITY};
use crate::memory;
use crate::state::text;

pub(crate) use device::{default_interface, default_volume_disks};
pub(crate) use hardware::HYPERV_NEEDS;
pub(crate) use preset::apply_presets;
pub(crate) use quantity::write_fractions_as_amounts;

/// A network that cannot be added by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultError {
    #[error("bridge interface is not enabled in kubevirt-config")]
    BridgeNotPermitted,
    #[error("slirp interface is deprecated as of v1.3")]
    Slirp,
}

/// Which PCI topology a guest has.
pub const PCI_TOPOLOGY: &str = "kubevirt.io/pci-topology-version";
/// How many slots of interfaces that topology has.
pub const PCI_SLOT_COUNT: &str = "kubevirt.io/pci-interface-slot-count";

/// Defaults of a machine. `created` distinguishes a new machine from an update; `uuid`
/// gives a new random one each time.
pub fn default_machine(
    vm: &mut Value,
    created: bool,
    config: &ClusterConfig,
    uuid: &mut dyn FnMut() -> String,
) {
    if vm["metadata"]["deletionTimestamp"].is_string() || !vm["spec"]["template"].is_object() {
        return;
    }
    let template = &mut vm["spec"]["template"];
    let spec = object(template, "spec");
    if created {
        let firmware = object(object(spec, "domain"), "firmware");
        fill(firmware, "uuid", || uuid().into());
        fill(firmware, "serial", || uuid().into());
    }
    device::default_network_interfaces(spec);
    hardware::default_architecture(spec, config);
    let machine = config.machine_type(text(spec, "/architecture")).to_owned();
    fill(object(object(spec, "domain"), "machine"), "type", || machine.into());
    if created && hardware::has_pcie(spec) {
        fill(object(object(template, "metadata"), "annotations"), PCI_TOPOLOGY, || "v3".into());
    }
}

/// Defaults of an instance that is created.
pub fn default_instance(
    vmi: &mut Value,
    config: &ClusterConfig,
    now: &str,
    uuid: &mut dyn FnMut() -> String,
) -> Result<(), DefaultError> {
    let spec = object(vmi, "spec");
    default_instance_spec(spec, config)?;
    let firmware = object(object(spec, "domain"), "firmware");
    fill(firmware, "uuid", || uuid().into());
    device::default_devices(spec);
    hardware::default_features(spec);
    hardware::default_cpu_model(spec, config);
    let guest = spec["domain"]["memory"]["guest"].clone();
    let cpu = spec["domain"]["cpu"].clone();
    if config.updates_live() && text(spec, "/architecture") != "arm64" {
        hardware::default_max_sockets(spec, config);
        memory::default_max_guest(spec, config);
    }
    let pcie = hardware::has_pcie(spec);
    let isolated = spec["domain"]["cpu"]["isolateEmulatorThread"] == true;
    let metadata = object(vmi, "metadata");
    if pcie {
        fill(object(metadata, "annotations"), PCI_TOPOLOGY, || "v3".into());
    }
    if isolated && config.evens_emulator_threads() {
        fill(object(metadata, "annotations"), EVEN_PARITY, || "".into());
    }
    add_finalizer(metadata, "kubevirt.io/foregroundDeleteVirtualMachine");
    let status = object(vmi, "status");
    if !guest.is_null() {
        status["memory"] =
            json!({"guestAtBoot": guest, "guestCurrent": guest, "guestRequested": guest});
    }
    if !status["currentCPUTopology"].is_object() {
        // Fields that the specification does not set stay unset; the node fills them in.
        let known =
            ["cores", "sockets", "threads"].into_iter().filter(|part| !cpu[*part].is_null());
        status["currentCPUTopology"] =
            known.map(|part| (part.to_owned(), cpu[part].clone())).collect::<Map<_, _>>().into();
    }
    if !config.has("Root") {
        status["runtimeUser"] = 107.into();
    }
    status["phase"] = "Pending".into();
    let transition = json!({"phase": "Pending", "phaseTransitionTimestamp": now});
    array(status, "phaseTransitionTimestamps").push(transition);
    Ok(())
}

/// Defaults that hold for an instance and, while it is being judged, for a machine's template.
pub fn default_instance_spec(spec: &mut Value, config: &ClusterConfig) -> Result<(), DefaultError> {
    hardware::default_architecture(spec, config);
    let machine = config.machine_type(text(spec, "/architecture")).to_owned();
    fill(object(object(spec, "domain"), "machine"), "type", || machine.into());
    hardware::default_requests(spec, config);
    memory::default_guest(spec);
    hardware::default_topology(spec);
    device::default_pull_policies(spec);
    if let Some(strategy) = config.eviction_strategy() {
        fill(spec, "evictionStrategy", || strategy.into());
    }
    device::default_network_interfaces(spec);
    default_interface(spec, config)?;
    default_volume_disks(spec);
    Ok(())
}

/// Marks a new migration with the name of its instance.
pub fn default_migration(migration: &mut Value) {
    let name = migration["spec"]["vmiName"].clone();
    let metadata = object(migration, "metadata");
    object(metadata, "labels")["kubevirt.io/vmi-name"] = name;
    add_finalizer(metadata, "kubevirt.io/migrationJobFinalize");
}

fn add_finalizer(metadata: &mut Value, finalizer: &str) {
    let finalizers = array(metadata, "finalizers");
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.into());
    }
}

/// The object in a field, which is made if there is none.
pub(crate) fn object<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    let inner = &mut value[field];
    if !inner.is_object() {
        *inner = json!({});
    }
    inner
}

/// The list in a field, which is made if there is none.
pub(crate) fn array<'a>(value: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    let inner = &mut value[field];
    if !inner.is_array() {
        *inner = json!([]);
    }
    inner.as_array_mut().expect("it was just made a list")
}

/// The items of a list that may be absent.
pub(crate) fn items<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a field that is absent or empty text.
pub(crate) fn fill(value: &mut Value, field: &str, default: impl FnOnce() -> Value) {
    if value[field].is_null() || value[field] == "" {
        value[field] = default();
    }
}

#[cfg(test)]
mod tests;
