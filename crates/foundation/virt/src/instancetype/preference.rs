//! Applying a preference: filling what a template leaves open.

use serde_json::{Value, json};

use crate::default::{array, items, object};
use crate::state::{list, text};

pub(super) fn apply(preference: &Value, template: &mut Value) {
    let spec = object(template, "spec");
    apply_cpu(preference, spec);
    apply_devices(&preference["devices"], spec);
    apply_features(&preference["features"], spec);
    apply_firmware(&preference["firmware"], spec);
    let machine = &preference["machine"]["preferredMachineType"];
    if is_given(machine) {
        offer(object(object(spec, "domain"), "machine"), "type", machine);
    }
    apply_clock(&preference["clock"], spec);
    let fields = [
        ("preferredSubdomain", "subdomain"),
        ("preferredTerminationGracePeriodSeconds", "terminationGracePeriodSeconds"),
        ("preferredArchitecture", "architecture"),
    ];
    for (theirs, ours) in fields {
        offer(spec, ours, &preference[theirs]);
    }
    if preference["preferredLaunchSecurity"].is_object() {
        offer(object(spec, "domain"), "launchSecurity", &preference["preferredLaunchSecurity"]);
    }
    for (key, value) in preference["annotations"].as_object().into_iter().flatten() {
        offer(object(object(template, "metadata"), "annotations"), key, value);
    }
}

fn is_given(value: &Value) -> bool {
    !value.is_null() && *value != ""
}

/// Sets a field that is not set.
fn offer(target: &mut Value, field: &str, value: &Value) {
    if is_given(value) && !target.get(field).is_some_and(is_given) {
        target[field] = value.clone();
    }
}

fn apply_cpu(preference: &Value, spec: &mut Value) {
    let preferred = list(&preference["cpu"]["preferredCPUFeatures"]);
    if preferred.is_empty() {
        return;
    }
    let own = array(object(object(spec, "domain"), "cpu"), "features");
    for feature in preferred {
        if !own.iter().any(|known| known["name"] == feature["name"]) {
            own.push(feature.clone());
        }
    }
}

const AUTOMATIC: &[(&str, &str)] = &[
    ("preferredAutoattachGraphicsDevice", "autoattachGraphicsDevice"),
    ("preferredAutoattachMemBalloon", "autoattachMemBalloon"),
    ("preferredAutoattachPodInterface", "autoattachPodInterface"),
    ("preferredAutoattachSerialConsole", "autoattachSerialConsole"),
    ("preferredAutoattachInputDevice", "autoattachInputDevice"),
];

/// Devices that are added without being asked for.
pub(super) fn prefer_automatic(preference: &Value, spec: &mut Value) {
    let devices = object(object(spec, "domain"), "devices");
    for (theirs, ours) in AUTOMATIC {
        offer(devices, ours, &preference["devices"][theirs]);
    }
}

fn apply_devices(preferred: &Value, spec: &mut Value) {
    if !preferred.is_object() {
        return;
    }
    let on_pod: Vec<String> = list(&spec["networks"])
        .iter()
        .filter(|network| network["pod"].is_object())
        .map(|network| text(network, "/name").to_owned())
        .collect();
    let devices = object(object(spec, "domain"), "devices");
    let fields = [
        ("preferredUseVirtioTransitional", "useVirtioTransitional"),
        ("preferredBlockMultiQueue", "blockMultiQueue"),
        ("preferredNetworkInterfaceMultiQueue", "networkInterfaceMultiqueue"),
        ("preferredRng", "rng"),
        ("preferredTPM", "tpm"),
    ];
    for (theirs, ours) in fields.iter().chain(AUTOMATIC) {
        offer(devices, ours, &preferred[theirs]);
    }
    if !preferred["preferredDisableHotplug"].is_null() {
        devices["disableHotplug"] = preferred["preferredDisableHotplug"].clone();
    }
    if let Some(sound) = devices.get_mut("sound") {
        offer(sound, "model", &preferred["preferredSoundModel"]);
    }
    if is_given(&preferred["preferredVideoType"]) {
        offer(object(devices, "video"), "type", &preferred["preferredVideoType"]);
    }
    for disk in items(devices, "disks") {
        apply_disk(preferred, disk);
    }
    for interface in items(devices, "interfaces") {
        apply_interface(preferred, interface, &on_pod);
    }
    for input in items(devices, "inputs") {
        offer(input, "bus", &preferred["preferredInputBus"]);
        offer(input, "type", &preferred["preferredInputType"]);
    }
    let model = &preferred["preferredPanicDeviceModel"];
    if is_given(model) {
        if list(&devices["panicDevices"]).is_empty() {
            devices["panicDevices"] = json!([{"model": model}]);
        }
        for device in items(devices, "panicDevices") {
            offer(device, "model", model);
        }
    }
}

