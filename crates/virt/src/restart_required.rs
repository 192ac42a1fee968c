//! Which changes of a machine reach its running guest, and which wait for a restart.
//!
//! Machines are compared as they were when the instance was made and as they are now, both
//! with their sizes applied. What can change live is taken out of the comparison; whatever
//! still differs needs a restart.

use serde_json::{Value, json};

use crate::condition;
use crate::config::ClusterConfig;
use crate::default::object;
use crate::lifecycle::is_hotpluggable;
use crate::memory::{check_growth, read};
use crate::state::{Phase, is_deleting, is_migrating, list, text};

/// The message of the condition when no better one is known.
pub const CHANGED: &str = "a non-live-updatable field was changed in the template spec";

/// Whether the difference between two specifications of a machine needs a restart.
pub fn needs_restart(
    before: &Value,
    now: &Value,
    vmi: Option<&Value>,
    config: &ClusterConfig,
) -> bool {
    let strategy = text(now, "/updateVolumesStrategy");
    let mut old = before["template"]["spec"].clone();
    let new = &now["template"]["spec"];
    if volumes_are_live(&old, new, strategy == "Migration") {
        copy(&mut old, new, "/volumes");
    }
    if disks_are_live(&old, new) {
        copy(&mut old, new, "/domain/devices/disks");
    }
    if config.updates_live() {
        if old["domain"]["cpu"].is_object() && new["domain"]["cpu"].is_object() {
            copy(&mut old, new, "/domain/cpu/sockets");
        }
        if !new["domain"]["memory"]["guest"].is_null() {
            copy(&mut old, new, "/domain/memory/guest");
        }
        for field in ["/nodeSelector", "/affinity", "/tolerations"] {
            copy(&mut old, new, field);
        }
    }
    if vmi.is_some_and(|vmi| networks_are_live(new, vmi)) {
        copy(&mut old, new, "/domain/devices/interfaces");
        copy(&mut old, new, "/networks");
    }
    let uuid = &new["domain"]["firmware"]["uuid"];
    if vmi.is_some_and(|vmi| vmi["spec"]["domain"]["firmware"]["uuid"] == *uuid) {
        copy(&mut old, new, "/domain/firmware/uuid");
    }
    old != *new
}

/// Makes a field the same in both, also if it is missing in one.
fn copy(target: &mut Value, source: &Value, pointer: &str) {
    let mut parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let Some(last) = parts.pop() else { return };
    match source.pointer(pointer) {
        Some(value) => {
            let holder = parts.into_iter().fold(target, |holder, part| object(holder, part));
            holder[last] = value.clone();
        }
        None => {
            let holder = pointer.strip_suffix(last).and_then(|path| path.strip_suffix('/'));
            if let Some(Value::Object(fields)) = target.pointer_mut(holder.unwrap_or_default()) {
                fields.remove(last);
            }
        }
    }
}

fn find<'a>(items: &'a Value, name: &Value) -> Option<&'a Value> {
    list(items).iter().find(|item| item["name"] == *name)
}

fn volumes_are_live(old: &Value, new: &Value, migrates: bool) -> bool {
    let claims = |volume: &Value| {
        volume["persistentVolumeClaim"].is_object() || volume["dataVolume"].is_object()
    };
    let kept = list(&new["volumes"]).iter().all(|volume| {
        let before = find(&old["volumes"], &volume["name"]);
        is_hotpluggable(volume)
            || before.is_some_and(|before| before == volume || (migrates && claims(volume)))
    });
    let removed = list(&old["volumes"])
        .iter()
        .filter(|volume| find(&new["volumes"], &volume["name"]).is_none());
    kept && removed.into_iter().all(is_hotpluggable)
}

fn disks_are_live(old: &Value, new: &Value) -> bool {
    let (before, after) = (&old["domain"]["devices"]["disks"], &new["domain"]["devices"]["disks"]);
    let comes_and_goes = |spec: &Value, disk: &Value| {
        find(&spec["volumes"], &disk["name"]).is_some_and(is_hotpluggable)
    };
    let kept = list(after).iter().all(|disk| {
        comes_and_goes(new, disk) || find(before, &disk["name"]).is_some_and(|old| old == disk)
    });
    let mut removed = list(before).iter().filter(|disk| find(after, &disk["name"]).is_none());
    let gone = removed.all(|disk| {
        let volume = find(&old["volumes"], &disk["name"]);
        volume.is_none_or(is_hotpluggable) && !disk["cdrom"].is_object()
    });
    kept && gone
}

