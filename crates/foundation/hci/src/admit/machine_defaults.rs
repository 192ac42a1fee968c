//! Harvester's defaults of machines: requests by the overcommit of the cluster, the memory of the
//! guest, processors, addresses of interfaces, the grace period and the run strategy.

use serde_json::{Map, Value, json};
use types::Quantity;

use super::machine::{RESERVED_MEMORY, is_harvesters};
use super::machine_devices::reserved_memory;
use super::{HARVESTER, Refusal, Write, text};
use crate::cluster_setting::effective;

const HOTPLUG: &str = "/metadata/annotations/harvesterhci.io~1enableCPUAndMemoryHotplug";
const RUN_STRATEGY: &str = "/metadata/annotations/harvesterhci.io~1vmRunStrategy";
const MIB: i64 = 1 << 20;
/// QEMU gets this much of a machine's memory where no ratio adds it on top.
const RESERVED_FOR_QEMU: i64 = 100 * MIB;
const LEAST_GUEST_MEMORY: i64 = 10 * MIB;
const NETWORK_KEY: &str = "network.harvesterhci.io";
const CPU_MANAGER_KEY: &str = "cpumanager";

pub(super) fn complete(write: &Write<'_>, machine: &mut Value) -> Result<(), Refusal> {
    let dying = !machine["metadata"]["deletionTimestamp"].is_null();
    if dying || !is_harvesters(machine) || !machine["spec"]["template"]["spec"].is_object() {
        return Ok(());
    }
    if write.old.is_none_or(|old| sizing(old) != sizing(machine)) {
        size(write, machine)?;
    }
    complete_processors(machine);
    restore_run_strategy(write, machine);
    note_run_strategy(machine);
    complete_affinity(write, machine);
    complete_grace_period(write, machine);
    complete_addresses(write, machine);
    Ok(())
}

fn setting(write: &Write<'_>, name: &str) -> String {
    effective(name, write.objects.get(HARVESTER, "settings", "", name).as_ref())
}

fn quantity(value: &Value) -> Option<Quantity> {
    Quantity::from_json(value).ok().filter(|amount| !amount.is_zero())
}

fn is_dedicated(machine: &Value) -> bool {
    machine.pointer("/spec/template/spec/domain/cpu/dedicatedCpuPlacement")
        == Some(&Value::Bool(true))
}

fn has_host_devices(machine: &Value) -> bool {
    let devices = &machine["spec"]["template"]["spec"]["domain"]["devices"];
    ["hostDevices", "gpus"]
        .iter()
        .any(|kind| devices[*kind].as_array().is_some_and(|all| !all.is_empty()))
}

/// The inputs for the requests and the memory of the guest.
fn sizing(machine: &Value) -> (Option<Quantity>, Option<Quantity>, String, bool, bool) {
    let limits = &machine["spec"]["template"]["spec"]["domain"]["resources"]["limits"];
    let reserved = text(machine, RESERVED_MEMORY).to_owned();
    let (dedicated, devices) = (is_dedicated(machine), has_host_devices(machine));
    (quantity(&limits["cpu"]), quantity(&limits["memory"]), reserved, dedicated, devices)
}

/// Requests from limits and the overcommit, and the memory of the guest.
fn size(write: &Write<'_>, machine: &mut Value) -> Result<(), Refusal> {
    let (cpu, memory, _, dedicated, devices) = sizing(machine);
    let overcommit: Value =
        serde_json::from_str(&setting(write, "overcommit-config")).unwrap_or_default();
    let percent = |name: &str| overcommit[name].as_i64().filter(|all| *all > 0).unwrap_or(100);
    let mut requests = Map::new();
    if let Some(cpu) = cpu {
        let millis = match dedicated {
            true => cpu.millis(),
            false => cpu.millis().saturating_mul(100) / percent("cpu"),
        };
        requests.insert("cpu".into(), Quantity::from_millis(millis).to_string().into());
    }
    if let Some(memory) = memory {
        let guest = guest_memory(write, machine, &memory)?;
        let request = match (dedicated, devices) {
            (true, _) => memory.units(),
            (false, true) => guest,
            // By way of MiB, so that nothing overflows.
            (false, false) => {
                let bytes = i128::from(memory.units()) * 100 / i128::from(percent("memory"));
                i64::try_from(bytes).unwrap_or(i64::MAX) / MIB * MIB
            }
        };
        requests.insert("memory".into(), Quantity::from_bytes(request).to_string().into());
        let domain = &machine["spec"]["template"]["spec"]["domain"];
        if domain["memory"]["guest"].is_null() || !hotplugs(machine) {
            set(machine, "memory", "guest", Quantity::from_bytes(guest).to_string().into());
        }
        if !hotplugs(machine) && !cfg!(target_arch = "aarch64") {
            let sockets = machine.pointer("/spec/template/spec/domain/cpu/sockets");
            let sockets = sockets.and_then(Value::as_u64).filter(|sockets| *sockets > 0);
            set(machine, "cpu", "maxSockets", sockets.unwrap_or(1).into());
        }
    }
    for (name, amount) in requests {
        let resources = &mut machine["spec"]["template"]["spec"]["domain"]["resources"];
        if !resources["requests"].is_object() {
            resources["requests"] = json!({});
        }
        resources["requests"][name] = amount;
    }
    Ok(())
}