/// The ways in which an interface is bound to its network.
const BINDINGS: &[&str] =
    &["bridge", "masquerade", "sriov", "slirp", "passt", "macvtap", "passtBinding", "binding"];

/// `on_pod` are the names of the networks of the pod.
fn apply_interface(preferred: &Value, interface: &mut Value, on_pod: &[String]) {
    offer(interface, "model", &preferred["preferredInterfaceModel"]);
    let is_bound = BINDINGS.iter().any(|binding| interface[binding].is_object());
    if !is_bound && on_pod.iter().any(|name| interface["name"] == name.as_str()) {
        offer(interface, "masquerade", &preferred["preferredInterfaceMasquerade"]);
    }
}

fn apply_disk(preferred: &Value, disk: &mut Value) {
    if disk["cdrom"].is_object() {
        offer(object(disk, "cdrom"), "bus", &preferred["preferredCdromBus"]);
        return;
    }
    if disk["lun"].is_object() {
        offer(object(disk, "lun"), "bus", &preferred["preferredLunBus"]);
        return;
    }
    offer(object(disk, "disk"), "bus", &preferred["preferredDiskBus"]);
    let fields = [
        ("preferredDiskBlockSize", "blockSize"),
        ("preferredDiskCache", "cache"),
        ("preferredDiskIO", "io"),
    ];
    for (theirs, ours) in fields {
        offer(disk, ours, &preferred[theirs]);
    }
    if disk["disk"]["bus"] == "virtio" {
        offer(disk, "dedicatedIOThread", &preferred["preferredDiskDedicatedIoThread"]);
    }
}

fn apply_features(preferred: &Value, spec: &mut Value) {
    if !preferred.is_object() {
        return;
    }
    let features = object(object(spec, "domain"), "features");
    if !preferred["preferredAcpi"].is_null() {
        features["acpi"] = preferred["preferredAcpi"].clone();
    }
    let fields = [
        ("preferredApic", "apic"),
        ("preferredKvm", "kvm"),
        ("preferredPvspinlock", "pvspinlock"),
        ("preferredSmm", "smm"),
    ];
    for (theirs, ours) in fields {
        offer(features, ours, &preferred[theirs]);
    }
    for (feature, state) in preferred["preferredHyperv"].as_object().into_iter().flatten() {
        offer(object(features, "hyperv"), feature, state);
    }
}

fn apply_firmware(preferred: &Value, spec: &mut Value) {
    if !preferred.is_object() {
        return;
    }
    let boot = object(object(object(spec, "domain"), "firmware"), "bootloader");
    let open = |boot: &Value| !boot["bios"].is_object() && !boot["efi"].is_object();
    if preferred["preferredUseBios"] == true && open(boot) {
        boot["bios"] = json!({});
    }
    if let Some(bios) = boot.get_mut("bios") {
        offer(bios, "useSerial", &preferred["preferredUseBiosSerial"]);
    }
    if preferred["preferredEfi"].is_object() && open(boot) {
        boot["efi"] = preferred["preferredEfi"].clone();
        return;
    }
    if preferred["preferredUseEfi"] == true && open(boot) {
        boot["efi"] = json!({});
    }
    if let Some(efi) = boot.get_mut("efi") {
        offer(efi, "secureBoot", &preferred["preferredUseSecureBoot"]);
    }
}

fn apply_clock(preferred: &Value, spec: &mut Value) {
    if !preferred.is_object() {
        return;
    }
    let clock = object(object(spec, "domain"), "clock");
    let offset = &preferred["preferredClockOffset"];
    if clock["utc"].is_null() && clock["timezone"].is_null() {
        for field in ["utc", "timezone"] {
            offer(clock, field, &offset[field]);
        }
    }
    offer(clock, "timer", &preferred["preferredTimer"]);
}
