//! Disks, interfaces, inputs, probes and the like.

use serde_json::{Value, json};

use super::{DefaultError, array, fill, items, object};
use crate::config::ClusterConfig;
use crate::state::{list, text};

/// An interface on the default network for a guest that says nothing about networks.
pub(crate) fn default_interface(
    spec: &mut Value,
    config: &ClusterConfig,
) -> Result<(), DefaultError> {
    let devices = &spec["domain"]["devices"];
    let described = !list(&spec["networks"]).is_empty() || !list(&devices["interfaces"]).is_empty();
    if devices["autoattachPodInterface"] == false || described {
        return Ok(());
    }
    let interface = match config.default_interface() {
        "masquerade" => json!({"name": "default", "masquerade": {}}),
        "slirp" => return Err(DefaultError::Slirp),
        _ if !config.permits_bridge_on_pod_network() => {
            return Err(DefaultError::BridgeNotPermitted);
        }
        _ => json!({"name": "default", "bridge": {}}),
    };
    object(object(spec, "domain"), "devices")["interfaces"] = json!([interface]);
    spec["networks"] = json!([{"name": "default", "pod": {}}]);
    Ok(())
}

/// Interfaces for a guest that names its networks and nothing else. Upstream refuses such a guest;
/// its meaning is clear.
pub(crate) fn default_network_interfaces(spec: &mut Value) {
    if !list(&spec["domain"]["devices"]["interfaces"]).is_empty() {
        return;
    }
    let interfaces: Vec<Value> = list(&spec["networks"])
        .iter()
        .filter_map(|network| {
            let name = &network["name"];
            match (network["multus"].is_object(), network["pod"].is_object()) {
                (true, _) => Some(json!({"name": name, "bridge": {}})),
                (_, true) => Some(json!({"name": name, "masquerade": {}})),
                _ => None,
            }
        })
        .collect();
    if !interfaces.is_empty() {
        object(object(spec, "domain"), "devices")["interfaces"] = json!(interfaces);
    }
}

/// A disk for each volume that nothing uses.
pub(crate) fn default_volume_disks(spec: &mut Value) {
    let devices = &spec["domain"]["devices"];
    let used = |name: &Value| {
        ["disks", "filesystems"]
            .iter()
            .any(|kind| list(&devices[kind]).iter().any(|device| device["name"] == *name))
    };
    let unused: Vec<Value> = list(&spec["volumes"])
        .iter()
        .map(|volume| &volume["name"])
        .filter(|name| !used(name))
        .map(|name| json!({"name": name}))
        .collect();
    if !unused.is_empty() {
        array(object(object(spec, "domain"), "devices"), "disks").extend(unused);
    }
}

pub(super) fn default_pull_policies(spec: &mut Value) {
    for volume in items(spec, "volumes") {
        let Some(disk) = volume.get_mut("containerDisk") else { continue };
        let image = text(disk, "/image");
        let moves = image.ends_with(":latest") || !image.contains([':', '@']);
        let policy = if moves { "Always" } else { "IfNotPresent" };
        fill(disk, "imagePullPolicy", || policy.into());
    }
}

/// Defaults that depend on the architecture, and those of every instance.
pub(super) fn default_devices(spec: &mut Value) {
    let bus = match text(spec, "/architecture") {
        "arm64" | "s390x" => "virtio",
        _ => "sata",
    };
    let devices = object(object(spec, "domain"), "devices");
    for disk in items(devices, "disks") {
        default_disk(disk, bus);
    }
    if devices["autoattachInputDevice"] == true && list(&devices["inputs"]).is_empty() {
        devices["inputs"] = json!([{"name": "default-0"}]);
    }
    for input in items(devices, "inputs") {
        fill(input, "bus", || "usb".into());
        fill(input, "type", || "tablet".into());
    }
    if devices["watchdog"].is_object() && bus == "sata" {
        fill(object(&mut devices["watchdog"], "i6300esb"), "action", || "reset".into());
    }
    for probe in ["readinessProbe", "livenessProbe"] {
        if let Some(probe) = spec.get_mut(probe) {
            default_probe(probe);
        }
    }
}

fn default_disk(disk: &mut Value, bus: &str) {
    let kinds = ["disk", "cdrom", "lun"];
    let kind = kinds.into_iter().find(|kind| disk[kind].is_object()).unwrap_or("disk");
    let target = object(disk, kind);
    fill(target, "bus", || bus.into());
    if kind == "cdrom" {
        fill(target, "readonly", || true.into());
        fill(target, "tray", || "closed".into());
    }
}

fn default_probe(probe: &mut Value) {
    let least = [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ];
    for (field, default) in least {
        if probe[field].as_i64().unwrap_or_default() < 1 {
            probe[field] = default.into();
        }
    }
}