fn hotplugs(machine: &Value) -> bool {
    text(machine, HOTPLUG) == "true"
}

/// Sets a field of a part of the domain.
fn set(machine: &mut Value, part: &str, field: &str, value: Value) {
    let domain = &mut machine["spec"]["template"]["spec"]["domain"];
    if !domain[part].is_object() {
        domain[part] = json!({});
    }
    domain[part][field] = value;
}

fn guest_memory(write: &Write<'_>, machine: &Value, memory: &Quantity) -> Result<i64, Refusal> {
    let reserved = reserved_memory(machine, memory)?;
    let ratio: f64 =
        setting(write, "additional-guest-memory-overhead-ratio").parse().unwrap_or(0.0);
    // Where a ratio adds the memory of QEMU on top, nothing is taken from the guest.
    let reserved = reserved.unwrap_or(if ratio == 0.0 { RESERVED_FOR_QEMU } else { 0 });
    let own = quantity(&machine["spec"]["template"]["spec"]["domain"]["memory"]["guest"]);
    let whole = own.filter(|_| hotplugs(machine)).map_or(memory.units(), |own| own.units());
    let guest = whole.saturating_sub(reserved);
    if guest < LEAST_GUEST_MEMORY {
        let message = format!(
            "guest memory is under the minimum requirement (10 Mi), original: {whole}, final: {guest}"
        );
        return Err(Refusal::invalid("spec.template.spec.domain.resources.limits.memory", message));
    }
    Ok(guest)
}

fn complete_processors(machine: &mut Value) {
    for field in ["cores", "sockets", "threads"] {
        let pointer = format!("/spec/template/spec/domain/cpu/{field}");
        if machine.pointer(&pointer).and_then(Value::as_u64).unwrap_or(0) == 0 {
            set(machine, "cpu", field, 1.into());
        }
    }
}

/// A machine that is started again runs as it did before it was stopped.
fn restore_run_strategy(write: &Write<'_>, machine: &mut Value) {
    let Some(old) = write.old else { return };
    let now = text(machine, "/spec/runStrategy");
    if text(old, "/spec/runStrategy") != "Halted" || matches!(now, "" | "Halted") {
        return;
    }
    let before = match text(machine, RUN_STRATEGY) {
        "" | "Halted" => "RerunOnFailure",
        before => before,
    };
    machine["spec"]["runStrategy"] = before.to_owned().into();
}

/// How the machine runs, for when it is started again.
fn note_run_strategy(machine: &mut Value) {
    let strategy = text(machine, "/spec/runStrategy").to_owned();
    if matches!(&*strategy, "" | "Halted") {
        return;
    }
    if !machine["metadata"]["annotations"].is_object() {
        machine["metadata"]["annotations"] = json!({});
    }
    machine["metadata"]["annotations"]["harvesterhci.io/vmRunStrategy"] = strategy.into();
}

fn complete_grace_period(write: &Write<'_>, machine: &mut Value) {
    let spec = &mut machine["spec"]["template"]["spec"];
    if spec["terminationGracePeriodSeconds"].is_null()
        && let Ok(seconds) =
            setting(write, "default-vm-termination-grace-period-seconds").parse::<i64>()
    {
        spec["terminationGracePeriodSeconds"] = seconds.into();
    }
}