/// Interfaces may be added, taken away by their state, and switched up and down.
fn networks_are_live(new: &Value, vmi: &Value) -> bool {
    let has_pod = |networks: &Value| list(networks).iter().any(|one| one["pod"].is_object());
    let (wanted, current) = (&new["networks"], &vmi["spec"]["networks"]);
    if has_pod(wanted) && !has_pod(current) {
        return false;
    }
    let movable = condition::is_true(vmi, "LiveMigratable");
    let plain = |network: &Value| {
        let mut network = network.clone();
        if movable && network["multus"].is_object() {
            network["multus"]["networkName"] = Value::Null;
        }
        network
    };
    let same_networks = list(current).iter().all(|network| {
        find(wanted, &network["name"]).is_some_and(|wanted| plain(wanted) == plain(network))
    });
    let stateless = |interface: &Value| {
        let mut interface = interface.clone();
        if let Some(fields) = interface.as_object_mut() {
            fields.remove("state");
        }
        interface
    };
    let interfaces = &new["domain"]["devices"]["interfaces"];
    same_networks
        && list(&vmi["spec"]["domain"]["devices"]["interfaces"]).iter().all(|interface| {
            find(interfaces, &interface["name"])
                .is_some_and(|wanted| stateless(wanted) == stateless(interface))
        })
}

