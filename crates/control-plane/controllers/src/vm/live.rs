//! The part of a change of a virtual machine that reaches its running instance: pure.
//!
//! Sockets, memory, placement and volumes that can be plugged in are copied to the instance,
//! whose node makes them so. Everything else waits for a restart.

mod device;

use serde_json::{Map, Value, json};
use types::Quantity;
use virt::is_migrating;
use virt::memory::{GrowError, check_growth};

use crate::object::{int, is_deleting, quantity, text};
use crate::{condition, object};

/// Processors count this much each when the machine says how much it requests.
const MILLIS_PER_CPU: i64 = 100;

/// The result of the difference between a machine and its instance.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Update {
    /// A merge patch for the instance, if it changes.
    pub(crate) patch: Option<Value>,
    /// Why the rest needs a restart.
    pub(crate) restart: Option<String>,
}

/// How much of a change is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeScope {
    Everything,
    /// Devices that are plugged in and out. The rest has to wait for a restart anyway.
    Devices,
}

/// Compares a machine, given its template's spec with everything applied, with its instance.
/// Claims that are replaced are left to `volume_update` if the machine `migrates` them.
pub(crate) fn update(template: &Value, vmi: &Value, scope: ChangeScope, migrates: bool) -> Update {
    let mut update = Update::default();
    if is_deleting(vmi) || matches!(text(vmi, "/status/phase"), "Succeeded" | "Failed") {
        return update;
    }
    let mut spec = Map::new();
    if scope == ChangeScope::Everything && !is_migrating(vmi) {
        placement(template, vmi, &mut spec);
    }
    let mut domain = Map::new();
    let mut requests = Map::new();
    let parts: &[DomainChange] = match scope {
        ChangeScope::Everything => &[processors, memory],
        ChangeScope::Devices => &[],
    };
    for part in parts {
        match part(template, vmi) {
            Ok(Some((field, value, request))) => {
                domain.insert(field.into(), value);
                requests.extend(request);
            }
            Ok(None) => {}
            Err(reason) => update.restart = update.restart.or_else(|| Some(reason.to_string())),
        }
    }
    if !requests.is_empty() {
        domain.insert("resources".into(), json!({"requests": requests}));
    }
    if text(vmi, "/status/phase") == "Running" {
        device::volumes(template, vmi, &mut spec, &mut domain, migrates);
        device::interfaces(template, vmi, &mut spec, &mut domain);
    }
    if !domain.is_empty() {
        spec.insert("domain".into(), Value::Object(domain));
    }
    if !spec.is_empty() {
        update.patch = Some(json!({"metadata": object::version(vmi), "spec": spec}));
    }
    update
}

/// Where it may run; matters while it is being scheduled, and when it moves.
fn placement(template: &Value, vmi: &Value, spec: &mut Map<String, Value>) {
    for field in ["nodeSelector", "affinity", "tolerations"] {
        let (wanted, own) = (template.get(field), vmi["spec"].get(field));
        let meant = |value: Option<&Value>| {
            value
                .cloned()
                .filter(|value| !(value.is_null() || value == &json!({}) || value == &json!([])))
        };
        let wanted = meant(wanted);
        if wanted == meant(own) {
            continue;
        }
        let mut wanted = wanted.unwrap_or(Value::Null);
        // A merge keeps what it does not name: what is gone must be named.
        if let (Value::Object(wanted), Some(Value::Object(own))) = (&mut wanted, own) {
            for key in own.keys() {
                wanted.entry(key.clone()).or_insert(Value::Null);
            }
        }
        spec.insert(field.into(), wanted);
    }
}

/// Why a change waits for a restart, in the words of KubeVirt.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
enum RestartReason {
    #[error("CPU sockets updated in template spec to a value higher than what's available")]
    TooManySockets,
    #[error("Reduction of CPU socket count requires a restart")]
    FewerSockets,
    #[error("ARM doesn't support CPU hotplug")]
    Arm,
    #[error(
        "memory updated in template spec. Memory-hotplug failed and is not available for this VM configuration"
    )]
    HotplugFailed,
    #[error(
        "memory updated in template spec. Memory-hotplug is not available for this VM configuration"
    )]
    NoMaxGuest,
    #[error("memory hotplug not supported, {0}")]
    Growth(GrowError),
    #[error("memory updated in template spec to a value lower than what the VM started with")]
    BelowBoot,
}

/// The change of one part of the domain, if it is possible.
type DomainChange = fn(&Value, &Value) -> Result<LiveChange, RestartReason>;

/// A field of the domain, its value, and the request that follows.
type LiveChange = Option<(&'static str, Value, Option<(String, Value)>)>;

fn processors(template: &Value, vmi: &Value) -> Result<LiveChange, RestartReason> {
    let wanted = int(template, "/domain/cpu/sockets");
    let own = int(vmi, "/spec/domain/cpu/sockets");
    let (Some(wanted), Some(own)) = (wanted, own) else { return Ok(None) };
    // A change in progress is finished first; its end brings the machine back here.
    if wanted == own || condition::is(vmi, "HotVCPUChange", "True") || is_migrating(vmi) {
        return Ok(None);
    }
    if wanted > int(vmi, "/spec/domain/cpu/maxSockets").unwrap_or(own) {
        return Err(RestartReason::TooManySockets);
    }
    if wanted < own {
        return Err(RestartReason::FewerSockets);
    }
    if text(template, "/architecture") == "arm64" {
        return Err(RestartReason::Arm);
    }
    let per_socket = |pointer| int(template, pointer).filter(|count| *count > 0).unwrap_or(1);
    let added =
        (wanted - own) * per_socket("/domain/cpu/cores") * per_socket("/domain/cpu/threads");
    let request = quantity(template, "/domain/resources/requests/cpu")
        .and(quantity(vmi, "/spec/domain/resources/requests/cpu"))
        .map(|own| own + &Quantity::from_millis(added * MILLIS_PER_CPU))
        .map(|sum| ("cpu".to_owned(), json!(sum.to_string())));
    Ok(Some(("cpu", json!({"sockets": wanted}), request)))
}

fn memory(template: &Value, vmi: &Value) -> Result<LiveChange, RestartReason> {
    let wanted = quantity(template, "/domain/memory/guest");
    let own = quantity(vmi, "/spec/domain/memory/guest");
    let (Some(wanted), Some(own)) = (wanted, own) else { return Ok(None) };
    if condition::is(vmi, "HotMemoryChange", "False") {
        return Err(RestartReason::HotplugFailed);
    }
    // Until the guest runs there is nothing to plug into.
    let Some(current) = quantity(vmi, "/status/memory/guestCurrent") else { return Ok(None) };
    if wanted == own || condition::is(vmi, "HotMemoryChange", "True") || is_migrating(vmi) {
        return Ok(None);
    }
    let Some(most) = quantity(vmi, "/spec/domain/memory/maxGuest") else {
        return Err(RestartReason::NoMaxGuest);
    };
    check_growth(template, Some(&most)).map_err(RestartReason::Growth)?;
    if quantity(vmi, "/status/memory/guestAtBoot").is_some_and(|least| wanted < least) {
        return Err(RestartReason::BelowBoot);
    }
    let request = quantity(vmi, "/spec/domain/resources/requests/memory")
        .map(|own| (own + &(wanted.clone() - &current)).max(wanted.clone()))
        .map(|sum| ("memory".to_owned(), json!(sum.to_string())));
    let guest = template["domain"]["memory"]["guest"].clone();
    Ok(Some(("memory", json!({"guest": guest}), request)))
}

#[cfg(test)]
mod tests;