/// New interfaces get an address that stays: guests know their networks by it. One that the machine
/// had without an address keeps the one that its node chose.
fn complete_addresses(write: &Write<'_>, machine: &mut Value) {
    let path = "/spec/template/spec/domain/devices/interfaces";
    let had = |name: &Value| {
        let old = write.old.and_then(|old| old.pointer(path)).and_then(Value::as_array);
        old.into_iter().flatten().any(|interface| interface["name"] == *name)
    };
    let interfaces = machine.pointer_mut(path).and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        let without = interface["macAddress"].as_str().is_none_or(str::is_empty);
        if without && !had(&interface["name"]) {
            interface["macAddress"] = mac_address(&(write.uuid)()).into();
        }
    }
}

/// A locally administered unicast address of random digits.
fn mac_address(uuid: &str) -> String {
    let mut digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    // The digits at 12 and 16 of a UUID are not random.
    digits.truncate(12);
    digits.resize(12, '0');
    if let Some(second) = digits.get_mut(1) {
        let bits = second.to_digit(16).unwrap_or(0) & 0b1100 | 0b0010;
        *second = char::from_digit(bits, 16).unwrap_or('2');
    }
    let pairs: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    pairs.join(":").to_lowercase()
}

/// Machines go to nodes that have their networks, and pinned ones to nodes that pin.
fn complete_affinity(write: &Write<'_>, machine: &mut Value) {
    let required = required_keys(write, machine);
    let spec = &mut machine["spec"]["template"]["spec"];
    if required.is_empty() && spec["affinity"]["nodeAffinity"].is_null() {
        return;
    }
    let node =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = spec.pointer(node).and_then(Value::as_array).cloned().unwrap_or_default();
    let is_ours = |expression: &Value| {
        let key = expression["key"].as_str().unwrap_or_default();
        key.starts_with(NETWORK_KEY) || key == CPU_MANAGER_KEY
    };
    let mut kept = Vec::new();
    for mut term in terms {
        let had = term["matchExpressions"].as_array().cloned().unwrap_or_default();
        let own: Vec<Value> = had.iter().filter(|own| !is_ours(own)).cloned().collect();
        if own.is_empty() && term["matchFields"].as_array().is_none_or(Vec::is_empty) {
            continue;
        }
        term["matchExpressions"] = own.into();
        kept.push(term);
    }
    if kept.is_empty() && !required.is_empty() {
        kept.push(json!({"matchExpressions": []}));
    }
    for term in &mut kept {
        if let Some(all) = term["matchExpressions"].as_array_mut() {
            let wanted = |key: &String| json!({"key": key, "operator": "In", "values": ["true"]});
            all.extend(required.iter().map(wanted));
        }
    }
    write_terms(spec, kept);
}

fn write_terms(spec: &mut Value, terms: Vec<Value>) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    if !terms.is_empty() {
        spec["affinity"]["nodeAffinity"][required] = json!({"nodeSelectorTerms": terms});
        return;
    }
    let Some(node) = spec["affinity"]["nodeAffinity"].as_object_mut() else { return };
    node.remove(required);
    let is_empty = node.is_empty();
    if let Some(affinity) = spec["affinity"].as_object_mut().filter(|_| is_empty) {
        affinity.remove("nodeAffinity");
    }
}

/// The labels that a node has to have for a machine.
fn required_keys(write: &Write<'_>, machine: &Value) -> Vec<String> {
    let networks = machine.pointer("/spec/template/spec/networks").and_then(Value::as_array);
    let mut keys = Vec::new();
    for network in networks.into_iter().flatten() {
        let name = text(network, "/multus/networkName");
        let (namespace, name) = name.split_once('/').unwrap_or((write.namespace, name));
        let plural = "network-attachment-definitions";
        let Some(definition) = write.objects.get("k8s.cni.cncf.io", plural, namespace, name) else {
            continue;
        };
        let cluster = text(&definition, "/metadata/labels/network.harvesterhci.io~1clusternetwork");
        let key = format!("{NETWORK_KEY}/{cluster}");
        // Every node has the network that it is managed by.
        if !matches!(cluster, "" | "mgmt") && !keys.contains(&key) {
            keys.push(key);
        }
    }
    if is_dedicated(machine) {
        keys.push(CPU_MANAGER_KEY.to_owned());
    }
    keys
}

#[cfg(test)]
mod tests;