/// What to do about a change that may be live.
#[derive(Clone, Debug, PartialEq)]
pub enum Live {
    /// A JSON patch of the instance.
    Patch(Vec<Value>),
    /// The guest has to be restarted, for this reason.
    Restart(String),
    /// Another change is under way; look again later.
    Busy(&'static str),
}

/// Processors that are added. `spec` is the machine's template with its size applied.
pub fn processors(spec: &Value, vmi: &Value, config: &ClusterConfig) -> Option<Live> {
    let (wanted, current) = (&spec["domain"]["cpu"], &vmi["spec"]["domain"]["cpu"]);
    if is_deleting(vmi) || !wanted.is_object() || !current.is_object() {
        return None;
    }
    let number = |cpu: &Value, part: &str| cpu[part].as_u64().unwrap_or_default();
    let (sockets, before) = (number(wanted, "sockets"), number(current, "sockets"));
    if sockets == before {
        return None;
    }
    if condition::is_true(vmi, "HotVCPUChange") {
        return Some(Live::Busy("another CPU hotplug is in progress"));
    }
    if is_migrating(vmi) {
        return Some(Live::Busy("CPU hotplug is not allowed while VMI is migrating"));
    }
    let restart = |why: &str| Some(Live::Restart(why.to_owned()));
    if sockets > number(current, "maxSockets") {
        return restart(
            "CPU sockets updated in template spec to a value higher than what's available",
        );
    }
    if sockets < before {
        return restart("Reduction of CPU socket count requires a restart");
    }
    if text(spec, "/architecture") == "arm64" {
        return restart("ARM doesn't support CPU hotplug");
    }
    let path = "/spec/domain/cpu/sockets";
    let mut operations = vec![test(path, &json!(before)), add(path, &json!(sockets))];
    let per_socket = number(current, "cores").max(1) * number(current, "threads").max(1);
    let added = i64::try_from((sockets - before) * per_socket).unwrap_or(i64::MAX);
    let millis = added.saturating_mul(1000 / config.cpu_allocation_ratio());
    grow(&mut operations, spec, vmi, "cpu", &types::Quantity::from_millis(millis));
    Some(Live::Patch(operations))
}

/// Memory that is added. `spec` is the machine's template with its size applied.
pub fn memory(spec: &Value, vmi: &Value) -> Option<Live> {
    let own = &vmi["spec"]["domain"]["memory"];
    let wanted = read(&spec["domain"]["memory"]["guest"])?;
    let (before, current) = (read(&own["guest"])?, read(&vmi["status"]["memory"]["guestCurrent"])?);
    if is_deleting(vmi) {
        return None;
    }
    let restart = |why: String| Some(Live::Restart(why));
    let updated = "memory updated in template spec";
    let change = condition::find(vmi, "HotMemoryChange");
    if change.is_some_and(|change| change["status"] == "False") {
        return restart(format!(
            "{updated}. Memory-hotplug failed and is not available for this VM configuration"
        ));
    }
    if wanted == before {
        return None;
    }
    if !condition::is_true(vmi, "LiveMigratable") {
        return restart(format!("{updated}. Memory-hotplug is only available for migratable VMs"));
    }
    let Some(most) = read(&own["maxGuest"]) else {
        return restart(format!(
            "{updated}. Memory-hotplug is not available for this VM configuration"
        ));
    };
    if change.is_some_and(|change| change["status"] == "True") {
        return Some(Live::Busy("another memory hotplug is in progress"));
    }
    if is_migrating(vmi) {
        return Some(Live::Busy("memory hotplug is not allowed while VMI is migrating"));
    }
    if let Err(error) = check_growth(spec, Some(&most)) {
        return restart(format!("memory hotplug not supported, {error}"));
    }
    let at_boot = read(&vmi["status"]["memory"]["guestAtBoot"]);
    if at_boot.is_some_and(|at_boot| wanted < at_boot) {
        return restart(format!("{updated} to a value lower than what the VM started with"));
    }
    let path = "/spec/domain/memory/guest";
    let mut operations = vec![test(path, &own["guest"]), add(path, &json!(wanted.to_string()))];
    grow(&mut operations, vmi_resources(vmi, spec), vmi, "memory", &(wanted.clone() - &current));
    Some(Live::Patch(operations))
}

/// Memory is requested for every guest, whatever its machine says.
fn vmi_resources<'a>(vmi: &'a Value, spec: &'a Value) -> &'a Value {
    if vmi["spec"]["domain"]["resources"]["requests"]["memory"].is_null() {
        spec
    } else {
        &vmi["spec"]
    }
}

/// Requests and limits grow with what they are for.
fn grow(
    operations: &mut Vec<Value>,
    spec: &Value,
    vmi: &Value,
    resource: &str,
    more: &types::Quantity,
) {
    for kind in ["requests", "limits"] {
        let own = &vmi["spec"]["domain"]["resources"][kind][resource];
        let is_set = !spec["domain"]["resources"][kind][resource].is_null();
        if let (true, Some(before)) = (is_set, read(own)) {
            let path = format!("/spec/domain/resources/{kind}/{resource}");
            operations.push(test(&path, own));
            operations.push(add(&path, &json!((before + more).to_string())));
        }
    }
}

/// Placement, volumes and interfaces that follow the machine's template. Nothing if the
/// instance has them already.
pub fn follow(spec: &Value, vmi: &Value, config: &ClusterConfig) -> Option<Vec<Value>> {
    if is_deleting(vmi) {
        return None;
    }
    let own = &vmi["spec"];
    let mut operations = Vec::new();
    let mut change = |path: &str, old: &Value, new: Value| {
        if *old != new && !(old.is_null() && list(&new).is_empty() && new.is_array()) {
            operations.push(test(path, old));
            operations.push(if new.is_null() {
                json!({"op": "remove", "path": path})
            } else {
                add(path, &new)
            });
        }
    };
    if config.updates_live() {
        for field in ["nodeSelector", "affinity", "tolerations"] {
            change(&format!("/spec/{field}"), &own[field], spec[field].clone());
        }
    }
    if Phase::of(vmi) == Phase::Running && config.has("DeclarativeHotplugVolumes") {
        let volumes = hotplugged(&own["volumes"], &spec["volumes"]);
        let disks = hotplugged_disks(spec, own, &volumes);
        let devices = &own["domain"]["devices"];
        change("/spec/volumes", &own["volumes"], volumes);
        change("/spec/domain/devices/disks", &devices["disks"], disks);
    }
    if networks_are_live(spec, vmi) && !list(&spec["networks"]).is_empty() {
        let devices = &own["domain"]["devices"];
        change("/spec/networks", &own["networks"], spec["networks"].clone());
        let wanted = spec["domain"]["devices"]["interfaces"].clone();
        change("/spec/domain/devices/interfaces", &devices["interfaces"], wanted);
    }
    (!operations.is_empty()).then_some(operations)
}

/// The instance's volumes without hotplugged ones that went or changed, then those that came.
fn hotplugged(own: &Value, wanted: &Value) -> Value {
    let stays = |volume: &&Value| {
        !is_hotpluggable(volume) || find(wanted, &volume["name"]).is_some_and(|new| new == *volume)
    };
    let mut volumes: Vec<Value> = list(own).iter().filter(stays).cloned().collect();
    for volume in list(wanted).iter().filter(|volume| is_hotpluggable(volume)) {
        // One that changed is taken out first and comes back when it is gone.
        if find(own, &volume["name"]).is_none() {
            volumes.push(volume.clone());
        }
    }
    Value::Array(volumes)
}

fn hotplugged_disks(spec: &Value, own: &Value, volumes: &Value) -> Value {
    let disks = &own["domain"]["devices"]["disks"];
    let stays = |disk: &&Value| {
        let was = find(&own["volumes"], &disk["name"]).is_some_and(is_hotpluggable);
        !was || disk["cdrom"].is_object() || find(volumes, &disk["name"]).is_some()
    };
    let mut kept: Vec<Value> = list(disks).iter().filter(stays).cloned().collect();
    for disk in list(&spec["domain"]["devices"]["disks"]) {
        let comes = find(volumes, &disk["name"]).is_some_and(is_hotpluggable);
        if comes && find(disks, &disk["name"]).is_none() {
            kept.push(disk.clone());
        }
    }
    Value::Array(kept)
}

fn test(path: &str, value: &Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

fn add(path: &str, value: &Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

#[cfg(test)]
mod tests;
