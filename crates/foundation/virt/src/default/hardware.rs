//! Processors, machine, features and reservations.

use serde_json::{Value, json};
use types::Quantity;

use super::{array, fill, object};
use crate::config::ClusterConfig;
use crate::memory::read;
use crate::state::text;

pub(super) fn default_architecture(spec: &mut Value, config: &ClusterConfig) {
    fill(spec, "architecture", || config.default_architecture().into());
}

/// Whether devices can be added while the guest runs because its bus is PCIe.
pub(super) fn has_pcie(spec: &Value) -> bool {
    let machine = text(spec, "/domain/machine/type");
    matches!(text(spec, "/architecture"), "amd64" | "arm64" | "")
        && (machine.is_empty() || machine.contains("q35") || machine.starts_with("virt"))
}

/// A guest with a limit of processors and no request requests as many.
pub(super) fn default_requests(spec: &mut Value, config: &ClusterConfig) {
    let dedicated = spec["domain"]["cpu"]["dedicatedCpuPlacement"] == true;
    let resources = &spec["domain"]["resources"];
    let limit = resources["limits"]["cpu"].clone();
    let requested = !resources["requests"]["cpu"].is_null();
    if !limit.is_null() && !requested {
        object(object(object(spec, "domain"), "resources"), "requests")["cpu"] = limit;
    } else if !requested
        && !dedicated
        && let Some(request) = config.cpu_request()
        && request != Quantity::from_millis(100)
    {
        object(object(object(spec, "domain"), "resources"), "requests")["cpu"] =
            request.to_string().into();
    }
}

/// A guest without a topology gets as many sockets as processors are limited or requested.
pub(super) fn default_topology(spec: &mut Value) {
    let cpu = &spec["domain"]["cpu"];
    let is_set = |part: &str| cpu[part].as_u64().is_some_and(|number| number > 0);
    if ["cores", "sockets", "threads"].into_iter().any(is_set) {
        return;
    }
    let resources = &spec["domain"]["resources"];
    let wanted = [&resources["limits"]["cpu"], &resources["requests"]["cpu"]];
    let wanted = wanted.into_iter().find_map(read);
    let sockets = wanted.map_or(1, |amount| amount.units()).max(1);
    let cpu = object(object(spec, "domain"), "cpu");
    cpu["sockets"] = sockets.into();
    cpu["cores"] = 1.into();
    cpu["threads"] = 1.into();
}

pub(super) fn default_cpu_model(spec: &mut Value, config: &ClusterConfig) {
    fill(object(object(spec, "domain"), "cpu"), "model", || config.cpu_model().into());
}

/// The most virtual processors that any machine type has.
const MOST_PROCESSORS: u32 = 512;

/// How many sockets can be added while the guest runs.
pub(super) fn default_max_sockets(spec: &mut Value, config: &ClusterConfig) {
    let cpu = object(object(spec, "domain"), "cpu");
    let number = |part: &str| {
        cpu[part].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    };
    if number("maxSockets") > 0 {
        return;
    }
    let (sockets, per_socket) =
        (number("sockets"), number("cores").max(1) * number("threads").max(1));
    let most = match config.max_cpu_sockets() {
        0 => {
            let most = sockets.saturating_mul(config.max_hotplug_ratio());
            if most.saturating_mul(per_socket) > MOST_PROCESSORS {
                (MOST_PROCESSORS / per_socket).max(sockets)
            } else {
                most
            }
        }
        most => most.max(sockets),
    };
    cpu["maxSockets"] = most.into();
}

/// Features that are mentioned are on, and so is what they need.
pub(super) fn default_features(spec: &mut Value) {
    let features = object(object(spec, "domain"), "features");
    fill(object(features, "acpi"), "enabled", || true.into());
    for feature in ["apic", "smm", "pvspinlock", "hypervPassthrough"] {
        enable(features, feature);
    }
    if features["hyperv"].is_object() {
        default_hyperv(&mut features["hyperv"]);
    }
    for timer in ["hpet", "kvm", "pit", "rtc", "hyperv"] {
        if let Some(timer) = spec.pointer_mut(&format!("/domain/clock/timer/{timer}")) {
            fill(timer, "present", || true.into());
        }
    }
    if spec["domain"]["features"]["hyperv"]["evmcs"]["enabled"] == true {
        require_vmx(spec);
    }
}

fn enable(features: &mut Value, feature: &str) {
    if features[feature].is_object() {
        fill(&mut features[feature], "enabled", || true.into());
    }
}

const HYPERV: &[&str] = &[
    "evmcs",
    "frequencies",
    "ipi",
    "reenlightenment",
    "relaxed",
    "reset",
    "runtime",
    "spinlocks",
    "synic",
    "synictimer",
    "tlbflush",
    "vapic",
    "vendorid",
    "vpindex",
];

/// The dependencies of the enlightenments; those that need others are first.
pub(crate) const HYPERV_NEEDS: &[(&str, &str)] = &[
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
];

fn default_hyperv(hyperv: &mut Value) {
    for feature in HYPERV {
        enable(hyperv, feature);
    }
    if hyperv["spinlocks"]["enabled"] == true {
        fill(&mut hyperv["spinlocks"], "spinlocks", || 4096.into());
    }
    if hyperv["synictimer"]["direct"].is_object() {
        fill(&mut hyperv["synictimer"]["direct"], "enabled", || true.into());
    }
    for (feature, needed) in HYPERV_NEEDS {
        if hyperv[feature]["enabled"] == true && hyperv[needed]["enabled"].is_null() {
            object(hyperv, needed)["enabled"] = true.into();
        }
    }
}

fn require_vmx(spec: &mut Value) {
    let features = array(object(object(spec, "domain"), "cpu"), "features");
    match features.iter_mut().find(|feature| feature["name"] == "vmx") {
        Some(known) => known["policy"] = "require".into(),
        None => features.push(json!({"name": "vmx", "policy": "require"})),
    }
}
